"""The installation in numbers, all orgs together: what metrics tell of it.

Totals and facts are a handful of indexed look-ups, whatever there is. What must be added up over orgs, endpoints or
streams is read at a pace instead: a reading that took long is kept for twenty times as long. So a small installation is
exact at every scrape, and a large one spends a twentieth of a connection on it.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from redrive.store.clock import Clock
from redrive.store.db import Database, Record, Session
from redrive.store.dead_messages import MAX_QUEUES
from redrive.store.jobs import JobSeen, list_jobs
from redrive.store.rollups import Totals, totals
from redrive.store.workers import SILENT_AFTER_S

PACE = 20
EXACT_BELOW_S = 0.05  # what is read as quickly as this is read every time
MAX_STREAMS = 100_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Numbers:
    """`counts` are the counters of `redrive check`, of all orgs; `age_s`: how old what is not read each time may be."""

    totals: Totals
    counts: Mapping[str, int]
    endpoints: Mapping[str, int]  # by their health
    queues: list[Record]  # of the broker
    alerts: Mapping[str, int]  # that fire, by their rule
    jobs: list[JobSeen]  # that run in the background
    oldest_due_s: float
    workers: int
    transaction_s: float
    xmin_age: int
    schema_version: int
    age_s: float


class Paced(Generic[T]):
    """A reading, kept for as long as it was costly."""

    def __init__(self, read: Callable[[Session], Awaitable[T]], now: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._now = now
        self._kept: tuple[T, float, float] | None = None  # what was read, when, and until when it is good

    async def of(self, session: Session) -> tuple[T, float]:
        """What was read, and how many seconds ago."""
        began = self._now()
        if self._kept is not None and began < self._kept[2]:
            return self._kept[0], began - self._kept[1]
        value = await self._read(session)
        took_s = self._now() - began
        self._kept = (value, began, began + (PACE * took_s if took_s > EXACT_BELOW_S else 0.0))
        return value, 0.0


class Installation:
    def __init__(self, engine: Database, clock: Clock, now: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._clock = clock
        self._counts = Paced(_counts, now)
        self._endpoints = Paced(_endpoints, now)
        self._queues = Paced(_queues, now)
        self._alerts = Paced(_alerts, now)
        self._oldest_due = Paced(self._oldest_due_s, now)

    async def numbers(self) -> Numbers:
        """In one snapshot: what one of them knows of, all of them do."""
        async with self._engine.transaction(snapshot=True) as session:
            facts = await session.fetchrow("installation_facts", self._clock.now(), SILENT_AFTER_S)
            summed = await totals(session)
            jobs = await list_jobs(session, self._clock)
            counts, counts_age_s = await self._counts.of(session)
            endpoints, endpoints_age_s = await self._endpoints.of(session)
            queues, queues_age_s = await self._queues.of(session)
            alerts, alerts_age_s = await self._alerts.of(session)
            oldest_due_s, due_age_s = await self._oldest_due.of(session)
        assert facts is not None
        return Numbers(
            totals=summed,
            counts=counts,
            endpoints=endpoints,
            queues=queues,
            alerts=alerts,
            jobs=jobs,
            oldest_due_s=oldest_due_s,
            workers=facts["workers"],
            transaction_s=facts["age_s"],
            xmin_age=facts["xmin_age"],
            schema_version=facts["schema_version"],
            age_s=max(counts_age_s, endpoints_age_s, queues_age_s, alerts_age_s, due_age_s),
        )

    async def _oldest_due_s(self, session: Session) -> float:
        row = await session.fetchrow("oldest_due_everywhere", self._clock.now(), MAX_STREAMS)
        return float(row["age_s"]) if row else 0.0


async def _counts(session: Session) -> dict[str, int]:
    return {row["name"]: row["n"] for row in await session.fetch("counters_everywhere")}


async def _endpoints(session: Session) -> dict[str, int]:
    return {row["health"]: row["n"] for row in await session.fetch("endpoints_everywhere")}


async def _alerts(session: Session) -> dict[str, int]:
    return {row["rule"]: row["n"] for row in await session.fetch("alerts_everywhere")}


async def _queues(session: Session) -> list[Record]:
    return await session.fetch("queues_everywhere", MAX_QUEUES)
