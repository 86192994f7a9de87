"""Whether the database answers and takes writes. Asked by the API's /readyz."""

from redrive.store.db import Database


async def is_writable(db: Database) -> bool:
    row = await db.fetchrow("is_writable")
    return bool(row and row["is_writable"])
