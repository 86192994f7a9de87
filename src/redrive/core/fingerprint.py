"""Tell whether two failures are the same failure. Pure.

Called when a task dies; dead letters with one fingerprint are one group.
"""

import re
from hashlib import blake2b

MAX_MESSAGE_CHARS = 2_000
MAX_FIELD_CHARS = 300
FINGERPRINT_BYTES = 8
_SEPARATOR = "\x1f"

# Applied in this order to folded text: the longer forms first, since numbers would eat into them. Numbers,
# hexadecimal and made-up ids share a mark: the same field holds now one form, now the other.
# Possessive quantifiers (++, *+) keep the patterns linear on hostile messages.
_MARKS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(\b[a-z][a-z0-9+.-]{1,20}://[^\s?#\"'<>]++)[?#][^\s\"'<>]*+"), r"\1?<query>"),
    (re.compile(r"\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?::\d{1,5})?\b"), "<ip>"),
    (
        re.compile(r"\b\d{4}-\d\d-\d\d(?:[t ]\d\d:\d\d(?::\d\d)?(?:[.,]\d++)?(?: ?(?:z|utc|gmt|[+-]\d\d:?\d\d))?)?\b"),
        "<time>",
    ),
    (re.compile(r"\b\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d++)?\b(?!:)"), "<time>"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<id>"),
    (
        re.compile(
            r"(?<![\w:])(?:[0-9a-f]{1,4}:){2,7}[0-9a-f]{1,4}(?![\w:])"
            r"|(?<![\w:])(?:[0-9a-f]{1,4}:){0,6}(?:[0-9a-f]{1,4})?::(?:[0-9a-f]{1,4}:){0,6}(?:[0-9a-f]{1,4})?(?![\w:])"
        ),
        "<ip>",
    ),
    (re.compile(r"\"[^\"]*+\"|`[^`]*+`|(?<!\w)'[^']*+'(?!\w)"), "<str>"),
    (re.compile(r"\b0x[0-9a-f]++\b|\b(?=[a-f]*+[0-9])[0-9a-f]{8,}+\b"), "<n>"),
    (re.compile(r"\b(?=[a-z_]*+[0-9])\w{16,}+\b"), "<n>"),
    (re.compile(r"(?:(?<![\w>])-)?\d++(?:[.,]\d++)*"), "<n>"),
)


def normalise(message: str) -> str:
    """A message without what differs between two occurrences of one failure."""
    text = " ".join(message[:MAX_MESSAGE_CHARS].lower().split())
    for pattern, mark in _MARKS:
        text = pattern.sub(mark, text)
    return text


def fingerprint(kind: str, place: str, category: str, message: str) -> str:
    """16 hex characters that name a failure: the kind of task, where it goes, the class and the error."""
    fields = (kind[:MAX_FIELD_CHARS], place[:MAX_FIELD_CHARS], category, normalise(message))
    text = _SEPARATOR.join(field.replace(_SEPARATOR, " ") for field in fields)
    return blake2b(text.encode(errors="replace"), digest_size=FINGERPRINT_BYTES).hexdigest()
