"""Says every few seconds how the background jobs of this process go. Run beside them, on the same loop.

    jobs = Jobs(store)
    herald = Herald(notices, job=jobs.job(HERALD))

Meets the store through core.jobs. No job depends on it: where nothing can be written, the next report says it.
"""

import asyncio
import time
from collections.abc import Callable

import structlog

from redrive.core.brief import brief
from redrive.core.jobs import JobBook, JobKind, JobRecord

REPORT_EVERY_S = 5.0
LEAVE_WITHIN_S = 2.0  # a shutdown does not wait for a database that is away

log = structlog.get_logger("redrive.jobs")


def unreported(kind: JobKind) -> JobRecord:
    """For a job whose process reports nothing: tests, one-off runs."""
    return JobRecord(kind.name, kind.every_s, time.monotonic)


class Jobs:
    def __init__(
        self, book: JobBook, *, every_s: float = REPORT_EVERY_S, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._book = book
        self._every_s = every_s
        self._now = now
        self._records: dict[str, JobRecord] = {}

    def job(self, kind: JobKind, *, every_s: float | None = None) -> JobRecord:
        """From now on this process is known to run it. The same record for whoever asks twice."""
        if kind.name not in self._records:
            self._records[kind.name] = JobRecord(kind.name, every_s or kind.every_s, self._now)
        return self._records[kind.name]

    async def run(self) -> None:
        """Until cancelled. Of many reports in a row that fail, the first is told."""
        is_heard = True
        while True:
            try:
                await self.report()
            except Exception as error:  # noqa: BLE001 - the database may be away: the next report tries again
                if is_heard:
                    log.warning("jobs_report_failed", error=brief(error), again_in_s=self._every_s)
                is_heard = False
            else:
                is_heard = True
            await asyncio.sleep(self._every_s)

    async def report(self) -> None:
        await self._book.report([record.report() for record in self._records.values()])

    async def leave(self) -> None:
        """The process ends in good order. Where that cannot be written, the jobs' silence says it."""
        try:
            async with asyncio.timeout(LEAVE_WITHIN_S):
                await self._book.leave(list(self._records))
        except Exception as error:  # noqa: BLE001 - nothing depends on it
            log.warning("jobs_report_failed", error=brief(error))
