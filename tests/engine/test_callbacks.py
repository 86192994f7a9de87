"""Callbacks for dead letters: made at least once, retried a bounded number of times, and none stops another."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from redrive import DeadLetterNotice, Redrive
from redrive.app import run_worker
from redrive.core.decide import Reason
from redrive.destinations.callbacks import awaitable
from redrive.engine import callbacks as module
from redrive.engine.callbacks import Callbacks
from redrive.settings import Settings
from redrive.store.notices import FOLD_AFTER_S, Notices
from support.engine import Engine, ManualClock, until


async def dead(engine: Engine, **fields: Any) -> UUID:
    await engine.accept(**fields)
    job = await engine.claim_one()
    await engine.kill(job, Reason.EXHAUSTED)
    return job.id


def callbacks(
    engine: Engine, callback: Callable[[DeadLetterNotice], Awaitable[Any] | Any], **options: Any
) -> Callbacks:
    return Callbacks(Notices(engine.db, engine.clock), awaitable(callback), **options)


async def test_a_callback_hears_of_each_dead_letter_once(engine: Engine) -> None:
    endpoint_id = await engine.endpoint("billing", external_system="erp")
    heard: list[DeadLetterNotice] = []

    async def hear(notice: DeadLetterNotice) -> None:
        heard.append(notice)

    tasks = {await dead(engine) for _ in range(3)}
    ours = callbacks(engine, hear)
    assert [await ours.look(), await ours.look()] == [3, 0]
    assert {notice.task_id for notice in heard} == tasks
    assert {(notice.endpoint, notice.endpoint_id, notice.external_system, notice.more) for notice in heard} == {
        ("billing", endpoint_id, "erp", 0)
    }
    assert {(notice.org, notice.event_type, notice.reason) for notice in heard} == {
        ("default", "invoice.paid", "exhausted")
    }


async def test_a_plain_function_is_called_in_a_thread(engine: Engine) -> None:
    await engine.endpoint()
    await dead(engine)
    threads: list[str] = []
    assert await callbacks(engine, lambda notice: threads.append(threading.current_thread().name)).look() == 1
    assert threads == ["redrive-callback"]


async def test_what_was_too_much_to_be_told_one_by_one_is_one_call(engine: Engine, clock: ManualClock) -> None:
    heard: list[DeadLetterNotice] = []
    await engine.sql.execute("SELECT redrive.note_more($1, 'dead_letter', 'error', $2, 40)", engine.org_id, clock.now())
    clock.advance(FOLD_AFTER_S)
    await Notices(engine.db, clock).hand_over(10, lambda _: None)
    await callbacks(engine, heard.append).look()
    assert [(notice.more, notice.task_id) for notice in heard] == [(40, None)]


async def test_a_callback_that_fails_is_called_again_and_given_up_at_last(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    bad, good = await dead(engine), await dead(engine)
    heard: list[UUID | None] = []

    async def hear(notice: DeadLetterNotice) -> None:
        heard.append(notice.task_id)
        if notice.task_id == bad:
            raise RuntimeError("the pager is broken")

    ours = callbacks(engine, hear)
    with capture_logs() as logged:
        for _ in range(module.MOST_CALLS + 2):
            await ours.look()
            clock.advance(module.FIRST_PAUSE_S * 2**module.MOST_CALLS)
    assert heard.count(good) == 1
    assert heard.count(bad) == module.MOST_CALLS
    assert [line["event"] for line in logged] == ["callback_failed"] * (module.MOST_CALLS - 1) + ["callback_given_up"]
    assert [line.get("again_in_s") for line in logged] == [5, 10, 20, 40, None]
    assert (ours.given_up, logged[-1]["given_up"], logged[-1]["error"]) == (1, 1, "RuntimeError: the pager is broken")


async def test_a_callback_that_hangs_has_failed(engine: Engine) -> None:
    await engine.endpoint()
    await dead(engine)

    async def hang(notice: DeadLetterNotice) -> None:
        await asyncio.Event().wait()

    with capture_logs() as logged:
        await callbacks(engine, hang, timeout_s=0.01).look()
    assert [line["event"] for line in logged] == ["callback_failed"]


async def test_a_call_whose_end_cannot_be_written_is_made_again(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    await dead(engine)
    heard: list[DeadLetterNotice] = []

    class CutOff(Notices):
        async def end_call(self, *args: Any, **options: Any) -> None:
            raise ConnectionError("the database is away")

    with capture_logs() as logged:
        await Callbacks(CutOff(engine.db, clock), awaitable(heard.append)).look()
    assert [line["event"] for line in logged] == ["callbacks_failed"]
    clock.advance(module.TAKEN_S)
    await callbacks(engine, heard.append).look()
    assert len(heard) == 2


def test_an_app_has_one_callback() -> None:
    app = Redrive()

    @app.on_dead_letter
    def first(notice: DeadLetterNotice) -> None: ...

    assert app.dead_letter_callback is first
    with pytest.raises(ValueError, match="already"):
        app.on_dead_letter(first)


async def test_a_worker_calls_what_its_app_registered(live: Engine) -> None:
    await live.endpoint()
    task_id = await dead(live)
    heard: list[UUID | None] = []
    stop = asyncio.Event()
    settings = Settings(secret_key=SecretStr("a key of the tests"), concurrency=1)
    running = asyncio.create_task(
        run_worker(settings, live.url, stop, on_dead_letter=lambda notice: heard.append(notice.task_id))
    )
    try:

        async def called() -> bool:
            return bool(heard)

        await until(called, within_s=20)
    finally:
        stop.set()
        await running
    assert heard == [task_id]


async def test_a_callback_whose_process_dies_each_time_is_given_up_and_said(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    await dead(engine)
    terms: Any = {"limit": 5, "most_calls": module.MOST_CALLS, "lease_s": module.TAKEN_S}
    for _ in range(module.MOST_CALLS):
        assert len(await Notices(engine.db, clock).take_calls(**terms)) == 1
        clock.advance(module.TAKEN_S)
    heard: list[DeadLetterNotice] = []
    ours = callbacks(engine, heard.append)
    with capture_logs() as logged:
        assert [await ours.look(), await ours.look()] == [1, 0]
    assert heard == []
    assert [(line["event"], line["calls"], line["error"]) for line in logged] == [
        ("callback_given_up", module.MOST_CALLS, module.NEVER_ENDED)
    ]
