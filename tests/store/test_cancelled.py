"""Whoever is cancelled while the database goes away hears that it is cancelled, and soon: a loop that goes on after
errors would else never end.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from redrive.store.db import Database, Pooler
from redrive.store.orgs import new_id
from support.proxy import Proxy, postgres_proxy

QUERY, TABLE = "tail_secret", "redrive.installation"
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
SOON_S = 5.0  # asyncpg by itself gives a server that is silent a minute

Use = Callable[[Database], Awaitable[object]]


async def by_itself(db: Database) -> None:
    await db.fetchrow(QUERY)


async def in_a_transaction(db: Database) -> None:
    async with db.transaction() as session:
        await session.fetchrow(QUERY)


async def as_a_tenant(db: Database) -> None:
    async with db.tenant(new_id()) as session:
        await session.fetchrow(QUERY)


def gone(folder: Path, proxy: Proxy) -> None:
    """Nobody new gets in, as while a server stops: also not who wants to cancel a query."""
    next(folder.glob(".s.PGSQL.*")).unlink()


def silent(folder: Path, proxy: Proxy) -> None:
    proxy.go_silent()


@pytest.mark.parametrize("use", [by_itself, in_a_transaction, as_a_tenant])
@pytest.mark.parametrize("trouble", [gone, silent])
@pytest.mark.parametrize("pooler", ["none", "transaction"])
async def test_a_query_that_is_cancelled_while_the_database_goes_away_ends_as_cancelled(
    database_url: str,
    data_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    use: Use,
    trouble: Callable[[Path, Proxy], None],
    pooler: Pooler,
) -> None:
    monkeypatch.setattr("redrive.store.db.TIDY_WITHIN_S", 0.2)
    async with postgres_proxy(database_url, data_dir) as (proxy, url), _locked(database_url) as waits:
        db = await Database.open(url, role="redrive_engine", size=1, pooler=pooler)
        using = asyncio.ensure_future(use(db))
        await waits()
        trouble(data_dir, proxy)
        using.cancel()
        await asyncio.wait({using}, timeout=SOON_S)
        assert using.cancelled(), using
        proxy.heal()
        await db.close()


@asynccontextmanager
async def _locked(url: str) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Whoever reads the table waits; the block is given what waits until somebody does."""
    connection = await asyncpg.connect(url)

    async def waits() -> None:
        async with asyncio.timeout(10):
            while not await connection.fetchval(WAITING):
                await asyncio.sleep(0.01)

    try:
        async with connection.transaction():
            await connection.execute(f"LOCK TABLE {TABLE} IN ACCESS EXCLUSIVE MODE")
            yield waits
    finally:
        await connection.close()
