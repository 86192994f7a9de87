"""Tables that grow out of nothing are analysed at once, so that no plan is kept that was made for empty ones."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest_asyncio

from redrive.core.decide import Succeed
from redrive.core.outcome import Success
from redrive.core.ports import NO_EXCHANGE, Settlement
from redrive.engine.statistics import keep_statistics
from redrive.store.db import query
from redrive.store.statistics import analyse_new
from redrive.store.tasks import _success_columns
from support.engine import Engine, ManualClock, open_engine, until


@pytest_asyncio.fixture(loop_scope="session")
async def young(database_url: str, clock: ManualClock) -> AsyncIterator[Engine]:
    """A database that nobody has analysed."""
    async with open_engine(database_url, clock) as engine:
        yield engine


async def test_a_table_is_analysed_when_it_has_grown_several_times_over_and_not_before(young: Engine) -> None:
    await young.endpoint()
    await young.accept_many(10)
    assert await analyse_new(young.db) == []
    await young.accept_many(1_000)
    assert {"event", "task"} <= set(await analyse_new(young.db))
    assert await analyse_new(young.db) == []
    await young.accept_many(1_000)
    assert await analyse_new(young.db) == []
    await young.accept_many(5_000)
    assert "task" in await analyse_new(young.db)


async def test_a_plan_that_was_made_for_an_empty_table_does_not_outlive_it(young: Engine) -> None:
    """Settling reads by the primary key, also on a connection that prepared it when there was nothing."""
    await young.endpoint()
    await young.accept()
    await young.succeed(await young.claim_one())
    await young.accept_many(2_000)
    await analyse_new(young.db)
    jobs = await young.claim(50)
    batch = [Settlement(job, Success(200), Succeed(), NO_EXCHANGE, 0.1) for job in jobs]
    columns = [young.clock.now(), *_success_columns(batch), None]
    async with young.db.transaction() as session:
        text = f"EXPLAIN (FORMAT JSON) {query('settle_succeeded')}"
        (plan,) = json.loads(await session._connection.fetchval(text, *columns))
    assert "task_pkey" in json.dumps(plan)
    assert "task_of_event" not in json.dumps(plan)


async def test_whoever_keeps_them_goes_on_where_the_database_was_away(young: Engine) -> None:
    calls = 0

    async def analyse() -> list[str]:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ConnectionError("away")
        return await analyse_new(young.db)

    async def twice() -> bool:
        return calls > 2

    keeping = asyncio.create_task(keep_statistics(analyse, every_s=0.01))
    try:
        await until(twice)
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
