"""The tries of a worker: each one ends once, and all can be broken off."""

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from uuid import UUID

import pytest

from redrive.core.outcome import Success
from redrive.core.ports import HTTP_QUEUE, Destination, Job, Released, Settlement, Try
from redrive.core.presets import PRESETS
from redrive.engine.tries import BROKEN_OFF, Tries

NOW = datetime(2031, 5, 4, 12, 0, tzinfo=UTC)
ID = UUID(int=7)
POLICY = PRESETS["integration"]


class Awaited:
    """Ends a try when the test says so."""

    queues: Sequence[str] = (HTTP_QUEUE,)

    def __init__(self) -> None:
        self.ends: dict[int, asyncio.Future[Try]] = {}

    async def prepare(self, jobs: Sequence[Job]) -> None: ...

    async def attempt(self, job: Job, now: datetime) -> Try | Released:
        self.ends[job.fence] = asyncio.get_running_loop().create_future()
        return await self.ends[job.fence]

    async def aclose(self) -> None: ...

    def end(self, fence: int) -> None:
        self.ends[fence].set_result(Try(Success(200)))


class Cancel:
    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call

    def cancel(self) -> None:
        self._call()


class CallingBack(Awaited):
    """The same without a task."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: dict[int, Callable[[Try | Released], None]] = {}

    def begin(self, job: Job, now: datetime, ended: Callable[[Try | Released], None]) -> Cancel:
        self.ended[job.fence] = ended
        return Cancel(lambda: self.ended.pop(job.fence))

    def end(self, fence: int) -> None:
        self.ended.pop(fence)(Try(Success(200)))


def job(fence: int) -> Job:
    return Job(
        ID, ID, ID, ID, ID, "webhook", HTTP_QUEUE, "t", fence, 0, 0, NOW, 30.0, False, NOW, None, b"", "text/plain"
    )


@pytest.mark.parametrize("make", [Awaited, CallingBack])
async def test_two_leases_of_one_task_are_two_tries(make: Callable[[], Awaited]) -> None:
    """A worker with room takes over the lease that it lost itself, while its first try still hangs."""
    destination = make()
    queues: dict[str, Destination] = {HTTP_QUEUE: destination}
    settled: list[Settlement] = []
    tries = Tries(queues, settled.append, margin_s=15.0, dice=lambda: 0.5)
    first, second = job(1), job(2)
    for one in (first, second):
        tries.begin(one, POLICY, asked_at=time.monotonic())
    await asyncio.sleep(0)
    assert tries.under_way == 2
    destination.end(1)
    for _ in range(3):
        await asyncio.sleep(0)
    assert tries.under_way == 1
    tries.break_off()
    for _ in range(3):
        await asyncio.sleep(0)
    assert tries.under_way == 0
    assert [(one.job.fence, isinstance(one.outcome, Success)) for one in settled] == [(1, True), (2, False)]
    assert settled[1].decision == BROKEN_OFF
