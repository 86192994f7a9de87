"""What was delivered to an endpoint, is to be, or could not be. Read by the API."""

from collections.abc import Sequence
from uuid import UUID

from redrive.store.db import Session
from redrive.store.paging import Page

MAX_ROWS_LOOKED_AT = 10_000  # for one page of a filtered list


async def list_deliveries(
    session: Session, endpoint_id: UUID, *, status: str | None, limit: int, after: Sequence[object] | None
) -> Page:
    """Newest first. With a status a page may be short and lead on: no index tells what became of a task."""
    look_at = limit + 1 if status is None else MAX_ROWS_LOOKED_AT
    found = await session.fetchrow(
        "find_deliveries", session.org_id, endpoint_id, status, after[0] if after else None, limit + 1, look_at
    )
    assert found is not None
    ids: list[UUID] = found["ids"]
    rows = await session.fetch("list_deliveries", session.org_id, ids[:limit]) if ids else []
    if len(ids) > limit:
        return Page(rows, (ids[limit - 1],))
    # All that were looked at are told of: there may be more behind them only where the look ended at its bound.
    return Page(rows, (found["last"],) if found["looked"] == look_at else None)
