"""Counters are kept on write: they equal what is there, and keeping them makes nobody wait for anybody."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import asyncpg

from redrive.core.ports import NO_ENDPOINT, Place, Stream
from redrive.store.counters import count_of, counts
from redrive.store.db import query
from support.engine import Connection, Engine, ManualClock, claim_arguments

SHARDS = 64
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
COUNT = (
    "INSERT INTO redrive.counter AS c (org_id, name, shard, n) VALUES ($1, $2, redrive.own_shard(), 1)"
    " ON CONFLICT (org_id, name, shard) DO UPDATE SET n = c.n + 1"
)
ENQUEUE = "SELECT redrive.enqueue('edi.orders', '{}')"
BRUTE_FORCE = """
  SELECT CASE WHEN tasks > 0 THEN 'event.routed' WHEN acked_at IS NULL THEN 'event.inbox' ELSE 'event.acked' END,
         count(*) FROM redrive.event WHERE org_id = $1 GROUP BY 1
  UNION ALL SELECT 'event.bytes', sum(octet_length(body)) FROM redrive.event WHERE org_id = $1
  UNION ALL SELECT 'task.' || state, count(*) FROM redrive.task WHERE org_id = $1 GROUP BY 1
  UNION ALL SELECT 'dead.' || state, count(*) FROM redrive.dead_letter WHERE org_id = $1 GROUP BY 1
  UNION ALL SELECT 'retrying', count(*) FROM redrive.task
    WHERE org_id = $1 AND attempts > 0 AND state IN ('waiting', 'leased', 'held')
  UNION ALL SELECT 'further.' || s.name, s.tasks - s.events FROM (
    SELECT n.name, sum(n.tasks) AS tasks, count(*) FILTER (WHERE e.status = n.name) AS events
      FROM (SELECT CASE WHEN state IN ('succeeded', 'dead') THEN state ELSE 'open' END AS name, event_id,
                   count(*) AS tasks
              FROM redrive.task WHERE org_id = $1 GROUP BY 1, 2) n
      JOIN (SELECT event_id, CASE WHEN bool_or(state NOT IN ('succeeded', 'dead')) THEN 'open'
                                  WHEN bool_or(state = 'dead') THEN 'dead' ELSE 'succeeded' END AS status
              FROM redrive.task WHERE org_id = $1 GROUP BY 1) e USING (event_id)
     GROUP BY 1) s"""


async def test_counters_equal_what_is_there(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint("a")
    off = await engine.endpoint("b", disabled=True)
    other = await engine.org("other")
    await engine.accept_many(5)
    await engine.accept_many(3, org_id=other)
    jobs = await engine.claim()
    await engine.succeed(jobs[0])
    await engine.fail(jobs[1])
    await engine.kill(jobs[2])
    await engine.kill(jobs[3])
    await engine.redrive(jobs[3].id)
    await engine.change_endpoint(off, disabled=False)
    for org_id in (engine.org_id, other):
        expected = await engine.counts(BRUTE_FORCE, org_id)
        async with engine.app.tenant(org_id) as session:
            kept = await counts(session)
            assert await count_of(session, "event.queued") == expected.get("event.queued", 0)
        assert {name: n for name, n in kept.items() if n} == {name: n for name, n in expected.items() if n}


async def test_a_transaction_left_open_after_an_enqueue_holds_nobody_up(engine: Engine) -> None:
    """The caller's own transaction may stay open for minutes; claims and others go on, whichever shard they use."""
    async with _same_shard(engine) as (idle, busy):
        open_transaction = idle.transaction()
        await open_transaction.start()
        await idle.execute(ENQUEUE)
        await busy.execute("SET lock_timeout = '3s'")
        await busy.execute(ENQUEUE)
        stream = Stream(Place("handler:edi.orders", engine.org_id, NO_ENDPOINT), False)
        _, *arguments = claim_arguments(engine, stream)
        claimed = await busy.fetch(query("claim"), None, *arguments)
        assert len(claimed) == 1
        await open_transaction.commit()
    assert await engine.sql.fetchval("SELECT sum(n) FROM redrive.counter WHERE name LIKE 'task.%'") == 2


async def test_two_sessions_that_count_in_another_order_never_wait_in_a_ring(engine: Engine) -> None:
    """Accepting counts the event, then its tasks; settling the tasks, then their events."""
    await engine.endpoint()
    async with _same_shard(engine) as (accepting, settling):
        ours, theirs = accepting.transaction(), settling.transaction()
        await ours.start()
        await theirs.start()
        await accepting.execute("SET LOCAL lock_timeout = '3s'")
        await settling.execute("SET LOCAL lock_timeout = '3s'")
        await accepting.execute(COUNT, engine.org_id, "event.queued")
        await settling.execute(COUNT, engine.org_id, "task.waiting")
        await accepting.execute(COUNT, engine.org_id, "task.waiting")
        await settling.execute(COUNT, engine.org_id, "event.queued")
        await ours.commit()
        await theirs.commit()
    kept = await engine.counts("SELECT name, sum(n) FROM redrive.counter GROUP BY 1")
    assert kept == {"event.queued": 2, "task.waiting": 2}


async def test_more_sessions_than_shards_still_count_right(engine: Engine) -> None:
    connections = [await _connect(engine) for _ in range(SHARDS + 6)]
    try:
        for _ in range(2):
            await asyncio.gather(*(connection.execute(ENQUEUE) for connection in connections))
    finally:
        await asyncio.gather(*(connection.close() for connection in connections))
    assert await engine.sql.fetchval("SELECT sum(n) FROM redrive.counter WHERE name = 'task.waiting'") == 140
    assert await engine.sql.fetchval("SELECT sum(created) FROM redrive.pulse") == 140
    assert await engine.sql.fetchval("SELECT count(DISTINCT shard) FROM redrive.counter") <= SHARDS


@asynccontextmanager
async def _same_shard(engine: Engine) -> AsyncIterator[tuple[Connection, Connection]]:
    """Two sessions that would count in the same shard."""
    connections = [await _connect(engine)]
    try:
        first = connections[0].get_server_pid() % SHARDS
        while len(connections) < 2 or connections[-1].get_server_pid() % SHARDS != first:
            assert len(connections) < 2 * SHARDS
            connections.append(await _connect(engine))
            if len(connections) > 2:
                await connections.pop(1).close()
        yield connections[0], connections[1]
    finally:
        await asyncio.gather(*(connection.close() for connection in connections))


async def _connect(engine: Engine) -> Connection:
    return await asyncpg.connect(engine.url, server_settings={"role": "redrive_engine"})
