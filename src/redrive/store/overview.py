"""Everything at a glance: rates, depths, workers, the worst endpoints, what lies. Of one org or all. For `redrive top`.

From what is counted on write, and from the ends of indexes: each question is bounded, whatever the tables hold.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from redrive.core.pulse import Waits, quantile, rate_of
from redrive.store.clock import Clock
from redrive.store.db import Database, Record, Session
from redrive.store.workers import WorkerSeen, list_workers

MINUTES = 15
MAX_WORKERS = 50
MAX_ROWS = 10  # endpoints, groups, operations
MAX_COUNTS = 1_000  # of causes, of each org; a cause has up to 65
MAX_STREAMS_DUE = 5_000  # looked at for what is due longest: of one org, its own
MAX_STREAMS = 2_000  # looked at for what is in flight,
MAX_LEASES = 20_000  # and tasks in all of them
LEASE_ENDS_WITHIN_S = 3_600.0  # so long after a worker was heard of it may have left some in front of others'


@dataclass(frozen=True, slots=True)
class Minute:
    at: datetime
    created: int = 0
    delivered: int = 0
    failed: int = 0  # for good


@dataclass(frozen=True, slots=True)
class AtWork:
    worker: WorkerSeen
    leases: int  # that were found; the whole installation's are in the depths


@dataclass(frozen=True, slots=True)
class Overview:
    """`minutes`: the last 15, oldest first; the last one goes on. They count events."""

    at: datetime
    org: str | None  # None: all
    minutes: tuple[Minute, ...]
    waits: Waits
    counted: dict[str, int]
    oldest_due_s: float | None
    workers: tuple[AtWork, ...]
    endpoints: tuple[dict[str, Any], ...]
    groups: tuple[dict[str, Any], ...]
    operations: tuple[dict[str, Any], ...]
    alerts: tuple[dict[str, Any], ...]
    paused: tuple[str, ...]  # of "installation" and "org", what is

    @property
    def last(self) -> Minute:
        """The last whole minute."""
        return self.minutes[-2]

    @property
    def success_rate(self) -> float | None:
        """Of what ended in these minutes, 0 to 1."""
        delivered = sum(minute.delivered for minute in self.minutes)
        return rate_of(delivered, delivered + sum(minute.failed for minute in self.minutes))

    def wait_s(self, share: float) -> float | None:
        """The seconds within which this share was delivered."""
        return quantile(self.waits, share)


async def overview(engine: Database, org: tuple[UUID, str] | None, clock: Clock) -> Overview:
    org_id, name = org if org is not None else (None, None)
    async with engine.transaction(snapshot=True) as session:
        now = clock.now()
        pulses = await session.fetch("top_pulse", org_id, now, MINUTES)
        counted = {row["name"]: row["n"] for row in await session.fetch("top_counters", org_id)}
        just_below = UUID(int=org_id.int - 1) if org_id else None
        due = await session.fetch("doctor_due", now, MAX_STREAMS_DUE, org_id, just_below)
        return Overview(
            pulses[0]["now"],
            name,
            _minutes(pulses),
            {row["slot"]: row["n"] for row in await session.fetch("top_waits", org_id, now, MINUTES)},
            counted,
            max((row["since_s"] for row in due), default=None),
            await _workers(session, clock),
            _dicts(await session.fetch("top_endpoints", org_id, now, MAX_ROWS)),
            _dicts(await session.fetch("top_groups", org_id, MAX_ROWS, MAX_COUNTS)),
            _dicts(await session.fetch("top_operations", org_id, MAX_ROWS)),
            _dicts(await session.fetch("top_alerts", org_id, MAX_ROWS)),
            tuple(row["scope"] for row in await session.fetch("get_pauses", org_id) if row["paused_at"] is not None),
        )


async def _workers(session: Session, clock: Clock) -> tuple[AtWork, ...]:
    seen = await list_workers(session, clock)
    # All of them may be busy with one stream; behind that many tasks of it, no more are in flight.
    busy = sum(worker.concurrency for worker in seen if worker.silent_s < LEASE_ENDS_WITHIN_S)
    found = await session.fetch("top_leases", MAX_STREAMS, min(busy, MAX_LEASES), MAX_LEASES)
    leases = {row["worker_id"]: row["n"] for row in found}
    return tuple(AtWork(worker, leases.get(worker.id, 0)) for worker in seen[:MAX_WORKERS])


def _minutes(rows: Sequence[Record]) -> tuple[Minute, ...]:
    told = {row["at"]: row for row in rows if row["at"] is not None}
    moments = [rows[0]["newest"] - timedelta(minutes=back) for back in reversed(range(MINUTES))]
    return tuple(
        Minute(at, *(told[at][name] for name in ("created", "delivered", "failed"))) if at in told else Minute(at)
        for at in moments
    )


def _dicts(rows: Sequence[Record]) -> tuple[dict[str, Any], ...]:
    return tuple(dict(row) for row in rows)
