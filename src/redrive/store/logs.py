"""Integration logs: one record per task, read from the task and its attempts. It outlives the dead letter."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from redrive.store.db import Record, Session, like_pattern
from redrive.store.paging import LOOK_FACTOR, MAX_COUNTED, MAX_LOOKED, Page, Sort

SORTS = ("created_at", "updated_at", "event_type", "external_system", "status", "attempt_count")
NEWEST = Sort("created_at", descends=True)
_LAST_ID = UUID(int=0)  # before all tasks of an event, in a list that descends


@dataclass(frozen=True, slots=True)
class LogFilter:
    """Which logs. In `event_type` a `*` stands for anything. `since` and `until` ask when the event was received."""

    status: str | None = None  # pending, error, success
    event_type: str | None = None
    external_system: str | None = None
    endpoint_id: UUID | None = None
    event_id: UUID | None = None
    since: datetime | None = None
    until: datetime | None = None

    @property
    def columns(self) -> tuple[object, ...]:
        pattern = None if self.event_type is None else like_pattern(self.event_type)
        place = (self.external_system, self.endpoint_id, self.event_id)
        return self.status, pattern, *place, self.since, self.until


async def list_logs(
    session: Session, chosen: LogFilter, *, limit: int, after: Sequence[object] | None, sort: Sort = NEWEST
) -> Page:
    """Newest first, or sorted as asked while at most MAX_COUNTED events are looked at; else `is_by_time`.

    By time a page may be short, or empty, and yet have a next one: it ends where enough events were looked at. The
    total is None where not all were.
    """
    is_walk = after is not None and isinstance(after[0], datetime)
    if sort != NEWEST and not is_walk:
        key = after or (None, None)
        order = (MAX_COUNTED + 1, sort.column, sort.descends, *key)
        rows = await session.fetch("list_logs", session.org_id, *chosen.columns, None, None, None, limit + 1, *order)
        if not rows or rows[0]["looked"] <= MAX_COUNTED:
            return _page(rows, limit, ("sort_key", "id"), is_whole=True)
    place = after if after is not None and is_walk else (None, None, None)
    for look in (limit * LOOK_FACTOR, MAX_LOOKED):
        walk = (*place, limit + 1, look, None, False, None, None)
        rows = await session.fetch("list_logs", session.org_id, *chosen.columns, *walk)
        is_whole = not rows or rows[0]["looked"] < look
        page = _page(rows, limit, ("created_at", "event_id", "id"), is_whole=is_whole and not is_walk)
        if is_whole or page.next_key is not None:
            break
    else:
        page = Page(page.rows, (rows[0]["looked_at"], rows[0]["looked_id"], _LAST_ID))
    return Page(page.rows, page.next_key, page.total, is_by_time=sort != NEWEST)


def _page(rows: list[Record], limit: int, key: Sequence[str], *, is_whole: bool) -> Page:
    found = [row for row in rows if row["id"] is not None]
    total = (rows[0]["matched"] if rows else 0) if is_whole else None
    if len(found) <= limit:
        return Page(found, None, total)
    kept = found[:limit]
    return Page(kept, tuple(kept[-1][column] for column in key), total)


async def get_log(session: Session, log_id: UUID) -> Record | None:
    return await session.fetchrow("get_log", session.org_id, log_id)


async def list_task_attempts(session: Session, task_id: UUID) -> list[Record]:
    """The tries of a task, of all generations, oldest first; an open lease is a try without an end.

    The newest 1 000; `older` is true in their rows where there are more.
    """
    return await session.fetch("list_attempts", session.org_id, None, task_id)
