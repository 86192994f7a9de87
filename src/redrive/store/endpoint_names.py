"""Endpoints by what people call them. Read by the pages."""

from collections.abc import Iterable
from uuid import UUID

from redrive.store.db import Session

MAX_NAMES_OFFERED = 100


async def endpoint_names(session: Session, ids: Iterable[UUID | None]) -> dict[UUID, str]:
    wanted = list({each for each in ids if each is not None})
    rows = await session.fetch("endpoint_names", session.org_id, wanted) if wanted else []
    return {row["id"]: row["name"] for row in rows}


async def offered_names(session: Session) -> list[str]:
    """Some to choose from, by name."""
    return [row["name"] for row in await session.fetch("choose_endpoint_names", session.org_id, MAX_NAMES_OFFERED)]


async def endpoint_called(session: Session, called: str) -> UUID | None:
    """An endpoint by its name or its id; None where there is none."""
    try:
        return UUID(called)
    except ValueError:
        row = await session.fetchrow("find_endpoint", session.org_id, called)
        return row["id"] if row else None
