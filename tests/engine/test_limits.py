"""Limits and breakers of endpoints, with real deliveries: exact, whoever works, and no attempt spent by waiting."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
import pytest_asyncio

from redrive.core.breaker import BreakerRules, BreakerState
from redrive.core.policy import DAY_S
from redrive.store.check import check
from redrive.store.endpoint_states import BreakerStates, ramp_by_hand
from redrive.store.orgs import new_id
from redrive.store.pausing import PauseScope
from support.engine import PERSON, Engine, ManualClock, until
from support.receiver import Answer, Received, Receiver, open_receiver

ALL_DONE = "SELECT count(*) > 0 AND bool_and(state = 'succeeded') FROM redrive.task"
HASTY = BreakerRules(min_tries=5, min_span_s=0, trickle_per_s=20, ramp_s=1, ramp_doubling_s=0.2)


class Watcher:
    """How many requests a receiver has at once, at most."""

    def __init__(self, receiver: Receiver, takes_s: float = 0.02) -> None:
        self.now = self.most = 0
        self.takes_s = takes_s
        self.times: list[float] = []
        receiver.usual = self._answer

    def _answer(self, request: Received) -> Answer:
        self.times.append(asyncio.get_running_loop().time())
        self.now += 1
        self.most = max(self.most, self.now)
        asyncio.get_running_loop().call_later(self.takes_s, self._ended)
        return Answer(200, after_s=self.takes_s)

    def _ended(self) -> None:
        self.now -= 1


@pytest_asyncio.fixture(loop_scope="session")
async def receiver() -> AsyncIterator[Receiver]:
    async with open_receiver() as receiver:
        yield receiver


async def test_no_more_than_max_in_flight_at_once_with_two_workers(live: Engine, receiver: Receiver) -> None:
    watcher = Watcher(receiver)
    await live.endpoint(url=receiver.url, max_in_flight=3)
    await live.accept_many(60)
    async with live.worker() as one, live.worker() as other, live.running(one), live.running(other):
        await live.until(ALL_DONE)
    assert watcher.most == 3
    assert len(receiver.requests) == 60


async def test_a_rate_is_kept_by_all_workers_together(live: Engine, receiver: Receiver) -> None:
    watcher = Watcher(receiver, takes_s=0)
    await live.endpoint(url=receiver.url, rate_per_s=50)
    await live.accept_many(60)
    # Not when the first one arrived: that may have been on its way for longer than the last.
    began = asyncio.get_running_loop().time()
    async with live.worker() as one, live.worker() as other, live.running(one), live.running(other):
        await live.until(ALL_DONE)
    assert watcher.times[-1] - began >= (60 - 5 - 1) / 50  # a tenth of a second's worth may go at once


async def test_a_limited_endpoint_goes_on_when_its_worker_stops(live: Engine, receiver: Receiver) -> None:
    Watcher(receiver)
    await live.endpoint(url=receiver.url, max_in_flight=1)
    await live.accept_many(10)
    async with live.worker() as one, live.running(one) as stop:
        await receiver.wait_for(3)
        await stop()
    owned = await live.sql.fetchval("SELECT count(*) FROM redrive.endpoint_state WHERE worker_id IS NOT NULL")
    assert owned == 0
    async with live.worker() as other, live.running(other):
        await live.until(ALL_DONE)


async def test_an_owner_that_died_keeps_an_endpoint_until_its_leases_end_and_no_longer(
    engine: Engine, clock: ManualClock, receiver: Receiver
) -> None:
    """Its tries may be under way: until then nobody else begins, so that the limit holds."""
    endpoint_id = await engine.endpoint(url=receiver.url, max_in_flight=1, timeout_s=1)
    await engine.accept_many(3)
    place = engine.first_tries(endpoint_id).place
    owner = new_id()
    assert [one.max_in_flight for one in await engine.tasks.own([place], owner, 10)] == [1]
    assert len(await engine.claim(1, worker_id=owner, margin_s=20.0)) == 1
    clock.advance(20)
    assert await engine.tasks.own([place], new_id(), 10) == []
    assert await engine.claim() == []
    clock.advance(2)
    await engine.run_until_idle()
    assert await engine.sql.fetchval(ALL_DONE)


async def test_a_limit_that_is_taken_away_holds_nobody_any_more(live: Engine, receiver: Receiver) -> None:
    watcher = Watcher(receiver, takes_s=0.05)
    endpoint_id = await live.endpoint(url=receiver.url, max_in_flight=1)
    await live.accept_many(5)
    async with live.worker() as worker, live.running(worker):
        await live.until(ALL_DONE)
        assert watcher.most == 1
        await live.change_endpoint(endpoint_id, max_in_flight=None)
        worker.wake()
        await live.accept_many(60)
        await until(lambda: _true(watcher.most > 5))
        await live.until(ALL_DONE)


async def test_a_breaker_slows_what_waits_down_and_lets_it_go_when_a_try_comes_through(
    live: Engine, receiver: Receiver
) -> None:
    up = False
    receiver.usual = lambda _request: Answer(200 if up else 503)
    await live.policy("patient", kind="list", delays_s=[0.05], max_retries=1_000)
    endpoint_id = await live.endpoint(url=receiver.url, policy="patient", max_in_flight=5)
    await live.accept_many(100)
    state = "SELECT breaker FROM redrive.endpoint_state WHERE endpoint_id = $1"
    async with live.worker(rules=HASTY) as worker, live.running(worker):
        await live.until(f"SELECT ({state}) = 'open'", endpoint_id)
        tried = await live.sql.fetchval("SELECT count(*) FROM redrive.task WHERE attempts > 0")
        assert tried < 100  # the others were not beaten on
        opened = len(receiver.requests)
        await receiver.wait_for(opened + 5)  # a trickle goes on
        before = len(receiver.requests)
        up = True
        await live.until(ALL_DONE, within_s=20)
        await live.until(f"SELECT ({state}) = 'closed'", endpoint_id)
    untouched = await live.sql.fetchval("SELECT count(*) FROM redrive.task WHERE attempts = 1")
    assert untouched >= 100 - tried - before
    actions = await live.counts("SELECT action, count(*) FROM redrive.audit WHERE action LIKE '%breaker%' GROUP BY 1")
    assert actions["endpoint.breaker_open"] >= 1
    assert actions["endpoint.breaker_close"] >= 1
    assert (await check(live.url)).clean


@pytest.mark.parametrize("act", ["by hand", "by another address"])
async def test_a_breaker_that_a_person_closes_holds_nothing_any_more(
    live: Engine, receiver: Receiver, act: str
) -> None:
    up = False
    receiver.usual = lambda request: Answer(200 if up or request.path == "/new" else 503)
    await live.policy("patient", kind="list", delays_s=[0.05], max_retries=1_000)
    endpoint_id = await live.endpoint(url=receiver.url, policy="patient")
    await live.accept_many(40)
    # What a worker knows of an address may be a second old, and the machine busy.
    patient = replace(HASTY, min_span_s=2.0, trickle_per_s=0.01)
    async with live.worker(rules=patient) as worker, live.running(worker):
        await live.until("SELECT breaker = 'open' FROM redrive.endpoint_state WHERE endpoint_id = $1", endpoint_id)
        await live.until("SELECT bool_and(state = 'waiting') FROM redrive.task")
        if act == "by hand":
            up = True
            async with live.app.tenant(live.org_id) as session:
                assert await ramp_by_hand(session, endpoint_id, PERSON, live.clock)
        else:
            await live.change_endpoint(endpoint_id, url=receiver.url_of("/new"))
        worker.wake()
        await live.until(ALL_DONE)
        # A ramp ends by time, though nothing is due any more.
        await live.until("SELECT breaker = 'closed' FROM redrive.endpoint_state WHERE endpoint_id = $1", endpoint_id)


async def test_a_rate_that_a_person_raises_counts_at_once(live: Engine, receiver: Receiver) -> None:
    endpoint_id = await live.endpoint(url=receiver.url, rate_per_s=0.01)
    await live.accept_many(10)
    async with live.worker() as worker, live.running(worker):
        await receiver.wait_for(1)
        await live.change_endpoint(endpoint_id, rate_per_s=100)
        worker.wake()
        await live.until(ALL_DONE)


async def test_a_rate_outlasts_the_worker_that_kept_it(engine: Engine, clock: ManualClock, receiver: Receiver) -> None:
    """One try a minute, and a try takes a second at most: whoever comes next still waits for the minute to end."""
    endpoint_id = await engine.endpoint(url=receiver.url, rate_per_s=1 / 60, timeout_s=1)
    await engine.accept_many(2)
    place = engine.first_tries(endpoint_id).place
    first, next_one = new_id(), new_id()
    (owned,) = await engine.tasks.own([place], first, 10)
    assert (owned.is_new, owned.paced_until) == (True, None)
    began = clock.now()
    assert len(await engine.claim(1, worker_id=first)) == 1
    (owned,) = await engine.tasks.own([place], first, 10)
    assert not owned.is_new
    clock.advance(50)
    (owned,) = await engine.tasks.own([place], next_one, 10)
    assert owned.is_new
    assert owned.paced_until == began + timedelta(minutes=1)


async def test_b9_what_grew_too_old_behind_a_breaker_dies_without_another_try(
    engine: Engine, clock: ManualClock, receiver: Receiver
) -> None:
    endpoint_id = await engine.endpoint(url=receiver.url, policy="relay")
    event_id = await engine.accept()
    states = BreakerStates(engine.db, clock)
    assert await states.open_breaker(engine.org_id, endpoint_id, taken_for=BreakerState.CLOSED, reason="away")
    clock.advance(30 * DAY_S)
    await engine.run_until_idle()
    task = await engine.task_of(event_id)
    assert (task["state"], task["reason"]) == ("dead", "expired")
    assert receiver.requests == []


async def test_an_open_breaker_of_one_endpoint_delays_no_other(live: Engine, receiver: Receiver) -> None:
    receiver.usual = lambda request: Answer(503 if request.path == "/down" else 200)
    await live.policy("patient", kind="list", delays_s=[0.05], max_retries=1_000)
    down = await live.endpoint("down", receiver.url_of("/down"), event_types=("down",), policy="patient")
    await live.endpoint("up", receiver.url_of("/up"), event_types=("up",))
    await live.accept_many(50, event_type="down")
    async with live.worker(rules=HASTY) as worker, live.running(worker):
        await live.until("SELECT breaker = 'open' FROM redrive.endpoint_state WHERE endpoint_id = $1", down)
        for _ in range(5):
            event_id = await live.accept("up")
            worker.wake()
            await live.until("SELECT state = 'succeeded' FROM redrive.task WHERE event_id = $1", event_id, within_s=2)


async def test_an_ordered_endpoint_gets_its_messages_one_after_the_other(live: Engine, receiver: Receiver) -> None:
    watcher = Watcher(receiver, takes_s=0.005)
    await live.endpoint(url=receiver.url, ordered=True)
    events = await live.accept_many(40)
    async with live.worker() as one, live.worker() as other, live.running(one), live.running(other):
        await live.until(ALL_DONE)
    assert watcher.most == 1
    assert [request.headers["webhook-id"] for request in receiver.requests] == [str(id) for id in events]


async def test_a_head_that_fails_blocks_its_lane_no_longer_than_it_may_and_the_next_tells_of_the_gap(
    live: Engine, receiver: Receiver
) -> None:
    events: list[UUID] = []
    receiver.usual = lambda request: Answer(503 if request.headers["webhook-id"] == str(events[0]) else 200)
    await live.policy("patient", kind="list", delays_s=[0.3], max_retries=1_000)
    await live.endpoint(url=receiver.url, policy="patient", ordered=True, max_block_s=1.0)
    events += await live.accept_many(3)
    async with live.worker() as worker, live.running(worker):
        await live.until("SELECT count(*) = 2 FROM redrive.task WHERE state = 'succeeded'")
    head = await live.task_of(events[0])
    assert (head["state"], head["reason"]) == ("dead", "expired")
    assert 3 <= head["attempts"] <= 5
    delivered = [request for request in receiver.requests if request.headers["webhook-id"] != str(events[0])]
    assert [request.headers.get("redrive-gap") for request in delivered] == ["1", None]


async def test_the_time_behind_others_does_not_count_as_a_block_of_one_that_was_redriven(
    engine: Engine, clock: ManualClock
) -> None:
    await engine.policy("patient", kind="list", delays_s=[10.0], max_retries=1_000)
    await engine.endpoint(policy="patient", ordered=True, max_block_s=60)
    await engine.accept_many(2)
    dead = await engine.claim_one()
    await engine.kill(dead)
    head = await engine.claim_one()
    assert await engine.redrive(dead.id) is None
    clock.advance(120)
    await engine.succeed(head)
    async with engine.worker() as worker:
        for _ in range(6):
            await worker.run_until_idle(limit=1)
            assert (await engine.task(dead.id))["state"] == "waiting"
            clock.advance(10)
        await worker.run_until_idle(limit=1)
    assert (await engine.task(dead.id))["reason"] == "expired"


async def test_the_time_that_a_head_is_held_does_not_count_as_a_block(engine: Engine, clock: ManualClock) -> None:
    await engine.policy("patient", kind="list", delays_s=[10.0], max_retries=1_000)
    endpoint_id = await engine.endpoint(policy="patient", ordered=True, max_block_s=60)
    head = await engine.task_of(await engine.accept())

    async def tried() -> str:
        async with engine.worker() as worker:
            await worker.run_until_idle(limit=1)
        return str((await engine.task(head["id"]))["state"])

    assert await tried() == "waiting"
    for _ in range(2):
        clock.advance(10)
        assert await engine.pause(PauseScope.ENDPOINT, endpoint_id)
        assert await tried() == "held"
        clock.advance(3600)
        assert await engine.resume(PauseScope.ENDPOINT, endpoint_id)
        assert await tried() == "waiting"  # held for two hours, blocked for twenty seconds
    for _ in range(3):
        clock.advance(10)
        assert await tried() == "waiting"
    clock.advance(10)
    assert await tried() == "dead"
    assert (await engine.task(head["id"]))["reason"] == "expired"


async def _true(fact: bool) -> bool:
    return fact
