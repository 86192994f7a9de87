"""One event: its payload, where it stands, and every task that it fanned out to with its tries."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from fastapi import APIRouter, Request, Response

from redrive.api import edit_shapes, shapes
from redrive.api.context import ApiContext, Context
from redrive.api.problems import not_found
from redrive.api.queries import id_in_path
from redrive.api.shapes import Row, Shape
from redrive.core.permissions import Action
from redrive.store import edits, events
from redrive.store.actors import ActorName, actor_names
from redrive.store.audit import list_audit_of
from redrive.store.db import Session
from redrive.store.endpoint_names import endpoint_names
from redrive.store.keys import Caller
from redrive.web import bodies
from redrive.web.actors import Actor, shown_actor
from redrive.web.bodies import MAX_ANSWERS_BYTES, Body, Room
from redrive.web.detail import MAX_EDITED_BYTES, edited_bodies, sent_by
from redrive.web.frame import Frame, load_frame
from redrive.web.render import render
from redrive.web.timeline import Story, Timeline, timeline
from redrive.web.visitor import PageRoute, Visitor

PATH = "/events"
MAX_TASKS_SHOWN = 50
MAX_TRIES_EACH = 10  # the log of a task has them all

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass(frozen=True, slots=True)
class EventTask:
    """A task as the page of its event tells it; templates/task_parts.html shows its timeline."""

    row: Row
    entry: Shape
    note: str | None
    letter: Shape | None
    endpoint: str | None
    timeline: Timeline
    names: Mapping[str, ActorName]
    viewer: Caller

    @property
    def state(self) -> str:
        return str(self.row["state"])

    @property
    def href(self) -> str:
        """Where more is told of it."""
        is_letter = self.letter is not None and self.state == "dead"
        return f"/app/admin/dlq/{self.row['id']}" if is_letter else f"/integrations/logs/{self.row['id']}"

    def who(self, stored: str) -> Actor:
        return shown_actor(stored, self.names, self.viewer)


@dataclass(frozen=True, slots=True)
class EventPage:
    frame: Frame
    event: Shape
    payload: Body
    tasks: tuple[EventTask, ...]
    more_tasks: int
    endpoint: str | None  # that it was addressed to


@dataclass(frozen=True, slots=True)
class Found:
    """A task as the store has it; only what was redriven can have been edited."""

    row: Row
    attempts: Sequence[Row]
    acts: Sequence[Row]
    edited: Sequence[Row]
    edited_bodies: Mapping[int, bytes]


@dataclass(frozen=True, slots=True)
class Names:
    endpoints: Mapping[UUID, str]
    actors: Mapping[str, ActorName]


@router.get("/events/{event_id}")
async def event_page(event_id: str, request: Request, visitor: Visitor, context: Context) -> Response:
    wanted = id_in_path(event_id, "event")
    async with context.tenant(visitor) as session:
        row = await events.get_event(session, wanted)
        status = await events.get_event_status(session, wanted)
        if row is None or status is None:
            raise not_found("event")
        tasks = await events.list_event_tasks(session, wanted)
        found = await _find(session, wanted, tasks[:MAX_TASKS_SHOWN])
        names = await _names(context, session, visitor, row, found)
        frame = await load_frame(session, visitor, context, PATH)
    # To hide what looks secret takes its time: not in the loop that accepts events, nor in a transaction.
    payload, told = await asyncio.to_thread(_tell, row, found, names, visitor)
    page = EventPage(
        frame=frame,
        event=shapes.event(row) | shapes.event_status(status),
        payload=payload,
        tasks=told,
        more_tasks=max(len(tasks) - MAX_TASKS_SHOWN, 0),
        endpoint=names.endpoints.get(row["endpoint_id"]),
    )
    return render(request, "event.html", page)


async def _find(session: Session, event_id: UUID, rows: Sequence[Row]) -> list[Found]:
    by_task: dict[UUID, list[Row]] = defaultdict(list)
    for attempt in await events.list_event_attempts(session, event_id):
        by_task[attempt["task_id"]].append(attempt)
    acts: dict[UUID, list[Row]] = defaultdict(list)
    for act in await list_audit_of(session, [row["id"] for row in rows]):
        acts[act["subject_id"]].append(act)
    found = []
    left_bytes = MAX_EDITED_BYTES
    for row in rows:
        task_id = row["id"]
        edited = await edits.list_edits(session, task_id) if row["generation"] else []
        replaced = await edited_bodies(session, task_id, edited, left_bytes)
        left_bytes -= sum(map(len, replaced.values()))
        found.append(Found(row, by_task[task_id], acts[task_id], edited, replaced))
    return found


async def _names(context: ApiContext, session: Session, viewer: Caller, event: Row, found: Sequence[Found]) -> Names:
    ids = [event["endpoint_id"], *(each.row["endpoint_id"] for each in found)]
    acted = [act["actor"] for each in found for act in each.acts]
    return Names(await endpoint_names(session, ids), await actor_names(context.engine_db, viewer.org_id, acted))


def _tell(event: Row, found: Sequence[Found], names: Names, viewer: Caller) -> tuple[Body, tuple[EventTask, ...]]:
    """The payload, and the tasks with what their tries sent and were answered: one room for all of them."""
    body: bytes | None = event["body"]
    if body is None:
        payload = sent = bodies.too_large(event["body_bytes"])
    else:
        payload = bodies.payload(body, whole=viewer.may(Action.READ_PAYLOADS))
        # What a try sent is shown where it is short; where not, it is this payload, which need not be looked through
        # again.
        is_repeated = payload.is_short and viewer.may(Action.READ_PAYLOADS)
        sent = bodies.payload(body) if is_repeated else payload
    newest = [each.attempts[: -MAX_TRIES_EACH - 1 : -1] for each in found]
    sizes = [[len(row["response_body"] or b"") for row in rows] for rows in newest]
    room = Room()
    told = [
        _task(each, names, viewer, timeline(_story(each, sent), room, limit=MAX_TRIES_EACH, answers_bytes=share))
        for each, share in zip(found, bodies.shares(MAX_ANSWERS_BYTES, sizes), strict=True)
    ]
    return payload, tuple(told)


def _task(found: Found, names: Names, viewer: Caller, told: Timeline) -> EventTask:
    row = found.row
    has_letter = row["letter_state"] not in (None, "deleted")
    return EventTask(
        row=row,
        entry=shapes.entry(row),
        note=shapes.note(row),
        letter={"state": row["letter_state"], "failed_at": row["failed_at"]} if has_letter else None,
        endpoint=names.endpoints.get(row["endpoint_id"]),
        timeline=told,
        names=names.actors,
        viewer=viewer,
    )


def _story(found: Found, original: Body) -> Story:
    row = found.row
    replaced = {number: bodies.redacted(body) for number, body in found.edited_bodies.items()}
    sent = sent_by(row, found.edited, replaced, original)
    shown_edits = [edit_shapes.edit(each) for each in found.edited]
    return Story(row["created_at"], found.attempts, found.acts, shown_edits, row["generation"], sent)
