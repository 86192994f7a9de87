"""What is measured: each step is one system on one job, with how often and how large. Called by bench.run.

Steps of one scenario run interleaved and are compared with each other only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from bench.ceilings.idle import idle
from bench.ceilings.ingest import ingest
from bench.ceilings.insert import insert
from bench.ceilings.spike import spike
from bench.model import NotRun, Run
from bench.pages import LARGE as MANY_LETTERS
from bench.pages import SMALL as FEW_LETTERS
from bench.pages import pages
from bench.peers.base import Peer, Setup

OURS = "redrive"
DELIVER_VARIANTS = ("webhook", "flaky", "webhook ×2")
BACKLOG_SMALL, BACKLOG_LARGE = 1_000, 1_000_000
CLIENTS = 64
BATCH_CLIENTS = 4

JOBS = {  # system: (webhook, flaky); some two or three seconds each on two cores
    OURS: (30_000, 20_000),
    "spike": (60_000, 30_000),
    "pgqueuer": (12_000, 2_000),
    "graphile-worker": (20_000, 10_000),
    "awa": (8_000, 1_000),
    "procrastinate": (1_000, 500),
    "celery": (2_500, 500),
}


@dataclass(frozen=True, slots=True)
class Scale:
    """How long a run may take: full, or quick for a look."""

    rounds: int
    peer_rounds: int
    divide_by: int
    seconds: float

    def jobs(self, system: str, flaky: bool, processes: int = 1) -> int:
        """Twice as many for two processes: the second one's start-up falls into the measured time."""
        return max(200, processes * JOBS[system][1 if flaky else 0] // self.divide_by)


FULL = Scale(rounds=3, peer_rounds=1, divide_by=1, seconds=3.0)
QUICK = Scale(rounds=1, peer_rounds=1, divide_by=10, seconds=1.0)


@dataclass(frozen=True, slots=True)
class Step:
    """One measurement, repeated `rounds` times. `measure` may return several runs, one per name in `also`."""

    scenario: str
    variant: str
    system: str
    rounds: int
    measure: Callable[[], Awaitable[Run | tuple[Run, ...]]]
    also: tuple[str, ...] = ()


class OurSide:
    """Redrive through bench.ours: a fresh database and a fresh instance for every measurement."""

    def __init__(self, where: Setup) -> None:
        self._where = where

    async def __call__(self, method: str, *args: Any, **options: Any) -> Any:
        try:
            from bench.ours import Ours
        except ModuleNotFoundError as error:
            raise NotRun(f"no side of our own yet ({error})") from None
        async with self._where.server.database("ours") as url:
            ours = Ours(self._where.receiver)
            try:
                await ours.setup(url)
                return await getattr(ours, method)(*args, **options)
            finally:
                if hasattr(ours, "aclose"):
                    await ours.aclose()


def steps(where: Setup, peers: list[Peer], scale: Scale) -> list[Step]:
    ours = OurSide(where)
    return [
        *_deliver(where, ours, peers, scale),
        *_ingest(where, ours, scale),
        *_single(ours, scale),
        _pages(where, scale),
    ]


def _deliver(where: Setup, ours: OurSide, peers: list[Peer], scale: Scale) -> list[Step]:
    found: list[Step] = []
    for variant in DELIVER_VARIANTS:
        flaky, processes = variant == "flaky", 2 if variant.endswith("2") else 1
        n = scale.jobs(OURS, flaky, processes)
        found.append(
            Step("deliver", variant, OURS, scale.rounds,
                 lambda n=n, p=processes, f=flaky: ours("deliver", n, processes=p, flaky=f))
        )  # fmt: skip
        n = scale.jobs("spike", flaky, processes)
        found.append(
            Step("deliver", variant, "spike", scale.rounds,
                 lambda n=n, p=processes, f=flaky: spike(where.server, where.receiver, n, processes=p, flaky=f))
        )  # fmt: skip
        for peer in peers:
            n, job = scale.jobs(peer.name, flaky, processes), "flaky" if flaky else "webhook"
            rounds = scale.rounds if variant == "webhook" else scale.peer_rounds
            found.append(
                Step("deliver", variant, peer.name, rounds,
                     lambda peer=peer, job=job, n=n, p=processes: peer.run(where, job, n, p))
            )  # fmt: skip
    return found


def _ingest(where: Setup, ours: OurSide, scale: Scale) -> list[Step]:
    server, rounds, seconds = where.server, scale.rounds, scale.seconds
    waits = max(50, 300 // scale.divide_by)
    return [
        Step("ingest", "single", OURS, rounds, lambda: ours("ingest_single", seconds, CLIENTS)),
        Step("ingest", "single", "asgi", rounds, lambda: ingest(server, "asgi", seconds=seconds, clients=CLIENTS)),
        Step("ingest", "single", "fastapi", rounds,
             lambda: ingest(server, "fastapi", seconds=seconds, clients=CLIENTS)),
        Step("ingest", "batch", OURS, rounds, lambda: ours("ingest_batch", seconds, BATCH_CLIENTS)),
        Step("ingest", "batch", "insert", rounds, lambda: insert(server, seconds=seconds)),
        Step("idle", "latency", OURS, rounds, lambda: ours("idle_latency", waits)),
        Step("idle", "latency", "commit + request", rounds, lambda: idle(server, where.receiver, waits)),
    ]  # fmt: skip


def _single(ours: OurSide, scale: Scale) -> list[Step]:
    large = BACKLOG_LARGE // scale.divide_by
    return [
        Step("lateness", "1000 due at once", OURS, 1, lambda: ours("lateness", 1_000)),
        Step("status", "under load", OURS, 1,
             lambda: ours("status_under_load", 100_000 // scale.divide_by, scale.seconds, CLIENTS)),
        Step("backlog", "small", OURS, 1, lambda: ours("backlog", BACKLOG_SMALL)),
        Step("backlog", "large", OURS, 1, lambda: ours("backlog", large)),
        Step("snapshot", "free", OURS, 1, lambda: ours("pinned_snapshot", 100_000 // scale.divide_by), ("pinned",)),
        Step("memory", "500 in flight", OURS, 1, lambda: ours("memory")),
    ]  # fmt: skip


def _pages(where: Setup, scale: Scale) -> Step:
    """Both in one step: they are asked in turn."""
    many = MANY_LETTERS // scale.divide_by
    return Step("pages", "few letters", OURS, 1, lambda: pages(where.server, FEW_LETTERS, many), ("many letters",))
