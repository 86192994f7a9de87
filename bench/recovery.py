"""An endpoint comes back: `python -m bench.recovery [--small] [--rounds N]`.

10 000 tasks wait for an endpoint that is down, its breaker is open; then it answers again. How many requests a second
it gets, how many at once (never more than its `max_in_flight`), until all is delivered; and meanwhile the latency of
another endpoint of the same tenant that gets an event every 20 ms. `redrive serve` with one worker process; all is as
by default. Run by itself;
writes bench/results/recovery.json, docs/images/recovery.svg and its part of docs/benchmarks.md, unless small.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from bench.alone import Measured, by_itself
from bench.ceilings.ingest import event_body
from bench.installation import Installation, children_named, cpu_s
from bench.model import Run, percentile
from bench.postgres import BenchPostgres
from bench.processes import ProcessError
from bench.receiver import Receiver, receiving
from bench.stream import Steady, wait_figures
from redrive.store.endpoints import EndpointSpec
from redrive.store.events import NewEvent
from redrive.store.orgs import new_id

SCENARIO = "recovery"
MAX_IN_FLIGHT = 50
ANSWERS_AFTER_MS = 20.0
EVERY_S = 0.02
POLICY = {"kind": "list", "delays_s": [1], "max_retries": 1000}
STATE = "SELECT breaker FROM redrive.endpoint_state WHERE endpoint_id = $1"
LEFT = "SELECT count(*) AS n FROM redrive.task WHERE endpoint_id = $1 AND state <> 'succeeded'"
OPENS_WITHIN_S = 60.0
BACK_WITHIN_S = 180.0


@dataclass(frozen=True, slots=True)
class Scale:
    waiting: int = 10_000
    idle_s: float = 5.0
    down_s: float = 5.0  # that the breaker has been open for when the endpoint comes back


FULL = Scale()
SMALL = Scale(waiting=300, idle_s=2.0, down_s=1.0)


async def recover(server: BenchPostgres, scale: Scale) -> tuple[Run, Run, Run]:
    """What the endpoint got; what the other one's latency was when all that was over, and meanwhile."""
    async with Installation.on(server, "recovery") as installation, receiving() as other, receiving() as back:
        await installation.add_policy("patient", POLICY)
        recovering, steady_id = await installation.add_endpoints(
            [
                EndpointSpec("recovering", back.url, ("down",), policy="patient", max_in_flight=MAX_IN_FLIGHT),
                EndpointSpec("steady", other.url, ("steady",)),
            ]
        )
        await back.behave(down=True, delay_ms=ANSWERS_AFTER_MS)
        events = [NewEvent(installation.org_id, new_id(), "down", event_body()) for _ in range(scale.waiting)]
        await installation.accept(events)
        await installation.write_out()
        async with installation.serving() as (process, base):
            began = time.monotonic()
            (worker,) = children_named(process.pid, "worker")
            stop, meanwhile = asyncio.Event(), Steady(base, installation.key, steady_id, EVERY_S)
            sending = asyncio.create_task(meanwhile.send_until(stop, OPENS_WITHIN_S + BACK_WITHIN_S + scale.down_s))
            try:
                await _until(lambda: _is_open(installation, recovering), OPENS_WITHIN_S, "the breaker did not open")
                opened_s, tries_before = time.monotonic() - began, (await back.counts())["requests"]
                await asyncio.sleep(scale.down_s)
                back_at, used_s = time.monotonic(), cpu_s(worker)
                await back.behave(down=False, delay_ms=ANSWERS_AFTER_MS)
                await back.wait_for(scale.waiting, timeout_s=BACK_WITHIN_S, workers=[process])
                await _until(lambda: _is_done(installation, recovering), OPENS_WITHIN_S, "not all was settled")
                seconds = time.monotonic() - back_at
                busy = (cpu_s(worker) - used_s) / seconds
            finally:
                stop.set()
                await sending
            waits, over_s = await meanwhile.waits_ms(other), time.monotonic() - began
            await other.reset()
            afterwards = Steady(base, installation.key, steady_id, EVERY_S)
            await afterwards.send(scale.idle_s)
            idle = [wait for _, wait in await afterwards.waits_ms(other)]
        run = await _what_came(back, events, back_at, seconds)
        extra = {"opened_after_s": opened_s, "tries_before_open": tries_before, "worker_cpu_pct": busy * 100}
        after = [(sent - back_at, wait) for sent, wait in waits if sent >= back_at]
        series = dict(run.series) | {"other_p99_ms": _p99_by_second(after, len(run.series["per_s"]))}
        during = wait_figures([wait for _, wait in waits])
        return (
            Run.timed("redrive", run.n, seconds, {**run.extra, **extra}, series),
            Run.timed("redrive", len(idle), scale.idle_s, wait_figures(idle)),
            Run.timed("redrive", len(waits), over_s, during),
        )


async def _is_open(installation: Installation, endpoint_id: UUID) -> bool:
    rows = await installation.rows(STATE, endpoint_id)
    return bool(rows) and rows[0]["breaker"] == "open"


async def _is_done(installation: Installation, endpoint_id: UUID) -> bool:
    (row,) = await installation.rows(LEFT, endpoint_id)
    return not row["n"]


async def _until(holds: Callable[[], Awaitable[bool]], within_s: float, otherwise: str) -> None:
    deadline = time.monotonic() + within_s
    while not await holds():
        if time.monotonic() > deadline:
            raise ProcessError(f"{otherwise} within {within_s:.0f} s")
        await asyncio.sleep(0.05)


async def _what_came(back: Receiver, sent: Sequence[NewEvent], back_at: float, seconds: float) -> Run:
    """Judged: all delivered, each once, and never too many at once. By second since the endpoint came back."""
    counts, arrivals, levels = await back.counts(), await back.arrivals(), await back.levels()
    delivered = [job for job, _, status in arrivals if status == 200]
    if sorted(delivered) != sorted(str(event.id) for event in sent):
        raise ProcessError(f"{len(delivered)} deliveries of {len(set(delivered))} of {len(sent)} events")
    if counts["most_in_flight"] > MAX_IN_FLIGHT:
        raise ProcessError(f"{counts['most_in_flight']:.0f} requests at once, {MAX_IN_FLIGHT} are allowed")
    per_s, most = [0.0] * (int(seconds) + 1), [0.0] * (int(seconds) + 1)
    for (_, at, _), level in zip(arrivals, levels, strict=True):
        second = int(at - back_at)
        if 0 <= at - back_at < len(per_s):
            per_s[second] += 1
            most[second] = max(most[second], level)
    first = next((at for _, at, status in arrivals if status == 200), back_at) - back_at
    extra = {
        "most_in_flight": counts["most_in_flight"],
        "first_success_s": first,
        "most_per_s": max(per_s),
        "refused_after": sum(status == 503 and at >= back_at for _, at, status in arrivals),
    }
    return Run.timed("redrive", len(sent), seconds, extra, {"per_s": per_s, "in_flight": most})


def _p99_by_second(waits: Sequence[tuple[float, float]], seconds: int) -> list[float]:
    by_second: list[list[float]] = [[] for _ in range(seconds)]
    for at, wait in waits:
        if int(at) < seconds:
            by_second[int(at)].append(wait)
    return [percentile(sorted(values), 0.99) for values in by_second]


async def measure(server: BenchPostgres, scale: Scale, found: Measured) -> None:
    recovering, idle, meanwhile = await recover(server, scale)
    found.note("recovering endpoint", recovering)
    found.note("other endpoint, idle", idle)
    found.note("other endpoint, meanwhile", meanwhile)
    found.compare("other endpoint, meanwhile", "other endpoint, idle", ("p50_ms", "p95_ms", "p99_ms", "max_ms"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    by_itself(SCENARIO, parser, lambda server, small, found: measure(server, SMALL if small else FULL, found))


if __name__ == "__main__":
    main()
