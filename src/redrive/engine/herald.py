"""Tells what people should hear of: log lines, and webhooks of the orgs that asked for them.

Run beside each worker. Meets the store through core.ports. Any number may run at once: each takes other notices, and
whoever is killed with some in hand has told nobody but the log.
"""

from collections.abc import Sequence

import structlog

from redrive.core.jobs import JobRecord
from redrive.core.notices import Notice
from redrive.core.ports import NoticeStore
from redrive.engine.looking import keep_looking

LOOK_EVERY_S = 1.0
BATCH_NOTICES = 100  # in one transaction

log = structlog.get_logger("redrive.herald")


class Herald:
    def __init__(self, store: NoticeStore, *, every_s: float = LOOK_EVERY_S, job: JobRecord | None = None) -> None:
        self._store = store
        self._every_s = every_s
        self._job = job

    async def run(self) -> None:
        """Until cancelled."""
        await keep_looking(
            self.look, batch=BATCH_NOTICES, every_s=self._every_s, log=log, failed="notices_failed", job=self._job
        )

    async def look(self) -> int:
        """Tell what there is, a batch at most; how many that were."""
        return await self._store.hand_over(BATCH_NOTICES, say)


def say(notices: Sequence[Notice]) -> None:
    """A line for each. A crash before they are marked as told says them twice, never not at all."""
    for notice in notices:
        tell = {"error": log.error, "warning": log.warning}.get(notice.severity, log.info)
        tell(
            "notice",
            kind=notice.kind,
            notice_id=str(notice.id),
            org_id=str(notice.org_id),
            org=notice.org,
            subject_kind=notice.subject_kind,
            subject_id=str(notice.subject_id) if notice.subject_id else None,
            text=notice.text,
        )
