"""Says every few seconds that a worker is there, and when it has gone. Run beside the worker, on the same loop.

So a worker whose loop hangs falls silent too. Meets the store through core.ports. The worker does not depend on it:
where it cannot be written, the worker goes on and the next beat tries again.
"""

import asyncio

import structlog

from redrive.core.brief import brief
from redrive.core.jobs import HEARTBEAT, JobRecord
from redrive.core.ports import WorkerBook, WorkerCard
from redrive.engine.jobs import unreported

HEARTBEAT_S = HEARTBEAT.every_s
LEAVE_WITHIN_S = 2.0  # a shutdown does not wait for a database that is away

log = structlog.get_logger("redrive.heartbeat")


class Heartbeat:
    def __init__(
        self, book: WorkerBook, card: WorkerCard, *, every_s: float | None = None, job: JobRecord | None = None
    ) -> None:
        self._book = book
        self._card = card
        self._every_s = HEARTBEAT_S if every_s is None else every_s
        self._job = job or unreported(HEARTBEAT)

    async def run(self) -> None:
        """Until cancelled. Of many beats in a row that fail, the first is told."""
        is_heard = True
        while True:
            try:
                with self._job.run():
                    await self._book.beat(self._card)
            except Exception as error:  # noqa: BLE001 - the database may be away: the next beat tries again
                if is_heard:
                    log.warning("heartbeat_failed", error=brief(error), again_in_s=self._every_s)
                is_heard = False
            else:
                is_heard = True
            await asyncio.sleep(self._every_s)

    async def leave(self) -> None:
        """The worker has drained. Where that cannot be written, its silence says it."""
        try:
            async with asyncio.timeout(LEAVE_WITHIN_S):
                await self._book.leave(self._card.worker_id)
        except Exception as error:  # noqa: BLE001 - nothing depends on it
            log.warning("heartbeat_failed", error=brief(error))
