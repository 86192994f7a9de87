"""How endpoints have done lately: success, latency, the last failure, and what waits or lies for them.

Reads only, at a cost that does not grow with the tasks. Asked by the pages of endpoints and by the dashboard.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from redrive.store.clock import Clock
from redrive.store.db import Record, Session

MAX_ENDPOINTS = 50  # in one question
MAX_TASK_TRIES = 10  # of one task: a single one that fails and fails must not hide the others
MAX_QUEUE_ENTRIES = 10_000  # of the retry queue looked at, those due soonest


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Of each endpoint."""

    tries: int
    tasks: int  # looked at, newest first; those that were never tried tell nothing
    counted: int


FOR_ONE = _Bounds(tries=200, tasks=2_000, counted=10_000)
FOR_MANY = _Bounds(tries=100, tasks=400, counted=1_000)


@dataclass(frozen=True, slots=True)
class Count:
    """`n`, or more than that where it is not whole."""

    n: int
    is_whole: bool


@dataclass(frozen=True, slots=True)
class EndpointHealth:
    """Out of the last `tries` that were looked at; what is None was not among them. Latencies are of tries that ended
    by themselves, however they ended.
    """

    endpoint_id: UUID
    tries: int
    succeeded: int
    failures_in_a_row: int
    p50_ms: float | None
    p95_ms: float | None
    last_success_at: datetime | None
    last_failure_at: datetime | None
    last_failure_category: str | None
    last_failure_message: str | None
    dead: Count
    retrying: Count
    held: Count

    @property
    def success_rate(self) -> float | None:
        """0 to 1."""
        return self.succeeded / self.tries if self.tries else None


async def health_of(session: Session, endpoint_id: UUID, clock: Clock) -> EndpointHealth:
    """One endpoint, by its last 200 tries. An unknown one has none."""
    return (await _asked(session, [endpoint_id], FOR_ONE, clock))[endpoint_id]


async def health_of_many(session: Session, endpoint_ids: Sequence[UUID], clock: Clock) -> dict[UUID, EndpointHealth]:
    """A page of endpoints, each by its last 100 tries; counts end at 1 000."""
    assert len(endpoint_ids) <= MAX_ENDPOINTS
    return await _asked(session, endpoint_ids, FOR_MANY, clock) if endpoint_ids else {}


async def _asked(
    session: Session, endpoint_ids: Sequence[UUID], bounds: _Bounds, clock: Clock
) -> dict[UUID, EndpointHealth]:
    rows = await session.fetch(
        "endpoint_health",
        session.org_id,
        list(endpoint_ids),
        bounds.tasks,
        bounds.tries,
        MAX_TASK_TRIES,
        bounds.counted + 1,
        MAX_QUEUE_ENTRIES,
        clock.now(),
    )
    return {row["id"]: _health(row, bounds.counted) for row in rows}


def _health(row: Record, most: int) -> EndpointHealth:
    return EndpointHealth(
        endpoint_id=row["id"],
        tries=row["tries"],
        succeeded=row["succeeded"],
        failures_in_a_row=row["failures_in_a_row"],
        p50_ms=row["p50_ms"],
        p95_ms=row["p95_ms"],
        last_success_at=row["last_success_at"],
        last_failure_at=row["last_failure_at"],
        last_failure_category=row["last_failure_category"],
        last_failure_message=row["last_failure_message"],
        dead=_count(row["dead"], most),
        retrying=Count(row["retrying"], row["saw_queue"]),
        held=_count(row["held"], most),
    )


def _count(n: int, most: int) -> Count:
    return Count(min(n, most), n <= most)
