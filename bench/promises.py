"""The load tests that specifications ask for: `python -m bench.promises [--small]`.

    failures       1 000 deliveries fail at the same moment: how long until their retries are scheduled
    status         10 000 clients, each with a connection of its own, ask for the status of an event: all at once, and
                   spread over ten seconds
    failed inbox   10 000 failed events: the first page, a deep one, and a walk over all, without gap or double

Real processes over HTTP on loopback. Without --small, writes bench/results/promises.json and docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import resource
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bench.ceilings.ingest import event_body
from bench.installation import EVENT_TYPE, Installation
from bench.model import Run, latency_figures
from bench.ours import Ours
from bench.postgres import BenchPostgres
from bench.processes import ProcessError
from bench.receiver import receiving
from redrive.core.decide import Die, Reason
from redrive.core.outcome import Category, Failure
from redrive.core.ports import HTTP_QUEUE, NO_EXCHANGE, Ask, Place, Settlement, Stream
from redrive.engine.outlet import START as START_OF_STREAM
from redrive.store.endpoints import EndpointSpec
from redrive.store.events import NewEvent
from redrive.store.orgs import new_id

if TYPE_CHECKING:
    from bench.alone import Measured

FAILURES = 1_000
CLIENTS = 10_000
SPREAD_S = 10.0
FAILED = 10_000
PAGE = 50
PAGES = 200
WARM_UP = 10
BATCH = 500
CONNECTS_AT_ONCE = 200
SMALLER = 10
DEEP = 0.9  # of the way
NOWHERE = "http://127.0.0.1:9/hook"


class Client:
    """One connection, kept alive."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str) -> None:
        self._reader, self._writer, self._head = reader, writer, head

    async def get(self, path: str) -> bytes:
        self._writer.write(f"GET {path} HTTP/1.1\r\n{self._head}\r\n".encode())
        top = await self._reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1]) for line in top.split(b"\r\n") if line.lower().startswith(b"content-len")
        )
        body = await self._reader.readexactly(length)
        if not top.startswith(b"HTTP/1.1 200"):
            raise ProcessError(f"{path}: {top.splitlines()[0].decode()}")
        return body

    def close(self) -> None:
        self._writer.close()


@contextlib.asynccontextmanager
async def clients(base: str, key: str, n: int) -> AsyncIterator[list[Client]]:
    where, opened = urlsplit(base), list[Client]()
    head = f"host: {where.netloc}\r\nx-api-key: {key}\r\n"
    try:
        for start in range(0, n, CONNECTS_AT_ONCE):
            some = range(start, min(n, start + CONNECTS_AT_ONCE))
            pairs = await asyncio.gather(*(asyncio.open_connection(where.hostname, where.port) for _ in some))
            opened += [Client(*pair, head) for pair in pairs]
        yield opened
    finally:
        for each in opened:
            each.close()


# -- status queries ----------------------------------------------------------------------------------------------------


async def status(server: BenchPostgres, n: int, spread_s: float) -> Run:
    """One question from each client."""
    async with Installation.on(server, "status") as redrive:
        await redrive.add_endpoint(EndpointSpec("receiver", NOWHERE, (EVENT_TYPE,)))
        ids = await _accepted(redrive, n)
        async with redrive.serving("--no-worker") as (_, base), clients(base, redrive.key, n) as asking:
            for client in asking[:WARM_UP]:
                await client.get(f"/v1/events/{ids[0]}/status")
            chance = random.Random(n)
            begin = time.perf_counter()
            took_ms = await asyncio.gather(
                *(
                    _ask(client, f"/v1/events/{event_id}/status", chance.uniform(0, spread_s))
                    for client, event_id in zip(asking, ids, strict=True)
                )
            )
            return Run.timed("redrive", n, time.perf_counter() - begin, latency_figures(took_ms))


async def _ask(client: Client, path: str, after_s: float) -> float:
    if after_s:
        await asyncio.sleep(after_s)
    began = time.perf_counter()
    await client.get(path)
    return (time.perf_counter() - began) * 1000


# -- the failed inbox --------------------------------------------------------------------------------------------------


async def failed_inbox(server: BenchPostgres, n: int) -> Run:
    async with Installation.on(server, "inbox") as redrive:
        endpoint_id = await redrive.add_endpoint(EndpointSpec("receiver", NOWHERE, (EVENT_TYPE,)))
        ids = await _accepted(redrive, n)
        await _kill_all(redrive, Stream(Place(HTTP_QUEUE, redrive.org_id, endpoint_id), False), n)
        await redrive.write_out()
        async with redrive.serving("--no-worker") as (_, base), clients(base, redrive.key, 1) as (client,):
            path = f"/v1/inbox?status=failed&limit={PAGE}"
            began = time.perf_counter()
            seen, cursors = await _walk(client, path)
            walk_s = time.perf_counter() - began
            if len(seen) != n or set(seen) != set(ids):
                raise ProcessError(f"the walk found {len(seen)} of {n} events, {len(set(seen))} of them different")
            deep = f"{path}&cursor={cursors[int(len(cursors) * DEEP)]}"
            figures: dict[str, float] = {"walk_s": walk_s, "walk_pages": len(cursors) + 1, "load": os.getloadavg()[0]}
            for name, where in (("first", path), ("deep", deep)):
                took = [await _ask(client, where, 0) for _ in range(WARM_UP + PAGES)][WARM_UP:]
                figures |= {f"{name}_{key}": value for key, value in latency_figures(took).items()}
            return Run.timed("redrive", n, walk_s, figures)


async def _walk(client: Client, path: str) -> tuple[list[str], list[str]]:
    """The events in their order, and the cursors between pages."""
    seen, cursors = list[str](), list[str]()
    while True:
        page = json.loads(await client.get(path + (f"&cursor={cursors[-1]}" if cursors else "")))
        seen += [event["event_id"] for event in page["events"]]
        if not page["pagination"]["has_more"]:
            return seen, cursors
        cursors.append(page["pagination"]["cursor"])


async def _accepted(redrive: Installation, n: int) -> list[str]:
    body, ids = event_body(), [new_id() for _ in range(n)]
    await redrive.accept([NewEvent(redrive.org_id, event_id, EVENT_TYPE, body) for event_id in ids])
    return [str(event_id) for event_id in ids]


async def _kill_all(redrive: Installation, stream: Stream, n: int) -> None:
    """Each by a try that failed, as a worker settles it."""
    failure = Failure(Category.CLIENT_ERROR, "HTTP 404 Not Found", status_code=404)
    decision = Die(Reason.PERMANENT, failure.category)
    for _ in range(-(-n // BATCH)):
        claim = await redrive.tasks.claim(
            [Ask(stream, BATCH, START_OF_STREAM)], limit=BATCH, worker_id=new_id(), margin_s=15
        )
        await redrive.tasks.settle([Settlement(job, failure, decision, NO_EXCHANGE, 0.01) for job in claim.jobs])


# -- by itself ---------------------------------------------------------------------------------------------------------


async def failures(server: BenchPostgres, n: int) -> Run:
    async with receiving() as receiver, server.database("failures") as url:
        ours = Ours(receiver)
        try:
            await ours.setup(url)
            return await ours.lateness(n)
        finally:
            await ours.aclose()


async def measure(server: BenchPostgres, small: bool, found: Measured) -> None:
    by = SMALLER if small else 1
    await found.attempt("failures", failures(server, FAILURES // by))
    await found.attempt("status at once", status(server, CLIENTS // by, 0))
    await found.attempt("status spread", status(server, CLIENTS // by, SPREAD_S / by))
    await found.attempt("failed inbox", failed_inbox(server, FAILED // by))


def main() -> None:
    from bench.alone import by_itself  # which knows the report, and that knows this

    about = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    at_most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (at_most, at_most))  # a connection for each client; inherited
    by_itself("promises", about, measure)


if __name__ == "__main__":
    main()
