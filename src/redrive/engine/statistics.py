"""Sees to it that the database knows its tables while they grow. Run beside each worker; nothing depends on it."""

from collections.abc import Awaitable, Callable

import structlog

from redrive.core.jobs import JobRecord
from redrive.engine.looking import keep_looking

LOOK_EVERY_S = 2.0

log = structlog.get_logger("redrive.statistics")


async def keep_statistics(
    analyse: Callable[[], Awaitable[list[str]]], *, every_s: float = LOOK_EVERY_S, job: JobRecord | None = None
) -> None:
    """Until cancelled."""

    async def look() -> int:
        analysed = await analyse()
        if analysed:
            log.info("tables_analysed", tables=analysed)
        return 0  # there is never more at once

    await keep_looking(look, batch=1, every_s=every_s, log=log, failed="analyse_failed", job=job)
