"""Dead letters: what failed for good, in front of a person who looks, redrives, judges or deletes."""

import random
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request, Response

from redrive.api import broker_shapes, edit_shapes, shapes
from redrive.api.answers import answer
from redrive.api.auth import SCHEMES, Judge, Reader
from redrive.api.bulk import begin
from redrive.api.bulk_input import LettersBulkIn, WaitQuery
from redrive.api.context import ApiContext, Context, act_of
from redrive.api.cursors import ListPlace
from redrive.api.meters import check_room
from redrive.api.operation_desk import Desk
from redrive.api.problems import not_found
from redrive.api.queries import BecauseIn, DeadLettersQuery, RedriveIn, id_in_path, no_query
from redrive.api.retrying import retried
from redrive.api.routes.retry_queue import explained, refuse_behind, refused
from redrive.api.schemas.base import Page, shows
from redrive.api.schemas.dead_letters import DeadLetter, DeadLetterDetail, RetriedLetter
from redrive.api.schemas.operations import BulkResult, Operation
from redrive.store import dead_letters
from redrive.store.audit import Act
from redrive.store.db import Session
from redrive.store.dead_messages import get_dead_message
from redrive.store.edits import list_edits
from redrive.store.keys import Caller
from redrive.store.logs import list_task_attempts
from redrive.store.paging import Sort
from redrive.store.retry_queue import get_entry

NOUN = "dead letter"

router = APIRouter(prefix="/v1/dead-letters", tags=["dead letters"], dependencies=SCHEMES)


@router.get("", responses=shows(Page[DeadLetter]))
async def list_dead_letters(query: Annotated[DeadLettersQuery, Query()], caller: Reader, context: Context) -> Response:
    """The open ones unless another state is asked for, latest first failure first; `sort` says otherwise.

    Where more than 10 000 match, `sort` is ignored: by time of death, newest first.
    """
    place = ListPlace("dead-letters", caller.org_id, query.filters())
    after = context.cursors.read(place, query.cursor)
    async with context.tenant(caller) as session:
        page = await dead_letters.list_dead_letters(
            session, query.chosen(), limit=query.limit, after=after, sort=Sort.read(query.sort)
        )
    cursor = context.cursors.write(place, page.next_key) if page.next_key else None
    return answer(
        shapes.page([shapes.dead_letter(row) for row in page.rows], limit=query.limit, cursor=cursor, total=page.total)
    )


@router.get("/{task_id}", responses=shows(DeadLetterDetail), dependencies=[Depends(no_query)])
async def get_dead_letter(task_id: str, caller: Reader, context: Context) -> Response:
    """All that is known of one: every try, what was to be delivered and under which settings, secrets left out."""
    wanted = id_in_path(task_id, NOUN)
    async with context.tenant(caller) as session:
        return answer(await _detail(session, wanted))


async def _detail(session: Session, task_id: UUID) -> shapes.Shape:
    row = await dead_letters.get_dead_letter(session, task_id)
    if row is None:
        raise not_found(NOUN)
    attempts = await list_task_attempts(session, task_id)
    edited = await list_edits(session, task_id)
    in_broker = {"broker": broker_shapes.message(await get_dead_message(session, row))}
    return shapes.dead_letter_detail(row, attempts) | edit_shapes.edited(row) | edit_shapes.edits(edited) | in_broker


@router.post("/bulk", status_code=202, responses=shows(Operation, 202) | shows(BulkResult))
async def act_on_many(
    request: Request,
    given: LettersBulkIn,
    query: Annotated[WaitQuery, Query()],
    caller: Judge,
    context: Context,
    desk: Desk,
) -> Response:
    """Retry, resolve, ignore, reopen or delete many: an operation; with `wait`, its result."""
    if given.patch is not None:
        check_room(caller)
    return await begin(request, caller, context, desk, given.spec(), given.because, wait=query.wait)


@router.post("/{task_id}/retry", responses=shows(RetriedLetter), dependencies=[Depends(no_query)])
async def retry_dead_letter(
    task_id: str, request: Request, caller: Judge, context: Context, given: RedriveIn | None = None
) -> Response:
    """Redrive: a new generation with the policy's full retries, due in its first delay, or at once with `now`.

    Of a lane it goes in its place while the lane is halted, else to the tail; `order` says otherwise.
    """
    wanted = id_in_path(task_id, NOUN)
    asked = given or RedriveIn()
    act = act_of(request, caller, asked.because)
    async with context.tenant(caller) as session:
        if asked.now:
            await refuse_behind(session, wanted)
        refusal = await dead_letters.redrive(
            session,
            wanted,
            act,
            context.clock,
            roll=random.random(),  # noqa: S311 (jitter, not a secret)
            at_once=asked.now,
            order=asked.order,
        )
        if refusal is not None:
            raise await explained(session, wanted, refusal, NOUN, context.clock)
        entry = await get_entry(session, wanted)
        assert entry is not None, "it was locked in this transaction"
    _, warning = await retried(context, caller, entry)
    async with context.tenant(caller) as session:
        row = await dead_letters.get_dead_letter(session, wanted)
    if row is None:
        raise not_found(NOUN)
    return answer(shapes.dead_letter(row) | {"warning": warning})


@router.post("/{task_id}/resolve", responses=shows(DeadLetter), dependencies=[Depends(no_query)])
async def resolve_dead_letter(
    task_id: str, request: Request, caller: Judge, context: Context, given: BecauseIn | None = None
) -> Response:
    """It was dealt with elsewhere."""
    return await _mark(task_id, "resolve", act_of(request, caller, given.because if given else None), caller, context)


@router.post("/{task_id}/ignore", responses=shows(DeadLetter), dependencies=[Depends(no_query)])
async def ignore_dead_letter(
    task_id: str, request: Request, caller: Judge, context: Context, given: BecauseIn | None = None
) -> Response:
    """It does not matter."""
    return await _mark(task_id, "ignore", act_of(request, caller, given.because if given else None), caller, context)


@router.post("/{task_id}/reopen", responses=shows(DeadLetter), dependencies=[Depends(no_query)])
async def reopen_dead_letter(
    task_id: str, request: Request, caller: Judge, context: Context, given: BecauseIn | None = None
) -> Response:
    """Resolving or ignoring it was a mistake: it is open again, where it stood. Not one that a replay delivered."""
    return await _mark(task_id, "reopen", act_of(request, caller, given.because if given else None), caller, context)


@router.delete("/{task_id}", status_code=204, dependencies=[Depends(no_query)])
async def delete_dead_letter(
    task_id: str, request: Request, caller: Judge, context: Context, given: BecauseIn | None = None
) -> Response:
    """Gone from every list; its log and an entry in the audit stay."""
    wanted = id_in_path(task_id, NOUN)
    act = act_of(request, caller, given.because if given else None)
    async with context.tenant(caller) as session:
        refusal = await dead_letters.mark(session, wanted, "delete", act)
        if refusal is not None:
            raise refused(refusal, NOUN)
    return Response(status_code=204)


async def _mark(task_id: str, verb: str, act: Act, caller: Caller, context: ApiContext) -> Response:
    wanted = id_in_path(task_id, NOUN)
    async with context.tenant(caller) as session:
        refusal = await dead_letters.mark(session, wanted, verb, act)
        if refusal is not None:
            raise refused(refusal, NOUN)
        return await _answer(session, wanted)


async def _answer(session: Session, task_id: UUID) -> Response:
    row = await dead_letters.get_dead_letter(session, task_id)
    assert row is not None, "it was locked in this transaction"
    return answer(shapes.dead_letter(row))
