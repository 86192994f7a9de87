"""The tries of a worker: each one ends once, and all can be broken off."""

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from uuid import UUID

import pytest
import structlog

from redrive.core.outcome import Category, Failure, Outcome, Success
from redrive.core.ports import HTTP_QUEUE, Destination, Exchange, Job, Released, Settlement, Try
from redrive.core.presets import PRESETS
from redrive.engine import tries as tries_module
from redrive.engine.spans import Told
from redrive.engine.tries import BROKEN_OFF, Tries

NOW = datetime(2031, 5, 4, 12, 0, tzinfo=UTC)
ID = UUID(int=7)
POLICY = PRESETS["integration"]
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


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

    def end(self, fence: int, outcome: Outcome = Success(200)) -> None:  # noqa: B008 - immutable
        self.ends[fence].set_result(Try(outcome))


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

    def end(self, fence: int, outcome: Outcome = Success(200)) -> None:  # noqa: B008 - immutable
        self.ended.pop(fence)(Try(outcome))


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


@pytest.mark.parametrize("make", [Awaited, CallingBack])
@pytest.mark.parametrize("broken", ["expired", "decide"])
async def test_a_bug_in_one_decision_gives_that_job_back_and_leaves_the_others_alone(
    make: Callable[[], Awaited], broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = getattr(tries_module, broken), 0

    def breaks_once(*given: object, **named: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise ZeroDivisionError
        return real(*given, **named)

    monkeypatch.setattr(tries_module, broken, breaks_once)
    destination = make()
    settled: list[Settlement] = []
    tries = Tries({HTTP_QUEUE: destination}, settled.append, margin_s=15.0, dice=lambda: 0.5)
    with structlog.testing.capture_logs() as lines:
        for fence in (1, 2, 3):
            tries.begin(job(fence), POLICY, asked_at=time.monotonic())
        await asyncio.sleep(0)
        for fence in (1, 2, 3):
            if fence != 2 or broken == "decide":
                destination.end(fence, Failure(Category.SERVER_ERROR, "HTTP 503"))
        for _ in range(3):
            await asyncio.sleep(0)
    assert tries.under_way == 0
    given_back = {one.job.fence: one.decision for one in settled if isinstance(one.decision, Released)}
    assert (len(settled), list(given_back)) == (3, [2])
    assert "ZeroDivisionError" in given_back[2].why
    assert given_back[2].delay_s > 0
    assert [line["event"] for line in lines] == ["decision_failed"]


def test_a_try_at_what_is_no_url_is_a_span_all_the_same() -> None:
    """So much may be redacted of one that nothing is left."""
    for url in ("http://[redacted]", "http://[::1", "https://example.com:99999999/"):
        told = Told(job(1), TRACEPARENT, 0, Success(200), Exchange(url), 1, 2)
        assert told().attributes["url.full"] == url
