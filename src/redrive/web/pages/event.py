"""One event: its payload, where it stands, and every task that it fanned out to with its tries."""

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
from redrive.web.bodies import Body, Room
from redrive.web.detail import edited_bodies, sent_by
from redrive.web.frame import Frame, load_frame
from redrive.web.render import render
from redrive.web.timeline import Story, Timeline, timeline
from redrive.web.visitor import PageRoute, Visitor

PATH = "/events"
MAX_TASKS_SHOWN = 50
MAX_TRIES_EACH = 10  # the log of a task has them all

router = APIRouter(route_class=PageRoute)


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


@router.get("/events/{event_id}")
async def event_page(event_id: str, request: Request, visitor: Visitor, context: Context) -> Response:
    wanted = id_in_path(event_id, "event")
    async with context.tenant(visitor) as session:
        row = await events.get_event(session, wanted)
        status = await events.get_event_status(session, wanted)
        if row is None or status is None:
            raise not_found("event")
        tasks = await events.list_event_tasks(session, wanted)
        addressed = await endpoint_names(session, [row["endpoint_id"]])
        page = EventPage(
            frame=await load_frame(session, visitor, context.clock, PATH),
            event=shapes.event(row) | shapes.event_status(status),
            payload=bodies.payload(row["body"], whole=visitor.may(Action.READ_PAYLOADS)),
            tasks=await _tasks(context, session, visitor, row, tasks[:MAX_TASKS_SHOWN]),
            more_tasks=max(len(tasks) - MAX_TASKS_SHOWN, 0),
            endpoint=addressed.get(row["endpoint_id"]),
        )
    return render(request, "event.html", page)


async def _tasks(
    context: ApiContext, session: Session, viewer: Caller, event: Row, rows: Sequence[Row]
) -> tuple[EventTask, ...]:
    by_task: dict[UUID, list[Row]] = defaultdict(list)
    for attempt in await events.list_event_attempts(session, event["id"]):
        by_task[attempt["task_id"]].append(attempt)
    acts: dict[UUID, list[Row]] = defaultdict(list)
    for act in await list_audit_of(session, [row["id"] for row in rows]):
        acts[act["subject_id"]].append(act)
    names = await endpoint_names(session, [row["endpoint_id"] for row in rows])
    actors = await actor_names(
        context.engine_db, viewer.org_id, [act["actor"] for each in acts.values() for act in each]
    )
    original, room = bodies.payload(event["body"]), Room()
    made = []
    for row in rows:
        story = await _story(session, row, original, by_task[row["id"]], acts[row["id"]])
        has_letter = row["letter_state"] not in (None, "deleted")
        made.append(
            EventTask(
                row=row,
                entry=shapes.entry(row),
                note=shapes.note(row),
                letter={"state": row["letter_state"], "failed_at": row["failed_at"]} if has_letter else None,
                endpoint=names.get(row["endpoint_id"]),
                timeline=timeline(story, room, limit=MAX_TRIES_EACH),
                names=actors,
                viewer=viewer,
            )
        )
    return tuple(made)


async def _story(session: Session, row: Row, original: Body, attempts: Sequence[Row], acts: Sequence[Row]) -> Story:
    """Only what was redriven can have been edited."""
    edited = await edits.list_edits(session, row["id"]) if row["generation"] else []
    sent = sent_by(row, edited, await edited_bodies(session, row["id"], edited), original)
    shown_edits = [edit_shapes.edit(each) for each in edited]
    return Story(row["created_at"], attempts, acts, shown_edits, row["generation"], sent)
