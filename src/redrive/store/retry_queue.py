"""The retry queue: open tasks that have failed before, and what a person may do with one of them.

Reads serve the API; what a person does is audited in the same transaction.
"""

from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from redrive.core.fingerprint import fingerprint
from redrive.core.lifecycle import EventStatus, retry_count
from redrive.core.policy import Policy, PolicyKind, retry_delay
from redrive.store import audit, transitions
from redrive.store.audit import Act
from redrive.store.clock import Clock
from redrive.store.counters import count_of
from redrive.store.db import Record, Session
from redrive.store.paging import Page, page_of
from redrive.store.policies import policy_of, retries_granted


class Refusal(Enum):
    """Why an action on a task cannot be done."""

    UNKNOWN = "unknown"
    IN_PROGRESS = "in_progress"
    HELD = "held"
    REPLAYING = "replaying"
    NOT_OPEN = "not_open"


class Progress(NamedTuple):
    """How far a task has come."""

    id: UUID
    state: str
    attempts: int
    generation: int

    def is_tried_since(self, earlier: "Progress") -> bool:
        done = self.state in ("succeeded", "dead")
        return done or (self.generation, self.attempts) != (earlier.generation, earlier.attempts)


class Unschedulable(ValueError):
    """The time that was asked for cannot be had. The message says why."""


async def list_retry_queue(
    session: Session,
    *,
    status: str | None,
    event_type: str | None,
    external_system: str | None,
    endpoint_id: UUID | None,
    limit: int,
    after: Sequence[object] | None,
) -> Page:
    """Soonest next retry first."""
    filters = (status, event_type, external_system, endpoint_id)
    rows = await session.fetch("list_retry_queue", session.org_id, *filters, *(after or (None, None)), limit + 1)
    if any(filters):
        counted = await session.fetchrow("count_retry_queue", session.org_id, *filters)
        total = counted["n"] if counted else 0
    else:
        total = await count_of(session, "retrying")
    return page_of(rows, limit, ("due_at", "id"), total)


async def get_entry(session: Session, task_id: UUID) -> Record | None:
    """A task as people see it, whatever its state."""
    return await session.fetchrow("get_entry", session.org_id, task_id)


async def progress_of(session: Session, task_ids: Sequence[UUID]) -> list[Progress]:
    return [Progress(*row) for row in await session.fetch("progress_of", session.org_id, list(task_ids))]


async def retry_now(session: Session, task_id: UUID, act: Act, clock: Clock) -> Refusal | None:
    """Make a waiting task due at once."""
    entry = await session.fetchrow("lock_task", session.org_id, task_id)
    if entry is None or (entry["attempts"] == 0 and entry["state"] != "dead"):
        return Refusal.UNKNOWN
    match entry["state"]:
        case "waiting":
            await session.execute("expedite", session.org_id, task_id, clock.now())
            await audit.record(session, act, "task.retry", "task", task_id)
            return None
        case "leased":
            return Refusal.IN_PROGRESS
        case "held":
            return Refusal.HELD
    return Refusal.NOT_OPEN


async def skip(session: Session, task_id: UUID, act: Act, clock: Clock) -> Refusal | None:
    """Give a failed task up: it dies with the reason `skipped` and stands among the dead letters."""
    entry = await session.fetchrow("lock_task", session.org_id, task_id)
    if entry is None or (entry["attempts"] == 0 and entry["state"] not in ("dead", "succeeded")):
        return Refusal.UNKNOWN
    match entry["state"]:
        case "waiting" | "held":
            full = await get_entry(session, task_id)
            assert full is not None
            message = full["error_message"] or "Skipped by a person."
            category = full["category"] or "unknown"
            place = str(full["endpoint_id"] or full["queue"])
            mark = fingerprint(full["kind"], place, category, message)
            await session.execute("skip_task", session.org_id, task_id, clock.now(), category, mark, message)
            await audit.record(session, act, "task.skip", "task", task_id)
            retries = retries_granted(entry, entry["attempts"])
            old, new = EventStatus.QUEUED, EventStatus.FAILED
            transitions.tell(
                session, act, old, new, event_id=entry["event_id"], task_id=task_id, retry_attempts=retries
            )
            return None
        case "leased":
            return Refusal.IN_PROGRESS
    return Refusal.NOT_OPEN


async def schedule(
    session: Session,
    task_id: UUID,
    act: Act,
    clock: Clock,
    *,
    roll: float,
    at: datetime | None = None,
    delay_s: float | None = None,
) -> Refusal | None:
    """Move the next retry of a waiting task: to a time, by a delay from now, or else by its policy's own delay."""
    entry = await session.fetchrow("lock_task", session.org_id, task_id)
    if entry is None or (entry["attempts"] == 0 and entry["state"] not in ("dead", "succeeded")):
        return Refusal.UNKNOWN
    if entry["state"] != "waiting":
        return {"leased": Refusal.IN_PROGRESS, "held": Refusal.HELD}.get(entry["state"], Refusal.NOT_OPEN)
    policy = policy_of(entry)
    if at is None and delay_s is None:
        delay = retry_delay(policy, retry_count(entry["attempts"]), roll)
        if delay is None:
            raise Unschedulable("Its policy never retries by itself. Say when: a time or a delay.")
        delay_s = delay.total_seconds()
    longest_s = _longest_delay_s(policy)
    moved = await session.fetchrow("schedule_task", session.org_id, task_id, clock.now(), at, delay_s, longest_s)
    if moved is None:
        raise Unschedulable(f"Its policy reaches {longest_s:g} s from now at most. Choose an earlier time.")
    await audit.record(
        session,
        act,
        "task.schedule",
        "task",
        task_id,
        before={"next_retry_at": None if entry["due_at"].year == datetime.max.year else entry["due_at"]},
        after={"next_retry_at": moved["due_at"]},
    )
    return None


def _longest_delay_s(policy: Policy) -> float:
    """How far a retry may be put off: `redrive check` takes a task that is due later than that for forgotten."""
    cap_s = policy.cap_s if policy.kind is PolicyKind.EXPONENTIAL else 0.0
    return (1 + policy.jitter) * max(policy.max_retry_after_s, cap_s, *policy.delays_s)
