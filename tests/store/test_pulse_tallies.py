"""What happens is tallied per minute as it is written: nothing twice, nothing missed, and folded without loss."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from uuid import UUID

import pytest

from redrive.core.analytics import Outcomes, Period
from redrive.core.decide import Die, Reason, Succeed
from redrive.core.outcome import Category, Success
from redrive.core.ports import NO_EXCHANGE, STEP_QUEUE, Settlement
from redrive.core.pulse import WAIT_BOUNDS_S, wait_slot
from redrive.core.sweep import SweptOrg
from redrive.core.workflow import Workflow
from redrive.engine.janitor import Janitor
from redrive.store import retention
from redrive.store.analytics import over_time
from redrive.store.audit import Act
from redrive.store.db import Database, Record
from redrive.store.events import accept_test
from redrive.store.orgs import new_id
from redrive.store.pausing import PauseScope
from redrive.store.retention import Retention
from redrive.store.runs import NewRun, begin_run
from redrive.store.workflows import put_workflow, version_of
from support.engine import PERSON, START, UNAVAILABLE, Engine, ManualClock

MINUTE_S = 60.0
HOUR_S = 3_600.0
DAY_S = 86_400.0
FORGOTTEN = datetime.min  # how '-infinity' reads
PULSES = """
  SELECT minute, sum(created)::int AS created, sum(opened)::int AS opened, sum(delivered)::int AS delivered,
         sum(failed)::int AS failed
    FROM redrive.pulse WHERE org_id = $1 GROUP BY minute ORDER BY minute"""
Numbers = tuple[int, int, int, int]


async def pulses(engine: Engine, org_id: UUID | None = None) -> dict[datetime, Numbers]:
    """Created, opened, delivered and failed in each minute that has any."""
    rows = await engine.sql.fetch(PULSES, org_id or engine.org_id)
    return {_moment(row["minute"]): (row["created"], row["opened"], row["delivered"], row["failed"]) for row in rows}


async def outcomes(engine: Engine) -> Outcomes:
    async with engine.app.tenant(engine.org_id) as session:
        return (await over_time(session, engine.clock, Period.YEAR)).whole


async def waits(engine: Engine) -> dict[int, int]:
    return dict((await outcomes(engine)).waits)


async def retries(engine: Engine) -> dict[int, int]:
    """Of what ended, how many were retried so often."""
    found = await outcomes(engine)
    return {
        n: saved + lost for n, (saved, lost) in enumerate(zip(found.saved, found.lost, strict=True)) if saved + lost
    }


async def whole(engine: Engine) -> Record:
    row = await engine.sql.fetchrow("SELECT sum(created), sum(opened), sum(delivered), sum(failed) FROM redrive.pulse")
    assert row is not None
    return row


@asynccontextmanager
async def janitor(engine: Engine) -> AsyncIterator[Janitor]:
    db = await Database.open(engine.url, role="redrive_janitor", size=1)

    @asynccontextmanager
    async def opened() -> AsyncIterator[Retention]:
        yield Retention(db, engine.clock, Act("engine"))

    try:
        yield Janitor(opened, every_s=HOUR_S, dice=lambda: 0.5, rest=0)
    finally:
        await db.close()


async def test_each_minute_has_what_happened_in_it(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint("a")
    await engine.endpoint("b")
    await engine.accept_many(3)
    clock.advance(MINUTE_S)
    await engine.accept("for the inbox", handler="absent")
    jobs = await engine.claim()
    await engine.succeed(jobs[0])
    await engine.succeed(jobs[1])
    clock.advance(MINUTE_S - 0.001)
    await engine.kill(jobs[2])
    await engine.fail(jobs[3])
    clock.advance(0.001)
    assert await engine.skip(jobs[3].id) is None
    await engine.redrive(jobs[2].id)
    assert await pulses(engine) == {
        START: (3, 6, 0, 0),
        START + timedelta(minutes=1): (1, 1, 2, 1),
        START + timedelta(minutes=2): (0, 1, 0, 1),
    }
    assert await engine.sql.fetchval("SELECT sum(opened - delivered - failed) FROM redrive.pulse") == 4
    assert await engine.sql.fetchval("SELECT count(*) FROM redrive.task WHERE open") == 4


async def test_an_event_for_nobody_is_created_and_opens_nothing(engine: Engine) -> None:
    await engine.accept_many(2)
    assert await pulses(engine) == {START: (2, 0, 0, 0)}


async def test_an_event_that_is_handed_in_again_is_not_tallied_again(engine: Engine) -> None:
    await engine.endpoint()
    event = engine.new_event()
    await engine.accept_all([event])
    await engine.accept_all([event])
    assert await pulses(engine) == {START: (1, 1, 0, 0)}


async def test_one_batch_of_two_orgs_is_tallied_for_each(engine: Engine) -> None:
    other = await engine.org("other")
    await engine.endpoint()
    await engine.endpoint(org=other)
    await engine.accept_all([engine.new_event(), engine.new_event(org_id=other), engine.new_event(org_id=other)])
    jobs = sorted(await engine.claim(), key=lambda job: job.org_id == other)
    dead = Die(Reason.EXHAUSTED, Category.SERVER_ERROR)
    await engine.tasks.settle(
        [
            Settlement(jobs[0], Success(200), Succeed(), NO_EXCHANGE, 0.1),
            Settlement(jobs[1], Success(200), Succeed(), NO_EXCHANGE, 0.1),
            Settlement(jobs[2], UNAVAILABLE, dead, NO_EXCHANGE, 0.1),
        ]
    )
    assert await pulses(engine) == {START: (1, 1, 1, 0)}
    assert await pulses(engine, other) == {START: (2, 2, 1, 1)}


async def test_what_only_moves_about_is_no_news(engine: Engine, clock: ManualClock) -> None:
    """Leased, given back, held, released, retried: none of it opens or ends anything."""
    endpoint_id = await engine.endpoint()
    await engine.accept()
    clock.advance(MINUTE_S)
    await engine.fail(await engine.claim_one(), delay_s=0)
    await engine.pause(PauseScope.ENDPOINT, endpoint_id)
    assert await engine.claim() == []
    await engine.resume(PauseScope.ENDPOINT, endpoint_id)
    lost = await engine.claim_one()
    clock.advance(HOUR_S)
    again = await engine.claim_one()
    assert again.id == lost.id
    assert await pulses(engine) == {START: (1, 1, 0, 0)}


async def test_a_worker_that_lost_its_lease_tallies_nothing(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    await engine.accept()
    slow = await engine.claim_one()
    clock.advance(HOUR_S)
    await engine.succeed(await engine.claim_one())
    await engine.kill(slow)
    assert await pulses(engine) == {START: (1, 1, 0, 0), START + timedelta(hours=1): (0, 0, 1, 0)}


@pytest.mark.parametrize(
    "waited_s", [0, 0.0009, 0.001, 0.099, 0.1, 0.9, 59.9, 60, DAY_S, 7 * DAY_S, 30 * DAY_S, 9_999_999]
)
async def test_the_way_from_event_to_delivery_falls_into_its_slot(
    engine: Engine, clock: ManualClock, waited_s: float
) -> None:
    await engine.endpoint()
    await engine.accept()
    clock.advance(waited_s)
    await engine.succeed(await engine.claim_one())
    assert await waits(engine) == {wait_slot(waited_s): 1}
    assert (await outcomes(engine)).waited_s == waited_s


async def test_a_death_takes_no_time_to_delivery(engine: Engine) -> None:
    await engine.endpoint()
    await engine.accept()
    await engine.kill(await engine.claim_one())
    assert await waits(engine) == {}
    assert await retries(engine) == {0: 1}


async def test_what_a_person_sent_again_says_nothing_of_how_long_deliveries_take_without_a_retry(
    engine: Engine, clock: ManualClock
) -> None:
    await engine.endpoint()
    await engine.accept()
    job = await engine.claim_one()
    await engine.kill(job)
    clock.advance(6 * HOUR_S)
    await engine.redrive(job.id, at_once=True)
    await engine.succeed(await engine.claim_one())
    found = await outcomes(engine)
    assert (dict(found.waits), dict(found.firsts)) == ({wait_slot(6 * HOUR_S): 1}, {wait_slot(6 * HOUR_S): 0})
    assert (await whole(engine))[2:4] == (1, 1)


async def test_a_step_that_waits_takes_as_long_as_it_took_from_when_it_might_begin(
    engine: Engine, clock: ManualClock
) -> None:
    workflow = Workflow.from_spec("flow", {"steps": [{"name": "wait", "kind": "wait", "wait_s": HOUR_S}]})
    async with engine.app.tenant(engine.org_id) as session:
        row, _ = await put_workflow(session, workflow, PERSON, clock, None)
        await begin_run(session, version_of(row), NewRun(new_id(), b"{}"), PERSON, clock)
    clock.advance(HOUR_S + 2)
    await engine.succeed(await engine.claim_one(queues=[STEP_QUEUE]))
    waited = await engine.sql.fetchval("SELECT sum(waited) FROM redrive.tally")
    assert (await waits(engine), waited) == ({wait_slot(2): 1}, timedelta(seconds=2))


async def test_a_clock_that_is_set_back_makes_no_delivery_take_less_than_nothing(
    engine: Engine, clock: ManualClock
) -> None:
    await engine.endpoint()
    await engine.accept()
    job = await engine.claim_one()
    clock.advance(-HOUR_S)
    await engine.succeed(job)
    waited = await engine.sql.fetchval("SELECT sum(waited) FROM redrive.tally")
    assert (await waits(engine), waited) == ({0: 1}, timedelta(0))


async def test_the_test_of_an_endpoint_counts_nowhere(engine: Engine) -> None:
    endpoint_id = await engine.endpoint()
    for ends in (engine.succeed, engine.kill):
        async with engine.db.tenant(engine.org_id) as session:
            event = engine.new_event("redrive.test", endpoint_id=endpoint_id)
            await accept_test(session, event, PERSON, engine.clock)
        await ends(await engine.claim_one())
    assert tuple(await whole(engine)) == (0, 0, 0, 0)
    assert (await waits(engine), await retries(engine)) == ({}, {})
    assert await engine.sql.fetchval("SELECT sum(unjudged) FROM redrive.pulse") == 0


async def test_deaths_that_say_nothing_of_deliveries_are_told_from_the_others(engine: Engine) -> None:
    """What a person skipped, and a notice that nobody could be told."""
    await engine.endpoint()
    await engine.accept()
    job = await engine.claim_one()
    await engine.fail(job)
    assert await engine.skip(job.id) is None
    for event_type in ("redrive.dead_letter", "invoice.paid"):
        await engine.accept(event_type)
        await engine.kill(await engine.claim_one())
    assert (await whole(engine))[3] == 3
    assert await engine.sql.fetchval("SELECT sum(unjudged) FROM redrive.pulse") == 2


@pytest.mark.parametrize(("taken", "slot"), [(0, 0), (1, 1), (9, 9), (10, 10), (12, 10)])
async def test_retries_are_counted_by_how_many_it_took(engine: Engine, taken: int, slot: int) -> None:
    await engine.endpoint()
    await engine.accept()
    for _ in range(taken):
        await engine.fail(await engine.claim_one(), delay_s=0)
    await engine.succeed(await engine.claim_one())
    assert await retries(engine) == {slot: 1}
    assert (await outcomes(engine)).retried == taken


async def test_a_task_that_is_skipped_before_its_first_try_had_no_retry(engine: Engine) -> None:
    await engine.accept(handler="absent")
    task = await engine.sql.fetchrow("SELECT id FROM redrive.task")
    assert task is not None
    await engine.sql.execute("UPDATE redrive.task SET state = 'dead', reason = 'skipped' WHERE id = $1", task["id"])
    assert await retries(engine) == {0: 1}


async def test_the_database_and_the_program_mean_the_same_slots(engine: Engine) -> None:
    bounds = await engine.sql.fetchval("SELECT redrive.wait_bounds()")
    assert bounds == list(WAIT_BOUNDS_S)


async def test_old_minutes_become_quarters_and_older_ones_a_sum_and_nothing_is_lost(
    engine: Engine, clock: ManualClock
) -> None:
    await engine.endpoint()
    for _ in range(4):
        await engine.accept()
        clock.advance(10 * MINUTE_S)
        await engine.succeed(await engine.claim_one())
    before = await whole(engine)
    async with janitor(engine) as sweeping:
        clock.advance(2 * HOUR_S)
        await sweeping.sweep(rested_s=0)
        quarters = [START + timedelta(minutes=n) for n in (0, 15, 30)]
        assert list(await pulses(engine)) == [*quarters, START + timedelta(minutes=40)]
        assert await engine.sql.fetchval("SELECT array_agg(shard ORDER BY minute) FROM redrive.pulse") != [-1] * 4
        clock.advance(HOUR_S)
        await sweeping.sweep(rested_s=0)
        assert await pulses(engine) == dict(zip(quarters, [(2, 2, 1, 0), (1, 1, 1, 0), (1, 1, 2, 0)], strict=True))
        clock.advance(8 * DAY_S)
        await sweeping.sweep(rested_s=0)
        assert await pulses(engine) == {FORGOTTEN: (4, 4, 4, 0)}
        await engine.accept()
        clock.advance(9 * DAY_S)
        await sweeping.sweep(rested_s=0)
    assert await pulses(engine) == {FORGOTTEN: (5, 5, 4, 0)}
    assert tuple(await whole(engine))[2:] == tuple(before)[2:]


async def test_folding_says_nothing_in_the_audit_and_goes_on_until_it_is_done(
    engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH_MINUTES", 2)
    for _ in range(5):
        await engine.accept()
        clock.advance(MINUTE_S)
    clock.advance(3 * HOUR_S)
    async with janitor(engine) as sweeping:
        await sweeping.sweep(rested_s=0)
    assert await engine.sql.fetchval("SELECT array_agg(shard) FROM redrive.pulse") == [-1]
    assert await engine.sql.fetchval("SELECT count(*) FROM redrive.audit WHERE action LIKE 'retention%'") == 0


async def test_a_minute_that_somebody_still_adds_to_is_left_alone(engine: Engine, clock: ManualClock) -> None:
    await engine.accept()
    db = await Database.open(engine.url, role="redrive_janitor", size=1)
    now = clock.advance(3 * HOUR_S)
    org = SweptOrg(engine.org_id, "default", now, None, None)
    async with engine.db.transaction() as session:
        await session._connection.execute("SELECT FROM redrive.pulse FOR UPDATE")
        await Retention(db, clock, Act("engine")).batch(org, None)
    await db.close()
    assert await pulses(engine) == {START: (1, 0, 0, 0)}
    assert await engine.sql.fetchval("SELECT min(shard) >= 0 FROM redrive.pulse")


async def test_a_dry_run_folds_nothing(engine: Engine, clock: ManualClock) -> None:
    await engine.accept()
    db = await Database.open(engine.url, role="redrive_janitor", size=1)
    org = SweptOrg(engine.org_id, "default", clock.advance(3 * HOUR_S), None, None)
    await Retention(db, clock, Act("engine"), dry_run=True).batch(org, None)
    await db.close()
    assert await engine.sql.fetchval("SELECT min(shard) >= 0 FROM redrive.pulse")


def _moment(minute: datetime) -> datetime:
    return FORGOTTEN if minute.year == 1 else minute
