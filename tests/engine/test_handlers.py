"""Handlers: Python callables with the same retries, logs and dead letters as a webhook; what they raise steers."""

import asyncio
import signal
import threading
import time
from contextvars import ContextVar
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from conftest import Eventually
from redrive import ConfigurationError, GiveUp, RetryLater, Task
from redrive.core.outcome import Category, Failure
from redrive.core.ports import HANDLER_QUEUE_PREFIX, Released, Try
from redrive.destinations.python import MAX_RESULT_BYTES, Handler, HandlerDestination
from redrive.store.db import Record
from support.engine import Engine, ManualClock, open_engine
from support.processes import STOP_WITHIN_S, worker

NAME = "edi.orders"
QUEUE = HANDLER_QUEUE_PREFIX + NAME
tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


async def run(engine: Engine, handler: Handler, body: bytes = b"{}", **fields: Any) -> Record:
    """The task after one run of the worker."""
    event_id = await engine.accept(NAME, body, handler=NAME, **fields)
    async with asyncio.timeout(20):  # a try that is taken for a shutdown is given back and made again, for ever
        await engine.run_until_idle({NAME: handler})
    return await engine.task_of(event_id)


async def the_attempt(engine: Engine, task: Record) -> Record:
    (attempt,) = await engine.attempts(task["id"])
    return attempt


async def test_a_coroutine_gets_its_task_and_its_result_is_kept(engine: Engine) -> None:
    got: list[Task] = []

    async def handle(task: Task) -> dict[str, int]:
        got.append(task)
        return {"sent": 1}

    task = await run(engine, handle, b'{"order": 7}', correlation_id="c-1")
    assert task["state"] == "succeeded"
    (seen,) = got
    assert (seen.id, seen.name, seen.payload, seen.attempt) == (task["id"], NAME, {"order": 7}, 1)
    assert (seen.org_id, seen.correlation_id) == (engine.org_id, "c-1")
    assert seen.idempotency_key == str(task["event_id"])
    assert (await the_attempt(engine, task))["response_body"] == b'{"sent": 1}'


async def test_a_plain_function_runs_in_a_thread_and_keeps_its_context(engine: Engine) -> None:
    tenant.set("acme")
    threads: list[tuple[int, str]] = []

    def handle(task: Task) -> str:
        threads.append((threading.get_ident(), tenant.get()))
        return "done"

    task = await run(engine, handle)
    assert task["state"] == "succeeded"
    assert threads[0][0] != threading.get_ident()
    assert threads[0][1] == "acme"
    assert (await the_attempt(engine, task))["response_body"] == b'"done"'


async def test_a_callable_that_answers_an_awaitable_is_awaited(engine: Engine) -> None:
    class Sender:
        async def __call__(self, task: Task) -> str:
            await asyncio.sleep(0)
            return "sent"

    task = await run(engine, Sender())
    assert (await the_attempt(engine, task))["response_body"] == b'"sent"'


@pytest.mark.parametrize(
    ("result", "stored"),
    [
        (None, None),
        ("\ud800", b'"\\ud800"'),
        (object, repr(object).encode()),
        ("x" * 70_000, b'"' + b"x" * (MAX_RESULT_BYTES - 1)),
    ],
)
async def test_any_result_is_kept_as_far_as_it_can_be_shown(
    engine: Engine, result: object, stored: bytes | None
) -> None:
    async def handle(task: Task) -> object:
        return result

    assert (await the_attempt(engine, await run(engine, handle)))["response_body"] == stored


async def test_a_result_that_cannot_be_shown_is_a_success_all_the_same(engine: Engine) -> None:
    class Shy:
        def __str__(self) -> str:
            raise RuntimeError("no")

    async def handle(task: Task) -> object:
        return Shy()

    task = await run(engine, handle)
    assert task["state"] == "succeeded"


async def test_give_up_is_a_dead_letter_at_once(engine: Engine) -> None:
    async def handle(task: Task) -> None:
        raise GiveUp("customer 7 does not exist", category=Category.VALIDATION)

    task = await run(engine, handle)
    assert (task["state"], task["reason"], task["attempts"]) == ("dead", "permanent", 1)
    letter = await engine.letter(task["id"])
    assert letter is not None
    assert (letter["kind"], letter["category"], letter["error_message"]) == (
        "handler",
        "validation",
        "customer 7 does not exist",
    )


@pytest.mark.parametrize(("after", "expected_s"), [(60, 60), (timedelta(minutes=2), 120), (1, 5), (None, 5)])
async def test_retry_later_is_a_retry_after_at_least_that_long(
    engine: Engine, clock: ManualClock, after: float | timedelta | None, expected_s: float
) -> None:
    def handle(task: Task) -> None:
        raise RetryLater("not yet", after=after)

    task = await run(engine, handle)
    assert (task["state"], task["attempts"]) == ("waiting", 1)
    assert task["due_at"] == clock.now() + timedelta(seconds=expected_s)


async def test_retry_later_ends_with_the_policy_s_retries(engine: Engine, clock: ManualClock) -> None:
    async def handle(task: Task) -> None:
        raise RetryLater("never")

    task = await run(engine, handle)
    for delay_s in (5, 30, 300):
        clock.advance(delay_s)
        await engine.run_until_idle({NAME: handle})
    task = await engine.task(task["id"])
    assert (task["state"], task["reason"], task["attempts"]) == ("dead", "exhausted", 4)


@pytest.mark.parametrize(
    ("error", "category", "state"),
    [
        (ConnectionRefusedError("port 1521"), "network", "waiting"),
        (TimeoutError("their own"), "timeout", "waiting"),
        (RuntimeError("who knows"), "unknown", "waiting"),
        (KeyError("customer"), "validation", "dead"),
        (ConfigurationError("no credentials"), "configuration", "dead"),
    ],
)
async def test_any_other_exception_is_classified_and_kept_with_its_stack(
    engine: Engine, error: Exception, category: str, state: str
) -> None:
    async def handle(task: Task) -> None:
        raise error

    task = await run(engine, handle)
    attempt = await the_attempt(engine, task)
    assert (task["state"], attempt["category"]) == (state, category)
    assert str(error) in attempt["error_message"]
    assert "in handle" in attempt["error_stack"]
    assert type(error).__name__ in attempt["error_stack"]


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_handler_past_its_time_is_a_time_out_and_a_possible_duplicate(engine: Engine, in_thread: bool) -> None:
    await engine.policy("hasty", kind="list", delays_s=[5], timeout_s=0.1)
    let_go = threading.Event()

    async def wait(task: Task) -> None:
        await asyncio.Event().wait()

    def block(task: Task) -> None:
        let_go.wait(10)

    try:
        task = await run(engine, block if in_thread else wait, policy="hasty")
    finally:
        let_go.set()
    attempt = await the_attempt(engine, task)
    assert (task["state"], attempt["category"], attempt["possible_duplicate"]) == ("waiting", "timeout", True)
    assert attempt["error_message"] == "The handler 'edi.orders' did not finish within 0.1 s."


@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.parametrize("error", [asyncio.CancelledError(), SystemExit(3), KeyboardInterrupt(), StopIteration()])
async def test_what_would_end_a_program_is_a_failed_try_and_the_worker_goes_on(
    engine: Engine, error: BaseException, in_thread: bool
) -> None:
    async def handle(task: Task) -> None:
        plain(task)

    def plain(task: Task) -> None:
        if task.payload == "bad":
            raise error

    bad, good = [await engine.accept(NAME, body, handler=NAME) for body in (b'"bad"', b'"good"')]
    async with engine.worker({NAME: plain if in_thread else handle}, concurrency=1) as worker:
        await worker.run_until_idle()
    task = await engine.task_of(bad)
    assert (task["state"], task["attempts"]) == ("waiting", 1)
    attempt = await the_attempt(engine, task)
    assert (attempt["result"], attempt["category"], attempt["possible_duplicate"]) == ("failed", "unknown", False)
    assert "in plain" in attempt["error_stack"]
    assert (await engine.task_of(good))["state"] == "succeeded"


async def test_a_part_that_was_cancelled_is_the_handler_s_failure_not_a_shutdown(engine: Engine) -> None:
    async def handle(task: Task) -> None:
        part = asyncio.create_task(asyncio.Event().wait())
        part.cancel()
        await part

    task = await run(engine, handle)
    assert (task["state"], task["attempts"]) == ("waiting", 1)
    attempt = await the_attempt(engine, task)
    assert (attempt["result"], attempt["error_message"]) == ("failed", "CancelledError")


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_try_that_is_itself_cancelled_ends_as_cancelled(engine: Engine, in_thread: bool) -> None:
    begun, let_go = threading.Event(), threading.Event()

    async def wait(task: Task) -> None:
        begun.set()
        await asyncio.Event().wait()

    def block(task: Task) -> None:
        begun.set()
        let_go.wait(10)

    await engine.accept(NAME, handler=NAME)
    job = await engine.claim_one(queues=[QUEUE])
    destination = HandlerDestination({NAME: block if in_thread else wait})
    trying = asyncio.create_task(destination.attempt(job, job.claimed_at))
    try:
        await asyncio.sleep(0)
        assert await asyncio.to_thread(begun.wait, 10)
        trying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await trying
    finally:
        let_go.set()


async def test_a_plain_handler_that_hangs_keeps_its_thread_and_others_are_given_back_untried(engine: Engine) -> None:
    await engine.policy("hasty", kind="list", delays_s=[5], timeout_s=0.1)
    let_go = threading.Event()

    def handle(task: Task) -> None:
        if task.payload == "hang":
            let_go.wait(20)

    first = await engine.accept(NAME, b'"hang"', handler=NAME, policy="hasty")
    destination = HandlerDestination({NAME: handle}, threads=1)
    async with engine.worker(more=[destination]) as worker:
        await worker.run_until_idle()
        second = await engine.accept(NAME, handler=NAME, policy="hasty")
        working = asyncio.create_task(worker.run_until_idle())
        try:
            await engine.until("SELECT count(*) >= 2 FROM redrive.attempt WHERE result = 'released'")
            assert (await engine.task_of(second))["attempts"] == 0
        finally:
            let_go.set()
        async with asyncio.timeout(10):
            await working
    hung = await engine.task_of(first)
    assert (hung["state"], (await the_attempt(engine, hung))["category"]) == ("waiting", "timeout")
    task = await engine.task_of(second)
    *untried, tried = await engine.attempts(task["id"])
    assert (task["state"], task["attempts"], tried["result"]) == ("succeeded", 1, "succeeded")
    assert {(one["result"], one["possible_duplicate"]) for one in untried} == {("released", False)}
    assert untried[0]["error_message"] == "Not tried: no thread came free for the handler 'edi.orders' within 0.1 s."


async def test_no_try_waits_longer_for_a_thread_than_the_lease_can_bear(engine: Engine) -> None:
    let_go = threading.Event()

    def block(task: Task) -> None:
        let_go.wait(20)

    await engine.accept_many(2, event_type=NAME, handler=NAME)
    first, second = await engine.claim(queues=[QUEUE])
    destination = HandlerDestination({NAME: block}, threads=1, slot_wait_s=0.1)
    trying = asyncio.create_task(destination.attempt(first, first.claimed_at))
    try:
        await asyncio.sleep(0)
        async with asyncio.timeout(10):  # its own time-out is 30 s
            assert isinstance(await destination.attempt(second, second.claimed_at), Released)
    finally:
        let_go.set()
        await trying


async def test_waiting_for_a_thread_is_no_part_of_the_time_out(engine: Engine) -> None:
    let_go, let_all_go = threading.Event(), threading.Event()
    begun_at: list[float] = []

    def handle(task: Task) -> None:
        begun_at.append(time.monotonic())
        (let_all_go if let_go.is_set() else let_go).wait(20)

    await engine.accept_many(2, event_type=NAME, handler=NAME)
    first, second = [job._replace(timeout_s=1.0) for job in await engine.claim(queues=[QUEUE])]
    destination = HandlerDestination({NAME: handle}, threads=1)
    one = asyncio.create_task(destination.attempt(first, first.claimed_at))
    other = asyncio.create_task(destination.attempt(second, second.claimed_at))
    try:
        await asyncio.wait({other}, timeout=0.4)  # it waits, which is what must not count
        let_go.set()
        await one
        tried = await other
        ended_at = time.monotonic()
    finally:
        let_go.set()
        let_all_go.set()
    assert isinstance(tried, Try)
    assert isinstance(tried.outcome, Failure)
    assert tried.outcome.category is Category.TIMEOUT
    assert ended_at - begun_at[1] > 0.9


HANGING = """
import asyncio
from pathlib import Path
from threading import Event
from redrive import Redrive

app, stubborn = Redrive(), Redrive()

@app.handler("edi.orders")
def send_order(task):
    Path("begun").touch()
    Event().wait()

@stubborn.handler("stubborn")
async def send_for_ever(task):
    Path("begun too").touch()
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass
"""


async def test_a_worker_whose_handler_hangs_ends_in_time(
    database_url: str, tmp_path: Path, eventually: Eventually
) -> None:
    """A plain one is left to its thread; one that takes no cancellation is ended with its process."""
    (tmp_path / "orders.py").write_text(HANGING)
    async with open_engine(database_url) as engine:
        event_id = await engine.accept(NAME, handler=NAME)
        other_id = await engine.accept("stubborn", handler="stubborn")
        async with (
            worker(database_url, "--app", "orders:app", cwd=tmp_path) as program,
            worker(database_url, "--app", "orders:stubborn", cwd=tmp_path) as stubborn,
        ):
            await eventually(lambda: (tmp_path / "begun").exists() and (tmp_path / "begun too").exists(), within_s=20)
            began = time.monotonic()
            stubborn.send(signal.SIGTERM)
            assert await program.terminated() < STOP_WITHIN_S
            assert await stubborn.process.wait() == 1
            assert time.monotonic() - began < STOP_WITHIN_S
            assert stubborn.lines("stop_overdue")
        task = await engine.task_of(event_id)
        assert (task["state"], task["attempts"]) == ("waiting", 0)
        attempt = await the_attempt(engine, task)
        assert (attempt["result"], attempt["possible_duplicate"]) == ("released", True)
        assert (await engine.task_of(other_id))["state"] == "leased"  # until its lease ends
        assert await engine.sql.fetchval("SELECT count(*) FROM redrive.worker") == 0, "both have said that they go"


async def test_a_handler_s_error_is_redacted_before_it_is_stored(engine: Engine) -> None:
    async def handle(task: Task) -> None:
        raise RuntimeError("POST https://erp/?api_key=canary-123 failed, password=canary-456")

    attempt = await the_attempt(engine, await run(engine, handle))
    assert "canary" not in attempt["error_message"]


async def test_a_handler_that_nobody_registered_here_is_left_to_others(engine: Engine) -> None:
    event_id = await engine.accept("other", handler="other")

    async def handle(task: Task) -> None: ...

    await run(engine, handle)
    assert (await engine.task_of(event_id))["state"] == "waiting"
