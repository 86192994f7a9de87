"""What logs, metrics and traces cost: `python -m bench.cost [--small] [--rounds N]`.

Throughput with everything on beside everything off, in turn, in one run: a worker process that delivers a filled queue,
and `redrive serve` that takes single events in. On: JSON lines of every transition, written to a file (whoever reads a
pipe has a cost of their own), metrics that are scraped every second, traces of the share that is traced by default,
sent to a collector. Off: no lines, no port, no traces. What happens is tallied and rolled up in both. Run by hand;
wired into nothing. Prints the rates of each round and the median of the ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import secrets
import statistics
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.ceilings.ingest import event_body
from bench.delivery import Delivery, Worker
from bench.installation import EVENT_TYPE, OPEN_TASKS, Installation
from bench.load import load
from bench.model import Run
from bench.postgres import BenchPostgres, free_port, postgres
from bench.processes import ProcessError, logging_to, module
from bench.receiver import Receiver, receiving
from redrive.settings import load_settings
from redrive.store.endpoints import EndpointSpec
from redrive.store.events import NewEvent
from redrive.store.orgs import new_id

GOAL = 0.9
SCRAPE_EVERY_S = 1.0
CLIENTS = 64


@dataclass(frozen=True, slots=True)
class Scale:
    tasks: int = 60_000
    ingest_s: float = 5.0
    rounds: int = 7


FULL = Scale()
SMALL = Scale(tasks=3_000, ingest_s=1.0, rounds=1)


def _events(installation: Installation, n: int, share: float) -> list[NewEvent]:
    """As the API hands them in: a share of them with the context of a trace."""
    body = event_body()

    def headers() -> str | None:
        if random.random() >= share:
            return None
        return f'{{"traceparent":"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"}}'

    return [NewEvent(installation.org_id, new_id(), EVENT_TYPE, body, headers=headers()) for _ in range(n)]


@contextlib.asynccontextmanager
async def _scraped(port: int) -> AsyncIterator[list[int]]:
    """Somebody asks for metrics every second; how long each answer was."""
    lengths: list[int] = []

    async def scrape() -> None:
        while True:
            await asyncio.sleep(SCRAPE_EVERY_S)
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"GET /metrics HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n")
                lengths.append(len(await reader.read()))
                writer.close()

    scraping = asyncio.create_task(scrape())
    try:
        yield lengths
    finally:
        scraping.cancel()
        await asyncio.gather(scraping, return_exceptions=True)


def _env(collector: Receiver | None) -> dict[str, str]:
    if collector is None:
        return {"REDRIVE_LOG_LEVEL": "critical"}
    endpoint = collector.url.rpartition("/")[0]
    return {"REDRIVE_LOG_LEVEL": "info", "REDRIVE_LOG_FORMAT": "json", "REDRIVE_OTEL_ENDPOINT": endpoint}


def _require_all(lengths: Sequence[int], log: Path, spans: float, scale: Scale) -> None:
    if scale is not SMALL and not (spans and lengths and log.stat().st_size):
        what = f"{spans:.0f} requests with spans, {len(lengths)} scrapes, {log.stat().st_size} bytes of log"
        raise ProcessError(f"{what}: that is not everything on")


async def deliver(
    server: BenchPostgres, receiver: Receiver, collector: Receiver | None, log: Path, scale: Scale
) -> Run:
    async with Installation.on(server, "cost") as installation:
        await installation.add_endpoint(EndpointSpec("receiver", receiver.url, (EVENT_TYPE,)))
        env, share, port = installation.env | _env(collector), 0.0, free_port()
        if collector is not None:
            env["REDRIVE_METRICS_PORT"] = str(port)
            share = load_settings().trace_share
        await receiver.reset()
        await installation.accept(_events(installation, scale.tasks, share))
        await installation.write_out()
        url = installation.url + ("&" if "?" in installation.url else "?") + "role=redrive_engine"
        worker = Worker(logging_to(log, module("redrive.cli.main", "worker")), env)
        delivery = Delivery("redrive", scale.tasks, worker, receiver, 1, url, OPEN_TASKS)
        if collector is None:
            return await delivery.run()
        await collector.reset()
        async with _scraped(port) as lengths:
            run = await delivery.run()
        _require_all(lengths, log, (await collector.counts())["requests"], scale)
        return run


async def ingest(server: BenchPostgres, collector: Receiver | None, log: Path, scale: Scale) -> Run:
    async with Installation.on(server, "cost_ingest") as installation, contextlib.AsyncExitStack() as stack:
        await installation.add_endpoint(EndpointSpec("nobody", "http://127.0.0.1:9/", (EVENT_TYPE,)))
        serving = installation.serving("--no-worker", env=_env(collector), log=log)
        _, base = await stack.enter_async_context(serving)
        if collector is not None:
            await stack.enter_async_context(_scraped(int(base.rpartition(":")[2])))
        headers = {"content-type": "application/json", "x-api-key": installation.key}
        url = f"{base}/v1/events"
        return await load("redrive", url, body=event_body(), headers=headers, clients=CLIENTS, seconds=scale.ingest_s)


async def measure(scale: Scale) -> None:
    rates: dict[tuple[str, bool], list[float]] = {}
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="redrive-cost-")))
        server = await stack.enter_async_context(postgres())
        receiver, collector = [await stack.enter_async_context(receiving()) for _ in range(2)]
        for number in range(scale.rounds):
            for is_on in (False, True) if number % 2 == 0 else (True, False):  # whoever comes first may be lucky
                to = collector if is_on else None
                log = folder / f"{number}-{is_on}.log"
                rates.setdefault(("deliver", is_on), []).append((await deliver(server, receiver, to, log, scale)).per_s)
                rates.setdefault(("ingest", is_on), []).append((await ingest(server, to, log, scale)).per_s)
                log.unlink()
            for what in ("deliver", "ingest"):
                on, off = rates[what, True][-1], rates[what, False][-1]
                print(f"{what}: on {on:,.0f}/s, off {off:,.0f}/s, × {on / off:.2f}", flush=True)
    for what in ("deliver", "ingest"):
        pairs = zip(rates[what, True], rates[what, False], strict=True)
        ratios = [on / off for on, off in pairs]
        found = statistics.median(ratios)
        verdict = "pass" if found >= GOAL else "miss"
        print(
            f"{what}: × {found:.2f} ({min(ratios):.2f} to {max(ratios):.2f}, {len(ratios)} rounds), ≥ {GOAL}: {verdict}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", "--quick", action="store_true", help="a look of some seconds")
    parser.add_argument("--rounds", type=int, default=None)
    args = parser.parse_args()
    scale = SMALL if args.small else FULL
    asyncio.run(measure(scale if args.rounds is None else Scale(scale.tasks, scale.ingest_s, args.rounds)))


if __name__ == "__main__":
    main()
