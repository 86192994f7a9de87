"""Payloads and answers as a page shows them: laid out where they are JSON, as text where they are text, never too much.

Pure. Used by timeline and the pages of dead letters, logs and events, which ask for it in a thread: it may take long.
What looks secret was hidden before, by api.evidence; the text of the editor alone is whole, for those who may read
payloads.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from redrive.api.evidence import redacted_payload
from redrive.core.redact import REDACTED
from redrive.web.json_text import is_json, pretty
from redrive.web.words import number, size

MAX_BODY_CHARS = 16_000  # of one body
MAX_PAGE_CHARS = 160_000  # of all bodies on a page: the newest first
MAX_ANSWERS_BYTES = 160_000  # of the answers that a page looks through for what is to be hidden


@dataclass(frozen=True, slots=True)
class Body:
    """`note`: what is not shown, and why."""

    text: str
    note: str | None = None
    is_hidden: bool = False  # something in it is

    @property
    def is_short(self) -> bool:
        return len(self.text) <= MAX_BODY_CHARS // 4


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


def shares(total: int, sizes: Sequence[Sequence[int]]) -> list[int]:
    """How much of `total` each row of sizes gets: first the first of every row, then the second of every row …

    What does not fit ends its row; smaller ones of other rows may still.
    """
    given = [0] * len(sizes)
    going = list(range(len(sizes)))
    rank = 0
    while going:
        fit = []
        for place in going:
            if rank < len(sizes[place]) and sizes[place][rank] <= total:
                total -= sizes[place][rank]
                given[place] += sizes[place][rank]
                fit.append(place)
        going, rank = fit, rank + 1
    return given


def payload(body: bytes, *, whole: bool = False) -> Body:
    """What is to be delivered. `whole`: with what looks secret, too."""
    return bounded(Body(_text(body) or "", _lack(body)) if whole else redacted(body))


def too_large(body_bytes: int) -> Body:
    """A message of a broker may have more bytes than anything that is handed in."""
    return Body("", f"{size(body_bytes)}: too large to be shown. “redrive events show --payload” prints it.")


def redacted(body: bytes) -> Body:
    """A payload as long as it is and as it was written, or written anew where something in it is hidden.

    To look for what is to be hidden takes about a second per MiB: ask once.
    """
    text = _text(body)
    if not text:
        return Body("", _lack(body))
    value = redacted_payload(body)
    shown = value if isinstance(value, str) and not is_json(text) else msgspec.json.encode(value).decode()
    # A payload may say [redacted] itself: then it is written anew for nothing, and means the same.
    is_hidden = REDACTED in shown
    is_cut = shown != text and not is_json(text)
    return Body(shown if is_hidden or is_cut else text, is_hidden=is_hidden)


def bounded(body: Body) -> Body:
    """Laid out, and no more than a page takes of one."""
    laid_out = pretty(body.text)
    if len(laid_out) <= MAX_BODY_CHARS:
        return replace(body, text=laid_out)
    note = f"The first {number(MAX_BODY_CHARS)} of {number(len(laid_out))} characters. The API has all that was kept."
    return replace(body, text=laid_out[:MAX_BODY_CHARS], note=note)


def answer(shown: str | None, stored: bytes | None, *, truncated: bool) -> Body | None:
    """A receiver's answer: `shown` is what the API shows of what is `stored`. None: there was none."""
    if stored is None:
        return None
    if shown is None:
        return Body(
            "", f"Its {size(len(stored))} are left out: others are as much as is shown at once. The API has it."
        )
    if _text(stored, truncated=truncated) is None or not stored:
        return Body("", _lack(stored))
    body = bounded(Body(shown, is_hidden=REDACTED in shown))
    if truncated and body.note is None:
        return replace(body, note="The answer was longer. No more of it was kept.")
    return body


def editable(body: bytes) -> str:
    """What the editor begins with: every byte of it that is text, laid out."""
    return pretty(_text(body) or "")


def _lack(body: bytes) -> str | None:
    """Why there is nothing to read."""
    if not body:
        return "The body is empty."
    return None if _text(body) is not None else f"{size(len(body))} that are not text."


def _text(body: bytes, *, truncated: bool = False) -> str | None:
    """The end of a truncated one may be half a character."""
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as broken:
        return body[: broken.start].decode() if truncated and broken.start >= len(body) - 3 else None
