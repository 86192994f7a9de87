"""Integration logs: one per task, with every try under it. They outlive the dead letter."""

from fastapi import APIRouter, Depends, Response

from redrive.api import broker_shapes, edit_shapes, shapes
from redrive.api.answers import answer
from redrive.api.auth import SCHEMES, Reader
from redrive.api.context import Context
from redrive.api.problems import not_found
from redrive.api.queries import id_in_path, no_query
from redrive.api.schemas.base import shows
from redrive.api.schemas.logs import Log
from redrive.store import edits, logs
from redrive.store.dead_messages import get_dead_message

router = APIRouter(prefix="/v1/logs", tags=["logs"], dependencies=[*SCHEMES, Depends(no_query)])


@router.get("/{log_id}", responses=shows(Log))
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
