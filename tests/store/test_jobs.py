"""How background jobs go: any process's run counts, silence is seen, and who leaves in good order is not missed."""

from datetime import timedelta

import asyncpg
import pytest

from redrive.core.jobs import HERALD, JANITOR, JobRecord
from redrive.engine.jobs import Jobs
from redrive.store.audit import Act
from redrive.store.db import Database
from redrive.store.jobs import NEW_AFTER_S, JobRows, JobSeen, list_jobs
from redrive.store.retention import Retention
from support.engine import START, Engine, ManualClock


class Process:
    """One that runs jobs; its own clock moves with the test's."""

    def __init__(self, engine: Engine, clock: ManualClock) -> None:
        self.jobs = Jobs(JobRows(engine.db, clock), now=lambda: (clock.now() - START).total_seconds())

    def turn(self, record: JobRecord, error: Exception | None = None) -> None:
        try:
            with record.run():
                if error is not None:
                    raise error
        except ConnectionError:
            pass


async def seen(engine: Engine, clock: ManualClock, name: str = HERALD.name) -> JobSeen:
    (found,) = [job for job in await list_jobs(engine.db, clock) if job.name == name]
    return found


async def test_a_job_has_succeeded_when_one_of_the_processes_that_run_it_has(
    engine: Engine, clock: ManualClock
) -> None:
    one, other = Process(engine, clock), Process(engine, clock)
    mine, theirs = one.jobs.job(HERALD), other.jobs.job(HERALD)
    assert one.jobs.job(HERALD) is mine
    one.turn(mine)
    clock.advance(10)
    other.turn(theirs, ConnectionError("away\nDETAIL: a row"))
    clock.advance(5)
    await other.jobs.report()
    await one.jobs.report()  # what it says is older, and takes nothing back
    found = await seen(engine, clock)
    assert (found.succeeded_at, found.failed_at) == (START, START + timedelta(seconds=10))
    assert (found.began_at, found.ended_at) == (START + timedelta(seconds=10),) * 2
    assert (found.error, found.every_s, found.is_failing) == ("ConnectionError: away", HERALD.every_s, True)
    assert (found.since, found.idle_s) == (START + timedelta(seconds=15), 0)
    one.turn(mine)
    clock.advance(7)
    await one.jobs.report()
    found = await seen(engine, clock)
    assert (found.is_failing, found.idle_s) == (False, 7)


async def test_a_job_that_is_taken_up_again_after_a_silence_has_just_begun(engine: Engine, clock: ManualClock) -> None:
    process = Process(engine, clock)
    process.turn(process.jobs.job(JANITOR, every_s=600))
    await process.jobs.report()
    clock.advance(NEW_AFTER_S)
    await process.jobs.report()
    assert (await seen(engine, clock, JANITOR.name)).idle_s == NEW_AFTER_S
    clock.advance(NEW_AFTER_S + 1)
    assert (await seen(engine, clock, JANITOR.name)).idle_s == 2 * NEW_AFTER_S + 1
    await process.jobs.report()
    found = await seen(engine, clock, JANITOR.name)
    assert (found.idle_s, found.since, found.succeeded_at, found.every_s) == (0, clock.now(), START, 600)


async def test_a_job_that_stops_after_the_clock_was_set_back_is_missed_all_the_same(
    engine: Engine, clock: ManualClock
) -> None:
    ran_s = 0.0  # by the process's own clock, which nobody sets
    jobs = Jobs(JobRows(engine.db, clock), now=lambda: ran_s)
    record = jobs.job(JANITOR, every_s=600)
    with record.run():
        ran_s += 1
    await jobs.report()
    clock.advance(-3_600)
    ran_s += 30
    await jobs.report()
    found = await seen(engine, clock, JANITOR.name)
    assert (found.succeeded_at, found.seen_at, found.since) == (clock.now() - timedelta(seconds=30), *[clock.now()] * 2)
    for _ in range(3):
        clock.advance(NEW_AFTER_S)
        ran_s += NEW_AFTER_S
        await jobs.report()
    assert (await seen(engine, clock, JANITOR.name)).idle_s == 3 * NEW_AFTER_S


async def test_who_ends_in_good_order_is_not_missed_and_others_go_on(engine: Engine, clock: ManualClock) -> None:
    one, other = Process(engine, clock), Process(engine, clock)
    for process in (one, other):
        process.turn(process.jobs.job(HERALD))
        await process.jobs.report()
    await one.jobs.leave()
    assert (await seen(engine, clock)).left_at == START
    await other.jobs.report()
    assert (await seen(engine, clock)).left_at is None


async def test_the_janitor_forgets_jobs_that_nobody_has_run_for_a_day(engine: Engine, clock: ManualClock) -> None:
    process = Process(engine, clock)
    process.jobs.job(HERALD)
    await process.jobs.report()
    clock.advance(86_400)
    db = await Database.open(engine.url, role="redrive_janitor", size=1)
    retention = Retention(db, clock, Act("engine"))
    await retention.forget_jobs()
    assert len(await list_jobs(engine.db, clock)) == 1
    clock.advance(1)
    await retention.forget_jobs()
    await db.close()
    assert await list_jobs(engine.db, clock) == []


async def test_the_app_reads_how_jobs_go_and_changes_nothing(engine: Engine, clock: ManualClock) -> None:
    async with engine.app.tenant(engine.org_id) as session:
        assert await list_jobs(session, clock) == []
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await JobRows(engine.app, clock).leave(["herald"])
