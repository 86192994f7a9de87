"""Payloads and answers as a page shows them: laid out where they are JSON, as text where they are text, never too much.

Pure. Used by timeline and the pages of dead letters, logs and events. What looks secret was hidden before, by
api.evidence; the text of the editor alone is whole, for those who may read payloads.
"""

from dataclasses import dataclass

import msgspec

from redrive.api.evidence import redacted_payload
from redrive.core.redact import REDACTED
from redrive.web.json_text import is_json, pretty
from redrive.web.words import number, size

MAX_BODY_CHARS = 16_000  # of one body
MAX_PAGE_CHARS = 160_000  # of all bodies on a page: the newest first


@dataclass(frozen=True, slots=True)
class Body:
    """`note`: what is not shown, and why."""

    text: str
    note: str | None = None
    is_hidden: bool = False  # something in it is

    @property
    def is_short(self) -> bool:
        return len(self.text) <= MAX_BODY_CHARS // 4


EMPTY = Body("", "The body is empty.")


class Room:
    """How much of bodies a page still takes."""

    __slots__ = ("chars",)

    def __init__(self) -> None:
        self.chars = MAX_PAGE_CHARS

    def fit(self, body: Body) -> Body:
        if len(body.text) > self.chars:
            return Body("", "It is left out here: the newer ones fill the page. The API has it.")
        self.chars -= len(body.text)
        return body


def payload(body: bytes, *, whole: bool = False) -> Body:
    """What is to be delivered. `whole`: with what looks secret, too."""
    text = _text(body)
    if text is None:
        return Body("", f"{size(len(body))} that are neither JSON nor text.")
    if not text:
        return EMPTY
    if whole:
        return _shown(text)
    shown = as_redacted(body)
    return _shown(shown.text, is_hidden=shown.is_hidden)


def as_redacted(body: bytes) -> Body:
    """A payload that is text, unbounded and as it was written, or written anew where something in it is hidden."""
    text = body.decode()
    value = redacted_payload(body)
    shown = value if isinstance(value, str) and not is_json(text) else msgspec.json.encode(value).decode()
    # A payload may say [redacted] itself: then it is written anew for nothing, and means the same.
    is_hidden = REDACTED in shown
    cut = shown != text and not is_json(text)
    return Body(shown if is_hidden or cut else text, is_hidden=is_hidden)


def answer(shown: str | None, stored: bytes | None, *, truncated: bool) -> Body | None:
    """A receiver's answer: `shown` is what the API shows of what is `stored`. None: there was none."""
    if stored is None:
        return None
    if shown is None:
        return Body("", f"Its {size(len(stored))} are left out: the newer answers are as much as is shown at once.")
    if not stored:
        return EMPTY
    if _text(stored, truncated=truncated) is None:
        return Body("", f"{size(len(stored))} that are not text.")
    body = _shown(shown, is_hidden=REDACTED in shown)
    if truncated and body.note is None:
        return Body(body.text, "The answer was longer. No more of it was kept.", body.is_hidden)
    return body


def editable(body: bytes) -> str:
    """What the editor begins with: every byte of it that is text, laid out."""
    return pretty(_text(body) or "")


def _shown(text: str, *, is_hidden: bool = False) -> Body:
    laid_out = pretty(text)
    if len(laid_out) <= MAX_BODY_CHARS:
        return Body(laid_out, None, is_hidden)
    note = f"The first {number(MAX_BODY_CHARS)} of {number(len(laid_out))} characters. The API has all that was kept."
    return Body(laid_out[:MAX_BODY_CHARS], note, is_hidden)


def _text(body: bytes, *, truncated: bool = False) -> str | None:
    """The end of a truncated one may be half a character."""
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as broken:
        return body[: broken.start].decode() if truncated and broken.start >= len(body) - 3 else None
