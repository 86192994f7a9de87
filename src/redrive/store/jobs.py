"""How background jobs go: a row for each, written by the processes that run them. Of the whole installation.

Written through core.jobs.JobBook by engine.jobs; read by alerts, metrics and the doctor. What no process has run for a
day is forgotten by the janitor (store.retention).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from redrive.core.jobs import JobReport
from redrive.store.clock import Clock
from redrive.store.db import Database, Session

MAX_JOBS_SHOWN = 100
NEW_AFTER_S = 60.0  # nobody said that they run it for so long: who runs it then has just begun


@dataclass(frozen=True, slots=True)
class JobSeen:
    """A job, and how it went in whichever process ran it last. `since`: for how long it is run without a break.

    `left_at`: the last process that ran it ended in good order. `idle_s`: since the last success, or since it is run.
    """

    name: str
    every_s: float
    since: datetime
    seen_at: datetime
    left_at: datetime | None
    began_at: datetime | None
    ended_at: datetime | None
    succeeded_at: datetime | None
    failed_at: datetime | None
    error: str | None
    idle_s: float
    unseen_s: float  # since a process said that it runs it
    left_s: float | None  # since `left_at`

    @property
    def is_failing(self) -> bool:
        """Its last turn that ended, wherever that was, failed."""
        return self.failed_at is not None and (self.succeeded_at is None or self.failed_at > self.succeeded_at)


class JobRows:
    """core.jobs.JobBook on PostgreSQL."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db = db
        self._clock = clock

    async def report(self, reports: Sequence[JobReport]) -> None:
        if reports:
            columns = [list(column) for column in zip(*reports, strict=True)]
            await self._db.execute("note_jobs", self._clock.now(), NEW_AFTER_S, *columns)

    async def leave(self, names: Sequence[str]) -> None:
        await self._db.execute("leave_jobs", self._clock.now(), list(names))


async def list_jobs(db: Database | Session, clock: Clock) -> list[JobSeen]:
    """By name; at most 100."""
    return [JobSeen(**row) for row in await db.fetch("list_jobs", clock.now(), MAX_JOBS_SHOWN)]
