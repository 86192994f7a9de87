"""PgQueuer's side: `install`, `enqueue N` and `work`. Runs in a venv of its own, so it imports nothing of ours.

Database URL, receiver and job from BENCH_URL, BENCH_TARGET, BENCH_FLAKY.
"""

import asyncio
import logging
import os
import sys
from datetime import timedelta

import aiohttp
import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.core.executors import DatabaseRetryEntrypointExecutor
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

BODY = b"x" * 512
BATCH = 100
CONNECTIONS = 100
ENQUEUE_BATCH = 1_000


async def install(url: str) -> None:
    connection = await asyncpg.connect(url)
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


async def enqueue(url: str, n: int) -> None:
    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    for start in range(0, n, ENQUEUE_BATCH):
        size = min(ENQUEUE_BATCH, n - start)
        await queries.enqueue(["deliver"] * size, [BODY] * size, [0] * size)
    await connection.close()


async def work(url: str, target: str) -> None:
    logging.disable(logging.CRITICAL)
    connection = await asyncpg.connect(url)
    queue = PgQueuer.from_asyncpg_connection(connection)
    connector = aiohttp.TCPConnector(limit=CONNECTIONS)
    async with aiohttp.ClientSession(connector=connector) as session:

        def executor(parameters: object) -> DatabaseRetryEntrypointExecutor:
            return DatabaseRetryEntrypointExecutor(parameters, max_attempts=5, initial_delay=timedelta(0))

        @queue.entrypoint("deliver", executor_factory=executor)
        async def deliver(job: object) -> None:
            headers = {"webhook-id": str(job.id)}
            async with session.post(target, data=job.payload, headers=headers) as response:
                await response.read()
                response.raise_for_status()

        await queue.run(batch_size=BATCH, dequeue_timeout=timedelta(milliseconds=100))


if __name__ == "__main__":
    url, target = os.environ["BENCH_URL"], os.environ["BENCH_TARGET"]
    match sys.argv[1:]:
        case ["install"]:
            asyncio.run(install(url))
        case ["enqueue", count]:
            asyncio.run(enqueue(url, int(count)))
        case ["work"]:
            uvloop.run(work(url, target))
