"""A private PostgreSQL for the bench: durable commits, one fresh database per run, figures of what a run cost.

The embedded server in a temporary folder, with its own settings but for those that would let one run disturb
another. Used by bench.run, the ceilings, the peers and Redrive's own side; all of them connect as the same role.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from redrive.store.embedded import EmbeddedPostgres

SETTINGS: Mapping[str, str] = {
    "max_connections": "200",
    "autovacuum": "off",  # dead rows are counted, and no run pays for the one before it
    "max_wal_size": "8GB",
    "checkpoint_timeout": "30min",  # each run starts after a CHECKPOINT; none may fall into the middle of one
}
LEAVE_TIMEOUT_S = 3.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True, slots=True)
class Cost:
    """What the server has done so far; the difference of two is the cost of a run."""

    wal_bytes: int
    commits: int
    dead_rows: int

    def since(self, before: Cost, n: int) -> dict[str, float]:
        return {
            "wal_bytes_per_job": (self.wal_bytes - before.wal_bytes) / n,
            "commits_per_job": (self.commits - before.commits) / n,
            "dead_rows_per_job": max(0, self.dead_rows - before.dead_rows) / n,
        }


class BenchPostgres:
    def __init__(self, embedded: EmbeddedPostgres, version: str) -> None:
        self._embedded = embedded
        self._databases = 0
        self.version = version

    async def fresh_database(self, name: str) -> str:
        """The URL of a new, empty database; nothing is left to write when it returns."""
        self._databases += 1
        database = re.sub(r"\W", "_", f"{name}_{self._databases}")
        await self._as_superuser(
            f"CREATE DATABASE {database} OWNER redrive STRATEGY file_copy",
            f"ALTER DATABASE {database} SET search_path = redrive, public",
            "CHECKPOINT",
        )
        return database_of(self._embedded.url, database)

    async def drop(self, url: str) -> None:
        await self._as_superuser(f"DROP DATABASE IF EXISTS {database_name(url)} WITH (FORCE)")

    @contextlib.asynccontextmanager
    async def database(self, name: str) -> AsyncIterator[str]:
        url = await self.fresh_database(name)
        try:
            yield url
        finally:
            await self.drop(url)

    async def _as_superuser(self, *statements: str) -> None:
        connection = await asyncpg.connect(self._embedded.superuser_url)
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()


def database_of(url: str, name: str) -> str:
    return re.sub(r"@([^/]*)/\w+", rf"@\1/{name}", url)


def database_name(url: str) -> str:
    found = re.search(r"@[^/]*/(\w+)", url)
    assert found is not None
    return found[1]


OTHERS = """SELECT count(*) FROM pg_stat_activity
 WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"""


async def cost(url: str) -> Cost:
    """What this database has cost. Waits until nobody else is connected: a backend reports when it ends."""
    connection = await asyncpg.connect(url)
    try:
        deadline = time.monotonic() + LEAVE_TIMEOUT_S
        while await connection.fetchval(OTHERS) and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        row = await connection.fetchrow(
            """SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint AS wal_bytes,
                      (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()) AS commits,
                      (SELECT coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_user_tables) AS dead_rows"""
        )
        return Cost(row["wal_bytes"], row["commits"], row["dead_rows"])
    finally:
        await connection.close()


@contextlib.asynccontextmanager
async def postgres() -> AsyncIterator[BenchPostgres]:
    """A running server for the length of the block, its folder removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="redrive-bench-", dir="/tmp"))
    try:
        folder.chmod(0o755)  # as root, the server runs under an account of its own
        embedded = await EmbeddedPostgres.start(folder / "data", settings=SETTINGS)
        try:
            connection = await asyncpg.connect(embedded.url)
            version = str(await connection.fetchval("SHOW server_version"))
            await connection.close()
            server = BenchPostgres(embedded, version)
            await server._as_superuser("GRANT pg_checkpoint TO redrive")
            yield server
        finally:
            await embedded.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
