"""How an endpoint has done lately is told from its last tries, and what waits for it is counted, both bounded."""

from datetime import timedelta
from uuid import UUID

import pytest

from redrive.core.decide import RetryIn, Succeed
from redrive.core.outcome import Category, Failure, Success
from redrive.core.ports import NO_EXCHANGE, Released, Settlement
from redrive.store import endpoint_health
from redrive.store.endpoint_health import Count, EndpointHealth, health_of, health_of_many
from redrive.store.orgs import new_id
from support.engine import Engine, ManualClock

NONE = Count(0, True)
SLOW = Failure(Category.TIMEOUT, "no answer in 30 s")


async def _health(engine: Engine, endpoint_id: UUID) -> EndpointHealth:
    async with engine.app.tenant(engine.org_id) as session:
        return await health_of(session, endpoint_id, engine.clock)


async def _tried(engine: Engine, clock: ManualClock, took_s: float, *, succeeds: bool, delay_s: float = 3600) -> UUID:
    """The task of a new event, tried once."""
    clock.advance(1)
    await engine.accept()
    job = await engine.claim_one()
    outcome = Success(200) if succeeds else SLOW
    decision = Succeed() if succeeds else RetryIn(timedelta(seconds=delay_s))
    await engine.tasks.settle([Settlement(job, outcome, decision, NO_EXCHANGE, took_s)])
    return job.id


async def test_an_endpoint_without_tries_has_no_figures(engine: Engine) -> None:
    endpoint_id = await engine.endpoint()
    await engine.accept()
    for wanted in (endpoint_id, new_id()):
        health = await _health(engine, wanted)
        assert (health.tries, health.success_rate, health.p50_ms, health.failures_in_a_row) == (0, None, None, 0)
        assert (health.last_success_at, health.last_failure_at, health.last_failure_message) == (None, None, None)
        assert (health.dead, health.retrying, health.held) == (NONE, NONE, NONE)


async def test_figures_are_those_of_its_tries(engine: Engine, clock: ManualClock) -> None:
    endpoint_id = await engine.endpoint()
    for took_s in (0.1, 0.2, 0.3):
        await _tried(engine, clock, took_s, succeeds=True)
    succeeded_at = clock.now()
    for took_s in (0.4, 0.5):
        await _tried(engine, clock, took_s, succeeds=False)
    health = await _health(engine, endpoint_id)
    assert (health.tries, health.succeeded, health.success_rate) == (5, 3, 0.6)
    assert [health.p50_ms, health.p95_ms] == pytest.approx([300, 480])
    assert (health.last_success_at, health.failures_in_a_row) == (succeeded_at, 2)
    assert (health.last_failure_at, health.last_failure_category) == (clock.now(), "timeout")
    assert (health.last_failure_message, health.retrying) == (SLOW.message, Count(2, True))
    await _tried(engine, clock, 0.1, succeeds=True)
    assert (await _health(engine, endpoint_id)).failures_in_a_row == 0


async def test_tries_come_by_their_time_not_by_their_task_s(engine: Engine, clock: ManualClock) -> None:
    """An older task that fails again fails after the success of a newer one."""
    endpoint_id = await engine.endpoint()
    old = await _tried(engine, clock, 0.1, succeeds=False, delay_s=60)
    await _tried(engine, clock, 0.1, succeeds=True)
    clock.advance(60)
    job = await engine.claim_one()
    assert job.id == old
    await engine.fail(job, failure=Failure(Category.NETWORK, "refused"))
    health = await _health(engine, endpoint_id)
    assert (health.tries, health.failures_in_a_row, health.last_failure_message) == (3, 1, "refused")


async def test_a_lease_given_back_is_no_try_and_a_lost_one_has_no_latency(engine: Engine, clock: ManualClock) -> None:
    endpoint_id = await engine.endpoint()
    await engine.accept()
    await engine.settle(await engine.claim_one(), None, Released("shutting down"))
    assert (await _health(engine, endpoint_id)).tries == 0
    await engine.claim_one()
    clock.advance(3600)
    await engine.claim()  # somebody else finds the lease expired
    health = await _health(engine, endpoint_id)
    assert (health.tries, health.succeeded, health.failures_in_a_row) == (1, 0, 1)
    assert (health.p50_ms, health.last_failure_at) == (None, clock.now())


async def test_what_waits_or_lies_for_it_is_counted_for_itself(engine: Engine, clock: ManualClock) -> None:
    a = await engine.endpoint("a", event_types=("a",))
    b = await engine.endpoint("b", event_types=("b",))
    await engine.accept_many(3, event_type="a")
    await engine.accept_many(2, event_type="b")
    for job in await engine.claim():
        await (engine.kill(job) if job.event_type == "a" else engine.fail(job, 0))
    await engine.change_endpoint(b, disabled=True)
    assert await engine.claim() == []  # they are held
    async with engine.app.tenant(engine.org_id) as session:
        found = await health_of_many(session, [a, b], engine.clock)
        assert await health_of_many(session, [], engine.clock) == {}
    assert (found[a].dead, found[a].retrying, found[a].held) == (Count(3, True), NONE, NONE)
    assert (found[b].dead, found[b].retrying, found[b].held) == (NONE, Count(2, True), Count(2, True))
    async with engine.app.tenant(await engine.org("other")) as session:
        theirs = await health_of(session, a, engine.clock)
    assert (theirs.tries, theirs.dead) == (0, NONE)


async def test_what_is_too_much_to_count_says_so(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    few = endpoint_health._Bounds(tries=2, tasks=3, counted=1)
    monkeypatch.setattr(endpoint_health, "FOR_ONE", few)
    monkeypatch.setattr(endpoint_health, "MAX_QUEUE_ENTRIES", 2)
    endpoint_id = await engine.endpoint()
    await engine.accept_many(5)
    for number, job in enumerate(await engine.claim()):
        await (engine.kill(job) if number < 2 else engine.fail(job))
    health = await _health(engine, endpoint_id)
    assert (health.tries, health.dead, health.retrying) == (2, Count(1, False), Count(2, False))
    await engine.accept_many(3)  # a backlog hides the tries behind it
    assert (await _health(engine, endpoint_id)).tries == 0


async def test_one_task_that_fails_and_fails_does_not_hide_the_others(
    engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint_health, "MAX_TASK_TRIES", 2)
    endpoint_id = await engine.endpoint()
    await _tried(engine, clock, 0.1, succeeds=True)
    await engine.accept()
    for _ in range(4):
        await engine.fail(await engine.claim_one(), 0)
        clock.advance(1)
    health = await _health(engine, endpoint_id)
    assert (health.tries, health.succeeded, health.failures_in_a_row) == (3, 1, 2)
