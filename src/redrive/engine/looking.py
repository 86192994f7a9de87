"""Look for work at intervals, and again at once while there is a batch of it. Used by what runs beside the workers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from redrive.core.brief import brief
from redrive.core.jobs import JobRecord


async def keep_looking(
    look: Callable[[], Awaitable[int]],
    *,
    batch: int,
    every_s: float,
    log: Any,
    failed: str,
    job: JobRecord | None = None,
) -> None:
    """Until cancelled. `look` answers how much it did, `batch` is what it does at once; `failed` names its failures.

    `job` notes how each look went.
    """
    turn = look if job is None else _noted(look, job)
    while True:
        try:
            done = await turn()
        except Exception as error:  # noqa: BLE001 - the database may be away: the next look may find it again
            log.warning(failed, error=brief(error), again_in_s=every_s)
            done = 0
        if done < batch:
            await asyncio.sleep(every_s)


def _noted(look: Callable[[], Awaitable[int]], job: JobRecord) -> Callable[[], Awaitable[int]]:
    async def turn() -> int:
        with job.run():
            return await look()

    return turn
