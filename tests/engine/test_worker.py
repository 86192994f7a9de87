"""Workers side by side, cut off, stopped and restarted: every task is carried out, by one of them at a time."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import pytest
from structlog.testing import capture_logs

from conftest import database_of
from redrive import Task
from redrive.core.outcome import Success
from redrive.core.ports import HTTP_QUEUE, Ask, Claim, Job, Try
from redrive.destinations import http as http_module
from redrive.engine import agenda as agenda_module
from redrive.engine import lookout as lookout_module
from redrive.engine import worker as worker_module
from redrive.store.check import check
from redrive.store.embedded import EmbeddedPostgres
from redrive.store.listen import listen
from support.engine import MARGIN_S, SHARED, Connection, Engine, ManualClock, until
from support.receiver import HANG, Answer, Received, open_receiver

ALL_DONE = "SELECT NOT EXISTS (SELECT FROM redrive.task WHERE state <> 'succeeded')"
OVERLAPS = """
  SELECT a.task_id, a.fence, b.fence FROM redrive.attempt a JOIN redrive.attempt b
    ON a.org_id = b.org_id AND a.task_id = b.task_id AND a.fence < b.fence
 WHERE a.result <> 'lost' AND b.result <> 'lost' AND b.started_at < a.ended_at"""


class Gate:
    """A destination for webhooks that a test opens and closes: what is loaded and what is tried waits for it."""

    queues: Sequence[str] = (HTTP_QUEUE,)

    def __init__(self) -> None:
        self.preparing = asyncio.Event()
        self.prepared = asyncio.Event()
        self.prepared.set()
        self.trying: list[Job] = []
        self.tried = asyncio.Event()
        self.tried.set()
        self.error: Exception | None = None

    async def prepare(self, jobs: Sequence[Job]) -> None:
        self.preparing.set()
        await self.prepared.wait()
        if self.error is not None:
            raise self.error

    async def attempt(self, job: Job, now: datetime) -> Try:
        self.trying.append(job)
        await self.tried.wait()
        return Try(Success(200))

    async def aclose(self) -> None: ...


async def test_two_workers_share_the_work_and_never_hold_a_task_together(live: Engine) -> None:
    await live.policy("at once", kind="immediate", delays_s=[0], max_retries=5)
    await live.accept_many(400, event_type="h", handler="h", policy="at once")
    carried_out = {"a": 0, "b": 0}
    active: set[object] = set()
    together: list[object] = []
    failed: set[object] = set()

    def handler(name: str) -> object:
        async def handle(task: Task) -> None:
            if task.id in active:
                together.append(task.id)
            active.add(task.id)
            await asyncio.sleep(0.001)
            active.discard(task.id)
            carried_out[name] += 1
            if task.id not in failed:
                failed.add(task.id)
                raise ConnectionError("once")

        return handle

    async with (
        live.worker({"h": handler("a")}, concurrency=20) as one,  # type: ignore[dict-item]
        live.worker({"h": handler("b")}, concurrency=20) as two,  # type: ignore[dict-item]
        live.running(one),
        live.running(two),
    ):
        await live.until(ALL_DONE, within_s=30)
    assert together == []
    assert sum(carried_out.values()) == 800
    assert min(carried_out.values()) > 0
    assert await live.sql.fetch(OVERLAPS) == []
    assert await live.sql.fetchval("SELECT count(*) FROM redrive.task WHERE fence <> 2") == 0
    assert (await check(live.url)).clean


async def test_a_notification_wakes_an_idle_worker(live: Engine) -> None:
    async with (
        open_receiver() as receiver,
        live.worker(poll_s=60) as worker,
        live.running(worker),
        listening(live, worker.wake),
    ):
        await live.endpoint(url=receiver.url)
        await live.accept()
        await receiver.wait_for(1, within_s=5)


async def test_without_its_listening_connection_a_worker_still_delivers_and_listens_again(
    live: Engine, superuser: Connection
) -> None:
    woken = asyncio.Event()
    async with open_receiver() as receiver, live.worker(poll_s=0.1) as worker, live.running(worker):
        await live.endpoint(url=receiver.url)
        async with listening(live, lambda _told: woken.set()):
            woken.clear()
            await _terminate(superuser, "redrive-listen")
            await live.accept()
            await receiver.wait_for(1, within_s=5)  # by polling: nobody wakes this worker
            await asyncio.wait_for(woken.wait(), 10)  # connected again, it looks for what it missed
            woken.clear()
            await live.accept()
            await asyncio.wait_for(woken.wait(), 10)


async def test_what_was_committed_behind_the_floor_is_found(live: Engine) -> None:
    """A transaction hands in, stays open while a worker drains a backlog that is due later, and then commits."""
    got: list[object] = []

    async def handle(task: Task) -> None:
        got.append(task.payload)

    late = await asyncpg.connect(live.url)
    try:
        transaction = late.transaction()
        await transaction.start()
        await late.execute("SELECT redrive.enqueue('h', '\"late\"')")
        await live.accept_many(60, event_type="h", body=b'"backlog"', handler="h")
        async with live.worker({"h": handle}, concurrency=20) as worker, live.running(worker):
            await live.until(ALL_DONE)
            await transaction.commit()
            await until(lambda: _true("late" in got), within_s=5)
    finally:
        await late.close()
    assert len(got) == 61


async def test_claims_begin_behind_tries_that_hang(live: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their leases keep the place that they had in the index: not every claim should step over them."""
    begun: list[datetime] = []
    claim = live.tasks.claim

    async def noted(asks: Sequence[Ask], **given: Any) -> Claim:
        begun.extend(ask.floor.due_at for ask in asks)
        return await claim(asks, **given)

    monkeypatch.setattr(live.tasks, "claim", noted)
    monkeypatch.setattr(lookout_module, "SURVEY_EVERY_S", 1e6)
    monkeypatch.setattr(agenda_module, "LATE_COMMITS", timedelta(seconds=0))
    async with open_receiver() as receiver, live.worker() as worker, live.running(worker):
        receiver.usual = lambda request: Answer(200, after_s=1 if b"hangs" in request.body else 0)
        endpoint_id = await live.endpoint(url=receiver.url)
        await live.accept(body=b'"hangs"')
        worker.wake()
        await receiver.wait_for(1)
        hanging_since = await live.sql.fetchval("SELECT due_at FROM redrive.task WHERE state = 'leased'")
        begun.clear()
        for passed in (2, 3):
            await live.accept()
            worker.wake(f"http\t{live.org_id}\t{endpoint_id}")
            await receiver.wait_for(passed)
    assert begun
    assert all(floor > hanging_since for floor in begun)


async def test_a_worker_cut_off_from_the_database_again_and_again_loses_nothing(
    live: Engine, superuser: Connection
) -> None:
    async with open_receiver() as receiver:
        receiver.usual = lambda request: Answer(200, after_s=0.02)
        await live.endpoint(url=receiver.url, timeout_s=1)
        event_ids = await live.accept_many(150)
        async with live.worker(concurrency=20, margin_s=1.0, poll_s=0.1) as worker, live.running(worker):
            for served in (20, 60, 100):
                await receiver.wait_for(served)
                await _terminate(superuser, "test-engine")
            await live.until(ALL_DONE, within_s=40)
        delivered = {request.headers["webhook-id"] for request in receiver.requests}
    assert delivered == {str(event_id) for event_id in event_ids}
    assert (await check(live.url)).clean


async def test_a_worker_rests_quietly_beside_what_waits_for_a_person(live: Engine) -> None:
    async with open_receiver() as receiver:
        receiver.script(503)
        await live.endpoint("manual", receiver.url_of("/manual"), policy="manual", event_types=("manual",))
        await live.endpoint("usual", receiver.url_of("/usual"), event_types=("usual",))
        await live.accept("manual")
        with capture_logs() as logs:
            async with live.worker(poll_s=0.1) as worker, live.running(worker):
                await receiver.wait_for(1)
                await live.until("SELECT EXISTS (SELECT FROM redrive.task WHERE due_at = 'infinity')")
                for served in (2, 3, 4):
                    await live.accept("usual")
                    await receiver.wait_for(served)
    assert [entry for entry in logs if entry["event"] == "claim_failed"] == []


async def test_a_retry_starts_within_a_second_of_its_due_time_without_being_told(live: Engine) -> None:
    await live.policy("soon", kind="immediate", delays_s=[0.3])
    async with open_receiver() as receiver:
        receiver.script(503)
        await live.endpoint(url=receiver.url, policy="soon")
        await live.accept()
        async with live.worker() as worker, live.running(worker):
            first, second = await receiver.wait_for(2, within_s=5)
    assert 0.3 <= second.at_s - first.at_s < 1.3


async def test_what_is_in_flight_at_a_stop_finishes(live: Engine) -> None:
    gate = Gate()
    gate.tried.clear()
    await live.endpoint()
    await live.accept_many(3)
    async with live.worker(more=[gate]) as worker, live.running(worker) as stop:
        await until(lambda: _true(len(gate.trying) == 3))
        stopping = asyncio.create_task(stop())
        await asyncio.sleep(0)
        gate.tried.set()
        await stopping
    assert await live.counts("SELECT state, count(*) FROM redrive.task GROUP BY 1") == {"succeeded": 3}


async def test_what_takes_too_long_at_a_stop_is_given_back_uncounted(
    live: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "DRAIN_S", 0.6)
    async with open_receiver() as receiver:
        receiver.script(HANG)
        await live.endpoint(url=receiver.url)
        event_id = await live.accept()
        async with live.worker() as worker, live.running(worker) as stop:
            await receiver.wait_for(1)
            await stop()
        task = await live.task_of(event_id)
        assert (task["state"], task["attempts"]) == ("waiting", 0)
        (attempt,) = await live.attempts(task["id"])
        assert (attempt["result"], attempt["possible_duplicate"]) == ("released", True)
        await live.run_until_idle()  # the next worker takes it at once
    assert (await live.task_of(event_id))["state"] == "succeeded"


async def test_what_was_leased_but_not_begun_at_a_stop_is_not_lost(
    live: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "DRAIN_S", 0.9)
    gate = Gate()
    gate.prepared.clear()
    await live.endpoint()
    event_id = await live.accept()
    async with live.worker(more=[gate]) as worker, live.running(worker) as stop:
        await gate.preparing.wait()
        stopping = asyncio.create_task(stop())
        for _ in range(20):  # the worker hears of it while it still loads
            await asyncio.sleep(0)
        gate.prepared.set()
        await stopping
    task = await live.task_of(event_id)
    assert task["state"] in ("succeeded", "waiting")  # not left under a lease that nobody holds
    assert len(await live.attempts(task["id"])) == 1


async def test_leases_go_back_uncounted_when_what_they_need_cannot_be_loaded(live: Engine) -> None:
    gate = Gate()
    gate.error = ConnectionError("the endpoints cannot be read")
    await live.endpoint()
    event_id = await live.accept()
    with capture_logs() as logs:
        async with live.worker(more=[gate]) as worker, live.running(worker):
            await live.until("SELECT count(*) >= 2 FROM redrive.attempt WHERE result = 'released'")
            gate.error = None
            await live.until(ALL_DONE)
    assert (await live.task_of(event_id))["attempts"] == 1
    assert any(entry["event"] == "claim_failed" for entry in logs)


async def test_a_try_that_could_outlive_its_lease_is_not_begun(live: Engine) -> None:
    """Loading took more than half of the margin: the lease goes back, and the next claim begins in time."""
    gate = Gate()
    gate.prepared.clear()
    await live.endpoint()
    event_id = await live.accept()
    async with live.worker(more=[gate], margin_s=0.2) as worker, live.running(worker):
        await gate.preparing.wait()
        await asyncio.sleep(0.15)
        gate.prepared.set()
        await live.until(ALL_DONE)
    attempts = await live.attempts((await live.task_of(event_id))["id"])
    assert [row["result"] for row in attempts] == ["released", "succeeded"]
    assert attempts[0]["error_message"] == "The worker was too busy to begin in time."


async def test_a_bug_in_a_destination_is_a_failed_try_with_its_stack(engine: Engine, clock: ManualClock) -> None:
    class Broken(Gate):
        async def attempt(self, job: Job, now: datetime) -> Try:
            raise ZeroDivisionError("a bug")

    await engine.endpoint()
    event_id = await engine.accept()
    await engine.run_until_idle(more=[Broken()])
    task = await engine.task_of(event_id)
    (attempt,) = await engine.attempts(task["id"])
    assert (task["state"], attempt["category"], attempt["error_message"]) == ("waiting", "unknown", "a bug")
    assert "ZeroDivisionError" in attempt["error_stack"]


@pytest.mark.parametrize("at_the_end", [False, True])
async def test_a_bug_where_no_task_would_catch_it_is_a_failed_try_too(
    engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, at_the_end: bool
) -> None:
    def bug(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(http_module, "outcome_of_response" if at_the_end else "header_text", bug)
    async with open_receiver() as receiver:
        await engine.endpoint(url=receiver.url)
        event_id = await engine.accept()
        await engine.run_until_idle()
        assert len(receiver.requests) == at_the_end
    task = await engine.task_of(event_id)
    (attempt,) = await engine.attempts(task["id"])
    assert (task["state"], attempt["category"], attempt["error_message"]) == ("waiting", "unknown", "a bug")
    assert "ZeroDivisionError" in attempt["error_stack"]


async def test_a_late_worker_is_told_and_changes_nothing(live: Engine) -> None:
    """Its lease runs out while it is trying; another worker delivers; the first one reports then."""
    slow, quick = Gate(), Gate()
    slow.tried.clear()
    await live.endpoint(timeout_s=0.1)
    event_id = await live.accept()
    with capture_logs() as logs:
        # With room for one try the first worker cannot take its own lease over.
        async with live.worker(more=[slow], margin_s=1.0, concurrency=1) as first, live.running(first):
            await until(lambda: _true(bool(slow.trying)))
            async with live.worker(more=[quick], poll_s=0.1) as second, live.running(second):
                await live.until(ALL_DONE)
            slow.tried.set()
    task = await live.task_of(event_id)
    lost, delivered = await live.attempts(task["id"])
    assert (lost["result"], lost["late_result"], delivered["result"]) == ("lost", "succeeded", "succeeded")
    assert [entry["task"] for entry in logs if entry["event"] == "lease_lost"] == [str(task["id"])]


async def test_a_thousand_tasks_pass_through_a_small_worker(live: Engine) -> None:
    def sometimes(request: Received) -> int:
        return 503 if request.headers["redrive-attempt"] == "1" and request.body[-2] % 4 == 0 else 200

    await live.policy("at once", kind="immediate", delays_s=[0])
    async with open_receiver() as receiver:
        receiver.usual = sometimes
        await live.endpoint(url=receiver.url, policy="at once")
        events = [live.new_event(body=b'{"n":%d}' % n) for n in range(1000)]
        await live.accept_all(events)
        async with live.worker(concurrency=50) as worker:
            await worker.run_until_idle()
        bodies = {request.body for request in receiver.requests}
    assert bodies == {event.body for event in events}
    assert await live.counts("SELECT status, count(*) FROM redrive.event_entry GROUP BY 1") == {"delivered": 1000}
    assert (await check(live.url)).clean


async def test_however_many_people_ask_for_at_once_a_worker_begins_no_more_than_it_can_bear(live: Engine) -> None:
    under_way = most = 0

    async def handle(_: Task) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.01)
        under_way -= 1

    await live.accept_many(200, event_type="h", handler="h")
    await live.sql.execute("UPDATE redrive.task SET expedited = true")
    async with live.worker({"h": handle}, concurrency=4) as worker, live.running(worker):
        await live.until(ALL_DONE)
    assert 4 < most <= 4 + worker_module.MAX_EXPEDITED


@pytest.fixture(name="superuser")
async def _superuser(postgres: EmbeddedPostgres) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(database_of(postgres.superuser_url, SHARED))
    yield connection
    await connection.close()


@asynccontextmanager
async def listening(engine: Engine, wake: object) -> AsyncIterator[None]:
    """Listen for notifications, from the moment that the connection stands."""
    heard = asyncio.Event()

    def hear(told: str) -> None:
        heard.set()
        wake(told)  # type: ignore[operator]

    task = asyncio.create_task(listen(engine.url, hear))
    try:
        await asyncio.wait_for(heard.wait(), 5)
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _terminate(superuser: Connection, application_name: str) -> None:
    await superuser.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name = $1",
        application_name,
    )


async def _true(condition: bool) -> bool:
    return condition


async def test_a_lost_lease_under_a_manual_policy_waits_for_a_person(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    event_id = await engine.accept(policy="manual")
    job = await engine.claim_one()
    clock.advance(job.timeout_s + MARGIN_S + 1)
    await engine.run_until_idle()
    task = await engine.task_of(event_id)
    assert (task["state"], task["attempts"], task["due_at"].year) == ("waiting", 1, 9999)
    assert [a["result"] for a in await engine.attempts(task["id"])] == ["lost", "released"]


async def test_a_policy_that_cannot_be_read_holds_up_its_own_tasks_only_and_costs_them_nothing(engine: Engine) -> None:
    """A newer version may have stored it: the task waits for a worker that can read it."""
    async with open_receiver() as receiver:
        await engine.endpoint(url=receiver.url)
        await engine.policy("odd", kind="immediate")
        spoilt, sound = await engine.accept(policy="odd"), await engine.accept()
        await engine.sql.execute("UPDATE redrive.policy SET spec = '{\"kind\": \"of tomorrow\"}' WHERE name = 'odd'")
        await engine.run_until_idle()
    assert (await engine.event(sound))["status"] == "delivered"
    task = await engine.task_of(spoilt)
    assert (task["state"], task["attempts"]) == ("waiting", 0)
    assert (task["due_at"] - task["updated_at"]).total_seconds() == worker_module.UNREADABLE_S


async def test_a_try_lost_with_the_last_retry_is_not_made_good_by_a_hold(engine: Engine, clock: ManualClock) -> None:
    endpoint_id = await engine.endpoint()
    await engine.policy("none", kind="immediate", max_retries=0)
    event_id = await engine.accept(policy="none")
    job = await engine.claim_one()
    await engine.change_endpoint(endpoint_id, disabled=True)
    clock.advance(job.timeout_s + MARGIN_S + 1)
    assert await engine.claim() == []  # the lost task is held
    await engine.change_endpoint(endpoint_id, disabled=False)
    await engine.run_until_idle()
    task = await engine.task_of(event_id)
    assert (task["state"], task["reason"], task["attempts"]) == ("dead", "exhausted", 1)


async def test_a_worker_whose_claiming_breaks_ends_and_says_why(live: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    async with live.worker() as worker:

        def broken() -> int:
            raise ArithmeticError("a bug")

        monkeypatch.setattr(worker, "_free", broken)
        with pytest.raises(ArithmeticError, match="a bug"):
            async with asyncio.timeout(10):
                await worker.run(asyncio.Event())


async def test_a_worker_whose_settling_breaks_ends_instead_of_living_on(
    live: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_receiver() as receiver, live.worker() as worker:
        await live.endpoint(url=receiver.url)

        def broken(_settled: object) -> None:
            raise OSError("the log's disk is full")

        monkeypatch.setattr(worker._settler, "_on_settled", broken)
        monkeypatch.setattr(worker_module, "DRAIN_S", 0.3)
        await live.accept()
        with pytest.raises(OSError, match="disk is full"):
            async with asyncio.timeout(10):
                await worker.run(asyncio.Event())
