"""Runs of workflows: begun once, read, cancelled. Replaying them is store.replays' business.

Called by the API, the pages and the command line; every action of a person is audited where it happens.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from datetime import datetime
from enum import Enum
from uuid import UUID

import msgspec

from redrive.core.lifecycle import EventStatus
from redrive.core.run_states import UNDER_WAY, RunStatus, step_key
from redrive.core.workflow import DEFAULT_POLICY
from redrive.store import audit, transitions
from redrive.store.audit import Act
from redrive.store.clock import Clock
from redrive.store.counters import count_of
from redrive.store.db import Record, Session
from redrive.store.events import new_correlation_id
from redrive.store.paging import MAX_COUNTED, Page, page_of
from redrive.store.steps import Next, next_step, overrides_of, scope_of, skip_step, time_for
from redrive.store.transitions import tell_of, tell_run
from redrive.store.workflows import Binding, Version

MAX_EXECUTIONS_SHOWN = 50
MAX_RUNS_COUNTED = 1_000  # of one workflow and status, where many workflows are counted at once

ENDED = frozenset({RunStatus.SUCCESS, RunStatus.FAILED, RunStatus.PARTIAL})


class RunRefusal(Enum):
    """Why an action on a run cannot be done."""

    UNKNOWN = "unknown"
    ENDED = "ended"
    UNDER_WAY = "under_way"


@dataclass(frozen=True, slots=True)
class NewRun:
    """`id` tells runs apart: the same one again is the same run."""

    id: UUID
    input: bytes
    correlation_id: str = field(default_factory=new_correlation_id)
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class RunFilter:
    workflow: str | None = None
    status: str | None = None
    since: datetime | None = None
    until: datetime | None = None


def first_step(version: Version, run: NewRun, now: datetime) -> Next:
    """The first step of a run that is about to begin, made ready."""
    facts = {"id": run.id, "correlation_id": run.correlation_id, "input": run.input}
    scope = scope_of(version, facts, {})
    return next_step(version, run.id, 0, scope, step_key(str(run.id), 0), now)


async def begin_run(session: Session, version: Version, run: NewRun, act: Act, clock: Clock) -> str:
    """Store it with its first step. The verdict is accepted, duplicate, or conflict: known with another input. As the
    engine: whoever may hand in events may begin runs.
    """
    step = first_step(version, run, await time_for(session, version.workflow.steps[0], clock))
    given = (run.input, run.correlation_id, run.traceparent, act.actor)
    row = await session.fetchrow("begin_run", version.org_id, version.id, run.id, *given, *step[3:], clock.now())
    assert row is not None
    verdict: str = row["verdict"]
    if verdict == "accepted":
        tell_run(
            session,
            None,
            RunStatus.PENDING,
            org_id=version.org_id,
            run_id=run.id,
            workflow=version.workflow.name,
            correlation_id=run.correlation_id,
            created_by=act.actor,
            actor=act.actor,
        )
    return verdict


async def list_runs(session: Session, chosen: RunFilter, *, limit: int, after: Sequence[object] | None) -> Page:
    """Newest first."""
    rows = await session.fetch("list_runs", session.org_id, *astuple(chosen), *(after or (None, None)), limit + 1)
    return page_of(rows, limit, ("created_at", "id"), await _total(session, chosen))


async def _total(session: Session, chosen: RunFilter) -> int | None:
    if chosen == RunFilter(status=chosen.status):
        statuses = [chosen.status] if chosen.status else list(RunStatus)
        return sum([await count_of(session, f"run.{status}") for status in statuses])
    row = await session.fetchrow("count_runs", session.org_id, *astuple(chosen), MAX_COUNTED + 1)
    return row["n"] if row and row["n"] <= MAX_COUNTED else None


async def count_runs_of(session: Session, workflows: Sequence[str]) -> dict[str, dict[str, int]]:
    """By workflow and status, no further than MAX_RUNS_COUNTED; what there is none of is left out."""
    found: dict[str, dict[str, int]] = {name: {} for name in workflows}
    asked = (list(workflows), list(RunStatus), MAX_RUNS_COUNTED)
    for row in await session.fetch("count_runs_of", session.org_id, *asked):
        found[row["workflow"]][row["status"]] = row["n"]
    return found


async def get_run(session: Session, run_id: UUID) -> Record | None:
    return await session.fetchrow("get_run", session.org_id, run_id)


async def get_steps(session: Session, run_id: UUID, *, max_body_bytes: int | None = None) -> list[Record]:
    """Those that the run has come to, in their order, each with its task and its dead letter as they are now.

    `max_body_bytes`: inputs and outputs that are longer are None.
    """
    return await session.fetch("get_run_steps", session.org_id, run_id, max_body_bytes)


async def get_step_input(session: Session, run_id: UUID, index: int) -> bytes | None:
    """What the next try of a step would be given; None where the run has not come to it."""
    row = await session.fetchrow("get_step_input", session.org_id, run_id, index)
    return row["body"] if row is not None else None


async def list_executions(session: Session, run_id: UUID) -> list[Record]:
    """The tasks of steps that were run again since, newest first."""
    return await session.fetch("list_executions", session.org_id, run_id, MAX_EXECUTIONS_SHOWN)


async def cancel_run(session: Session, run_id: UUID, act: Act, clock: Clock) -> RunRefusal | None:
    """Nothing more of it is tried. A try that is under way ends first; then the run has failed."""
    tasks = await session.fetch("lock_run_tasks", session.org_id, run_id)
    run = await session.fetchrow("lock_run", session.org_id, run_id)
    if run is None:
        return RunRefusal.UNKNOWN
    if run["status"] in ENDED:
        return RunRefusal.ENDED
    # Under way, it was asked for before, and whoever was first did it. Else a letter was opened again since.
    if run["cancelled_at"] is None or run["status"] not in UNDER_WAY:
        await session.execute("cancel_run", session.org_id, run_id, clock.now(), act.actor, act.because)
        await audit.record(session, act, "run.cancel", "run", run_id, before={"status": run["status"]})
        tell_of(session, run, RunStatus.FAILED, act.actor)
    for task in tasks:
        if task["state"] in ("waiting", "held"):
            await skip_step(session, task, clock)
            await transitions.tell(
                session, act, EventStatus.QUEUED, EventStatus.FAILED, event_id=task["event_id"], task_id=task["id"]
            )
        elif task["letter_state"] == "open":
            await session.execute(
                "mark_dead_letter",
                session.org_id,
                task["id"],
                "ignored",
                act.actor,
                act.because or "the run was cancelled",
            )
    return None


async def policies_ahead(session: Session, run: Record, *, overridden: bool = True) -> dict[int, Record]:
    """Under which policy each step of a run would be tried if the run came to it now, by index. `overridden`: with
    what people replayed it under.
    """
    steps = msgspec.json.decode(run["shown"])["steps"]
    bindings = msgspec.json.decode(run["bindings"], type=list[Binding])
    names = [step["policy"] if isinstance(step["policy"], str) else DEFAULT_POLICY for step in steps]
    overrides = overrides_of(run) if overridden else {}
    ids = [binding.policy_id for binding in bindings if binding.policy_id is not None] + [*overrides.values()]
    rows = await session.fetch("policies_of_steps", session.org_id, sorted({*names, DEFAULT_POLICY}), ids)
    by_id = {row["id"]: row for row in rows}
    by_name = {row["name"]: row for row in rows if row["in_force"]}
    found: dict[int, Record] = {}
    for index, (name, binding) in enumerate(zip(names, bindings, strict=True)):
        row = by_id.get(overrides.get(index, binding.policy_id)) or by_name.get(name) or by_name.get(DEFAULT_POLICY)
        if row is not None:
            found[index] = row
    return found
