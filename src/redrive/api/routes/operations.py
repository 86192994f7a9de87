"""Operations: how bulk actions stand, watched live, paused, resumed and cancelled; and the recovery of an endpoint."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any
from uuid import UUID

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse

from redrive.api import operation_shapes as shapes
from redrive.api.answers import answer
from redrive.api.auth import SCHEMES, Authenticator, Judge, Operator, Reader
from redrive.api.bulk import begin
from redrive.api.bulk_input import ItemsQuery, OperationsQuery, RecoverIn, WaitQuery
from redrive.api.context import ApiContext, Context, act_of
from redrive.api.cursors import ListPlace
from redrive.api.operation_desk import Desk, OperationDesk
from redrive.api.outage import OUTAGES
from redrive.api.problems import Problem, not_found
from redrive.api.queries import BecauseIn, id_in_path, no_query
from redrive.api.schemas.base import Page, shows
from redrive.api.schemas.operations import BulkResult, Operation, OperationItem
from redrive.api.shapes import page as page_shape
from redrive.core.operations import Command
from redrive.core.permissions import Action
from redrive.store import operations
from redrive.store.db import Record
from redrive.store.endpoints import get_endpoint
from redrive.store.keys import Caller
from redrive.store.operations import CannotBeTold

NOUN = "operation"

router = APIRouter(prefix="/v1", tags=["operations"], dependencies=SCHEMES)

_EVENTS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Events `progress` with the operation at each change, then `end`",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


@router.get("/operations", responses=shows(Page[Operation]))
async def list_operations(query: Annotated[OperationsQuery, Query()], caller: Reader, context: Context) -> Response:
    """Bulk actions, newest first."""
    place = ListPlace("operations", caller.org_id, query.filters())
    after = context.cursors.read(place, query.cursor)
    async with context.tenant(caller) as session:
        found = await operations.list_operations(
            session, state=query.state, active=query.active, by=query.by, limit=query.limit, after=after
        )
    cursor = context.cursors.write(place, found.next_key) if found.next_key else None
    rows = [shapes.operation(row) for row in found.rows]
    return answer(page_shape(rows, limit=query.limit, cursor=cursor, total=found.total))


@router.get("/operations/{operation_id}", responses=shows(Operation), dependencies=[Depends(no_query)])
async def get_operation(operation_id: str, caller: Reader, context: Context) -> Response:
    """How one stands."""
    return answer(shapes.operation(await _operation(operation_id, caller, context)))


@router.get("/operations/{operation_id}/items", responses=shows(Page[OperationItem]))
async def list_operation_items(
    operation_id: str, query: Annotated[ItemsQuery, Query()], caller: Reader, context: Context
) -> Response:
    """What becomes of each of its tasks, in the order they are acted on. The operation itself has the sums."""
    wanted = (await _operation(operation_id, caller, context))["id"]
    place = ListPlace(f"operation-items {wanted}", caller.org_id, query.filters())
    after = context.cursors.read(place, query.cursor)
    async with context.tenant(caller) as session:
        found = await operations.list_items(session, wanted, state=query.state, limit=query.limit, after=after)
    cursor = context.cursors.write(place, found.next_key) if found.next_key else None
    return answer(page_shape([shapes.item(row) for row in found.rows], limit=query.limit, cursor=cursor, total=None))


@router.get(
    "/operations/{operation_id}/stream",
    responses=_EVENTS,
    response_class=StreamingResponse,
    dependencies=[Depends(no_query)],
)
async def stream_operation(
    operation_id: str, request: Request, caller: Reader, context: Context, desk: Desk
) -> Response:
    """How one stands, live: server-sent events `progress` at each change, and `end`. Without it where access ended."""
    row = await _operation(operation_id, caller, context)
    desk.refuse_too_many(caller.org_id)
    return StreamingResponse(
        _events(desk, row, request), media_type="text/event-stream", headers={"x-accel-buffering": "no"}
    )


async def _events(desk: OperationDesk, row: Record, request: Request) -> AsyncIterator[bytes]:
    async with aclosing(desk.news(row)) as changes:
        async for news in changes:
            if not await _may_still_watch(request, row["org_id"]):
                return
            if news is None:
                yield b": still here\n\n"
            else:
                row = news
                yield _event(b"progress", row)
    if row["finished_at"] is not None:
        yield _event(b"end", row)


async def _may_still_watch(request: Request, org_id: UUID) -> bool:
    """A stream may last for days: a key that was revoked, a session that ended or went elsewhere, see no more of it."""
    authenticator: Authenticator = request.app.state.authenticator
    try:
        caller = await authenticator.known(dict(request.scope["headers"]), request.method, is_use=False)
    except OUTAGES:
        return True  # asked again with the next news
    return caller is not None and (caller.org_id == org_id or caller.may(Action.OWN))


def _event(name: bytes, row: Record) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name, msgspec.json.encode(shapes.operation(row)))


@router.post("/operations/{operation_id}/pause", responses=shows(Operation), dependencies=[Depends(no_query)])
async def pause_operation(
    operation_id: str, request: Request, caller: Operator, context: Context, given: BecauseIn | None = None
) -> Response:
    """Act on nothing more until it is resumed. What is under way ends, and is counted."""
    return await _tell(operation_id, Command.PAUSE, request, caller, context, given)


@router.post("/operations/{operation_id}/resume", responses=shows(Operation), dependencies=[Depends(no_query)])
async def resume_operation(
    operation_id: str, request: Request, caller: Operator, context: Context, given: BecauseIn | None = None
) -> Response:
    """Go on where it was paused, or where it paused itself."""
    return await _tell(operation_id, Command.RESUME, request, caller, context, given)


@router.post("/operations/{operation_id}/cancel", responses=shows(Operation), dependencies=[Depends(no_query)])
async def cancel_operation(
    operation_id: str, request: Request, caller: Operator, context: Context, given: BecauseIn | None = None
) -> Response:
    """Act on nothing more, ever. What is under way ends, and is counted; what was done stays done."""
    return await _tell(operation_id, Command.CANCEL, request, caller, context, given)


@router.post(
    "/endpoints/{endpoint_id}/recover",
    status_code=202,
    responses=shows(Operation, 202) | shows(BulkResult),
    tags=["endpoints"],
)
async def recover_endpoint(
    endpoint_id: str,
    request: Request,
    given: RecoverIn,
    query: Annotated[WaitQuery, Query()],
    caller: Judge,
    context: Context,
    desk: Desk,
) -> Response:
    """Redrive the open dead letters of an endpoint that died since then; with `wait`, the result."""
    wanted = id_in_path(endpoint_id, "endpoint")
    async with context.tenant(caller) as session:
        if await get_endpoint(session, wanted) is None:
            raise not_found("endpoint")
    return await begin(request, caller, context, desk, given.spec(wanted), given.because, wait=query.wait)


async def _operation(text: str, caller: Caller, context: ApiContext) -> Record:
    wanted: UUID = id_in_path(text, NOUN)
    async with context.tenant(caller) as session:
        row = await operations.get_operation(session, wanted)
    if row is None:
        raise not_found(NOUN)
    return row


async def _tell(
    text: str, command: Command, request: Request, caller: Caller, context: ApiContext, given: BecauseIn | None
) -> Response:
    wanted = id_in_path(text, NOUN)
    act = act_of(request, caller, given.because if given else None)
    async with context.tenant(caller) as session:
        changed = await operations.tell(session, wanted, command, act, context.clock)
    if changed is None:
        raise not_found(NOUN)
    if isinstance(changed, CannotBeTold):
        raise Problem(409, f"The operation is {changed.state}: there is nothing to {command}.")
    return answer(shapes.operation(changed))
