"""What a page shows of payloads and answers: text as text, numbers whole, and never more than a page takes."""

import json

import pytest

from redrive.api.evidence import redacted_answer
from redrive.web import bodies
from redrive.web.bodies import MAX_BODY_CHARS, MAX_PAGE_CHARS, Body, Room


def _answer(stored: bytes, *, truncated: bool = False) -> Body:
    shown = bodies.answer(redacted_answer(stored, truncated=truncated), stored, truncated=truncated)
    assert shown is not None
    return shown


def test_json_is_laid_out_with_every_digit() -> None:
    body = b'{"a":1.10,"n":12345678901234567890}'
    laid_out = '{\n  "a": 1.10,\n  "n": 12345678901234567890\n}'
    assert bodies.payload(body) == Body(laid_out)
    assert _answer(body) == Body(laid_out)
    assert bodies.editable(body) == laid_out


def test_what_looks_secret_is_hidden_but_for_those_who_may_read_it_whole() -> None:
    body = b'{"token": "canary", "price": 1.10}'
    assert bodies.payload(body) == Body('{\n  "token": "[redacted]",\n  "price": 1.10\n}', None, True)
    assert bodies.payload(body, whole=True) == Body('{\n  "token": "canary",\n  "price": 1.10\n}')
    assert bodies.redacted(body) == Body('{"token":"[redacted]","price":1.10}', None, True)


def test_what_hides_nothing_is_as_it_was_sent() -> None:
    assert bodies.redacted(b'{ "a" :1.0 }') == Body('{ "a" :1.0 }')
    assert bodies.redacted(b"plain text") == Body("plain text")
    assert bodies.redacted(b'"a text in JSON"') == Body('"a text in JSON"')


@pytest.mark.parametrize("body", [b"\xff\x00", b"\x80abc"])
def test_what_is_no_text_is_counted_not_shown(body: bytes) -> None:
    for shown in (bodies.payload(body), bodies.payload(body, whole=True), _answer(body)):
        assert shown.text == ""
        assert shown.note is not None
        assert f"{len(body)} bytes" in shown.note
    assert bodies.editable(body) == ""


def test_an_empty_body_is_said_to_be_so_and_one_that_never_came_is_none() -> None:
    assert _answer(b"") == bodies.payload(b"") == Body("", "The body is empty.")
    assert bodies.answer(None, None, truncated=False) is None


def test_a_long_body_is_cut_and_says_so() -> None:
    shown = bodies.payload(json.dumps(["x" * 50] * 1_000).encode())
    assert len(shown.text) == MAX_BODY_CHARS
    assert shown.note is not None
    assert shown.note.startswith("The first 16,000 of 5")


def test_an_answer_that_was_cut_when_it_came_says_so_even_in_half_a_character() -> None:
    shown = _answer("caf\u00e9".encode()[:-1], truncated=True)
    assert shown == Body("caf", "The answer was longer. No more of it was kept.")


def test_an_answer_that_the_api_leaves_out_is_counted() -> None:
    shown = bodies.answer(None, b"x" * 5_000, truncated=False)
    assert shown is not None
    assert (shown.text, "5.0 kB" in (shown.note or "")) == ("", True)


def test_the_newest_bodies_fill_a_page_and_the_rest_is_left_out() -> None:
    room = Room()
    shown = [room.fit(Body("x" * MAX_BODY_CHARS)) for _ in range(20)]
    assert sum(len(body.text) for body in shown) == MAX_PAGE_CHARS
    assert shown[0].note is None
    assert shown[-1].text == ""
    assert "left out" in (shown[-1].note or "")
