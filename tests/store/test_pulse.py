"""The numbers behind the dashboard: every bucket there, what happened in it, and how deep the queue was."""

from datetime import timedelta

import pytest

from redrive.core.pulse import Window
from redrive.store.audit import Act
from redrive.store.db import Database
from redrive.store.pulse import Pulse, Standing, Tally, pulse, standing, worst_endpoints
from redrive.store.retention import Retention
from redrive.store.stats import stats
from support.engine import START, Engine, ManualClock

MINUTE_S = 60.0
HOUR_S = 3_600.0
DAY_S = 86_400.0


async def read(engine: Engine, window: Window = Window.HOUR) -> Pulse:
    async with engine.app.tenant(engine.org_id) as session:
        return await pulse(session, engine.clock, window)


async def fold(engine: Engine, clock: ManualClock) -> None:
    db = await Database.open(engine.url, role="redrive_janitor", size=1)
    sweeper = Retention(db, clock, Act("engine"))
    for org in await sweeper.orgs(0):
        await sweeper.batch(org, None)
    await db.close()


@pytest.mark.parametrize(("window", "buckets"), [(Window.HOUR, 60), (Window.DAY, 96), (Window.WEEK, 84)])
async def test_an_empty_window_has_all_its_buckets_and_nothing_in_them(
    engine: Engine, clock: ManualClock, window: Window, buckets: int
) -> None:
    clock.advance(61)
    found = await read(engine, window)
    assert len(found.buckets) == buckets
    assert {bucket.tally for bucket in found.buckets} == {Tally()}
    assert found.as_of == clock.now()
    last = found.buckets[-1].at
    assert last <= clock.now() < last + window.value.bucket
    steps = [later.at - earlier.at for earlier, later in zip(found.buckets, found.buckets[1:], strict=False)]
    assert set(steps) == {window.value.bucket}
    assert (found.whole.success_rate, found.whole.failed_rate, found.depth) == (None, None, 0)


async def test_a_window_tells_what_happened_when_and_how_deep_the_queue_was(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    await engine.accept_many(3)
    clock.advance(MINUTE_S)
    jobs = await engine.claim()
    await engine.succeed(jobs[0])
    await engine.kill(jobs[1])
    clock.advance(2 * MINUTE_S)
    await engine.redrive(jobs[1].id)
    clock.advance(MINUTE_S)
    found = await read(engine)
    assert [(b.at, b.tally, b.depth) for b in found.buckets[-6:]] == [
        (START - timedelta(minutes=1), Tally(), 0),
        (START, Tally(created=3, opened=3), 3),
        (START + timedelta(minutes=1), Tally(delivered=1, failed=1), 1),
        (START + timedelta(minutes=2), Tally(), 1),
        (START + timedelta(minutes=3), Tally(opened=1), 2),
        (START + timedelta(minutes=4), Tally(), 2),
    ]
    assert found.depth == 2
    assert found.whole == Tally(created=3, opened=4, delivered=1, failed=1)
    assert found.whole.success_rate == found.whole.failed_rate == 0.5


async def test_what_is_older_than_the_window_is_left_out(engine: Engine, clock: ManualClock) -> None:
    await engine.accept()
    clock.advance(59 * MINUTE_S)
    assert (await read(engine)).whole.created == 1
    clock.advance(MINUTE_S)
    assert (await read(engine)).whole.created == 0
    assert (await read(engine, Window.DAY)).whole.created == 1
    clock.advance(DAY_S)
    assert (await read(engine, Window.DAY)).whole.created == 0
    assert (await read(engine, Window.WEEK)).whole.created == 1
    clock.advance(7 * DAY_S)
    assert (await read(engine, Window.WEEK)).whole.created == 0


async def test_folding_changes_no_window(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    for _ in range(40):
        await engine.accept()
        clock.advance(200)
        await engine.succeed(await engine.claim_one())
    clock.advance(2 * HOUR_S)
    before = [await read(engine, window) for window in Window]
    await fold(engine, clock)
    assert await engine.sql.fetchval("SELECT count(*) FROM redrive.pulse WHERE shard = -1") > 5
    assert [await read(engine, window) for window in Window] == before


async def test_another_org_s_pulse_is_not_ours(engine: Engine) -> None:
    other = await engine.org("other")
    await engine.accept_many(2, org_id=other)
    assert (await read(engine)).whole == Tally()


async def test_where_things_stand_is_counted_in_events(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint("a")
    await engine.endpoint("b")
    await engine.accept_many(4)
    await engine.accept_many(1, org_id=await engine.org("other"))
    jobs = sorted(await engine.claim(), key=lambda job: job.event_id)
    for job in jobs[:3]:
        await engine.succeed(job)
    await engine.kill(jobs[3])
    await engine.fail(jobs[4])
    await engine.kill(jobs[5])
    async with engine.app.tenant(engine.org_id) as session:
        found = await standing(session)
        numbers = await stats(session, clock)
    assert found == Standing(received=0, queued=2, delivered=1, failed=1, open_tasks=3, retrying=1)
    assert (numbers.events.queued, numbers.events.delivered, numbers.events.failed) == (2, 1, 1)
    assert (numbers.tasks.succeeded, numbers.tasks.dead, numbers.success_rate) == (3, 2, 0.5)


async def test_the_inbox_is_counted_in_events(engine: Engine) -> None:
    ids = await engine.accept_many(3)
    await engine.acknowledge(ids[0])
    async with engine.app.tenant(engine.org_id) as session:
        found = await standing(session)
    assert (found.received, found.delivered, found.queued) == (2, 1, 0)


async def test_the_worst_endpoints_are_those_with_most_failures_lately(engine: Engine, clock: ManualClock) -> None:
    named = {name: await engine.endpoint(name) for name in ("fine", "gone", "slow", "long ago")}
    for name, kills, fails, works in (("long ago", 9, 0, 0), ("gone", 3, 0, 1), ("slow", 1, 1, 2), ("fine", 0, 0, 4)):
        if name == "gone":
            clock.advance(2 * DAY_S)
        await engine.accept_many(kills + fails + works, endpoint_id=named[name])
        jobs = await engine.claim()
        for job in jobs[:kills]:
            await engine.kill(job)
        for job in jobs[kills : kills + fails]:
            await engine.fail(job, delay_s=HOUR_S)
        for job in jobs[kills + fails :]:
            await engine.succeed(job)
    async with engine.app.tenant(engine.org_id) as session:
        found = await worst_endpoints(session, clock)
    assert [(one.name, one.failures) for one in found] == [("gone", 3), ("slow", 2)]
    assert [one.health.success_rate for one in found] == [0.25, 0.5]
    assert [one.health.dead.n for one in found] == [3, 1]


async def test_an_endpoint_that_is_deleted_is_no_longer_among_the_worst(engine: Engine, clock: ManualClock) -> None:
    endpoint_id = await engine.endpoint()
    await engine.accept()
    await engine.kill(await engine.claim_one())
    await engine.delete_endpoint(endpoint_id)
    async with engine.app.tenant(engine.org_id) as session:
        assert await worst_endpoints(session, clock) == []


async def test_no_more_than_five_are_the_worst(engine: Engine, clock: ManualClock) -> None:
    for n in range(6):
        await engine.endpoint(f"e{n}")
    await engine.accept()
    for job in await engine.claim():
        await engine.kill(job)
    async with engine.app.tenant(engine.org_id) as session:
        assert [one.name for one in await worst_endpoints(session, clock)] == ["e0", "e1", "e2", "e3", "e4"]
