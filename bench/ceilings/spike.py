"""The ceiling of delivery: a bare worker that claims, sends and settles in batches, and keeps nothing else.

Durable commits, claims of 400 with SKIP LOCKED, one UPDATE … FROM unnest per batch; no attempt rows, no fence,
no time-outs, no guards. `spike()` measures it; run as a module it is the worker process.
"""

from __future__ import annotations

import argparse
import asyncio
import os

import asyncpg

from bench.delivery import Delivery, Worker
from bench.model import BODY_BYTES, Run
from bench.postgres import BenchPostgres
from bench.processes import module
from bench.receiver import Receiver
from bench.wire import Pool, request_head

BATCH = 400
LOOPS = 3
CONNECTIONS = 128
IDLE_S = 0.005

SCHEMA = """
CREATE TABLE job (
  id bigint PRIMARY KEY, state text NOT NULL DEFAULT 'waiting', due_at timestamptz NOT NULL DEFAULT now(),
  attempts int NOT NULL DEFAULT 0, body bytea NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX job_due ON job (due_at, id) WHERE state IN ('waiting', 'leased');
"""
FILL = "INSERT INTO job (id, body) SELECT i, $2 FROM generate_series(1, $1::bigint) AS i"
CLAIM = """
WITH due AS MATERIALIZED (
  SELECT id FROM job WHERE state IN ('waiting', 'leased') AND due_at <= clock_timestamp()
   ORDER BY due_at, id LIMIT $1 FOR UPDATE SKIP LOCKED)
UPDATE job j SET state = 'leased', due_at = clock_timestamp() + interval '60 s'
  FROM due WHERE j.id = due.id RETURNING j.id, j.body
"""
SETTLE = """
UPDATE job j SET state = s.state, due_at = clock_timestamp(), attempts = attempts + 1
  FROM unnest($1::bigint[], $2::text[]) AS s (id, state) WHERE j.id = s.id
"""
UNSETTLED = "SELECT count(*) FROM job WHERE state <> 'done'"


async def spike(server: BenchPostgres, receiver: Receiver, n: int, *, processes: int = 1, flaky: bool = False) -> Run:
    """Fill a fresh database with n jobs and time their delivery."""
    await receiver.reset(flaky=flaky)
    async with server.database("spike") as url:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(SCHEMA)
            await connection.execute(FILL, n, b"x" * BODY_BYTES)
            await connection.execute("VACUUM ANALYZE job")
        finally:
            await connection.close()
        worker = Worker(module("bench.ceilings.spike", receiver.url), {"SPIKE_URL": url})
        return await Delivery("spike", n, worker, receiver, processes, url, UNSETTLED).run()


async def _deliver(database: asyncpg.Connection, pool: Pool, head: bytes) -> None:
    claim, settle = await database.prepare(CLAIM), await database.prepare(SETTLE)
    while True:
        rows = await claim.fetch(BATCH)
        if not rows:
            await asyncio.sleep(IDLE_S)
            continue
        statuses = await pool.send_all(b"%bwebhook-id: %d\r\n\r\n%b" % (head, row[0], row[1]) for row in rows)
        states = ["done" if status == 200 else "waiting" for status in statuses]
        await settle.fetch([row[0] for row in rows], states)


async def _work(target: str, url: str) -> None:
    pool = await Pool.open(target, CONNECTIONS)
    head = request_head(target, {"content-type": "application/json"}, BODY_BYTES)
    async with asyncio.TaskGroup() as group:
        for _ in range(LOOPS):
            group.create_task(_deliver(await asyncpg.connect(url), pool, head))


def main() -> None:
    import uvloop

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target")
    uvloop.run(_work(parser.parse_args().target, os.environ["SPIKE_URL"]))


if __name__ == "__main__":
    main()
