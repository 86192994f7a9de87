"""What the planner knows of the tables: kept up while they grow faster than autovacuum looks.

Called beside each worker.
"""

from redrive.store.db import Database


async def analyse_new(engine: Database) -> list[str]:
    """Analyse the tables that have grown several times over since they were last looked at; answers which."""
    row = await engine.fetchrow("analyse_new")
    return list(row["tables"]) if row else []
