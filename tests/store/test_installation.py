"""The installation in numbers: told by one server at a time, equal to the books, and cheap however much there is."""

import asyncio

import asyncpg
import pytest

from conftest import database_of
from redrive.api.installation_metrics import families
from redrive.core.pulse import WAIT_BOUNDS_S
from redrive.store.check import check
from redrive.store.embedded import EmbeddedPostgres
from redrive.store.installation import EXACT_BELOW_S, PACE, Installation, Paced
from redrive.store.orgs import new_id
from redrive.store.pausing import PauseScope
from redrive.store.teller import LEASE_S, Teller
from support.engine import UNAVAILABLE, Engine, ManualClock


async def test_one_server_tells_until_it_lets_go_or_is_silent_for_its_lease(engine: Engine, clock: ManualClock) -> None:
    now = 100.0
    first, second = (Teller(engine.db, clock, new_id(), lambda: now) for _ in range(2))
    assert sorted(await asyncio.gather(first.renew(), second.renew())) == [False, True]
    told, other = (first, second) if first.tells else (second, first)
    for _ in range(4):
        clock.advance(LEASE_S - 1)
        now += LEASE_S - 1
        assert await told.renew()
        assert not await other.renew()
        assert other.other is not None
    # Silent, as one that is stopped or cut off: it knows by itself when its time is over, before another takes it.
    clock.advance(LEASE_S)
    now += LEASE_S
    assert not told.tells
    assert await other.renew()
    assert not await told.renew()
    await other.let_go()
    assert not other.tells
    assert not await other.renew()  # it is about to end
    assert await told.renew()


async def test_who_lets_go_while_it_renews_does_not_take_it_again(engine: Engine, clock: ManualClock) -> None:
    leaving, other = (Teller(engine.db, clock, new_id()) for _ in range(2))
    assert await leaving.renew()
    async with engine.sql.acquire() as beside, beside.transaction():
        await beside.execute("SELECT FROM redrive.teller FOR UPDATE")
        renewing = asyncio.create_task(leaving.renew())
        await engine.until("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)")
        going = asyncio.create_task(leaving.let_go())
        await asyncio.sleep(0)
    await asyncio.gather(renewing, going)
    assert not leaving.tells
    assert await other.renew()


async def test_the_numbers_are_those_of_the_books_and_add_up(engine: Engine, clock: ManualClock) -> None:
    inbox = await engine.accept_many(3)  # nobody subscribes yet
    await engine.acknowledge(inbox[0])
    shut = await engine.endpoint("shut")
    await engine.endpoint("open")
    await engine.accept_many(6)
    jobs = sorted(await engine.claim(), key=lambda job: job.endpoint_id == shut)
    assert [job.endpoint_id == shut for job in jobs] == [False] * 6 + [True] * 6
    await engine.succeed(jobs[0])
    await engine.fail(jobs[1], delay_s=0)
    await engine.fail(jobs[2], delay_s=900)
    for job in jobs[3:6]:
        await engine.kill(job)
    await engine.redrive(jobs[3].id)
    await engine.mark_letter(jobs[4].id, "resolved")
    await engine.pause(PauseScope.ENDPOINT, shut)
    clock.advance(7_200)
    await engine.claim()  # all are due: those of the paused endpoint become held
    numbers = await Installation(engine.db, clock).numbers()
    report = await check(engine.url, now=clock.now(), grace_s=86_400)
    assert report.clean, report.violations
    books = report.total
    value = {
        (sample.name, *sample.labels.values()): sample.value for each in families(numbers) for sample in each.samples
    }
    assert value["events_created_total",] == books.events
    assert value["events_queued",] == books.queued
    assert value["events_received",] == books.received
    assert value["events_delivered_total",] == books.delivered
    assert value["events_failed_total",] - value["redrive_events_redriven_total",] == books.failed
    failed = value["redrive_deliveries_total", "failed"]
    assert value["redrive_deliveries_total", "succeeded"] == books.succeeded
    assert failed - value["redrive_redriven_total",] == books.dead
    assert failed == sum(n for name, n in value.items() if name[0] == "redrive_dead_letters_moved_total")
    for state in ("waiting", "leased", "held", "succeeded", "dead"):
        assert value["redrive_tasks", state] == getattr(books, state)
    for state in ("open", "resolved", "ignored", "deleted"):
        assert value["redrive_dead_letters", state] == getattr(books, f"dead_{state}")
    assert value["redrive_dead_letters", "replaying"] == books.replaying
    assert value["redrive_endpoints", "paused"] == 1
    assert sum(n for name, n in value.items() if name[0] == "redrive_endpoints") == 2
    assert value["time_to_delivery_seconds_count",] == books.succeeded
    assert value["time_to_delivery_seconds_bucket", str(float(WAIT_BOUNDS_S[-1]))] == books.succeeded
    assert value["redrive_inbox_acknowledged_total",] == 1
    assert value["retry_attempts_count",] == books.succeeded + failed
    assert value["redrive_task_attempts_total",] == await engine.sql.fetchval(
        "SELECT count(*) FROM redrive.attempt WHERE result <> 'released'"
    )
    assert value["redrive_tasks", "held"] == 6


async def test_the_oldest_due_task_is_that_which_nobody_holds(engine: Engine, clock: ManualClock) -> None:
    async def oldest_s() -> float:
        return (await Installation(engine.db, clock).numbers()).oldest_due_s

    await engine.endpoint("a")
    assert await oldest_s() == 0
    await engine.accept_many(2)
    clock.advance(100)
    assert await oldest_s() == 100
    first, second = await engine.claim()
    assert await oldest_s() == 0
    await engine.fail(first, delay_s=60, failure=UNAVAILABLE)
    assert await oldest_s() == 0
    clock.advance(90)
    await engine.succeed(second)
    assert await oldest_s() == pytest.approx(30)


async def test_a_transaction_that_stays_open_is_seen_with_its_age(engine: Engine) -> None:
    async with engine.sql.acquire() as other, other.transaction():
        await other.execute("SELECT txid_current()")
        seen = await engine.db.fetchrow("installation_facts", None, 120.0)
        await engine.sql.execute("SELECT txid_current()")
        again = await engine.db.fetchrow("installation_facts", None, 120.0)
    assert seen is not None
    assert again is not None
    assert 0 < seen["age_s"] < again["age_s"]
    assert again["xmin_age"] > seen["xmin_age"]


async def test_what_holds_no_vacuum_up_here_is_not_taken_for_what_does(
    live: Engine, postgres: EmbeddedPostgres
) -> None:
    """Neither a transaction of another database nor a vacuum that takes its time."""
    elsewhere = await asyncpg.connect(database_of(postgres.url, "postgres"))
    here, vacuuming = [await asyncpg.connect(live.url) for _ in range(2)]
    try:
        await elsewhere.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT txid_current()")
        await here.execute("""
            SET ROLE redrive_engine;
            INSERT INTO redrive.worker
                   SELECT gen_random_uuid(), now(), now(), 'a', 1, '1', '{http}', 5 FROM generate_series(1, 10000);
            DELETE FROM redrive.worker;
            RESET ROLE""")
        await vacuuming.execute("SET vacuum_cost_delay = 100; SET vacuum_cost_limit = 1")
        vacuum = asyncio.create_task(vacuuming.execute("VACUUM redrive.worker"))
        await live.until("""
            SELECT EXISTS (SELECT FROM pg_stat_progress_vacuum JOIN pg_stat_activity a USING (pid)
                            WHERE a.backend_xmin IS NOT NULL)""")

        async def xmin_age() -> int:
            for _ in range(10):
                await live.sql.execute("SELECT txid_current()")
            facts = await live.db.fetchrow("installation_facts", None, 120.0)
            assert facts is not None
            return int(facts["xmin_age"])

        assert await xmin_age() < 10
        await here.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM redrive.worker")
        assert await xmin_age() >= 10
        await elsewhere.execute("SELECT pg_cancel_backend($1)", vacuuming.get_server_pid())
        with pytest.raises(asyncpg.QueryCanceledError):
            await vacuum
    finally:
        for connection in (elsewhere, here, vacuuming):
            await connection.close()


async def test_a_reading_that_takes_long_is_kept_for_twenty_times_as_long(engine: Engine) -> None:
    now, reads, takes_s = 100.0, 0, EXACT_BELOW_S / 2

    async def read(_: object) -> int:
        nonlocal now, reads
        reads += 1
        now += takes_s
        return reads

    paced = Paced(read, lambda: now)
    async with engine.db.transaction() as session:
        assert [await paced.of(session) for _ in range(3)] == [(1, 0.0), (2, 0.0), (3, 0.0)]
        takes_s = 2.0
        assert await paced.of(session) == (4, 0.0)
        now += (PACE - 1) * takes_s - 1
        kept, age_s = await paced.of(session)
        assert (kept, round(age_s, 3)) == (4, PACE * takes_s - 1)
        now += 1
        assert (await paced.of(session))[0] == 5
