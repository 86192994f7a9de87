"""The retry queue: what failed and will be tried again, and a person's hand in it."""

import random
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request, Response

from redrive.api import shapes
from redrive.api.answers import answer
from redrive.api.auth import SCHEMES, Operator, Reader
from redrive.api.bulk import begin
from redrive.api.bulk_input import QueueBulkIn, WaitQuery
from redrive.api.context import ApiContext, Context, act_of
from redrive.api.cursors import ListPlace
from redrive.api.operation_desk import Desk
from redrive.api.problems import FieldError, Problem, invalid, not_found
from redrive.api.queries import BecauseIn, RetryIn, RetryQueueQuery, id_in_path, no_query
from redrive.api.retrying import retried
from redrive.api.schemas.base import Page, shows
from redrive.api.schemas.operations import BulkResult, Operation
from redrive.api.schemas.retry_queue import RetriedEntry, RetryQueueEntry
from redrive.store import pausing, retry_queue
from redrive.store.audit import Act
from redrive.store.clock import Clock
from redrive.store.db import Record, Session
from redrive.store.dead_letters import redrive
from redrive.store.lanes import NOBODY_AHEAD, Ahead, ahead_of
from redrive.store.paging import Sort
from redrive.store.pausing import NO_HOLD, Hold
from redrive.store.retry_queue import Refusal

NOUN = "retry-queue entry"

router = APIRouter(prefix="/v1/retry-queue", tags=["retry queue"], dependencies=SCHEMES)


def refused(refusal: Refusal, noun: str) -> Problem:
    """Why a person's action on a task was not done."""
    match refusal:
        case Refusal.UNKNOWN:
            return not_found(noun)
        case Refusal.IN_PROGRESS:
            return Problem(409, "A try is under way. Wait for its result, then decide.")
        case Refusal.HELD:
            return held(NO_HOLD)
        case Refusal.REPLAYING:
            return Problem(
                409,
                "It is being replayed already: its task waits in the retry queue, or is tried right now. Wait for its "
                "end, or skip it there, then decide.",
            )
        case Refusal.RESOLVED:
            return Problem(409, "This dead letter is already resolved. To replay it anyway, send again: true.")
        case Refusal.NOT_OPEN:
            return Problem(409, "It is finished already: there is nothing left to do.")
        case Refusal.NO_LANE:
            return invalid(FieldError(("body", "order"), "the task is in no lane: leave order out"))
        case Refusal.BEHIND:
            return behind(NOBODY_AHEAD)
        case Refusal.RUN_UNDER_WAY:
            return Problem(409, "Another step of its run is under way. Wait for its end, or cancel the run.")
        case Refusal.OF_RUN:
            return Problem(409, "It holds the input of a step, and is kept as long as the run is.")


async def explained(session: Session, task_id: UUID, refusal: Refusal, noun: str, clock: Clock) -> Problem:
    """The same, naming what stands in the way."""
    match refusal:
        case Refusal.HELD:
            return held(await pausing.hold_of(session, task_id, clock))
        case Refusal.BEHIND:
            return behind(await ahead_of(session, task_id))
    return refused(refusal, noun)


async def refuse_behind(session: Session, task_id: UUID) -> None:
    """Problem 409 where a dead letter would not be tried at once, since others of its lane come first."""
    ahead = await ahead_of(session, task_id)
    if ahead != NOBODY_AHEAD:
        raise behind(ahead)


def behind(ahead: Ahead) -> Problem:
    """Why one that is not the head of its lane cannot be tried now."""
    if ahead.halted_by is not None:
        return Problem(
            409,
            f"Its lane is halted by the dead letter {ahead.halted_by}. Retry, resolve or ignore that one, or resume "
            "the lane: then its turn comes.",
        )
    if ahead.head is not None:
        return Problem(
            409,
            f"It waits behind others of its lane: {ahead.head} is first. Retry or skip that one: then its turn comes.",
        )
    return Problem(409, "It waits behind others of its lane. Its turn comes when they have ended.")


def held(hold: Hold) -> Problem:
    """Why nothing can be tried now, and what to do about it."""
    return Problem(409, hold.refusal or "It is held, or was a moment ago. GET /v1/retries and its endpoint show why.")


@router.get("", responses=shows(Page[RetryQueueEntry]))
async def list_retry_queue(query: Annotated[RetryQueueQuery, Query()], caller: Reader, context: Context) -> Response:
    """Open tasks that have failed before, soonest next retry first; `sort` says otherwise.

    Where more than 10 000 match, `sort` is ignored: soonest first.
    """
    place = ListPlace("retry-queue", caller.org_id, query.filters())
    after = context.cursors.read(place, query.cursor)
    async with context.tenant(caller) as session:
        page = await retry_queue.list_retry_queue(
            session, query.chosen(), limit=query.limit, after=after, sort=Sort.read(query.sort)
        )
        holds = await pausing.holds_of(session, [row["id"] for row in page.rows], context.clock)
    cursor = context.cursors.write(place, page.next_key) if page.next_key else None
    data = [shapes.held_by(shapes.entry(row), holds.get(row["id"])) for row in page.rows]
    return answer(shapes.page(data, limit=query.limit, cursor=cursor, total=page.total))


@router.get("/{task_id}", responses=shows(RetryQueueEntry), dependencies=[Depends(no_query)])
async def get_entry(task_id: str, caller: Reader, context: Context) -> Response:
    """One task that has failed before, whatever became of it: to see how a retry went."""
    wanted = id_in_path(task_id, NOUN)
    async with context.tenant(caller) as session:
        row = await retry_queue.get_failed_entry(session, wanted)
        if row is None:
            raise not_found(NOUN)
        hold = await pausing.hold_of(session, wanted, context.clock)
    return answer(shapes.held_by(shapes.failed_entry(row), hold))


@router.post("/bulk-retry", status_code=202, responses=shows(Operation, 202) | shows(BulkResult))
async def bulk_retry(
    request: Request,
    given: QueueBulkIn,
    query: Annotated[WaitQuery, Query()],
    caller: Operator,
    context: Context,
    desk: Desk,
) -> Response:
    """Try many at once: an operation; with `wait`, its result."""
    return await begin(request, caller, context, desk, given.spec("retry"), given.because, wait=query.wait)


@router.post("/bulk-skip", status_code=202, responses=shows(Operation, 202) | shows(BulkResult))
async def bulk_skip(
    request: Request,
    given: QueueBulkIn,
    query: Annotated[WaitQuery, Query()],
    caller: Operator,
    context: Context,
    desk: Desk,
) -> Response:
    """Give many up: an operation; with `wait`, its result."""
    return await begin(request, caller, context, desk, given.spec("skip"), given.because, wait=query.wait)


@router.post("/{task_id}/retry", responses=shows(RetriedEntry), dependencies=[Depends(no_query)])
async def retry_entry(
    task_id: str, request: Request, caller: Operator, context: Context, given: RetryIn | None = None
) -> Response:
    """Try it at once, despite a breaker or a rate limit. A dead letter is redriven instead: in its policy's first
    delay, or at once with `now`. The answer says how it stands once the try has begun, or after a second.
    """
    wanted = id_in_path(task_id, NOUN)
    asked = given or RetryIn()
    act = act_of(request, caller, asked.because)
    async with context.tenant(caller) as session:
        refusal = await retry_queue.retry_now(session, wanted, act, context.clock)
        if refusal is Refusal.NOT_OPEN:
            refusal = await _redrive(context, session, wanted, act, at_once=asked.now)
        if refusal is not None:
            raise await explained(session, wanted, refusal, NOUN, context.clock)
        row = await _entry(session, wanted)
    row, warning = await retried(context, caller, row)
    return answer(shapes.entry(row) | {"warning": warning})


async def _redrive(context: ApiContext, session: Session, task_id: UUID, act: Act, *, at_once: bool) -> Refusal | None:
    """For a task that is dead. One that has succeeded without ever having died is finished, not unknown."""
    if (await _entry(session, task_id))["state"] != "dead":
        return Refusal.NOT_OPEN
    if at_once:
        await refuse_behind(session, task_id)
    return await redrive(session, task_id, act, context.clock, roll=random.random(), at_once=at_once)  # noqa: S311


@router.post("/{task_id}/skip", responses=shows(RetryQueueEntry), dependencies=[Depends(no_query)])
async def skip_entry(
    task_id: str, request: Request, caller: Operator, context: Context, given: BecauseIn | None = None
) -> Response:
    """Give it up: it stands among the dead letters with the reason `skipped`."""
    wanted = id_in_path(task_id, NOUN)
    act = act_of(request, caller, given.because if given else None)
    async with context.tenant(caller) as session:
        refusal = await retry_queue.skip(session, wanted, act, context.clock)
        if refusal is not None:
            raise refused(refusal, NOUN)
        row = await _entry(session, wanted)
    return answer(shapes.entry(row))


async def _entry(session: Session, task_id: UUID) -> Record:
    row = await retry_queue.get_entry(session, task_id)
    assert row is not None, "it was locked in this transaction"
    return row
