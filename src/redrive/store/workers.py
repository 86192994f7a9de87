"""Who is at work: a row for each worker, kept fresh by its heartbeat. Of the whole installation, not of an org.

Written through core.ports.WorkerBook by engine.heartbeat; read by the pages. What was silent for a day is forgotten by
the janitor (store.retention).
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from redrive.core.channels import notice_queue
from redrive.core.ports import HTTP_QUEUE, RELAY_QUEUE, WorkerCard
from redrive.store.clock import Clock
from redrive.store.db import Database, Session

MAX_WORKERS_SHOWN = 200
# Served wherever an API is: no heartbeat tells of it.
SERVED_BY_THE_API = frozenset({RELAY_QUEUE, notice_queue(HTTP_QUEUE)})
SILENT_AFTER_S = 60.0  # four heartbeats that did not come; as the alert `no_worker` has it


@dataclass(frozen=True, slots=True)
class WorkerSeen:
    """A worker, and for how long nothing was heard of it."""

    id: UUID
    started_at: datetime
    seen_at: datetime
    host: str
    pid: int
    version: str
    queues: tuple[str, ...]
    concurrency: int
    silent_s: float

    @property
    def is_silent(self) -> bool:
        """It was killed, hangs, or cannot reach the database."""
        return self.silent_s >= SILENT_AFTER_S


class Workers:
    """core.ports.WorkerBook on PostgreSQL."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db = db
        self._clock = clock

    async def beat(self, card: WorkerCard) -> None:
        await self._db.execute(
            "beat_worker",
            self._clock.now(),
            card.worker_id,
            card.host,
            card.pid,
            card.version,
            list(card.queues),
            card.concurrency,
        )

    async def leave(self, worker_id: UUID) -> None:
        await self._db.execute("leave_worker", worker_id)


async def list_workers(db: Database | Session, clock: Clock) -> list[WorkerSeen]:
    """Those heard of last, first; at most 200. Silent ones are among them, for a day."""
    rows = await db.fetch("list_workers", clock.now(), MAX_WORKERS_SHOWN)
    return [WorkerSeen(**{**row, "queues": tuple(row["queues"])}) for row in rows]


async def last_seen(db: Database | Session, clock: Clock) -> WorkerSeen | None:
    """The worker heard of last; None where there was none for a day."""
    rows = await db.fetch("list_workers", clock.now(), 1)
    return WorkerSeen(**{**rows[0], "queues": tuple(rows[0]["queues"])}) if rows else None
