"""The retry queue: open tasks that have failed before, and what a person may do with one of them.

Reads serve the API; retry_now and skip are audited in the same transaction.
"""

from collections.abc import Sequence
from enum import Enum
from uuid import UUID

from redrive.core.fingerprint import fingerprint
from redrive.store import audit
from redrive.store.audit import Act
from redrive.store.clock import Clock
from redrive.store.counters import count_of
from redrive.store.db import Record, Session
from redrive.store.paging import Page, page_of


class Refusal(Enum):
    """Why an action on a task cannot be done."""

    UNKNOWN = "unknown"
    IN_PROGRESS = "in_progress"
    HELD = "held"
    NOT_OPEN = "not_open"


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
            return None
        case "leased":
            return Refusal.IN_PROGRESS
    return Refusal.NOT_OPEN
