"""Events: lists, one with its payload, where it stands, every try; acknowledged, removed. (Produced: front_door.)"""

import random
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request, Response

from redrive.api import shapes
from redrive.api.answers import answer
from redrive.api.auth import SCHEMES, Consumer, Judge, Reader
from redrive.api.context import Context, act_of
from redrive.api.cursors import ListPlace
from redrive.api.problems import Problem, not_found
from redrive.api.queries import BecauseIn, EventsQuery, RedriveIn, id_in_path, no_query
from redrive.api.routes.retry_queue import explained, refused
from redrive.api.schemas.attempts import Attempt
from redrive.api.schemas.base import Page, shows
from redrive.api.schemas.events import Event, EventDetail, EventRetried, EventStatus
from redrive.api.schemas.inbox import EventStanding
from redrive.api.status_desk import StatusDesk
from redrive.core.permissions import Action
from redrive.core.trace import TRACEPARENT, TRACESTATE
from redrive.observe import traces
from redrive.observe.process_metrics import STATUS_QUERIES
from redrive.store import dead_letters, events, inbox, removal
from redrive.store.retry_queue import Refusal

MAX_ATTEMPTS_SHOWN = 1_000

router = APIRouter(prefix="/v1/events", tags=["events"], dependencies=SCHEMES)


@router.get("", responses=shows(Page[Event]))
async def list_events(query: Annotated[EventsQuery, Query()], caller: Reader, context: Context) -> Response:
    """Events, newest first, without their payloads.

    `total_count` is null when filtered by event type, and where there are too many to count.
    """
    place = ListPlace("events", caller.org_id, query.filters())
    after = context.cursors.read(place, query.cursor)
    async with context.tenant(caller) as session:
        page = await events.list_events(
            session, status=query.status, event_type=query.event_type, limit=query.limit, after=after
        )
    cursor = context.cursors.write(place, page.next_key) if page.next_key else None
    return answer(
        shapes.page([shapes.event(row) for row in page.rows], limit=query.limit, cursor=cursor, total=page.total)
    )


@router.get("/{event_id}", responses=shows(EventDetail), dependencies=[Depends(no_query)])
async def get_event(event_id: str, caller: Reader, context: Context) -> Response:
    """One event with its payload, byte for byte; STAFF and VIEWER see it without what looks secret."""
    wanted = id_in_path(event_id, "event")
    async with context.tenant(caller) as session:
        row = await events.get_event(session, wanted)
        status = await events.get_event_status(session, wanted)
    if row is None or status is None:
        raise not_found("event")
    return answer(shapes.event_detail(row, status, whole_payload=caller.may(Action.READ_PAYLOADS)))


@router.get("/{event_id}/status", responses=shows(EventStatus), dependencies=[Depends(no_query)])
async def get_event_status(event_id: str, request: Request, caller: Reader) -> Response:
    """Where an event stands; never its payload."""
    STATUS_QUERIES.add()
    desk: StatusDesk = request.app.state.status_desk
    entry = traces.entry(request.headers.get(TRACEPARENT), request.headers.get(TRACESTATE)) if traces.is_on() else None
    row = await desk.status(caller, id_in_path(event_id, "event"), entry)
    if row is None:
        raise not_found("event")
    return answer(shapes.event_status(row))


@router.get("/{event_id}/attempts", responses=shows(Page[Attempt]), dependencies=[Depends(no_query)])
async def list_attempts(event_id: str, caller: Reader, context: Context) -> Response:
    """The tries of every task of an event, oldest first; of more than 1 000 the newest."""
    wanted = id_in_path(event_id, "event")
    async with context.tenant(caller) as session:
        status = await events.get_event_status(session, wanted)
        rows = await events.list_event_attempts(session, wanted)
    if status is None:
        raise not_found("event")
    return answer(shapes.newest_tries(rows, MAX_ATTEMPTS_SHOWN))


@router.post("/{event_id}/ack", dependencies=[Depends(no_query)], responses=shows(EventStanding))
async def acknowledge(
    event_id: str, request: Request, caller: Consumer, context: Context, given: BecauseIn | None = None
) -> Response:
    """Take an event out of the inbox: it is `delivered`. Once more changes nothing; one with tasks is refused."""
    wanted = id_in_path(event_id, "event")
    act = act_of(request, caller, given.because if given else None)
    async with context.tenant(caller) as session:
        stood = await inbox.acknowledge(session, wanted, act, context.clock)
        if stood is None:
            raise not_found("event")
        if stood not in ("received", "delivered"):
            raise Problem(
                409,
                f"Only an event in the inbox is acknowledged; this one is {stood}: its endpoints get it. "
                "Retry, skip or resolve its tasks instead.",
            )
        row = await events.get_event_status(session, wanted)
        if row is None:  # removed at this moment, by somebody else
            raise not_found("event")
    return answer(shapes.event_status(row))


@router.post("/{event_id}/retry", dependencies=[Depends(no_query)], responses=shows(EventRetried))
async def retry_event(
    event_id: str, request: Request, caller: Judge, context: Context, given: RedriveIn | None = None
) -> Response:
    """Redrive all open dead letters of an event in one transaction: as `POST /v1/dead-letters/{task_id}/retry` does."""
    wanted = id_in_path(event_id, "event")
    asked = given or RedriveIn()
    act = act_of(request, caller, asked.because)
    retried: list[UUID] = []
    refusals: list[tuple[UUID, Problem]] = []
    async with context.tenant(caller) as session:
        if await events.get_event_status(session, wanted) is None:
            raise not_found("event")
        for task_id in await dead_letters.open_letters_of(session, wanted):
            roll = random.random()  # noqa: S311 (jitter, not a secret)
            refusal = await dead_letters.redrive(
                session, task_id, act, context.clock, roll=roll, at_once=asked.now, order=asked.order
            )
            if refusal is None:
                retried.append(task_id)
            else:
                refusals.append((task_id, await explained(session, task_id, refusal, "dead letter", context.clock)))
        if not retried:
            raise (
                refusals[0][1]
                if refusals
                else Problem(
                    409,
                    "This event has no open dead letters: none of its deliveries died, or people closed them.",
                )
            )
        row = await events.get_event_status(session, wanted)
        assert row is not None, "its tasks are locked"
    told = [{"task_id": task_id, "detail": problem.detail} for task_id, problem in refusals]
    return answer({"event_id": wanted, "status": row["status"], "retried": retried, "refused": told})


@router.delete("/{event_id}", status_code=204, dependencies=[Depends(no_query)])
async def delete_event(
    event_id: str, request: Request, caller: Consumer, context: Context, given: BecauseIn | None = None
) -> Response:
    """Remove an event for good, with its tasks, attempts, logs and dead letters. An entry in the audit stays."""
    wanted = id_in_path(event_id, "event")
    act = act_of(request, caller, given.because if given else None)
    async with context.tenant(caller) as session:
        match await removal.delete_event(session, wanted, act):
            case Refusal.OF_RUN:
                raise refused(Refusal.OF_RUN, "event")
            case Refusal.UNKNOWN:
                raise not_found("event")
            case Refusal.IN_PROGRESS:
                raise Problem(
                    409, "The event is being delivered. Skip its open tasks or wait for them, then delete it."
                )
    return Response(status_code=204)
