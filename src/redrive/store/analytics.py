"""How an org's deliveries went over a time: in all, over time, by endpoint, event type and external system.

Read from rollups, with what is not rolled yet: a question costs what its window has of minutes, hours or days, and of
keys (at most MAX_KEYS_A_DAY a day), whatever the number of tasks. Read by the API, the command line and the pages.
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from redrive.core.analytics import Dimension, Outcomes, Period, Reach
from redrive.core.pulse import Waits
from redrive.store.clock import Clock
from redrive.store.db import Record, Session
from redrive.store.endpoint_names import endpoint_names

MAX_TOP_KEYS = 100
DEFAULT_TOP_KEYS = 20


@dataclass(frozen=True, slots=True)
class Moment:
    """A bucket of a window, from `at` on."""

    at: datetime
    outcomes: Outcomes


@dataclass(frozen=True, slots=True)
class Course:
    """A window, oldest bucket first. The newest one has how long deliveries of the whole window took."""

    period: Period
    as_of: datetime
    moments: tuple[Moment, ...]

    @property
    def since(self) -> datetime:
        return self.moments[0].at

    @property
    def whole(self) -> Outcomes:
        total = Outcomes()
        for moment in self.moments:
            total = total.plus(moment.outcomes)
        return total


@dataclass(frozen=True, slots=True)
class Keyed:
    """`name`: what people call it; the key itself where it has no name, or none any more."""

    key: str
    name: str
    outcomes: Outcomes


@dataclass(frozen=True, slots=True)
class Ranking:
    """The keys with most first. `others`: all that are not listed, `others_count` of them known by name."""

    dimension: Dimension
    keys: tuple[Keyed, ...]
    others: Outcomes | None
    others_count: int


async def over_time(
    session: Session, clock: Clock, period: Period, dimension: Dimension | None = None, key: str = ""
) -> Course:
    """Of one key of a dimension, or of all."""
    as_of, moments = await moments_of(session, clock, period.value, dimension, key)
    return Course(period, as_of, moments)


async def moments_of(
    session: Session, clock: Clock, reach: Reach, dimension: Dimension | None = None, key: str = ""
) -> tuple[datetime, tuple[Moment, ...]]:
    """Now, and the buckets of a window, oldest first."""
    span = reach.span
    rows = await session.fetch(
        "analytics_over_time",
        session.org_id,
        clock.now(),
        span.bucket,
        span.buckets,
        reach.kept,
        dimension or "all",
        key,
    )
    found = {row["at"]: _outcomes(row) for row in rows if row["at"] is not None}
    starts = [rows[0]["newest"] - span.bucket * back for back in reversed(range(span.buckets))]
    return rows[0]["now"], tuple(Moment(at, found.get(at, Outcomes())) for at in starts)


async def by_key(
    session: Session,
    clock: Clock,
    period: Period,
    dimension: Dimension,
    *,
    limit: int = DEFAULT_TOP_KEYS,
    by_failures: bool = False,
) -> Ranking:
    """The keys with most tasks that ended, or with most that died."""
    assert 0 < limit <= MAX_TOP_KEYS
    span = period.value.span
    rows = await session.fetch(
        "analytics_by_key",
        session.org_id,
        clock.now(),
        span.bucket,
        span.buckets,
        period.value.kept,
        dimension,
        limit,
        by_failures,
    )
    listed = [row for row in rows if row["key"]]
    rest = next((row for row in rows if not row["key"]), None)
    names = await _names(session, dimension, [row["key"] for row in listed])
    return Ranking(
        dimension,
        tuple(Keyed(row["key"], names.get(row["key"], row["key"]), _outcomes(row)) for row in listed),
        None if rest is None else _outcomes(rest),
        0 if rest is None else rest["keys"],
    )


async def _names(session: Session, dimension: Dimension, keys: list[str]) -> dict[str, str]:
    if dimension is not Dimension.ENDPOINT:
        return {}
    return {str(found): name for found, name in (await endpoint_names(session, map(UUID, keys))).items()}


def waits_of(row: Record, counts: str = "wait_counts") -> Waits:
    """From a row that has slots and counts, side by side; both NULL where nothing was delivered."""
    return dict(zip(row["wait_slots"] or (), row[counts] or (), strict=True))


def _outcomes(row: Record) -> Outcomes:
    return Outcomes(
        row["created"],
        row["acked"],
        row["delivered"],
        row["failed"],
        row["untried"],
        row["redriven"],
        row["attempts"],
        row["retries"],
        tuple(row["saved"]),
        row["retried"],
        tuple(row["lost"]),
        waits_of(row),
        waits_of(row, "wait_firsts"),
        row["waited"].total_seconds(),
        row["events_delivered"],
        row["events_failed"],
        row["events_redriven"],
    )
