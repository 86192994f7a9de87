"""Reading events: lists, one with its payload, where it stands, every try. (Producing them: front_door.)"""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from redrive.api import shapes
from redrive.api.answers import answer
from redrive.api.auth import SCHEMES, Reader
from redrive.api.context import Context
from redrive.api.cursors import ListPlace
from redrive.api.problems import not_found
from redrive.api.queries import EventsQuery, id_in_path, no_query
from redrive.api.status_desk import StatusDesk
from redrive.store import events

MAX_ATTEMPTS_SHOWN = 1_000

router = APIRouter(prefix="/v1/events", tags=["events"], dependencies=SCHEMES)


@router.get("")
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


@router.get("/{event_id}", dependencies=[Depends(no_query)])
async def get_event(event_id: str, caller: Reader, context: Context) -> Response:
    """One event with its payload, byte for byte as it was handed in."""
    wanted = id_in_path(event_id, "event")
    async with context.tenant(caller) as session:
        row = await events.get_event(session, wanted)
        status = await events.get_event_status(session, wanted)
    if row is None or status is None:
        raise not_found("event")
    return answer(shapes.event_detail(row, status))


@router.get("/{event_id}/status", dependencies=[Depends(no_query)])
async def get_event_status(event_id: str, request: Request, caller: Reader) -> Response:
    """Where an event stands; never its payload."""
    desk: StatusDesk = request.app.state.status_desk
    row = await desk.status(caller, id_in_path(event_id, "event"))
    if row is None:
        raise not_found("event")
    return answer(shapes.event_status(row))


@router.get("/{event_id}/attempts", dependencies=[Depends(no_query)])
async def list_attempts(event_id: str, caller: Reader, context: Context) -> Response:
    """The tries of every task of an event, oldest first; of more than 1 000 the newest."""
    wanted = id_in_path(event_id, "event")
    async with context.tenant(caller) as session:
        status = await events.get_event_status(session, wanted)
        rows = await events.list_event_attempts(session, wanted)
    if status is None:
        raise not_found("event")
    return answer(shapes.newest_tries(rows, MAX_ATTEMPTS_SHOWN))
