"""Whether the database answers and takes writes. Asked by the API's /readyz and by that of workers."""

from redrive.store.db import LOST, Database


async def is_writable(db: Database) -> bool:
    row = await db.fetchrow("is_writable")
    return bool(row and row["is_writable"])


async def prove_commits(db: Database) -> None:
    """Commit something, where events would be stored: waits as long as they would, for a lock or for the disk."""
    async with db.transaction() as session:
        await session.execute("lock_for_events")
        await session.fetchrow("note_commit")


async def why_not_writable(db: Database) -> str | None:
    """For a person to read; None: it is."""
    try:
        return None if await is_writable(db) else "The database takes no writes."
    except LOST as problem:
        return f"The database does not answer ({type(problem).__name__})."
