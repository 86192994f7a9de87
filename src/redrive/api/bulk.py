"""Beginning an operation: written down once, moved on at once, and waited for where the caller asks to.

Called by the bulk routes of the retry queue and the dead letters, and by the recovery of an endpoint.
"""

from fastapi import Request, Response

from redrive.api import operation_shapes as shapes
from redrive.api.answers import answer
from redrive.api.context import ApiContext, act_of
from redrive.api.once import Once
from redrive.api.operation_desk import OperationDesk
from redrive.api.problems import Problem
from redrive.store import operations
from redrive.store.db import Record, Session
from redrive.store.keys import Caller
from redrive.store.operations import MAX_ACTIVE_OPERATIONS, OperationSpec, TooManyOperations

NOUN = "operation"
OPERATION_HEADER = "X-Operation-Id"  # where the answer itself is only two sums


async def begin(
    request: Request,
    caller: Caller,
    context: ApiContext,
    desk: OperationDesk,
    spec: OperationSpec,
    because: str | None,
    *,
    wait: bool = False,
) -> Response:
    """202 with the operation; where it was waited for, 200 with its result, after a while with what is pending."""
    try:
        async with context.tenant(caller) as session:
            row = await _made(request, caller, context, session, spec, because)
    except TooManyOperations:
        raise Problem(
            409,
            f"This org has {MAX_ACTIVE_OPERATIONS} operations under way. Wait for some to end, or cancel them.",
        ) from None
    row = await desk.begun(row)
    if wait:
        row = await desk.ended(row, request)
        result = answer(shapes.result(row))
        result.headers[OPERATION_HEADER] = str(row["id"])
        return result
    return answer(shapes.operation(row), 202)


async def _made(
    request: Request, caller: Caller, context: ApiContext, session: Session, spec: OperationSpec, because: str | None
) -> Record:
    once = Once(request, NOUN, [spec, because])
    made = await once.made_before(session)
    if made is None:
        row = await operations.create(session, spec, act_of(request, caller, because), context.clock)
        await once.note(session, row["id"])
        return row
    known = await operations.get_operation(session, made)
    if known is None:  # it ended long ago
        raise once.gone()
    return known
