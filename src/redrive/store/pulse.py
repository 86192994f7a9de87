"""What happened lately, and where things stand: the numbers behind the dashboard. Read by the pages.

All of it was tallied on write (migration 0017): a question costs what its window has of minutes, whatever the number of
events, tasks or dead letters. Deliveries are counted, that is tasks: an event for three endpoints is three of them.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from redrive.core.pulse import Window, depths, rate_of
from redrive.store.clock import Clock
from redrive.store.counters import counts, events_by_status, open_tasks
from redrive.store.db import Record, Session
from redrive.store.endpoint_health import EndpointHealth, health_of_many

MAX_WORST = 5
MAX_FAILURES_LOOKED = 2_000  # the newest dead letters, and as many entries of the retry queue
WORST_SINCE = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Tally:
    """What happened in a time. Events are created; their tasks open, and are delivered or fail."""

    created: int = 0
    opened: int = 0
    delivered: int = 0
    failed: int = 0

    @property
    def success_rate(self) -> float | None:
        """Of what ended, 0 to 1; None where nothing did."""
        return rate_of(self.delivered, self.delivered + self.failed)

    @property
    def failed_rate(self) -> float | None:
        return rate_of(self.failed, self.delivered + self.failed)

    def plus(self, other: "Tally") -> "Tally":
        return Tally(
            self.created + other.created,
            self.opened + other.opened,
            self.delivered + other.delivered,
            self.failed + other.failed,
        )


@dataclass(frozen=True, slots=True)
class Bucket:
    """One of a window's, from `at` on. `depth`: how many tasks were open when it ended; now, for the last one."""

    at: datetime
    tally: Tally
    depth: int


@dataclass(frozen=True, slots=True)
class Pulse:
    """A window, oldest bucket first."""

    window: Window
    as_of: datetime
    buckets: tuple[Bucket, ...]

    @property
    def whole(self) -> Tally:
        total = Tally()
        for bucket in self.buckets:
            total = total.plus(bucket.tally)
        return total

    @property
    def depth(self) -> int:
        """Tasks that are open now."""
        return self.buckets[-1].depth


@dataclass(frozen=True, slots=True)
class Standing:
    """Where all events that are stored stand now.

    One that goes to several endpoints is queued while any of its deliveries is open, and failed when one of them died.
    """

    received: int
    queued: int
    delivered: int  # or acknowledged in the inbox
    failed: int
    open_tasks: int
    retrying: int  # of the open tasks, those that failed before


@dataclass(frozen=True, slots=True)
class WorstEndpoint:
    """`failures`: dead letters of the last day and entries of the retry queue, as far as they were looked at."""

    name: str
    failures: int
    health: EndpointHealth


async def pulse(session: Session, clock: Clock, window: Window) -> Pulse:
    span = window.value
    rows = await session.fetch("pulse", session.org_id, clock.now(), span.bucket, span.buckets)
    told = {row["at"]: row for row in rows if row["at"] is not None}
    moments = [rows[0]["newest"] - span.bucket * back for back in reversed(range(span.buckets))]
    tallies = [_tally(told.get(at)) for at in moments]
    changes = [tally.opened - tally.delivered - tally.failed for tally in tallies]
    open_then = depths(rows[0]["open"], changes)
    return Pulse(
        window,
        rows[0]["now"],
        tuple(map(Bucket, moments, tallies, open_then)),
    )


async def standing(session: Session) -> Standing:
    """Exact, from the counters."""
    counted = await counts(session)
    events = events_by_status(counted)
    return Standing(**events, open_tasks=open_tasks(counted), retrying=counted.get("retrying", 0))


async def worst_endpoints(session: Session, clock: Clock) -> list[WorstEndpoint]:
    """Those with most failures lately, at most 5, the worst first.

    Only the newest failures are looked at: an endpoint that is not among 2 000 of them is not what is worst now,
    however much lies there from before. So it costs the same with a million dead letters, or with as many endpoints.
    """
    rows = await session.fetch(
        "worst_endpoints", session.org_id, clock.now(), WORST_SINCE, MAX_FAILURES_LOOKED, MAX_WORST
    )
    health = await health_of_many(session, [row["id"] for row in rows], clock)
    return [WorstEndpoint(row["name"], row["failures"], health[row["id"]]) for row in rows]


def _tally(row: Record | None) -> Tally:
    return Tally() if row is None else Tally(row["created"], row["opened"], row["delivered"], row["failed"])
