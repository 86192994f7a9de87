"""Runs of workflows: lists, one with its steps; cancelled, and replayed from any step."""

import random
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request, Response

from redrive.api import run_shapes, shapes
from redrive.api.answers import answer
from redrive.api.auth import SCHEMES, Judge, Reader
from redrive.api.context import Context, act_of
from redrive.api.cursors import ListPlace
from redrive.api.meters import check_room, check_size
from redrive.api.problems import FieldError, Problem, invalid, not_found
from redrive.api.queries import BecauseIn, id_in_path, no_query
from redrive.api.replay_input import unusable_override
from redrive.api.routes.retry_queue import refused
from redrive.api.schemas.base import Page, shows
from redrive.api.schemas.workflows import Run, RunDetail
from redrive.api.workflow_input import RunReplayIn, RunsQuery
from redrive.core.policy import PolicyError
from redrive.store import runs
from redrive.store.db import Session, past_deadlocks
from redrive.store.edits import EditError
from redrive.store.replays import replay_run
from redrive.store.retry_queue import Refusal
from redrive.store.runs import RunRefusal

NOUN = "run"

router = APIRouter(prefix="/v1/runs", tags=["workflows"], dependencies=SCHEMES)


@router.get("", responses=shows(Page[Run]))
async def list_runs(query: Annotated[RunsQuery, Query()], caller: Reader, context: Context) -> Response:
    """Newest first. `total_count` is null where there are too many to count."""
    place = ListPlace("runs", caller.org_id, query.filters())
    after = context.cursors.read(place, query.cursor)
    async with context.tenant(caller) as session:
        page = await runs.list_runs(session, query.chosen(), limit=query.limit, after=after)
    cursor = context.cursors.write(place, page.next_key) if page.next_key else None
    data = [run_shapes.run(row) for row in page.rows]
    return answer(shapes.page(data, limit=query.limit, cursor=cursor, total=page.total))


@router.get("/{run_id}", responses=shows(RunDetail), dependencies=[Depends(no_query)])
async def get_run(run_id: str, caller: Reader, context: Context) -> Response:
    """A run with its steps, their inputs and outputs; what looks secret in them is hidden."""
    async with context.tenant(caller) as session:
        return answer(await _detail(session, id_in_path(run_id, NOUN)))


@router.post("/{run_id}/cancel", responses=shows(RunDetail), dependencies=[Depends(no_query)])
async def cancel_run(
    run_id: str, request: Request, caller: Judge, context: Context, given: BecauseIn | None = None
) -> Response:
    """Try nothing more of it. A try that is under way ends first, then the run is FAILED; one that was cancelled
    stays so.
    """
    wanted = id_in_path(run_id, NOUN)
    act = act_of(request, caller, given.because if given else None)

    async def cancel() -> Response:
        async with context.tenant(caller) as session:
            refusal = await runs.cancel_run(session, wanted, act, context.clock)
            if refusal is not None:
                raise _refused(refusal)
            return answer(await _detail(session, wanted))

    return await past_deadlocks(cancel)


@router.post("/{run_id}/replay", responses=shows(RunDetail), dependencies=[Depends(no_query)])
async def replay_a_run(run_id: str, request: Request, given: RunReplayIn, caller: Judge, context: Context) -> Response:
    """Run a step again, and in the mode FROM_STEP all behind it, whether they had succeeded, died, or never begun."""
    wanted = id_in_path(run_id, NOUN)
    replay = given.replay(await request.body())
    if replay.edit.body is not None:
        check_size(caller, replay.edit.body)
    check_room(caller)
    act = act_of(request, caller, given.because)
    roll = random.random()  # noqa: S311 (jitter, not a secret)

    async def begin() -> Response:
        async with context.tenant(caller) as session:
            refusal = await replay_run(session, wanted, given.from_step_index, replay, act, context.clock, roll=roll)
            if refusal is not None:
                raise _refused(refusal)
            return answer(await _detail(session, wanted))

    try:
        return await past_deadlocks(begin)
    except EditError as error:
        raise invalid(FieldError(("body", *error.place), str(error))) from None
    except PolicyError as error:
        raise unusable_override(error) from None


def _refused(refusal: RunRefusal | Refusal) -> Problem:
    match refusal:
        case RunRefusal.UNKNOWN:
            return not_found(NOUN)
        case RunRefusal.ENDED:
            return Problem(409, "The run has ended: there is nothing left to cancel.")
        case RunRefusal.UNDER_WAY:
            return Problem(409, "The run is under way. Wait for its end, or cancel it, then replay.")
    return refused(refusal, NOUN)


async def _detail(session: Session, run_id: UUID) -> shapes.Shape:
    row = await runs.get_run(session, run_id)
    if row is None:
        raise not_found(NOUN)
    steps = await runs.get_steps(session, run_id)
    return run_shapes.run_detail(row, steps, await runs.policies_ahead(session, row))
