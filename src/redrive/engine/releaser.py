"""Lets held tasks go on that nothing holds any more. Run by every worker, beside its claims.

Whoever resumes or enables releases what was held; if they die before the end, or a backlog is too large for them, this
does the rest. Any number of workers may do it at once: each takes other rows.
"""

import structlog

from redrive.core.jobs import JobRecord
from redrive.core.ports import TaskStore
from redrive.engine.looking import keep_looking

LOOK_EVERY_S = 2.0
RELEASE_BATCH = 1_000  # in one transaction, so that claims come between

log = structlog.get_logger("redrive.releaser")


class Releaser:
    def __init__(self, store: TaskStore, *, every_s: float = LOOK_EVERY_S, job: JobRecord | None = None) -> None:
        self._store = store
        self._every_s = every_s
        self._job = job

    async def run(self) -> None:
        """Until cancelled."""
        await keep_looking(
            self._look, batch=RELEASE_BATCH, every_s=self._every_s, log=log, failed="release_failed", job=self._job
        )

    async def _look(self) -> int:
        released = await self._store.release_held(RELEASE_BATCH)
        if released:
            log.info("held_tasks_released", tasks=released)
        return released
