"""A noisy neighbour: `python -m bench.fairness [--small] [--rounds N]`.

One tenant has a million due tasks for endpoints that hang; another sends one event every 20 ms to a receiver that
answers at once. How long its events take, from the request to their arrival, beside the same on an installation that
has nothing else to do. `redrive serve` with one worker process and default settings. And what a claim, a
settlement and a survey take beside the million, before a worker is started. Run by itself; writes
bench/results/fairness.json and its part of docs/benchmarks.md, unless small.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from dataclasses import dataclass

from bench.alone import Measured, by_itself
from bench.ceilings.ingest import event_body
from bench.installation import Installation, children_named, cpu_s
from bench.model import Run
from bench.postgres import BenchPostgres
from bench.processes import ProcessError
from bench.receiver import Receiver, receiving
from bench.stream import Steady, wait_figures
from redrive.core.decide import Succeed
from redrive.core.outcome import Success
from redrive.core.ports import HTTP_QUEUE, Ask, Exchange, Place, Settlement, Stream
from redrive.engine.outlet import START
from redrive.engine.worker import DEFAULT_MARGIN_S
from redrive.store.endpoints import EndpointSpec
from redrive.store.events import NewEvent
from redrive.store.orgs import new_id

SCENARIO = "fairness"
EVERY_S = 0.02
HANGS_MS = 30_000.0
WARM_UP_S = 3.0  # the worker has found the backlog by then, and hangs as much as it will
CLAIMED = 100
CLAIMS_WARM_UP = 5


@dataclass(frozen=True, slots=True)
class Scale:
    due: int = 1_000_000
    endpoints: int = 20
    seconds: float = 20.0
    claims: int = 40


FULL = Scale()
SMALL = Scale(due=10_000, endpoints=5, seconds=3.0, claims=10)


async def beside(server: BenchPostgres, scale: Scale, hanging: int) -> Run:
    """The other tenant's events, beside so many endpoints that hang; none: an idle system."""
    async with (
        Installation.on(server, "fairness") as installation,
        receiving() as quick,
        receiving(delay_ms=HANGS_MS, addresses=max(1, hanging)) as slow,
    ):
        endpoint_id = await installation.add_endpoint(EndpointSpec("quick", quick.url, ("quick",)))
        if hanging:
            await _noise(installation, slow, hanging, scale.due)
        own = await _own_times_ms(installation, Place(HTTP_QUEUE, installation.org_id, endpoint_id), scale.claims)
        await installation.write_out()
        async with installation.serving() as (server_process, base):
            await asyncio.sleep(WARM_UP_S)
            (worker,) = children_named(server_process.pid, "worker")
            before_s, began = cpu_s(worker), time.monotonic()
            steady = Steady(base, installation.key, endpoint_id, EVERY_S)
            await steady.send(scale.seconds)
            waits = [wait for _, wait in await steady.waits_ms(quick)]
            seconds = time.monotonic() - began
            busy = (cpu_s(worker) - before_s) / seconds
            hung = await slow.counts()
        if hanging and not hung["most_in_flight"]:
            raise ProcessError("nothing hung")
        figures = {"worker_cpu_pct": busy * 100, "hanging_most_in_flight": hung["most_in_flight"]}
        return Run.timed("redrive", len(waits), seconds, wait_figures(waits) | figures | own)


async def _noise(installation: Installation, slow: Receiver, endpoints: int, due: int) -> None:
    """The other tenant: its endpoints, each an origin of its own, and their tasks."""
    org_id = await installation.add_org("noisy")
    ids = await installation.add_endpoints(
        [EndpointSpec(f"slow {n}", slow.url_at(n), (f"slow.{n}",)) for n in range(endpoints)], org_id
    )
    await installation.accept([NewEvent(org_id, new_id(), f"slow.{n}", event_body()) for n in range(endpoints)])
    for slow_id in ids:
        await installation.multiply(slow_id, due // endpoints - 1)


async def _own_times_ms(installation: Installation, place: Place, times: int) -> dict[str, float]:
    """A claim and a settlement of the quick endpoint, and a survey of all, while nobody else is at work: medians.

    The planner gets to know the tables after the warm-up: of empty ones there is nothing to know.
    """
    tasks, worker_id = installation.tasks, new_id()
    asks = [Ask(Stream(place, is_retry), CLAIMED, START) for is_retry in (False, True)]
    answer = Exchange("http://127.0.0.1:9", None, 200, None, b"ok")
    taken: dict[str, list[float]] = {"claim_ms": [], "settle_ms": [], "survey_ms": []}
    for number in range(CLAIMS_WARM_UP + times):
        if number == CLAIMS_WARM_UP:
            await installation.write_out()
        await installation.accept([NewEvent(place.org_id, new_id(), "quick", event_body()) for _ in range(CLAIMED)])
        moments = [time.perf_counter()]
        claim = await tasks.claim(asks, limit=CLAIMED, worker_id=worker_id, margin_s=DEFAULT_MARGIN_S)
        moments.append(time.perf_counter())
        await tasks.settle([Settlement(job, Success(200), Succeed(), answer, 0.001) for job in claim.jobs], worker_id)
        moments.append(time.perf_counter())
        await tasks.survey([HTTP_QUEUE])
        moments.append(time.perf_counter())
        if len(claim.jobs) != CLAIMED:
            raise ProcessError(f"claimed {len(claim.jobs)} of {CLAIMED}")
        for name, before, after in zip(taken, moments, moments[1:], strict=False):
            taken[name].append((after - before) * 1000)
    return {name: statistics.median(values[CLAIMS_WARM_UP:]) for name, values in taken.items()}


async def measure(server: BenchPostgres, scale: Scale, found: Measured) -> None:
    for variant, hanging in (("idle", 0), ("one hangs", 1), ("many hang", scale.endpoints)):
        await found.attempt(variant, beside(server, scale, hanging))
    for variant in ("one hangs", "many hang"):
        found.compare(variant, "idle", ("p50_ms", "p95_ms", "p99_ms", "max_ms", "claim_ms", "settle_ms", "survey_ms"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    by_itself(SCENARIO, parser, lambda server, small, found: measure(server, SMALL if small else FULL, found))


if __name__ == "__main__":
    main()
