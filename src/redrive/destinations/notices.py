"""A destination as the API's process has it: for tasks of notices alone. Used by api_process."""

from collections.abc import Sequence
from datetime import datetime

from redrive.core.channels import NOTICE_PREFIX
from redrive.core.ports import Destination, Job, Released, Try


class ForNotices:
    """Another destination, for those of its queues that hold notices: the rest of its work is the workers'."""

    def __init__(self, inner: Destination) -> None:
        self._inner = inner

    @property
    def queues(self) -> Sequence[str]:
        return tuple(queue for queue in self._inner.queues if queue.startswith(NOTICE_PREFIX))

    async def prepare(self, jobs: Sequence[Job]) -> None:
        await self._inner.prepare(jobs)

    async def attempt(self, job: Job, now: datetime) -> Try | Released:
        return await self._inner.attempt(job, now)

    async def aclose(self) -> None:
        await self._inner.aclose()
