"""Counters kept on write, added up over their shards."""

from collections.abc import Sequence

from redrive.store.db import Database, Session


async def count_of(session: Session, name: str) -> int:
    row = await session.fetchrow("count_of", session.org_id, name)
    return int(row["n"]) if row else 0


async def totals(db: Database, names: Sequence[str]) -> dict[str, int]:
    """Of all orgs together; as the engine, which sees them."""
    return {row["name"]: int(row["n"]) for row in await db.fetch("total_counters", list(names))}


async def counts(session: Session) -> dict[str, int]:
    rows = await session.fetch("counts", session.org_id)
    return {row["name"]: int(row["n"]) for row in rows}
