"""Awa's side: `install`, `enqueue N` and `work`. Runs in a venv of its own; imports nothing of ours.

Database URL and receiver from BENCH_URL, BENCH_TARGET. The handler is Python, the engine Rust.
"""

import asyncio
import os
import sys
from dataclasses import dataclass

import aiohttp
import awa
import uvloop

BODY = "x" * 512
QUEUE = "deliver"
WORKERS = 500
CONNECTIONS = 20
ENQUEUE_BATCH = 5_000


@dataclass
class Deliver:
    body: str


async def install(url: str) -> None:
    async with awa.AsyncClient(url) as client:
        await client.migrate()
        await client.install_queue_storage()


async def enqueue(url: str, n: int) -> None:
    async with awa.AsyncClient(url) as client:
        for start in range(0, n, ENQUEUE_BATCH):
            jobs = [Deliver(BODY)] * min(ENQUEUE_BATCH, n - start)
            await client.enqueue_many_copy(jobs, queue=QUEUE)


async def work(url: str, target: str) -> None:
    client = awa.AsyncClient(url, max_connections=CONNECTIONS)
    connector = aiohttp.TCPConnector(limit=WORKERS)
    async with aiohttp.ClientSession(connector=connector) as session:

        @client.task(Deliver, queue=QUEUE)
        async def deliver(job: awa.Job) -> object:
            headers = {"webhook-id": str(job.id)}
            async with session.post(target, data=job.args.body.encode(), headers=headers) as response:
                await response.read()
                if response.status != 200:
                    return awa.RetryAfter(0)
            return None

        queue = {"name": QUEUE, "max_workers": WORKERS, "claim_batch_size": 512}
        await client.start([queue], poll_interval_ms=10, promote_interval_ms=10, leader_election_interval_ms=100)
        await asyncio.Event().wait()


if __name__ == "__main__":
    # Its driver refuses a URL without a host, even when a socket's folder is named.
    url, target = os.environ["BENCH_URL"].replace("@/", "@localhost/"), os.environ["BENCH_TARGET"]
    match sys.argv[1:]:
        case ["install"]:
            asyncio.run(install(url))
        case ["enqueue", count]:
            asyncio.run(enqueue(url, int(count)))
        case ["work"]:
            uvloop.run(work(url, target))
