"""How the tries of endpoints went: what the workers report, and what follows where nothing comes through.

Written by engine.health through core.ports.HealthLedger, read by the API and the pages. What is older than two weeks is
removed by the janitor (store.retention).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from redrive.core.ports import DisabledEndpoint, HealthReport
from redrive.store.clock import Clock
from redrive.store.db import Database, Session

BUCKET = timedelta(minutes=5)  # what record_health.sql keeps
WIDE_BUCKET = timedelta(hours=1)  # what is shown of more than a day
SHOWN = timedelta(days=1)  # unless asked for more
HISTORY_TTL = timedelta(days=14)
MAX_POINTS = 500
MIN_FAILURES = 5  # without a success between, before an endpoint is disabled
MAX_DISABLED = 100  # at once: the rest a minute later


class Ledger:
    """core.ports.HealthLedger on PostgreSQL."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db = db
        self._clock = clock

    async def add(self, reports: Sequence[HealthReport]) -> None:
        if reports:
            await self._db.execute("record_health", self._clock.now(), *map(list, zip(*reports, strict=True)))

    async def disable_failing(self, after_s: float) -> list[DisabledEndpoint]:
        rows = await self._db.fetch("list_failing", self._clock.now(), after_s, MIN_FAILURES, MAX_DISABLED)
        disabled: list[DisabledEndpoint] = []
        for row in rows:
            reason = _reason(row["failing_since"], row["failures"])
            place = row["org_id"], row["endpoint_id"]
            terms = (*place, reason, row["url"], row["failing_since"])
            if await self._db.fetchrow("disable_endpoint", self._clock.now(), *terms) is not None:
                disabled.append(DisabledEndpoint(*place, reason))
        return disabled


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """The tries of one bucket, which begins at `at`."""

    at: datetime
    succeeded: int
    failed: int
    average_ms: float
    slowest_ms: int


@dataclass(frozen=True, slots=True)
class History:
    """Oldest first; a bucket without tries is left out."""

    bucket: timedelta
    points: list[HistoryPoint]


async def history_of(session: Session, endpoint_id: UUID, clock: Clock, since: datetime | None = None) -> History:
    """Since then, or for a day: in buckets of five minutes for a day, of an hour for more. An unknown one has none.

    What is older than the janitor keeps is not there, and so there is an end to it.
    """
    is_long = since is not None and (clock.now() or datetime.now(UTC)) - since > SHOWN + BUCKET
    bucket = WIDE_BUCKET if is_long else BUCKET
    rows = await session.fetch(
        "endpoint_history", session.org_id, endpoint_id, clock.now(), since, SHOWN, bucket, MAX_POINTS
    )
    return History(bucket, [HistoryPoint(**row) for row in reversed(rows)])


def _reason(failing_since: datetime, failures: int) -> str:
    return (
        f"Nothing but failures since {failing_since:%Y-%m-%d %H:%M} UTC: {failures} tries. "
        "Enable it when it is back; nothing was lost."
    )
