"""Handlers: Python callables with the same retries, logs and dead letters as a webhook; what they raise steers."""

import asyncio
import threading
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import pytest

from redrive import ConfigurationError, GiveUp, RetryLater, Task
from redrive.core.outcome import Category
from redrive.destinations.python import MAX_RESULT_BYTES, Handler
from redrive.store.db import Record
from support.engine import Engine, ManualClock

NAME = "edi.orders"
tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


async def run(engine: Engine, handler: Handler, body: bytes = b"{}", **fields: Any) -> Record:
    """The task after one run of the worker."""
    event_id = await engine.accept(NAME, body, handler=NAME, **fields)
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
