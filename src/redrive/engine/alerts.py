"""Looks every few seconds whether an alert is due, or over. Run beside each worker and in the API's process.

Meets the store through core.alerts. Of all processes one looks at a time, so that none is needed: where there is no
worker, the API's process notices.
"""

import structlog

from redrive.core.alerts import AlertWatch
from redrive.core.brief import brief
from redrive.core.jobs import ALERTS, JobRecord
from redrive.engine.jobs import unreported
from redrive.engine.looking import keep_looking

LOOKS_PER_ROUND = 3  # of each process: so that a round is late by a third at most when whoever made them has died

log = structlog.get_logger("redrive.alerts")


async def watch_alerts(watch: AlertWatch, *, every_s: float, job: JobRecord | None = None) -> None:
    """Until cancelled. `every_s`: how often all processes together look."""
    noted = job or unreported(ALERTS)

    async def look() -> int:
        """That another process has the round is no success of the job: that one may fail, or hang, each time."""
        noted.begin()
        try:
            changed = await watch.look()
        except Exception as error:
            noted.fail(brief(error))
            raise
        if changed is not None:
            noted.succeed()
        if changed:
            log.info("alerts_changed", incidents=changed)
        return 0  # there is never more at once

    await keep_looking(look, batch=1, every_s=every_s / LOOKS_PER_ROUND, log=log, failed="alerts_not_looked_at")
