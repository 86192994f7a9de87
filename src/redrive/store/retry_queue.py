"""The retry queue: open tasks that have failed before, and what a person may do with one of them.

Reads serve the API; what a person does is audited in the same transaction.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from redrive.core.decide import Reason
from redrive.core.fingerprint import fingerprint
from redrive.core.lifecycle import retry_count
from redrive.core.policy import Policy, PolicyKind, retry_delay
from redrive.store import audit, transitions
from redrive.store.audit import Act
from redrive.store.clock import Clock
from redrive.store.counters import count_of
from redrive.store.db import Record, Session, like_literal, like_pattern
from redrive.store.paging import LOOK_FACTOR, MAX_COUNTED, MAX_LOOKED, Page, Sort, page_of, page_of_looks
from redrive.store.pausing import hold_of
from redrive.store.policies import policy_of, retries_granted
from redrive.store.snapshots import keep_payloads
from redrive.store.workers import SERVED_BY_THE_API, SILENT_AFTER_S

KEY = ("due_at", "id")
SORTS = ("next_retry_at", "created_at", "event_type", "external_system", "retry_count")
SOONEST = Sort("next_retry_at")
MAX_FAILURES_LOOKED = 5_000  # entries, for one page or a total, where the last failure of each must be looked up


@dataclass(frozen=True, slots=True)
class RetryQueueFilter:
    """Which entries. In `event_type` a `*` stands for anything. `category` and `q` ask of the last failure; `q` is a
    text in its message or in the event type.
    """

    status: str | None = None
    event_type: str | None = None
    external_system: str | None = None
    endpoint_id: UUID | None = None
    category: str | None = None
    q: str | None = None

    @property
    def columns(self) -> tuple[object, ...]:
        return (
            self.status,
            None if self.event_type is None else like_pattern(self.event_type),
            self.external_system,
            self.endpoint_id,
            self.category,
            f"%{like_literal(self.q)}%" if self.q else None,
        )

    @property
    def asks_of_failure(self) -> bool:
        return self.category is not None or self.q is not None


class Refusal(Enum):
    """Why an action on a task cannot be done."""

    UNKNOWN = "unknown"
    IN_PROGRESS = "in_progress"
    HELD = "held"
    REPLAYING = "replaying"
    NOT_OPEN = "not_open"
    NO_LANE = "no_lane"  # a place in a lane was asked for
    BEHIND = "behind"  # others of its lane come first
    RESOLVED = "resolved"  # and nobody asked for another replay of it
    RUN_UNDER_WAY = "run_under_way"  # another step of its run is being carried out
    OF_RUN = "of_run"  # it belongs to a run, and goes with it


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
    chosen: RetryQueueFilter,
    *,
    limit: int,
    after: Sequence[object] | None,
    sort: Sort = SOONEST,
) -> Page:
    """Soonest next retry first, or sorted as asked while at most MAX_COUNTED match; else `is_by_time`.

    With filters a page may be short, or empty, and yet have a next one: it ends where enough entries were looked at.
    The total is None where the filter was not asked of the whole queue.
    """

    if sort != SOONEST:
        total = await _total(session, chosen)
        is_walk = after is not None and isinstance(after[0], datetime)
        if total is not None and total <= MAX_COUNTED and not is_walk:
            given = (*chosen.columns, MAX_COUNTED + 1, sort.column, sort.descends, *(after or (None, None)), limit + 1)
            rows = await session.fetch("sort_retry_queue", session.org_id, *given)
            return page_of(rows, limit, ("sort_key", "id"), total)
        by_time = await list_retry_queue(session, chosen, limit=limit, after=after if is_walk else None)
        return replace(by_time, is_by_time=True)

    async def read(look: int) -> list[Record]:
        place = after or (None, None)
        return await session.fetch("list_retry_queue", session.org_id, *chosen.columns, *place, limit + 1, look)

    is_filtered = chosen != RetryQueueFilter()
    most_looked = MAX_FAILURES_LOOKED if chosen.asks_of_failure else MAX_LOOKED
    looks = (limit * LOOK_FACTOR, most_looked) if is_filtered else (limit + 1,)
    page = await page_of_looks(read, looks, limit, KEY)
    if is_filtered and after is None and page.next_key is None:
        return replace(page, total=len(page.rows))
    return replace(page, total=await _total(session, chosen))


async def _total(session: Session, chosen: RetryQueueFilter) -> int | None:
    whole = await count_of(session, "retrying")
    if chosen == RetryQueueFilter():
        return whole
    most_counted = MAX_FAILURES_LOOKED if chosen.asks_of_failure else MAX_COUNTED
    if whole > most_counted:
        return None
    counted = await session.fetchrow("count_retry_queue", session.org_id, *chosen.columns, most_counted + 1)
    return counted["n"] if counted else None


async def get_entry(session: Session, task_id: UUID) -> Record | None:
    """A task as people see it, whatever its state."""
    return await session.fetchrow("get_entry", session.org_id, task_id)


async def get_failed_entry(session: Session, task_id: UUID) -> Record | None:
    """One that has failed before, whatever became of it: also where it has succeeded, or is dead, since."""
    return await session.fetchrow("get_failed_entry", session.org_id, task_id)


async def progress_of(session: Session, task_ids: Sequence[UUID]) -> list[Progress]:
    return [Progress(*row) for row in await session.fetch("progress_of", session.org_id, list(task_ids))]


async def retry_now(session: Session, task_id: UUID, act: Act, clock: Clock) -> Refusal | None:
    """Have a waiting task tried at once, whatever a breaker or a limit says. Not one that would not be tried: behind
    others of its lane, or shut.
    """
    entry = await session.fetchrow("lock_task", session.org_id, task_id)
    if entry is None or not _has_failed(entry):
        return Refusal.UNKNOWN
    match entry["state"]:
        case "waiting" if entry["behind"]:
            return Refusal.BEHIND
        case "waiting" if (await hold_of(session, task_id, clock)).shut:
            return Refusal.HELD
        case "waiting":
            await session.execute("expedite", session.org_id, task_id, clock.now())
            await audit.record(session, act, "task.retry", "task", task_id)
            return None
        case "leased":
            return Refusal.IN_PROGRESS
        case "held":
            return Refusal.HELD
    return Refusal.NOT_OPEN


async def is_served(session: Session, queue: str, clock: Clock) -> bool:
    """Whether a worker that serves it was heard of lately."""
    if queue in SERVED_BY_THE_API:
        return True
    row = await session.fetchrow("is_served", clock.now(), queue, SILENT_AFTER_S)
    return bool(row and row["is_so"])


async def skip(session: Session, task_id: UUID, act: Act, clock: Clock) -> Refusal | None:
    """Give a failed task up: it dies with the reason `skipped` and stands among the dead letters."""
    entry = await session.fetchrow("lock_task", session.org_id, task_id)
    if entry is None or not _has_failed(entry):
        return Refusal.UNKNOWN
    match entry["state"]:
        case "waiting" | "held":
            full = await get_entry(session, task_id)
            assert full is not None
            message = full["error_message"] or "Skipped by a person."
            category = full["category"] or "unknown"
            place = str(full["endpoint_id"] or full["queue"])
            mark = fingerprint(full["kind"], place, category, message)
            died = await session.fetchrow("skip_task", session.org_id, task_id, clock.now(), category, mark, message)
            assert died is not None, "it was locked in this transaction"
            if entry["run_id"] is not None:
                await keep_payloads(session, [(session.org_id, task_id)])
            await audit.record(session, act, "task.skip", "task", task_id)
            moved = transitions.Moved(entry["event_id"], task_id, retries_granted(entry, entry["attempts"]))
            how = (session, act, [moved], [message])
            await transitions.tell_given_up(*how, reason=Reason.SKIPPED, failed_at=died["failed_at"])
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
    if entry is None or not _has_failed(entry):
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


def _has_failed(entry: Record) -> bool:
    """Whether a task has failed before. A step that is replayed has, though its new generation begins without a try."""
    return entry["attempts"] > 0 or entry["generation"] > 0 or entry["state"] in ("dead", "succeeded")


async def replan(
    session: Session, task_id: UUID, policy_id: UUID, policy: Policy, act: Act, clock: Clock, *, roll: float
) -> Refusal | None:
    """Put a failed task into the retry queue under a policy: one that waits goes on under it from its next retry on, a
    dead one begins a new generation.
    """
    entry = await session.fetchrow("lock_task", session.org_id, task_id)
    if entry is None or not _has_failed(entry):
        return Refusal.UNKNOWN
    if entry["state"] != "waiting":
        return {"leased": Refusal.IN_PROGRESS, "held": Refusal.HELD}.get(entry["state"], Refusal.NOT_OPEN)
    delay = retry_delay(policy, retry_count(entry["attempts"]), roll)
    delay_s = None if delay is None else delay.total_seconds()
    moved = await session.fetchrow("replan_task", session.org_id, task_id, clock.now(), policy_id, delay_s)
    assert moved is not None, "it waits, and is locked by this transaction"
    after = {"policy": policy.public_kind, "max_retries": policy.max_retries, "next_retry_at": moved["due_at"]}
    await audit.record(session, act, "task.schedule", "task", task_id, after=after)
    return None


def _longest_delay_s(policy: Policy) -> float:
    """How far a retry may be put off: `redrive check` takes a task that is due later than that for forgotten."""
    cap_s = policy.cap_s if policy.kind is PolicyKind.EXPONENTIAL else 0.0
    return (1 + policy.jitter) * max(policy.max_retry_after_s, cap_s, *policy.delays_s)
