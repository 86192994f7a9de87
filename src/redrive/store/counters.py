"""Counters kept on write, added up over their shards."""

from redrive.store.db import Session


async def count_of(session: Session, name: str) -> int:
    row = await session.fetchrow("count_of", session.org_id, name)
    return int(row["n"]) if row else 0


async def counts(session: Session) -> dict[str, int]:
    rows = await session.fetch("counts", session.org_id)
    return {row["name"]: int(row["n"]) for row in rows}
