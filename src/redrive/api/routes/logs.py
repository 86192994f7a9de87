"""Integration logs: one per task, with every try under it. They outlive the dead letter."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from redrive.api import broker_shapes, edit_shapes, shapes
from redrive.api.answers import answer
from redrive.api.auth import SCHEMES, Reader
from redrive.api.context import Context
from redrive.api.cursors import ListPlace
from redrive.api.problems import not_found
from redrive.api.queries import LogsQuery, id_in_path, no_query
from redrive.api.schemas.base import Page, shows
from redrive.api.schemas.logs import Log, LogEntry
from redrive.store import edits, logs
from redrive.store.dead_messages import get_dead_message
from redrive.store.paging import Sort

router = APIRouter(prefix="/v1/logs", tags=["logs"], dependencies=SCHEMES)


@router.get("", responses=shows(Page[LogEntry]))
async def list_logs(query: Annotated[LogsQuery, Query()], caller: Reader, context: Context) -> Response:
    """One log per delivery, newest event first; `sort` says otherwise.

    Where more than 10 000 events match, `sort` is ignored: by time, newest first.
    """
    place = ListPlace("logs", caller.org_id, query.filters())
    after = context.cursors.read(place, query.cursor)
    async with context.tenant(caller) as session:
        page = await logs.list_logs(session, query.chosen(), limit=query.limit, after=after, sort=Sort.read(query.sort))
    cursor = context.cursors.write(place, page.next_key) if page.next_key else None
    data = [shapes.log_entry(row) for row in page.rows]
    return answer(shapes.page(data, limit=query.limit, cursor=cursor, total=page.total))


@router.get("/{log_id}", responses=shows(Log), dependencies=[Depends(no_query)])
async def get_log(log_id: str, caller: Reader, context: Context) -> Response:
    """What was sent, what came back, and whether it has succeeded."""
    wanted = id_in_path(log_id, "log")
    async with context.tenant(caller) as session:
        row = await logs.get_log(session, wanted)
        if row is None:
            raise not_found("log")
        attempts = await logs.list_task_attempts(session, wanted)
        edited = await edits.list_edits(session, wanted)
        last = edit_shapes.last_generation(attempts)
        sent = await edits.body_of_generation(session, wanted, last) if edited and last is not None else None
        in_broker = {"broker": broker_shapes.message(await get_dead_message(session, row))}
    return answer(shapes.log(row, attempts, sent) | edit_shapes.edits(edited) | in_broker)
