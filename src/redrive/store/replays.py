"""Replaying runs, from any step: because a person asks, and audited with what they asked for.

Called by the API's replay routes. A step that had succeeded gets another task; one that died goes on with its own, in a
new generation, so that its dead letter tells all of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

import msgspec

from redrive.core.lifecycle import DeadLetterState, TaskState
from redrive.core.ports import STEP_QUEUE
from redrive.core.run_states import UNDER_WAY, RunStatus, step_key
from redrive.core.steps import is_of_input
from redrive.core.workflow import StepKind, StepSpec
from redrive.store import audit
from redrive.store.audit import Act
from redrive.store.clock import Clock
from redrive.store.db import Record, Session
from redrive.store.edits import NO_EDIT, Edit, EditError, Override, Terms, edit_to, override_terms, replay
from redrive.store.pausing import hold_of
from redrive.store.policies import policy_of
from redrive.store.retry_queue import Refusal
from redrive.store.runs import RunRefusal, get_run, policies_ahead
from redrive.store.steps import Next, enqueue, kept_outputs, next_step, overrides_of, scope_of, time_for
from redrive.store.transitions import tell_of
from redrive.store.workflows import Version, Versions

Mode = Literal["STEP_ONLY", "FROM_STEP"]
REPLAYS = "workflow.dlq_replays"
REFUSED_REPLAYS = "workflow.dlq_replays_refused"


@dataclass(frozen=True, slots=True)
class Replay:
    """What to run again, and how. `edit`: another input for the step that it begins with."""

    mode: Mode = "FROM_STEP"
    edit: Edit = NO_EDIT
    policy: Override | None = None  # of every step that it runs
    new_key: bool = False  # otherwise receivers that know the old one take it for the same
    at_once: bool = True
    again: bool = False  # also a dead letter that is resolved already


async def replay_letter(
    session: Session, task_id: UUID, from_step: int | None, asked: Replay, act: Act, clock: Clock, *, roll: float
) -> Refusal | None:
    """From a dead letter of a step: that step again, alone or with what follows, or from an earlier one on."""
    place = await session.fetchrow("get_step_of_task", session.org_id, task_id)
    if place is None:
        return Refusal.UNKNOWN
    await session.fetch("lock_run_tasks", session.org_id, place["run_id"])
    place = await session.fetchrow("get_step_of_task", session.org_id, task_id)
    if place is None:
        return Refusal.UNKNOWN
    is_resolved = place["letter_state"] == DeadLetterState.RESOLVED
    if place["letter_state"] == DeadLetterState.REPLAYING:
        return Refusal.REPLAYING
    if is_resolved and not asked.again:
        return Refusal.RESOLVED
    if not place["is_current"] and not is_resolved:
        return Refusal.NOT_OPEN
    own: int = place["step"]
    if from_step is not None and asked.mode == "STEP_ONLY" and from_step != own:
        raise EditError("only the step itself is replayed in the mode STEP_ONLY", "from_step_index")
    if from_step is not None and from_step > own:
        why = f"the dead letter's own step is {own}: to go on behind it, resolve it, and replay the run from there"
        raise EditError(why, "from_step_index")
    refusal = await replay_run(
        session, place["run_id"], own if from_step is None else from_step, asked, act, clock, roll=roll
    )
    if isinstance(refusal, RunRefusal):
        return Refusal.RUN_UNDER_WAY if refusal is RunRefusal.UNDER_WAY else Refusal.UNKNOWN
    if refusal is None and place["task_state"] != TaskState.DEAD:
        await _note_replay(session, task_id, asked, act, clock)
    return refusal


async def _note_replay(session: Session, task_id: UUID, asked: Replay, act: Act, clock: Clock) -> None:
    """Count and audit the replay of a dead letter whose task has succeeded: another task runs, the letter stays."""
    await session.execute("note_replay", session.org_id, task_id, clock.now(), act.actor, act.because)
    await session.execute("count_steps", [session.org_id], [REPLAYS], [1])
    after = {"mode": asked.mode, "again": True}
    state = {"state": DeadLetterState.RESOLVED.value}
    await audit.record(session, act, "dead_letter.replay", "dead_letter", task_id, before=state, after=after)


async def note_refused_replay(session: Session, task_id: UUID, act: Act, *, is_step: bool) -> None:
    """Audit that somebody asked for the replay of a dead letter that is resolved already. Of steps it is counted."""
    await audit.record(session, act, "dead_letter.replay_refused", "dead_letter", task_id, after={"state": "resolved"})
    if is_step:
        await session.execute("count_steps", [session.org_id], [REFUSED_REPLAYS], [1])


async def replay_run(
    session: Session, run_id: UUID, index: int, asked: Replay, act: Act, clock: Clock, *, roll: float
) -> RunRefusal | Refusal | None:
    """Run a step again, and in the mode FROM_STEP all behind it. EditError or PolicyError where what was asked cannot
    be.
    """
    tasks = await session.fetch("lock_run_tasks", session.org_id, run_id)
    run = await session.fetchrow("lock_run", session.org_id, run_id)
    if run is None:
        return RunRefusal.UNKNOWN
    if run["status"] in UNDER_WAY:
        return RunRefusal.UNDER_WAY
    if index >= run["steps"]:
        raise EditError(f"the run has {run['steps']} steps, counted from 0", "from_step_index")
    if asked.edit.changes_something and (await _spec_of(session, run, index)).kind is StepKind.WAIT:
        raise EditError("a step that waits sends nothing that could be edited", "payload")
    current = {task["step"]: task for task in tasks if task["is_current"]}
    task = current.get(index)
    is_redriven = task is not None and _can_be_redriven(task)
    if asked.at_once and task is not None and is_redriven and (await hold_of(session, task["id"], clock)).shut:
        return Refusal.HELD  # before anything is changed
    overrides = overrides_of(run)
    terms: dict[int, Terms] = {}
    if asked.policy is not None:
        last = index if asked.mode == "STEP_ONLY" else run["steps"] - 1
        terms = await _terms(session, run, range(index, last + 1), current, asked.policy)
        overrides |= {step: each.id for step, each in terms.items()}
    if asked.mode == "FROM_STEP":
        await _return_to_pending(session, run_id, [task for step, task in current.items() if step > index], act, clock)
    if asked.new_key:
        last = index if asked.mode == "STEP_ONLY" else run["steps"]
        await session.execute("renew_keys", session.org_id, run_id, index, last)
    if task is not None and is_redriven:
        edit = await _with_new_key(session, run, task, clock) if asked.new_key else NO_EDIT
        refusal = await replay(
            session,
            task["id"],
            act,
            clock,
            edit=asked.edit if asked.edit.changes_something else edit,
            policy=asked.policy,
            terms=terms.get(index),
            roll=roll,
            at_once=asked.at_once,
            again=True,
        )
        if refusal is not None:
            return refusal
        if task["queue"] == STEP_QUEUE:
            step = await _made_ready(session, run, index, clock)
            if step.due_in_s:
                await session.execute("put_off_step", session.org_id, task["id"], clock.now(), step.due_in_s)
    else:
        await _run_again(session, run, index, asked, overrides.get(index), clock)
    stop_after = index if asked.mode == "STEP_ONLY" else None
    kept = msgspec.json.encode(overrides).decode() if overrides else None
    await session.execute("resume_run", session.org_id, run_id, clock.now(), stop_after, kept)
    after: dict[str, object] = {"mode": asked.mode, "from_step_index": index}
    after |= {"override_retry_policy": asked.policy, "new_key": asked.new_key}
    after["edited"] = asked.edit.body is not None
    await audit.record(session, act, "run.replay", "run", run_id, before={"status": run["status"]}, after=after)
    tell_of(session, run, RunStatus.RUNNING, act.actor)
    return None


async def _terms(
    session: Session, run: Record, steps: range, current: Mapping[int, Record], policy: Override
) -> dict[int, Terms]:
    """What an override comes to for each step: it is laid over the step's own policy, not over another override."""
    described = await get_run(session, run["id"])
    assert described is not None, "it is locked"
    ahead = await policies_ahead(session, described, overridden=False)
    replayed = overrides_of(run)
    begun = {step: current[step]["policy_id"] for step in steps if step in current and step not in replayed}
    rows = await session.fetch("policies_of_steps", session.org_id, [], sorted(set(begun.values())))
    own = {row["id"]: row for row in rows}
    found: dict[int, Terms] = {}
    known: dict[UUID, Terms] = {}
    for step in steps:
        base = own[begun[step]] if step in begun else ahead[step]
        if base["id"] not in known:
            known[base["id"]] = await override_terms(session, policy, policy_of(base))
        found[step] = known[base["id"]]
    return found


def _can_be_redriven(task: Record) -> bool:
    return bool(task["state"] == "dead" and task["letter_state"] != "deleted")


async def _with_new_key(session: Session, run: Record, task: Record, clock: Clock) -> Edit:
    """The key may stand in what the step sends, too: that is rendered anew, but for a body that a person wrote. While
    a step before it is yet to run again, its output is missing: then all stays as it was rendered.
    """
    if len(await session.fetch("done_outputs", session.org_id, run["id"], task["step"])) < task["step"]:
        return NO_EDIT
    step = await _made_ready(session, run, task["step"], clock)
    if step.problem is not None:
        return NO_EDIT
    await session.execute("renew_step", session.org_id, run["id"], task["step"], step.url, step.headers or "{}")
    return NO_EDIT if task["edit"] is not None else await edit_to(session, task["id"], step.body)


async def _return_to_pending(session: Session, run_id: UUID, tasks: Sequence[Record], act: Act, clock: Clock) -> None:
    """Steps that the replay will come to. The letters of those that had died are being replayed from now on."""
    parked = [task["id"] for task in tasks if _can_be_redriven(task)]
    again = [task["step"] for task in tasks if not _can_be_redriven(task)]
    if again:
        await session.execute("reset_steps", session.org_id, run_id, again)
    if parked:
        await session.execute("park_letters", session.org_id, parked, clock.now(), act.actor, act.because)
        for task_id in parked:
            await audit.record(
                session,
                act,
                "dead_letter.replay",
                "dead_letter",
                task_id,
                after={"run_id": run_id, "mode": "FROM_STEP"},
            )


async def _run_again(
    session: Session, run: Record, index: int, asked: Replay, policy_id: UUID | None, clock: Clock
) -> None:
    """Another task for a step that had succeeded, that was not reached, or whose letter was deleted. `policy_id`: of
    an override.
    """
    await session.execute("reset_steps", session.org_id, run["id"], [index])
    if asked.edit.headers is not None or asked.edit.discard:
        raise EditError("only a dead letter keeps headers and edits", "headers")
    step = await _made_ready(session, run, index, clock)
    if asked.edit.body is not None:
        problem = step.problem
        step = step._replace(body=asked.edit.body, problem=None if problem and is_of_input(problem) else problem)
    if policy_id is not None:
        step = step._replace(policy_id=policy_id)
    await enqueue(session, [step], clock)


async def _made_ready(session: Session, run: Record, index: int, clock: Clock) -> Next:
    """A step as the run would come to it now."""
    version = await _version_of(session, run)
    done = await session.fetch("done_outputs", session.org_id, run["id"], index)
    scope = scope_of(version, run, kept_outputs((row["name"], row["output"], row["output_is_cut"]) for row in done))
    known = await session.fetchrow("get_step_key", session.org_id, run["id"], index)
    key = known["idempotency_key"] if known else step_key(str(run["id"]), index)
    now = await time_for(session, version.workflow.steps[index], clock)
    return next_step(version, run["id"], index, scope, key, now)


async def _spec_of(session: Session, run: Record, index: int) -> StepSpec:
    return (await _version_of(session, run)).workflow.steps[index]


async def _version_of(session: Session, run: Record) -> Version:
    versions = await Versions().load(session, [(session.org_id, run["workflow_id"])])
    return versions[run["workflow_id"]]
