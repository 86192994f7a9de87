"""Has what happened added up, every two seconds. Run in every worker and API process.

The store sees to it that one at a time does it. Nothing waits for it: whoever reads adds what is not rolled yet.
"""

from collections.abc import Awaitable, Callable

import structlog

from redrive.engine.looking import keep_looking

LOOK_EVERY_S = 2.0

log = structlog.get_logger("redrive.roller")


async def run_roller(roll: Callable[[], Awaitable[int]], *, batch: int, every_s: float = LOOK_EVERY_S) -> None:
    """Until cancelled. `roll` answers how many rows it moved; `batch`: as many are moved at once."""
    await keep_looking(roll, batch=batch, every_s=every_s, log=log, failed="roll_failed")
