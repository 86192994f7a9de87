"""A mail as the bytes that go out: its headers, and one text. Pure.

Called by destinations.mail. The headers are written here and not by email.message, which reads what it is given: it
decodes words such as `=?utf-8?q?=0D=0A?=` in a value, and older Pythons write the line breaks that come out.
"""

import re
from collections.abc import Sequence
from email.charset import SHORTEST, Charset
from email.header import Header
from email.message import EmailMessage
from email.parser import BytesHeaderParser
from email.policy import SMTP
from email.utils import formataddr

from redrive.core.channels import WORD_BEGINS
from redrive.core.notice_text import one_line

MAX_PLAIN_CHARS = 60  # of one word: a line of a header is broken at blanks, so a longer one is encoded

Headers = Sequence[tuple[str, str]]

_SEVEN_BIT = SMTP.clone(cte_type="7bit")  # every server takes it, whatever it offers
_UTF_8 = Charset("utf-8")
_UTF_8.header_encoding = SHORTEST  # whatever others in the process made of the usual one, as apprise does
_BREAK = "\r\n"
_LINE = re.compile(rb"[\t -~]+")


def in_words(name: str, text: str) -> str:
    """A text as the value of the header `name`. Whoever reads that reads the text, even one that looks encoded."""
    line = one_line(text)
    is_plain = _is_plain(line) and all(len(word) <= MAX_PLAIN_CHARS for word in line.split(" "))
    return Header(line, "us-ascii" if is_plain else _UTF_8, header_name=name).encode(linesep=_BREAK)


def mailbox(header: str, name: str, address: str) -> str:
    """An address with a name before it."""
    return formataddr((name, address)) if _is_plain(name) else f"{in_words(header, name)}{_BREAK} <{address}>"


def in_lines(addresses: Sequence[str]) -> str:
    """Each on a line of its own: together they could be longer than a line may be."""
    return f",{_BREAK} ".join(addresses)


def written(headers: Headers, text: str) -> bytes:
    """The mail: these headers in this order, those of the text, and the text."""
    head = "".join(f"{name}: {value}{_BREAK}" for name, value in headers)
    return head.encode("ascii") + _content(text).as_bytes()


def has_only(raw: bytes, headers: Headers, text: str) -> bool:
    """Whether whoever reads it finds these headers and those of the text, each once and in this order, and no others.

    Those of the text come last: with a blank line before them they would be missing.
    """
    lines = raw.partition(b"\r\n\r\n")[0].split(b"\r\n")
    found = BytesHeaderParser().parsebytes(raw).keys()
    return all(map(_LINE.fullmatch, lines)) and found == [*(name for name, _ in headers), *_content(text)]


def _content(text: str) -> EmailMessage:
    content = EmailMessage(policy=_SEVEN_BIT)
    content.set_content(text)
    return content


def _is_plain(text: str) -> bool:
    return text.isascii() and WORD_BEGINS not in text
