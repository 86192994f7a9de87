"""Breakers in the store: each step is taken once, from the state it belongs to, and told in the audit."""

import asyncio
from datetime import timedelta
from uuid import UUID

import pytest

from redrive.core.breaker import BreakerState
from redrive.core.permissions import Role
from redrive.store.endpoint_states import BreakerStates, EndpointState, get_state, ramp_by_hand
from redrive.store.orgs import new_id
from support.engine import PERSON, START, Engine, ManualClock

CLOSED, OPEN, RAMPING = BreakerState
WHY = "12 of 20 tries failed within 60 s."


class Steps:
    """The steps of one endpoint's breaker."""

    def __init__(self, engine: Engine, endpoint_id: UUID) -> None:
        self._engine = engine
        self._endpoint_id = endpoint_id
        self._place = (engine.org_id, endpoint_id)
        self._states = BreakerStates(engine.db, engine.clock)

    async def open(self, taken_for: BreakerState = CLOSED) -> bool:
        return await self._states.open_breaker(*self._place, taken_for=taken_for, reason=WHY)

    async def ramp(self) -> bool:
        return await self._states.begin_ramp(*self._place)

    async def close(self) -> bool:
        return await self._states.close_breaker(*self._place)

    async def by_hand(self) -> bool:
        async with self._engine.app.tenant(self._engine.org_id) as session:
            return await ramp_by_hand(session, self._endpoint_id, PERSON, self._engine.clock)

    async def state(self) -> EndpointState:
        async with self._engine.app.tenant(self._engine.org_id, Role.VIEWER) as session:
            state = await get_state(session, self._endpoint_id)
        assert state is not None
        return state

    async def bring_to(self, state: BreakerState, clock: ManualClock) -> None:
        if state is CLOSED:
            return
        assert await self.open()
        clock.advance(10)
        if state is RAMPING:
            assert await self.ramp()
        assert (await self.state()).breaker is state


@pytest.fixture
async def steps(engine: Engine) -> Steps:
    return Steps(engine, await engine.endpoint())


async def audited(engine: Engine) -> list[tuple[str, str, str | None]]:
    rows = await engine.sql.fetch(
        "SELECT actor, action, because FROM redrive.audit WHERE action LIKE 'endpoint.breaker%' ORDER BY id"
    )
    return [(row["actor"], row["action"], row["because"]) for row in rows]


async def test_a_breaker_opens_ramps_and_closes(engine: Engine, clock: ManualClock, steps: Steps) -> None:
    assert (await steps.state()).breaker is CLOSED  # nothing is known of it
    assert await steps.open()
    opened = await steps.state()
    assert (opened.breaker, opened.breaker_since, opened.breaker_reason) == (OPEN, START, WHY)
    clock.advance(10)
    assert await steps.ramp()
    assert (await steps.state()).breaker is RAMPING
    clock.advance(30)
    assert await steps.close()
    closed = await steps.state()
    assert (closed.breaker, closed.breaker_reason) == (CLOSED, None)
    assert closed.breaker_since == START + timedelta(seconds=40)
    assert await audited(engine) == [
        ("engine", "endpoint.breaker_open", WHY),
        ("engine", "endpoint.breaker_close", None),
    ]


@pytest.mark.parametrize("state", BreakerState)
async def test_a_step_from_another_state_changes_nothing(
    engine: Engine, clock: ManualClock, steps: Steps, state: BreakerState
) -> None:
    await steps.bring_to(state, clock)
    before = await steps.state()
    audit = await audited(engine)
    for taken_for in BreakerState:
        if taken_for is not state or state is OPEN:
            assert not await steps.open(taken_for)
    if state is not OPEN:
        assert not await steps.ramp()
    if state is not RAMPING:
        assert not await steps.close()
    if state in (CLOSED, RAMPING):
        assert not await steps.by_hand()
    assert await steps.state() == before
    assert await audited(engine) == audit


async def test_a_ramp_that_fails_opens_again_without_news(engine: Engine, clock: ManualClock, steps: Steps) -> None:
    await steps.bring_to(RAMPING, clock)
    assert await steps.open(RAMPING)
    assert (await steps.state()).breaker is OPEN
    assert len(await audited(engine)) == 1
    assert await steps.by_hand()
    assert await steps.open(RAMPING)  # that is news: a person had closed it
    assert [action for _, action, _ in await audited(engine)] == [
        "endpoint.breaker_open",
        "endpoint.breaker_close",
        "endpoint.breaker_open",
    ]


async def test_of_many_workers_that_find_the_same_one_is_first(engine: Engine) -> None:
    for round_ in range(5):
        steps = Steps(engine, await engine.endpoint(f"hook {round_}"))
        assert sum(await asyncio.gather(*(steps.open() for _ in range(8)))) == 1
        assert sum(await asyncio.gather(*(steps.ramp() for _ in range(8)))) == 1
    assert len(await audited(engine)) == 5


async def test_the_breaker_of_a_deleted_or_unknown_endpoint_does_not_open(engine: Engine) -> None:
    endpoint_id = await engine.endpoint()
    await engine.delete_endpoint(endpoint_id)
    for unknown in (endpoint_id, new_id()):
        assert not await Steps(engine, unknown).open()
        async with engine.app.tenant(engine.org_id) as session:
            assert await get_state(session, unknown) is None


async def test_a_person_need_not_wait_for_a_success(engine: Engine, clock: ManualClock, steps: Steps) -> None:
    await steps.bring_to(OPEN, clock)
    assert await steps.by_hand()
    ramping = await steps.state()
    assert (ramping.breaker, ramping.breaker_since) == (RAMPING, clock.now())
    assert (await audited(engine))[1:] == [(PERSON.actor, "endpoint.breaker_close", PERSON.because)]
    assert not await steps.by_hand()


@pytest.mark.parametrize("change", [{"disabled": False}, {"url": "http://127.0.0.1:9/elsewhere"}])
async def test_an_endpoint_that_is_enabled_or_leads_elsewhere_begins_anew(
    engine: Engine, clock: ManualClock, change: dict[str, object]
) -> None:
    endpoint_id = await engine.endpoint(disabled=True)
    steps = Steps(engine, endpoint_id)
    await steps.bring_to(OPEN, clock)
    await engine.sql.execute(
        "UPDATE redrive.endpoint_state SET failing_since = $1, last_failure_at = $1, failures = 7", START
    )
    await engine.change_endpoint(endpoint_id, timeout_s=3.0)
    assert (await steps.state()).breaker is OPEN  # that changes nothing about it
    await engine.change_endpoint(endpoint_id, **change)
    state = await steps.state()
    assert (state.breaker, state.breaker_reason) == (CLOSED, None)
    assert (state.failing_since, state.failures, state.last_failure_at) == (None, 0, START)


async def notices(engine: Engine) -> list[tuple[str, str, str]]:
    rows = await engine.sql.fetch("SELECT kind, severity, text FROM redrive.notice ORDER BY at, id")
    return [(row["kind"], row["severity"], row["text"]) for row in rows]


async def test_people_are_told_that_a_breaker_opened_and_that_it_closed_and_of_no_ramp_that_failed(
    engine: Engine, clock: ManualClock, steps: Steps
) -> None:
    await steps.bring_to(RAMPING, clock)
    assert await steps.open(RAMPING)
    ((kind, severity, text),) = await notices(engine)
    assert (kind, severity) == ("endpoint.breaker_opened", "warning")
    assert text.startswith(f'The breaker of endpoint "hook" opened: {WHY} Its deliveries are tried one after another')
    assert await steps.ramp()
    assert await steps.close()
    closed = 'The breaker of endpoint "hook" is closed again: its deliveries go on.'
    assert (await notices(engine))[1:] == [("endpoint.breaker_closed", "info", closed)]
    assert not await steps.close()
    assert not await steps.open(RAMPING)
    assert len(await notices(engine)) == 2
