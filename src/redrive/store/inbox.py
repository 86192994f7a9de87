"""The inbox: events that nobody delivers, for a program that fetches them, and those that failed.

Serves the API. Acknowledging is audited in the same transaction.
"""

from collections.abc import Sequence
from uuid import UUID

from redrive.core.lifecycle import EventStatus
from redrive.store import audit, transitions
from redrive.store.audit import Act
from redrive.store.clock import Clock
from redrive.store.counters import count_of
from redrive.store.db import Session
from redrive.store.events import get_event_status
from redrive.store.paging import Page

MAX_PAGE_BYTES = 8 * 1_048_576  # of payloads
_UNCOUNTED = -1


async def list_inbox(
    session: Session,
    *,
    status: str,
    event_type: str | None,
    limit: int,
    after: Sequence[object] | None,
    max_bytes: int = MAX_PAGE_BYTES,
) -> Page:
    """Oldest timestamp first, ties by arrival; with payloads of `max_bytes` together, one at least.

    The total is None with a type, and where it would take long to count. It is counted once, for the first page: to
    count takes longer than to read, so the key of the next page carries it on.
    """
    name = "list_inbox_failed" if status == "failed" else "list_inbox"
    *place, counted = after or (None, None, None, None)
    rows = await session.fetch(name, session.org_id, event_type, *place, limit + 1, max_bytes)
    kept = rows[:limit]
    if counted is None:
        counted = _UNCOUNTED if event_type else await _count(session, status)
    assert isinstance(counted, int)
    has_more = bool(rows) and rows[0]["found"] > len(kept)
    next_key = (kept[-1]["occurred_at"], kept[-1]["received_at"], kept[-1]["id"], counted) if has_more else None
    return Page(kept, next_key, None if counted == _UNCOUNTED else counted)


async def _count(session: Session, status: str) -> int:
    if status == "received":
        return await count_of(session, "event.inbox")
    row = await session.fetchrow("count_events", session.org_id, status)
    return _UNCOUNTED if row is None or row["n"] is None else int(row["n"])


async def acknowledge(session: Session, event_id: UUID, act: Act, clock: Clock) -> str | None:
    """Take an event out of the inbox. Answers where the event stood before; None: there is no such event.

    Only one that was `received` is changed.
    """
    if await session.fetchrow("ack_event", session.org_id, event_id, clock.now(), act.actor) is not None:
        await audit.record(session, act, "event.ack", "event", event_id)
        await transitions.tell(session, act, EventStatus.RECEIVED, EventStatus.DELIVERED, event_id=event_id)
        return "received"
    stands = await get_event_status(session, event_id)
    return None if stands is None else str(stands["status"])
