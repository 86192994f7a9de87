"""The ceiling of batch ingest: INSERT … SELECT FROM unnest, 1 000 rows a commit, on one connection.

`insert()` measures it; run as a module it is the inserting process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from uuid import uuid4

import asyncpg

from bench.ceilings.ingest import INSERT_MANY, SCHEMA, event_body
from bench.model import Run, latency_figures
from bench.postgres import BenchPostgres
from bench.processes import command, module

ROWS_PER_BATCH = 1_000
MAX_BATCHES = 20_000


async def insert(server: BenchPostgres, *, seconds: float, connections: int = 1) -> Run:
    async with server.database("insert") as url:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(SCHEMA)
        finally:
            await connection.close()
        argv = module("bench.ceilings.insert", seconds, connections)
        out = json.loads(await command(argv, env={"INSERT_URL": url}, timeout_s=seconds + 30))
        return Run.timed("insert unnest", out["n"], out["seconds"], out["latency"])


async def _insert(seconds: float, connections: int, url: str) -> dict[str, object]:
    body = event_body()
    bodies = [body] * ROWS_PER_BATCH
    databases = [await asyncpg.connect(url) for _ in range(connections)]
    latencies_ms: list[float] = []
    begin = time.perf_counter()

    async def one(database: asyncpg.Connection) -> None:
        statement = await database.prepare(INSERT_MANY)
        while time.perf_counter() - begin < seconds and len(latencies_ms) < MAX_BATCHES:
            started = time.perf_counter()
            await statement.fetch([uuid4() for _ in bodies], bodies)
            latencies_ms.append((time.perf_counter() - started) * 1000)

    await asyncio.gather(*map(one, databases))
    elapsed = time.perf_counter() - begin
    return {"n": len(latencies_ms) * ROWS_PER_BATCH, "seconds": elapsed, "latency": latency_figures(latencies_ms)}


def main() -> None:
    import uvloop

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", type=float)
    parser.add_argument("connections", type=int)
    args = parser.parse_args()
    print(json.dumps(uvloop.run(_insert(args.seconds, args.connections, os.environ["INSERT_URL"]))))


if __name__ == "__main__":
    main()
