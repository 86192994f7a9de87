"""The floor of latency: one durable commit, then one HTTP request, on an otherwise idle machine.

`idle()` measures it; run as a module it is the measuring process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from uuid import uuid4

import asyncpg

from bench.ceilings.ingest import INSERT_ONE, SCHEMA, event_body
from bench.model import BODY_BYTES, Run, latency_figures
from bench.postgres import BenchPostgres
from bench.processes import command, module
from bench.receiver import Receiver
from bench.wire import Pool, request_head

PAUSE_S = 0.02
"""Between two measurements, so that the system is idle when each begins."""
WARM_UP = 20


async def idle(server: BenchPostgres, receiver: Receiver, n: int) -> Run:
    await receiver.reset()
    async with server.database("idle") as url:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(SCHEMA)
        finally:
            await connection.close()
        argv = module("bench.ceilings.idle", n, receiver.url)
        out = json.loads(await command(argv, env={"IDLE_URL": url}, timeout_s=n * (PAUSE_S + 0.1) + 30))
        return Run.timed("idle commit + request", n, out["seconds"], out["latency"])


async def _measure(n: int, target: str, url: str) -> dict[str, object]:
    database = await asyncpg.connect(url)
    insert = await database.prepare(INSERT_ONE)
    pool = await Pool.open(target, 1)
    body = event_body()
    head = request_head(target, {"content-type": "application/json"}, BODY_BYTES)
    latencies_ms: list[float] = []
    begin = time.perf_counter()
    for index in range(n + WARM_UP):
        await asyncio.sleep(PAUSE_S)
        started = time.perf_counter()
        await insert.fetch(uuid4(), body)
        await pool.send_all([b"%bwebhook-id: %d\r\n\r\n%b" % (head, index, body)])
        latencies_ms.append((time.perf_counter() - started) * 1000)
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "latency": latency_figures(latencies_ms[WARM_UP:])}


def main() -> None:
    import uvloop

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("n", type=int)
    parser.add_argument("target")
    args = parser.parse_args()
    print(json.dumps(uvloop.run(_measure(args.n, args.target, os.environ["IDLE_URL"]))))


if __name__ == "__main__":
    main()
