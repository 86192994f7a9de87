"""A mail as bytes: whatever others wrote, its headers are those that were set, and it has one text."""

import json
import re
from email import policy
from email.message import EmailMessage
from email.parser import BytesParser
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as some

from redrive.core.channels import address_problem, recipients_problem
from redrive.core.mail_message import Headers, has_only, in_lines, in_words, mailbox, written
from redrive.core.notice_text import one_line, told

OF_THE_TEXT = ["Content-Type", "Content-Transfer-Encoding", "MIME-Version"]
HEADER = "=?utf-8?q?=0D=0AContent-Type:_text/html=0D=0A=0D=0A<h1>evil</h1>?="
HALF_A_PAIR = "=?unicode_escape?q?=5Cud800?="
OURS = re.compile(r"=\?utf-8\?[qb]\?[A-Za-z0-9_+/=*!-]*\?=")
ENCODED = some.builds(
    "=?{}?{}?{}?=".format,
    some.sampled_from(["utf-8", "us-ascii", "unicode_escape", "utf-7", "idna", "nothing"]),
    some.sampled_from("qQbBx"),
    some.sampled_from(["=0D=0ABcc:_e=40e.org", "=0A=0A<h1>", "=5Cud800", "DQpCY2M6IGVAZS5vcmc=", "", "é", "?"]),
)
PIECES = some.text() | ENCODED | some.sampled_from(["=", "?", "=?", "?=", " ", "\r\n", "x" * 90, "a b"])
ANYTHING = some.lists(PIECES, max_size=6).map("".join) | some.lists(PIECES, max_size=6).map(" ".join)


def parsed(raw: bytes) -> EmailMessage:
    return BytesParser(EmailMessage, policy=policy.default).parsebytes(raw)


def mail_of(text: str) -> Headers:
    return [
        ("From", mailbox("From", one_line(text)[:100], "redrive@example.com")),
        ("To", in_lines(["ops@example.com", "on-call@example.org"])),
        ("Subject", in_words("Subject", text)),
        ("X-Redrive-Event-Type", in_words("X-Redrive-Event-Type", text)),
    ]


@given(text=ANYTHING)
def test_whoever_reads_a_mail_finds_what_was_set_whatever_it_looks_like(text: str) -> None:
    headers = mail_of(text)
    raw = written(headers, "The text.\n")
    assert has_only(raw, headers, "The text.\n")
    assert raw.isascii()
    assert max(map(len, raw.split(b"\r\n"))) < 900
    read = parsed(raw)
    assert read.keys() == [*(name for name, _ in headers), *OF_THE_TEXT]
    assert read["subject"] == read["x-redrive-event-type"] == one_line(text)
    assert [sent.addr_spec for sent in read["from"].addresses] == ["redrive@example.com"]
    assert [sent.addr_spec for sent in read["to"].addresses] == ["ops@example.com", "on-call@example.org"]
    assert (read.is_multipart(), read.get_content_type(), read.get_content()) == (False, "text/plain", "The text.\r\n")


@given(kind=ANYTHING, name=ANYTHING, error=ANYTHING, is_ours=some.booleans())
def test_so_it_is_with_whatever_an_event_or_a_notice_tells(kind: str, name: str, error: str, is_ours: bool) -> None:
    notice = {"id": kind, "at": name, "org": name, "kind": kind, "severity": "error", "text": f"{name} fails: {error}"}
    body = json.dumps({**notice, "facts": {"endpoint": name, kind: error}}).encode()
    said = told("redrive.dead_letter" if is_ours else kind, UUID(int=7), body, public_url="https://r.example")
    headers = [("Subject", in_words("Subject", said.subject)), ("X-Redrive-Event-Type", in_words("X-a", kind))]
    raw = written(headers, said.text)
    assert has_only(raw, headers, said.text)
    read = parsed(raw)
    assert read.keys() == ["Subject", "X-Redrive-Event-Type", *OF_THE_TEXT]
    assert (read["subject"], read["x-redrive-event-type"]) == (said.subject, one_line(kind))
    assert (read.is_multipart(), read.get_content().replace("\r\n", "\n")) == (False, said.text)


@given(text=ANYTHING)
def test_a_word_that_others_wrote_is_in_no_header_as_they_wrote_it(text: str) -> None:
    for _, value in mail_of(text):
        for word in value.split():
            assert "=?" not in word or OURS.fullmatch(word) is not None


@pytest.mark.parametrize("text", [HEADER, HALF_A_PAIR])
def test_an_encoded_word_is_read_as_it_was_written_and_not_decoded(text: str) -> None:
    raw = written(mail_of(text), "The text.\n")
    assert parsed(raw)["subject"] == text
    assert b"evil" not in raw


@pytest.mark.parametrize(
    "more",
    ["\r\nBcc: e@e.org", "\nBcc: e@e.org", "\rBcc: e@e.org", "\r\n\r\n<h1>", "\n\n<h1>", "\r\nSubject: two", "\0"],
)
@pytest.mark.parametrize("place", range(4))
def test_a_mail_that_reads_otherwise_than_it_was_set_is_known(more: str, place: int) -> None:
    headers = [*mail_of("fine")]
    assert has_only(written(headers, "The text.\n"), headers, "The text.\n")
    name, value = headers[place]
    headers[place] = (name, f"{value}{more}")
    assert not has_only(written(headers, "The text.\n"), headers, "The text.\n")


def test_an_address_that_whoever_reads_it_would_decode_is_none() -> None:
    encoded = "=?utf-8?q?x=0D=0ABcc=3A_e=40e.org?=@example.com"
    assert address_problem(encoded) == "holds =?, which begins an encoded word where mail is read"
    assert recipients_problem(["ops@example.com", encoded]) == f"address 2 {address_problem(encoded)}"
    assert address_problem("a=b?c@example.com") is None
