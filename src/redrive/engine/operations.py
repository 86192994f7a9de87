"""Moves operations on: one step after another, for as long as any is active.

Run beside each worker and in the API's process. Meets the store through core.ports. Any number may run at once: a step
is one transaction on one operation, and whoever is killed in one has done nothing.
"""

import asyncio

import structlog

from redrive.core.brief import brief
from redrive.core.jobs import OPERATIONS, JobRecord
from redrive.core.ports import OperationStore
from redrive.engine.jobs import unreported

FIRST_PAUSE_S = 0.1
MOST_PAUSE_S = 2.0

log = structlog.get_logger("redrive.operations")


async def run_operations(store: OperationStore, *, job: JobRecord | None = None) -> None:
    """Until cancelled. A step that is broken off is rolled back, and somebody else takes it."""
    job = job or unreported(OPERATIONS)
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            with job.run():
                step = await store.step()
        except Exception as error:  # noqa: BLE001 - the database may be away, or chose another to win: try again
            log.warning("operation_step_failed", error=brief(error), again_in_s=pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, MOST_PAUSE_S)
        else:
            pause_s = FIRST_PAUSE_S
            await asyncio.sleep(step.rest_s)
