"""What order costs: `python -m bench.order [--small] [--rounds N]`.

Beside a lane whose head is blocked: how long claims and settlements of another endpoint take, and what is added to the
lane, with few waiting behind it and with many, in turn. Then how fast one worker process empties ordered endpoints,
beside unordered ones; every lane must have arrived in its order, and nothing twice. Run by itself; writes
bench/results/order.json and its part of docs/benchmarks.md, unless small.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from bench.alone import Measured, by_itself
from bench.ceilings.ingest import event_body
from bench.installation import EVENT_TYPE, Installation
from bench.model import Run
from bench.postgres import BenchPostgres
from bench.processes import ProcessError
from bench.receiver import Receiver, receiving
from redrive.core.decide import RetryIn, Succeed
from redrive.core.outcome import Category, Failure, Success
from redrive.core.ports import HTTP_QUEUE, Ask, Claim, Exchange, Place, Settlement, Stream
from redrive.engine.outlet import START
from redrive.engine.worker import DEFAULT_MARGIN_S
from redrive.store.endpoints import EndpointSpec
from redrive.store.events import NewEvent
from redrive.store.orgs import new_id

SCENARIO = "order"
BATCH = 100  # tasks of another endpoint that are claimed and settled at a time
ADDED = 10  # events that are added to the lane at a time: the short lane must stay short
WARM_UP = 10
NOWHERE = "http://127.0.0.1:9/hook"
DELIVERY_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Scale:
    few: int = 1_000  # waiting behind a blocked head
    many: int = 200_000
    turns: int = 80
    lanes: int = 1_000
    per_lane: int = 100
    alone: int = 5_000  # of one ordered endpoint


FULL = Scale()
SMALL = Scale(few=100, many=2_000, turns=10, lanes=50, per_lane=10, alone=200)


# -- beside a blocked lane -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Blocked:
    """An installation with a lane that waits, and another endpoint."""

    installation: Installation
    blocked: UUID
    other: UUID
    worker_id: UUID = field(default_factory=new_id)
    times_ms: dict[str, list[float]] = field(default_factory=dict)

    @classmethod
    async def on(cls, installation: Installation, waiting: int) -> Blocked:
        blocked, other = await installation.add_endpoints(
            [EndpointSpec("blocked", NOWHERE, ("lane",), ordered=True), EndpointSpec("other", NOWHERE, ("other",))]
        )
        self = cls(installation, blocked, other)
        await installation.accept(self._events("lane", waiting + 1))
        await self._block()
        await installation.write_out()
        return self

    def _events(self, event_type: str, n: int) -> list[NewEvent]:
        body = event_body()
        return [NewEvent(self.installation.org_id, new_id(), event_type, body) for _ in range(n)]

    async def _block(self) -> None:
        """Its head fails, and is to be tried again in an hour."""
        tasks = self.installation.tasks
        while (await tasks.wake_lanes()).more:
            pass
        claim = await self._claim()
        (job,) = claim.jobs
        failure = Failure(Category.SERVER_ERROR, "HTTP 503", 503)
        await tasks.settle([Settlement(job, failure, RetryIn(timedelta(hours=1)), Exchange(), 0.001)], self.worker_id)

    async def _claim(self) -> Claim:
        org_id = self.installation.org_id
        asks = [
            Ask(Stream(Place(HTTP_QUEUE, org_id, place), is_retry), BATCH, START)
            for place in (self.blocked, self.other)
            for is_retry in (False, True)
        ]
        return await self.installation.tasks.claim(
            asks, limit=BATCH, worker_id=self.worker_id, margin_s=DEFAULT_MARGIN_S
        )

    async def turn(self) -> None:
        tasks = self.installation.tasks
        await self.installation.accept(self._events("other", BATCH))
        await self._time("claim_settle_ms", self._claim_and_settle)
        added = self._events("lane", ADDED)
        await self._time("accept_ms", lambda: self.installation.accept(added))
        await self._time("wake_ms", tasks.wake_lanes)
        await self._time("survey_ms", lambda: tasks.survey([HTTP_QUEUE]))

    async def _claim_and_settle(self) -> None:
        claim = await self._claim()
        if len(claim.jobs) != BATCH or any(job.endpoint_id != self.other for job in claim.jobs):
            raise ProcessError(f"claimed {len(claim.jobs)}, not {BATCH} of the endpoint that is free")
        answer = Exchange(NOWHERE, None, 200, None, b"ok")
        settled = [Settlement(job, Success(200), Succeed(), answer, 0.001) for job in claim.jobs]
        await self.installation.tasks.settle(settled, self.worker_id)

    async def _time(self, name: str, work: Callable[[], Awaitable[object]]) -> None:
        began = time.perf_counter()
        await work()
        self.times_ms.setdefault(name, []).append((time.perf_counter() - began) * 1000)

    def run(self) -> Run:
        medians = {name: statistics.median(times[WARM_UP:]) for name, times in self.times_ms.items()}
        return Run.timed("redrive", BATCH, medians["claim_settle_ms"] / 1000, medians)


async def beside_a_blocked_lane(server: BenchPostgres, scale: Scale) -> tuple[Run, Run]:
    """With few waiting, and with many; in turn, so that what slows the machine down slows both."""
    async with Installation.on(server, "few") as one, Installation.on(server, "many") as another:
        sides = [await Blocked.on(one, scale.few), await Blocked.on(another, scale.many)]
        for _ in range(WARM_UP + scale.turns):
            for side in sides:
                await side.turn()
        few, many = (side.run() for side in sides)
        return few, many


# -- how fast, and in which order ------------------------------------------------------------------------------------


async def delivered(server: BenchPostgres, receiver: Receiver, endpoints: int, messages: int, *, ordered: bool) -> Run:
    """So many endpoints with so many messages each, through one worker process."""
    async with Installation.on(server, "lanes") as installation:
        await installation.add_policy("at-once", {"kind": "list", "delays_s": [0], "max_retries": 5})
        ids = await installation.add_endpoints(
            [
                EndpointSpec(f"e{n}", f"{receiver.url}/{n}", (EVENT_TYPE,), policy="at-once", ordered=ordered)
                for n in range(endpoints)
            ]
        )
        body = event_body()
        sent = [  # one for each in turn
            NewEvent(installation.org_id, new_id(), EVENT_TYPE, body, endpoint_id=endpoint_id)
            for _ in range(messages)
            for endpoint_id in ids
        ]
        await receiver.reset()
        await installation.accept(sent)
        await installation.write_out()
        n = len(sent)
        run = await installation.delivery(n, receiver, timeout_s=DELIVERY_TIMEOUT_S).run()
        await _judge(receiver, sent, ordered=ordered)
        first_s = await _until_all_lanes_moved(receiver, sent)
        return Run.timed("redrive", n, run.seconds, {**run.extra, "all_begun_s": first_s})


async def _judge(receiver: Receiver, sent: Sequence[NewEvent], *, ordered: bool) -> None:
    """All of it, each once; and where it is ordered, each lane as it was handed in."""
    places = {str(event.id): (event.endpoint_id, number) for number, event in enumerate(sent)}
    arrived = [places[job] for job, _, _ in await receiver.arrivals()]
    if len(arrived) != len(sent) or len(set(arrived)) != len(sent):
        raise ProcessError(f"{len(arrived)} requests for {len(set(arrived))} of {len(sent)} messages")
    if not ordered:
        return
    last: dict[UUID | None, int] = {}
    for lane, number in arrived:
        if number < last.get(lane, -1):
            raise ProcessError(f"message {number} of endpoint {lane} came behind message {last[lane]}")
        last[lane] = number


async def _until_all_lanes_moved(receiver: Receiver, sent: Sequence[NewEvent]) -> float:
    """From the first arrival until every endpoint has had one."""
    place = {str(event.id): event.endpoint_id for event in sent}
    firsts: dict[UUID | None, float] = {}
    for job, at, _ in await receiver.arrivals():
        firsts.setdefault(place[job], at)
    return max(firsts.values()) - min(firsts.values())


async def measure(server: BenchPostgres, scale: Scale, found: Measured) -> None:
    few, many = await beside_a_blocked_lane(server, scale)
    found.note("few waiting", few)
    found.note("many waiting", many)
    n = scale.lanes * scale.per_lane
    async with receiving() as receiver:
        for variant, endpoints, messages, ordered in (
            ("many ordered endpoints", scale.lanes, scale.per_lane, True),
            ("many unordered endpoints", scale.lanes, scale.per_lane, False),
            ("one unordered endpoint", 1, n, False),
            ("one ordered endpoint", 1, scale.alone, True),
        ):
            await found.attempt(variant, delivered(server, receiver, endpoints, messages, ordered=ordered))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    by_itself(SCENARIO, parser, lambda server, small, found: measure(server, SMALL if small else FULL, found))


if __name__ == "__main__":
    main()
