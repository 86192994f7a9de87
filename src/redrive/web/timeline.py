"""The life of a task as a page tells it: tries, the idle time between them folded, and where a person began it anew.

Pure. Made by detail and the page of events, in a thread, out of what the store gives; shown by
templates/task_parts.html.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from redrive.api import shapes
from redrive.api.shapes import Row, Shape
from redrive.core.channels import method_of
from redrive.web.bodies import MAX_ANSWERS_BYTES, Body, Room, answer
from redrive.web.curl import as_curl

MAX_TRIES_SHOWN = 50  # with all that is known of them; older ones are a line each, when asked for
SHORTEST_WAIT_S = 1.0  # shorter pauses are not worth a line
REDRIVES = ("dead_letter.retry", "dead_letter.replay")

RESULTS = {
    "succeeded": ("delivered", "succeeded"),
    "failed": ("failed", "failed"),
    "lost": ("failed", "lost"),
    "open": ("waiting", "under way"),
    "released": ("quiet", "given back"),
}


@dataclass(frozen=True, slots=True)
class Wait:
    seconds: float
    what = "wait"


@dataclass(frozen=True, slots=True)
class Redriven:
    """A generation begins: by whom and why, as far as it is known, and with which edit of the payload or headers."""

    generation: int
    at: datetime | None
    by: str | None
    because: str | None
    edit: Shape | None
    edited_body: Body | None = None
    what = "redriven"


@dataclass(frozen=True, slots=True)
class Try:
    shape: Shape
    notes: tuple[str, ...]
    request_body: Body | None
    response_body: Body | None
    is_open: bool  # unfolded when the page opens
    is_brief: bool = False  # one line, nothing inside
    what = "try"

    @property
    def badge(self) -> tuple[str, str]:
        return RESULTS[str(self.shape["result"])]

    @property
    def request(self) -> dict[str, Any] | None:
        return cast("dict[str, Any] | None", self.shape["request"])

    @property
    def response(self) -> dict[str, Any] | None:
        return cast("dict[str, Any] | None", self.shape["response"])

    @property
    def anchor(self) -> str:
        return f"try-{self.shape['generation']}-{self.shape['number']}-{self.shape['started_at']:%H%M%S%f}"


Item = Wait | Redriven | Try


@dataclass(frozen=True, slots=True)
class Timeline:
    items: tuple[Item, ...]
    tries: int  # that were made, of those loaded
    folded: int  # older ones, not among the items
    has_older: bool  # older still, which only the database has

    @property
    def last_request(self) -> Try | None:
        """The newest try that sent something."""
        tries = (item for item in reversed(self.items) if isinstance(item, Try))
        return next((each for each in tries if each.request is not None), None)


@dataclass(frozen=True, slots=True)
class Sent:
    """What the tries of each generation carried: the original, or an edit's."""

    original: Body
    by_generation: Mapping[int, Body]

    def of(self, generation: int) -> Body:
        return self.by_generation.get(generation, self.original)


@dataclass(frozen=True, slots=True)
class Story:
    """What a timeline is made of. `acts`: the audit of the task, oldest first; `generation`: the present one."""

    received_at: datetime
    attempts: Sequence[Row]
    acts: Sequence[Row]
    edits: Sequence[Shape]
    generation: int
    sent: Sent


def timeline(
    story: Story,
    room: Room,
    *,
    all_tries: bool = False,
    limit: int = MAX_TRIES_SHOWN,
    answers_bytes: int = MAX_ANSWERS_BYTES,
) -> Timeline:
    """`answers_bytes`: of the answers to the newest tries, which are all that is looked through."""
    rows = story.attempts
    first = max(len(rows) - limit, 0)
    newest = rows[first:]
    shown = shapes.tries(newest, answers_bytes=answers_bytes)
    unfolded = _to_unfold(newest)
    tries = [
        _try(newest[place], shown[place], story.sent, room, is_open=place == unfolded)
        for place in reversed(range(len(newest)))  # the newest get the room first
    ][::-1]
    if all_tries:
        tries = [
            Try(shape, (), None, None, False, True) for shape in shapes.tries(rows[:first], answers_bytes=0)
        ] + tries
    return Timeline(
        tuple(_told(tries, story, is_whole=all_tries or not first)),
        sum(row["result"] != "released" for row in rows),
        0 if all_tries else first,
        bool(rows) and bool(rows[0]["older"]),
    )


def _to_unfold(rows: Sequence[Row]) -> int | None:
    """The last try that ended: how it failed, or with what it was answered."""
    ended = ("failed", "lost", "succeeded")
    return next((place for place in reversed(range(len(rows))) if rows[place]["result"] in ended), None)


def _told(tries: Sequence[Try], story: Story, *, is_whole: bool) -> list[Item]:
    items: list[Item] = []
    generation = 0 if is_whole or not tries else int(str(tries[0].shape["generation"]))
    before = story.received_at if is_whole else None
    for each in tries:
        started: Any = each.shape["started_at"]
        now = int(str(each.shape["generation"]))
        if now > generation:
            items += [_redriven(number, story) for number in range(generation + 1, now + 1)]
            generation = now
        elif before is not None and (idle_s := (started - before).total_seconds()) >= SHORTEST_WAIT_S:
            items.append(Wait(round(idle_s, 1)))
        items.append(each)
        before = cast("datetime | None", each.shape["ended_at"]) or started
    items += [_redriven(number, story) for number in range(generation + 1, story.generation + 1)]
    return items


def _redriven(generation: int, story: Story) -> Redriven:
    """Each redrive begins one generation, so the n-th act of that kind began the n-th one."""
    acts = [act for act in story.acts if act["action"] in REDRIVES]
    edit = next((edit for edit in story.edits if edit["generation"] == generation), None)
    body = story.sent.by_generation.get(generation) if edit is not None and edit["edits_payload"] else None
    if len(acts) == story.generation:
        act = acts[generation - 1]
        return Redriven(generation, act["at"], act["actor"], act["because"], edit, body)
    known: Mapping[str, Any] = edit or {}
    return Redriven(generation, known.get("at"), known.get("by"), known.get("because"), edit, body)


def _try(row: Row, shape: Shape, sent: Sent, room: Room, *, is_open: bool) -> Try:
    response: Any = shape["response"]
    stored = row["response_body"] if response is not None else None
    answered = answer(response["body"], stored, truncated=row["truncated"]) if response is not None else None
    return Try(
        shape,
        tuple(_notes(shape)),
        sent.of(row["generation"]) if shape["request"] is not None else None,
        room.fit(answered) if answered is not None else None,
        is_open,
    )


def _notes(shape: Shape) -> list[str]:
    notes = []
    late: Any = shape["late"]
    match shape["result"]:
        case "lost":
            notes.append("The worker did not report before its lease ended. The try counts, and another took over.")
        case "open":
            notes.append("A worker has it in its hands. It ends by its time-out at the latest.")
        case "released":
            notes.append(
                "The worker gave it back, since it was stopped or could not begin. It does not count as a try."
            )
    if shape["possible_duplicate"]:
        notes.append(
            "The receiver may have got it all the same: the next try may be its second copy, under the same id."
        )
    if late is not None:
        notes.append(
            f"Its result came after the lease had ended: {late['result']}. It is kept here, and changed nothing."
        )
    return notes


def curl_of(tried: Try | None, command_body: str | None) -> str | None:
    """The last request as a command; None where it was none of HTTP."""
    if tried is None or tried.request is None:
        return None
    request = tried.request
    if method_of(request["url"]) != "POST":
        return None
    return as_curl(request["method"], request["url"], request["headers"], command_body)
