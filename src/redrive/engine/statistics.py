"""Sees to it that the database knows its tables while they grow. Run beside each worker; nothing depends on it."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from redrive.engine.settler import brief

LOOK_EVERY_S = 2.0

log = structlog.get_logger("redrive.statistics")


async def keep_statistics(analyse: Callable[[], Awaitable[list[str]]], *, every_s: float = LOOK_EVERY_S) -> None:
    """Until cancelled."""
    while True:
        try:
            analysed = await analyse()
        except Exception as error:  # noqa: BLE001 - the database may be away: the next look may find it again
            log.warning("analyse_failed", error=brief(error), again_in_s=every_s)
        else:
            if analysed:
                log.info("tables_analysed", tables=analysed)
        await asyncio.sleep(every_s)
