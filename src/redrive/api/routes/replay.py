"""Replay: a dead letter is tried again, with another payload or under another policy where the old were at fault."""

import random

from fastapi import APIRouter, Depends, Request, Response

from redrive.api import shapes
from redrive.api.answers import answer
from redrive.api.auth import SCHEMES, Judge
from redrive.api.context import Context, act_of
from redrive.api.meters import check_room, check_size
from redrive.api.problems import FieldError, invalid, not_found
from redrive.api.queries import id_in_path, no_query
from redrive.api.replay_input import STEP_KIND, ReplayIn, unusable_override
from redrive.api.routes.retry_queue import explained, refuse_behind, refused
from redrive.api.schemas.base import shows
from redrive.api.schemas.dead_letters import DeadLetter
from redrive.core.policy import PolicyError
from redrive.store import dead_letters, edits
from redrive.store.db import past_deadlocks
from redrive.store.edits import EditError
from redrive.store.replays import Replay, note_refused_replay, replay_letter
from redrive.store.retry_queue import Refusal

NOUN = "dead letter"

router = APIRouter(prefix="/v1/dead-letters", tags=["dead letters"], dependencies=[*SCHEMES, Depends(no_query)])


@router.post("/{task_id}/replay", responses=shows(DeadLetter))
async def replay_dead_letter(
    task_id: str, request: Request, caller: Judge, context: Context, given: ReplayIn | None = None
) -> Response:
    """Redrive with changes: an edited payload or headers, kept beside the original, or a policy of its own.

    Of a workflow's step: that step alone (STEP_ONLY), or from it or an earlier one on (FROM_STEP).
    """
    wanted = id_in_path(task_id, NOUN)
    asked = given or ReplayIn()
    edit, policy = asked.edit(await request.body()), asked.policy()
    if edit.body is not None:
        check_size(caller, edit.body)
        check_room(caller)
    act = act_of(request, caller, asked.because)

    async def begin() -> Response | None:
        async with context.tenant(caller) as session:
            letter = await dead_letters.get_dead_letter(session, wanted)
            if letter is None:
                raise not_found(NOUN)
            if asked.now:
                await refuse_behind(session, wanted)
            asked.check_kind(letter["kind"], has_endpoint=letter["endpoint_id"] is not None)
            roll = random.random()  # noqa: S311 (jitter, not a secret)
            try:
                if letter["kind"] == STEP_KIND:
                    how = (asked.new_idempotency_key, asked.now, asked.again)
                    replay = Replay(asked.mode or "FROM_STEP", edit, policy, *how)
                    refusal = await replay_letter(
                        session, wanted, asked.from_step_index, replay, act, context.clock, roll=roll
                    )
                else:
                    refusal = await edits.replay(
                        session,
                        wanted,
                        act,
                        context.clock,
                        edit=edit,
                        policy=policy,
                        roll=roll,
                        at_once=asked.now,
                        order=asked.order,
                        again=asked.again,
                    )
            except EditError as error:
                raise invalid(FieldError(("body", *error.place), str(error))) from None
            except PolicyError as error:
                raise unusable_override(error) from None
            if refusal is Refusal.RESOLVED:
                await note_refused_replay(session, wanted, act, is_step=letter["kind"] == STEP_KIND)
                return None
            if refusal is not None:
                raise await explained(session, wanted, refusal, NOUN, context.clock)
            row = await dead_letters.get_dead_letter(session, wanted)
        assert row is not None, "it was locked in this transaction"
        return answer(shapes.dead_letter(row))

    answered = await past_deadlocks(begin)  # a step's run may be gone on with at the same time
    if answered is None:
        raise refused(Refusal.RESOLVED, NOUN)
    return answered
