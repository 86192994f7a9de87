"""Counters kept on write, added up over their shards."""

from collections.abc import Mapping

from redrive.store.db import Session


async def count_of(session: Session, name: str) -> int:
    row = await session.fetchrow("count_of", session.org_id, name)
    return int(row["n"]) if row else 0


async def counts(session: Session) -> dict[str, int]:
    rows = await session.fetch("counts", session.org_id)
    return {row["name"]: int(row["n"]) for row in rows}


def open_tasks(counted: Mapping[str, int]) -> int:
    return sum(counted.get(f"task.{state}", 0) for state in ("waiting", "leased", "held"))


def events_by_status(counted: Mapping[str, int]) -> dict[str, int]:
    """Count stored events: tasks in a state, less further ones of an event that is counted already."""
    return {
        "received": counted.get("event.inbox", 0),
        "queued": open_tasks(counted) - counted.get("further.open", 0),
        "delivered": counted.get("task.succeeded", 0)
        - counted.get("further.succeeded", 0)
        + counted.get("event.acked", 0),
        "failed": counted.get("task.dead", 0) - counted.get("further.dead", 0),
    }
