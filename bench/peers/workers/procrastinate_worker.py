"""Procrastinate's side: `install`, `enqueue N` and `work`. Runs in a venv of its own; imports nothing of ours.

Database URL and receiver from BENCH_URL, BENCH_TARGET.
"""

import asyncio
import logging
import os
import sys

import aiohttp
import procrastinate
import uvloop

BODY = "x" * 512
CONCURRENCY = 30
POOL = 20
ENQUEUE_BATCH = 1_000

app = procrastinate.App(
    connector=procrastinate.PsycopgConnector(conninfo=os.environ["BENCH_URL"], min_size=1, max_size=POOL)
)
session: aiohttp.ClientSession | None = None


@app.task(name="deliver", pass_context=True, retry=procrastinate.RetryStrategy(max_attempts=5, wait=0))
async def deliver(context: procrastinate.JobContext, body: str) -> None:
    headers = {"webhook-id": str(context.job.id)}
    async with session.post(os.environ["BENCH_TARGET"], data=body.encode(), headers=headers) as response:
        await response.read()
        response.raise_for_status()


async def install() -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def enqueue(n: int) -> None:
    async with app.open_async():
        for start in range(0, n, ENQUEUE_BATCH):
            jobs = [{"body": BODY}] * min(ENQUEUE_BATCH, n - start)
            await deliver.batch_defer_async(*jobs)


async def work() -> None:
    global session
    logging.disable(logging.CRITICAL)
    async with aiohttp.ClientSession() as session, app.open_async():
        await app.run_worker_async(
            concurrency=CONCURRENCY, fetch_job_polling_interval=0.05, delete_jobs="never", listen_notify=True
        )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["install"]:
            asyncio.run(install())
        case ["enqueue", count]:
            asyncio.run(enqueue(int(count)))
        case ["work"]:
            uvloop.run(work())
