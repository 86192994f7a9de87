"""Operations beside a real worker: hundreds of items, each tried once and counted once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from redrive import Task
from redrive.core.operations import MAX_STEP_ITEMS, Command
from redrive.core.ports import Step
from redrive.engine.operations import run_operations
from redrive.store import operations
from redrive.store.check import check
from redrive.store.db import Record
from redrive.store.operation_steps import COLLECT_ROWS, OperationSteps
from redrive.store.operations import OperationSpec
from support.engine import PERSON, Engine, open_engine

NAME = "edi.orders"
MANY = 300
STEP_ITEMS = 100  # where a test asks for small steps: it takes some for that many
RATE_PER_S = 40.0  # a fraction of them, by the time that somebody has paused, resumed and cancelled
ALL_FAILED = "SELECT count(*) >= $1 FROM redrive.task WHERE attempts > 0 AND state = 'waiting'"
ENDED = "SELECT finished_at IS NOT NULL FROM redrive.operation WHERE id = $1"


class Orders:
    """A handler that fails until it is told not to; orders divisible by ten it refuses even then."""

    def __init__(self) -> None:
        self.is_down = True
        self.calls = 0

    async def __call__(self, task: Task) -> None:
        self.calls += 1
        if self.is_down or task.payload["n"] % 10 == 0:
            raise ConnectionError("the partner is down")


@asynccontextmanager
async def runners(engine: Engine, count: int) -> AsyncIterator[None]:
    steps = OperationSteps(engine.db, engine.clock)
    running = [asyncio.create_task(run_operations(steps)) for _ in range(count)]
    try:
        yield
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _begun(engine: Engine, spec: OperationSpec) -> UUID:
    async with engine.app.tenant(engine.org_id) as session:
        row = await operations.create(session, spec, PERSON, engine.clock)
    operation_id: UUID = row["id"]
    return operation_id


async def _operation(engine: Engine, operation_id: UUID) -> Record:
    row = await engine.sql.fetchrow("SELECT * FROM redrive.operation WHERE id = $1", operation_id)
    assert row is not None
    return row


async def _accept(engine: Engine, count: int) -> None:
    events = [engine.new_event(NAME, b'{"n":%d}' % number, handler=NAME, policy="manual") for number in range(count)]
    for start in range(0, count, 1_000):
        await engine.accept_all(events[start : start + 1_000])


async def test_many_by_a_filter_are_retried_and_counted_exactly(live: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.core.operations.MAX_STEP_ITEMS", STEP_ITEMS)
    orders = Orders()
    await _accept(live, MANY)
    async with live.worker({NAME: orders}) as worker, live.running(worker):
        await live.until(ALL_FAILED, MANY, within_s=60)
        orders.is_down = False
        spec = OperationSpec("retry_queue", "retry", filter={"event_type": NAME})
        async with runners(live, 2):
            operation = await _begun(live, spec)
            await live.until(ENDED, operation, within_s=60)
    row = await _operation(live, operation)
    assert (row["state"], row["total"]) == ("completed", MANY)
    assert (row["succeeded"], row["failed"]) == (MANY * 9 // 10, MANY // 10)
    assert orders.calls == 2 * MANY
    assert await live.sql.fetchval("SELECT count(*) FROM redrive.audit WHERE action = 'task.retry'") == MANY
    report = await check(live.url)
    assert report.clean, report.violations


PLANT_TASKS = """
  INSERT INTO redrive.task (org_id, id, event_id, endpoint_id, policy_id, kind, queue, state, event_type, reason,
                            due_at, received_at, begun_at, updated_at)
  SELECT org_id, redrive.uuid7(), event_id, endpoint_id, policy_id, kind, queue, 'dead', event_type, 'exhausted',
         'infinity', received_at, begun_at, updated_at
    FROM redrive.task, generate_series(1, $2) WHERE id = $1"""
PLANT_LETTERS = """
  INSERT INTO redrive.dead_letter (org_id, task_id, state, kind, event_id, endpoint_id, event_type, reason, category,
                                   fingerprint, error_message, failed_at, generation, created_at, updated_at)
  SELECT org_id, id, 'open', kind, event_id, endpoint_id, event_type, reason, 'timeout', 'f', 'e', updated_at, 0,
         updated_at, updated_at FROM redrive.task WHERE reason = 'exhausted'"""


async def test_thousands_are_written_down_and_done_in_short_transactions(database_url: str) -> None:
    """Planted by hand, in a database of its own: to let so many fail would take long."""
    many, taken = COLLECT_ROWS + MAX_STEP_ITEMS, 0
    async with open_engine(database_url) as engine:
        endpoint = await engine.endpoint()
        template = await engine.task_of(await engine.accept())
        await engine.sql.execute(PLANT_TASKS, template["id"], many)
        await engine.sql.execute(PLANT_LETTERS)
        steps = OperationSteps(engine.db, engine.clock)
        spec = OperationSpec("dead_letters", "ignore", filter={"endpoint_id": str(endpoint)})
        operation = await _begun(engine, spec)
        while not await engine.sql.fetchval(ENDED, operation):
            await steps.step()
            taken += 1
        row = await _operation(engine, operation)
    assert (row["state"], row["total"], row["succeeded"]) == ("completed", many, many)
    assert taken >= many / COLLECT_ROWS + many / MAX_STEP_ITEMS  # no step does more than these


async def test_pause_resume_and_cancel_in_the_middle_leave_exact_sums(live: Engine) -> None:
    orders = Orders()
    await _accept(live, MANY)
    async with live.worker({NAME: orders}) as worker, live.running(worker):
        await live.until(ALL_FAILED, MANY, within_s=60)
        orders.is_down = False
        spec = OperationSpec("retry_queue", "retry", filter={"event_type": NAME}, rate_per_s=RATE_PER_S)
        async with runners(live, 2):
            operation = await _begun(live, spec)
            for word in (Command.PAUSE, Command.RESUME, Command.CANCEL):
                await live.until("SELECT done > 0 FROM redrive.operation WHERE id = $1", operation)
                async with live.app.tenant(live.org_id) as session:
                    told = await operations.tell(session, operation, word, PERSON, live.clock)
                    assert isinstance(told, Record), told
            await live.until(ENDED, operation, within_s=30)
    row = await _operation(live, operation)
    assert (row["state"], row["total"]) == ("cancelled", MANY)
    assert 0 < row["done"] == row["dispatched"] < MANY
    assert orders.calls == MANY + row["done"]
    report = await check(live.url)
    assert report.clean, report.violations


async def test_a_runner_outlives_an_outage_and_says_so() -> None:
    class Away:
        steps = 0

        async def step(self) -> Step:
            self.steps += 1
            if self.steps == 1:
                raise ConnectionError("the database is away")
            return Step(None, 3600.0)

    away = Away()
    with capture_logs() as said:
        running = asyncio.create_task(run_operations(away))
        async with asyncio.timeout(5):
            while away.steps < 2:
                await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert [(line["event"], line["error"]) for line in said] == [
        ("operation_step_failed", "ConnectionError: the database is away")
    ]
