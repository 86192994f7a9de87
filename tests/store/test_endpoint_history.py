"""What workers report of endpoints adds up, in whatever order it comes; what does nothing but fail is disabled."""

import random
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter
from uuid import UUID

import pytest

from redrive.core.permissions import Role
from redrive.core.ports import HealthReport
from redrive.store.audit import Act
from redrive.store.db import Database, Record
from redrive.store.endpoint_history import HISTORY_TTL, WIDE_BUCKET, History, Ledger, history_of
from redrive.store.endpoint_states import EndpointState, get_state
from redrive.store.orgs import new_id
from redrive.store.retention import Retention
from support.engine import START, Engine, ManualClock

DAY_S = 86_400.0
FIVE_DAYS_S = 5 * DAY_S


def report(endpoint_id: UUID, org_id: UUID, notes: str, ages: list[float] | None = None) -> HealthReport:
    """Of tries in order: `+` a success, `-` a failure; each so many seconds ago, or a second after the other."""
    ages = ages or [float(len(notes) - n - 1) for n in range(len(notes))]
    success = max((n for n, note in enumerate(notes) if note == "+"), default=-1)
    failed = [n for n, note in enumerate(notes) if note == "-"]
    behind = [n for n in failed if n > success]
    return HealthReport(
        org_id,
        endpoint_id,
        notes.count("+"),
        len(failed),
        100 * len(notes),
        250,
        ages[success] if success >= 0 else None,
        ages[behind[0]] if behind else None,
        ages[failed[-1]] if failed else None,
        len(behind),
    )


class Endpoint:
    """One endpoint and those who report of it."""

    def __init__(self, engine: Engine, endpoint_id: UUID) -> None:
        self.engine = engine
        self.id = endpoint_id
        self.ledger = Ledger(engine.db, engine.clock)

    async def note(self, notes: str, ages: list[float] | None = None) -> None:
        await self.ledger.add([report(self.id, self.engine.org_id, notes, ages)])

    async def state(self) -> EndpointState:
        async with self.engine.app.tenant(self.engine.org_id, Role.VIEWER) as session:
            state = await get_state(session, self.id)
        assert state is not None
        return state

    async def history(self, since: datetime | None = None) -> History:
        async with self.engine.app.tenant(self.engine.org_id, Role.VIEWER) as session:
            return await history_of(session, self.id, self.engine.clock, since)

    async def disabled_because(self) -> str | None:
        why: str | None = await self.engine.sql.fetchval(
            "SELECT disabled_reason FROM redrive.endpoint WHERE id = $1 AND disabled_at IS NOT NULL", self.id
        )
        return why


@pytest.fixture
async def hook(engine: Engine) -> Endpoint:
    return Endpoint(engine, await engine.endpoint())


# -- what is known -----------------------------------------------------------------------------------------------------


async def test_an_endpoint_fails_since_the_first_failure_behind_its_last_success(
    hook: Endpoint, clock: ManualClock
) -> None:
    await hook.note("--+--")
    state = await hook.state()
    assert (state.last_success_at, state.last_failure_at) == (START - timedelta(seconds=2), START)
    assert (state.failing_since, state.failures) == (START - timedelta(seconds=1), 2)
    clock.advance(60)
    await hook.note("---")
    state = await hook.state()
    assert (state.failing_since, state.failures) == (START - timedelta(seconds=1), 5)
    clock.advance(60)
    await hook.note("-+")
    state = await hook.state()
    assert (state.failing_since, state.failures, state.last_success_at) == (None, 0, clock.now())


async def test_a_late_report_of_failures_does_not_undo_a_newer_success(hook: Endpoint, clock: ManualClock) -> None:
    clock.advance(100)
    await hook.note("+")
    await hook.note("---", [50.0, 40.0, 30.0])
    state = await hook.state()
    assert (state.failing_since, state.failures, state.last_success_at) == (None, 0, clock.now())


async def test_a_late_report_of_a_success_does_not_undo_newer_failures(hook: Endpoint, clock: ManualClock) -> None:
    clock.advance(100)
    await hook.note("----", [60.0, 50.0, 40.0, 0.0])
    await hook.note("+", [45.0])
    state = await hook.state()
    assert state.last_success_at == clock.now() - timedelta(seconds=45)
    assert (state.failing_since, state.failures) == (clock.now(), 1)  # what is surely behind it
    await hook.note("+", [90.0])
    assert (await hook.state()).failing_since == clock.now()


async def test_reports_of_many_workers_in_any_order_come_to_what_really_was(engine: Engine, clock: ManualClock) -> None:
    clock.advance(1_000)
    for seed in range(25):
        dice = random.Random(seed)
        hook = Endpoint(engine, await engine.endpoint(f"hook {seed}"))
        # By how long ago it was: three workers that each report now and then, and some of them late.
        tries = sorted(
            ((dice.uniform(0, 900), dice.randrange(3), dice.choice("+--")) for _ in range(dice.randint(1, 40))),
            reverse=True,
        )
        batches: list[list[tuple[float, int, str]]] = []
        for _, mine in groupby(sorted(tries, key=itemgetter(1)), key=itemgetter(1)):
            rest = sorted(mine, reverse=True)
            while rest:
                n = dice.randint(1, 5)
                batches.append(rest[:n])
                del rest[:n]
        dice.shuffle(batches)
        for batch in batches:
            await hook.note("".join(note for _, _, note in batch), [age for age, _, _ in batch])
        state = await hook.state()
        success = min((age for age, _, note in tries if note == "+"), default=None)
        behind = [age for age, _, note in tries if note == "-" and (success is None or age < success)]
        assert (state.last_success_at is None) == (success is None)
        assert (state.failing_since is None) == (not behind), seed
        if state.failing_since is not None:
            first = clock.now() - timedelta(seconds=max(behind), milliseconds=1)
            assert first <= state.failing_since <= clock.now() - timedelta(seconds=min(behind))
            assert 1 <= state.failures <= len(behind)
        (point,) = (await hook.history(START)).points
        assert (point.succeeded + point.failed, point.failed) == (len(tries), sum(t[2] == "-" for t in tries))


# -- the history -------------------------------------------------------------------------------------------------------


async def test_the_history_adds_up_what_came_within_five_minutes(hook: Endpoint, clock: ManualClock) -> None:
    await hook.note("+-")
    clock.advance(200)
    await hook.note("+++")
    clock.advance(100)
    await hook.note("--")
    first, second = (await hook.history()).points
    assert (first.at, first.succeeded, first.failed, first.average_ms, first.slowest_ms) == (START, 4, 1, 100.0, 250)
    assert (second.at, second.succeeded, second.failed) == (START + timedelta(minutes=5), 0, 2)


async def test_the_history_shows_a_day_or_more_in_wider_steps_if_asked(hook: Endpoint, clock: ManualClock) -> None:
    await hook.note("+")
    clock.advance(3_000)
    await hook.note("-")
    clock.advance(DAY_S - 3_000)
    await hook.note("+")
    assert len((await hook.history()).points) == 3
    clock.advance(600)
    assert len((await hook.history()).points) == 2
    longer = await hook.history(START)
    assert longer.bucket == WIDE_BUCKET
    assert [(point.at, point.succeeded, point.failed) for point in longer.points] == [
        (START, 1, 1),
        (START + timedelta(days=1), 1, 0),
    ]


async def test_another_org_sees_none_of_it(hook: Endpoint, engine: Engine) -> None:
    await hook.note("+")
    other = await engine.org("other")
    async with engine.app.tenant(other) as session:
        assert (await history_of(session, hook.id, engine.clock)).points == []
        assert await get_state(session, hook.id) is None


@pytest.mark.parametrize(("dry_run", "left"), [(False, 1), (True, 2)])
async def test_the_janitor_keeps_two_weeks_of_it(
    hook: Endpoint, engine: Engine, clock: ManualClock, dry_run: bool, left: int
) -> None:
    await hook.note("+")
    clock.advance(300)
    await hook.note("+")
    clock.advance(HISTORY_TTL.total_seconds() - 299)
    db = await Database.open(engine.url, role="redrive_janitor", size=1)
    await Retention(db, clock, Act("engine"), dry_run=dry_run).forget_history()
    await db.close()
    (point,) = (await hook.history(START)).points
    assert point.succeeded == left


# -- nothing but failure -----------------------------------------------------------------------------------------------


async def fail_for(hook: Endpoint, clock: ManualClock, days: float, every_s: float = 3_600) -> None:
    for _ in range(int(days * DAY_S / every_s)):
        await hook.note("-")
        clock.advance(every_s)
    await hook.note("-")


async def test_five_days_of_nothing_but_failure_disable_an_endpoint(
    hook: Endpoint, engine: Engine, clock: ManualClock
) -> None:
    await hook.note("+")
    clock.advance(1)
    await fail_for(hook, clock, 4.9)
    assert await hook.ledger.disable_failing(FIVE_DAYS_S) == []
    await fail_for(hook, clock, 0.2)
    (disabled,) = await hook.ledger.disable_failing(FIVE_DAYS_S)
    assert (disabled.org_id, disabled.endpoint_id) == (engine.org_id, hook.id)
    assert disabled.reason == await hook.disabled_because()
    assert disabled.reason.startswith("Nothing but failures since 2031-05-04 12:00 UTC: 123 tries. ")
    audit = await engine.sql.fetchrow("SELECT actor, because FROM redrive.audit WHERE action = 'endpoint.disable'")
    assert audit is not None
    assert tuple(audit) == ("engine", disabled.reason)
    assert await hook.ledger.disable_failing(FIVE_DAYS_S) == []  # it is, already


async def test_one_success_between_begins_the_days_anew(hook: Endpoint, clock: ManualClock) -> None:
    await fail_for(hook, clock, 4)
    clock.advance(1)
    await hook.note("+")
    clock.advance(1)
    await fail_for(hook, clock, 4)
    assert await hook.ledger.disable_failing(FIVE_DAYS_S) == []
    await fail_for(hook, clock, 1.1)
    assert len(await hook.ledger.disable_failing(FIVE_DAYS_S)) == 1


@pytest.mark.parametrize("failures", ["-", "----------"])
async def test_silence_is_not_taken_for_failure(hook: Endpoint, clock: ManualClock, failures: str) -> None:
    await hook.note(failures)
    clock.advance(6 * DAY_S)
    assert await hook.ledger.disable_failing(FIVE_DAYS_S) == []
    assert await hook.disabled_because() is None


async def test_few_failures_over_many_days_do_not_disable(hook: Endpoint, clock: ManualClock) -> None:
    for _ in range(4):
        await hook.note("-")
        clock.advance(2 * DAY_S)
    assert await hook.ledger.disable_failing(FIVE_DAYS_S) == []
    await hook.note("-")
    assert len(await hook.ledger.disable_failing(FIVE_DAYS_S)) == 1


async def test_an_endpoint_that_was_enabled_again_has_its_days_before_it(
    hook: Endpoint, engine: Engine, clock: ManualClock
) -> None:
    await fail_for(hook, clock, 6)
    assert len(await hook.ledger.disable_failing(FIVE_DAYS_S)) == 1
    await engine.change_endpoint(hook.id, disabled=False)
    await fail_for(hook, clock, 1)
    assert await hook.ledger.disable_failing(FIVE_DAYS_S) == []


async def test_a_deleted_endpoint_is_left_alone_and_a_report_of_an_unknown_one_harms_nobody(
    hook: Endpoint, engine: Engine, clock: ManualClock
) -> None:
    await fail_for(hook, clock, 6)
    await engine.delete_endpoint(hook.id)
    await hook.ledger.add([report(new_id(), engine.org_id, "-+")])
    assert await hook.ledger.disable_failing(FIVE_DAYS_S) == []
    await hook.ledger.add([])


@pytest.mark.parametrize("how", ["success", "another URL"])
async def test_what_comes_between_the_look_and_the_disabling_is_not_overrun(
    engine: Engine, clock: ManualClock, hook: Endpoint, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    for _ in range(6):
        await hook.note("-")
        clock.advance(DAY_S)
    real = engine.db.fetch

    async def fetch(name: str, *args: object) -> list[Record]:
        rows = await real(name, *args)
        assert [row["endpoint_id"] for row in rows] == [hook.id]
        if how == "success":
            await hook.note("+")
        else:
            await engine.change_endpoint(hook.id, url="http://127.0.0.1:9/new")
        return rows

    monkeypatch.setattr(engine.db, "fetch", fetch)
    assert await Ledger(engine.db, clock).disable_failing(FIVE_DAYS_S) == []
