"""`store.check`: it finds nothing on a sound database, and each planted violation breaks exactly its own rule."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from uuid import UUID

import asyncpg
import pytest

from redrive.core.decide import AwaitPerson
from redrive.store.check import MAX_OFFENCES, RULES, check
from redrive.store.clock import DatabaseClock
from redrive.store.db import Database
from redrive.store.embedded import EmbeddedPostgres
from redrive.store.orgs import new_id
from redrive.store.rollups import Roller

from .world import BROKEN, World, make_org

Connection = asyncpg.Connection


@asynccontextmanager
async def vandal(postgres: EmbeddedPostgres, world: World) -> AsyncIterator["Connection[asyncpg.Record]"]:
    """A superuser for whom no trigger and no foreign key counts."""
    database = world.url.partition("?")[0].rpartition("/")[2]
    connection = await asyncpg.connect(postgres.superuser_url.replace("/redrive?", f"/{database}?"))
    try:
        await connection.execute("SET session_replication_role = replica")
        yield connection
    finally:
        await connection.close()


async def every_state(world: World) -> None:
    """Tasks, events and dead letters in every state that there is."""
    await world.to_inbox()
    await world.succeeded()
    await world.retrying()
    skipped = await world.retrying()
    await world.skip(skipped.id)
    await world.dead()
    for verb in ("resolve", "ignore", "delete"):
        await world.mark(await world.dead(), verb)
    reopened = await world.dead()
    await world.mark(reopened, "resolve")
    await world.mark(reopened, "reopen")
    await world.failed_test()
    await world.redrive(await world.dead())
    await world.redrive(await world.dead(), at_once=True)
    await world.succeed(await world.claim_one())
    await world.replay(await world.dead(), b'{"edited": true}')
    await world.accept(policy="manual")
    await world.settle(await world.claim_one(), BROKEN, AwaitPerson())
    await world.run(steps=2)
    await world.dead_message()
    await world.redrive(await world.dead_message())
    await world.bulk_skip(new_id())
    await world.leased()
    await world.set_disabled(True)
    await world.accept()
    assert await world.claim() == []  # held


async def test_a_sound_database_breaks_no_rule(world: World) -> None:
    await every_state(world)
    report = await check(world.url)
    assert report.violations == []
    assert report.clean
    assert len(report.books) == 1


async def test_the_books_show_where_everything_is(world: World) -> None:
    await every_state(world)
    books = (await check(world.url)).total
    assert books.balanced
    assert (books.events, books.received, books.queued, books.delivered, books.failed) == (19, 1, 8, 2, 8)
    assert (books.tasks, books.waiting, books.leased, books.held, books.succeeded) == (18, 6, 1, 1, 2)
    assert (books.dead_open, books.dead_resolved, books.dead_ignored, books.dead_deleted) == (4, 1, 2, 1)
    assert books.replaying == 3


async def test_the_books_are_kept_per_org(world: World) -> None:
    await make_org(world.engine, "another")
    await world.accept()
    report = await check(world.url)
    assert [(books.org, books.events) for books in report.books] == [("another", 0), ("default", 1)]


Plant = Callable[[World, "Connection[asyncpg.Record]"], Awaitable[UUID]]
PLANTS: dict[str, list[Plant]] = {}


def plants(rule: str) -> Callable[[Plant], Plant]:
    def note(plant: Plant) -> Plant:
        PLANTS.setdefault(rule, []).append(plant)
        return plant

    return note


@plants("event_tasks")
async def a_queued_event_lost_its_task(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    event_id = await world.accept()
    await db.execute("DELETE FROM task WHERE event_id = $1", event_id)
    await db.execute("UPDATE counter SET n = n - 1 WHERE name = 'task.waiting'")
    return event_id


@plants("event_tasks")
async def an_event_lost_one_of_two_tasks(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    event_id = await world.accept()
    await db.execute("UPDATE event SET tasks = 2 WHERE id = $1", event_id)
    return event_id


@plants("event_tasks")
async def an_event_in_the_inbox_has_a_task(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    event_id = await world.accept()
    await db.execute("UPDATE event SET tasks = 0 WHERE id = $1", event_id)
    await db.execute("UPDATE counter SET name = 'event.inbox' WHERE name = 'event.routed'")
    return event_id


@plants("task_event")
async def a_task_lost_its_event(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    event_id = await world.accept()
    await db.execute("DELETE FROM event WHERE id = $1", event_id)
    await db.execute("UPDATE counter SET n = 0 WHERE name IN ('event.routed', 'event.bytes')")
    task_id: UUID = await db.fetchval("SELECT id FROM task WHERE event_id = $1", event_id)
    return task_id


@plants("task_terms")
async def a_task_names_no_policy(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    job = await world.leased()
    await db.execute("UPDATE task SET policy_id = gen_random_uuid() WHERE id = $1", job.id)
    return job.id


@plants("task_terms")
async def a_task_names_no_endpoint(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    job = await world.leased()
    await db.execute("UPDATE task SET endpoint_id = gen_random_uuid() WHERE id = $1", job.id)
    return job.id


@plants("lease")
async def a_lease_has_no_beginning(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    job = await world.leased()
    await db.execute("UPDATE task SET leased_at = NULL WHERE id = $1", job.id)
    return job.id


@plants("lease")
async def a_lease_has_no_end(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    job = await world.leased()
    await db.execute("UPDATE task SET lease_ends_at = 'infinity' WHERE id = $1", job.id)
    return job.id


async def a_held_task(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    await world.accept()
    await world.set_disabled(True)
    assert await world.claim() == []
    task_id: UUID = await db.fetchval("SELECT id FROM task WHERE state = 'held'")
    for table in ("task", "endpoint"):  # beyond the grace
        await db.execute(f"UPDATE {table} SET updated_at = updated_at - interval '1 hour'")
    return task_id


@plants("held")
async def a_task_is_held_for_an_enabled_endpoint(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    task_id = await a_held_task(world, db)
    await db.execute("UPDATE endpoint SET disabled_at = NULL")
    return task_id


@plants("held")
async def a_task_is_held_for_a_deleted_endpoint(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    task_id = await a_held_task(world, db)
    await db.execute("UPDATE endpoint SET deleted_at = now()")
    return task_id


@plants("held")
async def a_held_task_has_no_endpoint(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    task_id = await a_held_task(world, db)
    await db.execute("UPDATE task SET endpoint_id = NULL WHERE id = $1", task_id)
    return task_id


@pytest.mark.parametrize("table", ["installation", "org", "endpoint"])
async def test_a_task_that_a_pause_holds_breaks_no_rule_nor_does_one_that_is_being_released(
    world: World, postgres: EmbeddedPostgres, table: str
) -> None:
    async with vandal(postgres, world) as db:
        task_id = await a_held_task(world, db)
        await db.execute(f"UPDATE {table} SET paused_at = now()")
        await db.execute("UPDATE endpoint SET disabled_at = NULL")
        assert (await check(world.url)).clean
        lifted = "updated_at" if table == "endpoint" else "resumed_at"
        await db.execute(f"UPDATE {table} SET paused_at = NULL, {lifted} = now()")
        assert (await check(world.url)).clean
        [violation] = (await check(world.url, grace_s=0)).violations
        assert [offence.id for offence in violation.offences] == [task_id]


@plants("open_try")
async def an_attempt_is_written_under_an_open_lease(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    job = await world.leased()
    await db.execute(
        "INSERT INTO attempt (org_id, task_id, fence, generation, number, result, started_at, ended_at)"
        " VALUES ($1, $2, 1, 0, 1, 'released', now(), now())",
        world.org_id,
        job.id,
    )
    return job.id


@plants("fences")
async def an_attempt_is_missing(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    job = await world.succeeded()
    await db.execute("DELETE FROM attempt WHERE task_id = $1 AND result = 'released'", job.id)
    return job.id


@plants("attempt_task")
async def an_attempt_belongs_to_nobody(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    job = await world.succeeded()
    lost = new_id()
    await db.execute(
        "INSERT INTO attempt SELECT (jsonb_populate_record(a, jsonb_build_object('task_id', $2::uuid))).*"
        " FROM attempt a WHERE task_id = $1 AND fence = 1",
        job.id,
        lost,
    )
    return lost


@plants("attempts")
async def a_task_counts_a_try_too_many(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    job = await world.retrying()
    await db.execute("UPDATE task SET attempts = attempts + 1 WHERE id = $1", job.id)
    return job.id


@plants("success")
async def a_success_that_nobody_saw(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    job = await world.succeeded()
    await db.execute("UPDATE attempt SET result = 'failed' WHERE task_id = $1 AND result = 'succeeded'", job.id)
    return job.id


@plants("success")
async def a_success_that_was_not_kept(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    job = await world.retrying()
    await db.execute("UPDATE attempt SET result = 'succeeded' WHERE task_id = $1 AND fence = 1", job.id)
    return job.id


@plants("dead_letter")
async def a_death_that_nobody_can_see(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    task_id = await world.dead()
    await db.execute("DELETE FROM dead_letter WHERE task_id = $1", task_id)
    await db.execute("UPDATE counter SET n = 0 WHERE name = 'dead.open'")
    await db.execute("DELETE FROM letter_count")
    return task_id


@plants("dead_letter")
async def a_dead_letter_of_another_death(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    task_id = await world.dead()
    await db.execute("UPDATE dead_letter SET generation = 7 WHERE task_id = $1", task_id)
    return task_id


@plants("letter_state")
async def a_letter_is_open_while_its_task_is_retried(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    task_id = await world.dead()
    await world.redrive(task_id)
    await db.execute("UPDATE dead_letter SET state = 'open' WHERE task_id = $1", task_id)
    await db.execute("DELETE FROM counter WHERE name LIKE 'dead.%'")
    await db.execute("INSERT INTO counter VALUES ($1, 'dead.open', 0, 1)", world.org_id)
    await db.execute("DELETE FROM letter_count")
    await db.execute(
        "INSERT INTO letter_count (org_id, state, fingerprint, shard, n)"
        " SELECT org_id, state, fingerprint, 0, 1 FROM dead_letter"
    )
    return task_id


@plants("letter_state")
async def a_redriven_task_lost_its_letter(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    task_id = await world.dead()
    await world.redrive(task_id)
    await db.execute("DELETE FROM dead_letter WHERE task_id = $1", task_id)
    await db.execute("DELETE FROM counter WHERE name LIKE 'dead.%'")
    await db.execute("DELETE FROM letter_count")
    return task_id


@plants("audited")
async def a_letter_was_deleted_behind_the_audits_back(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    task_id = await world.dead()
    await world.mark(task_id, "delete")
    await db.execute("DELETE FROM audit WHERE subject_id = $1", task_id)
    return task_id


@plants("audited")
async def a_letter_is_ignored_as_a_test_that_was_none(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    task_id = await world.failed_test()
    await db.execute("UPDATE task SET is_test = NULL WHERE id = $1", task_id)
    return task_id


@plants("audited")
async def a_task_was_skipped_by_nobody(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    job = await world.retrying()
    await world.skip(job.id)
    await db.execute("DELETE FROM audit WHERE subject_id = $1", job.id)
    return job.id


@plants("due")
async def a_task_is_due_beyond_its_policy(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    job = await world.retrying()
    await db.execute("UPDATE task SET due_at = now() + interval '2 hours' WHERE id = $1", job.id)
    return job.id


@plants("due")
async def a_task_is_never_due_though_nobody_was_asked(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    job = await world.retrying()
    await db.execute("UPDATE task SET due_at = 'infinity' WHERE id = $1", job.id)
    return job.id


@plants("overdue")
async def a_task_was_due_long_ago(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    job = await world.retrying()
    await db.execute("UPDATE task SET due_at = now() - interval '2 minutes' WHERE id = $1", job.id)
    return job.id


@plants("overdue")
async def a_lease_ended_long_ago(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    job = await world.leased()
    await db.execute("UPDATE task SET lease_ends_at = now() - interval '2 minutes' WHERE id = $1", job.id)
    return job.id


@plants("lanes")
async def a_lane_lost_its_head(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    job = await world.retrying()
    await db.execute(
        "UPDATE task SET lane = id, place = 1, behind = true, updated_at = now() - interval '2 minutes' WHERE id = $1",
        job.id,
    )
    return job.id


@plants("lanes")
async def a_halt_outlived_its_letter(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    dead = await world.dead()
    await world.mark(dead, "resolve")
    job = await world.retrying()
    await db.execute(
        "UPDATE task SET lane = id, place = 1, behind = true, updated_at = now() - interval '2 minutes' WHERE id = $1",
        job.id,
    )
    await db.execute(
        "INSERT INTO lane (org_id, lane, halted_at, halted_by) SELECT org_id, id, now(), $2 FROM task WHERE id = $1",
        job.id,
        dead,
    )
    return job.id


@plants("edits")
async def the_edit_to_be_sent_is_gone(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    task_id = await world.dead()
    await world.replay(task_id, b'{"edited": true}')
    await db.execute("DELETE FROM edit")
    return task_id


@plants("edits")
async def an_edit_is_ahead_of_its_task(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    task_id = await world.dead()
    await world.replay(task_id, b'{"edited": true}')
    await db.execute("UPDATE edit SET generation = 2")
    return task_id


@plants("operations")
async def an_operation_counts_a_success_too_many(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    operation_id = await world.bulk_skip((await world.retrying()).id, new_id())
    await db.execute("UPDATE operation SET succeeded = succeeded + 1, failed = failed - 1")
    return operation_id


@plants("operations")
async def an_operation_lost_an_item(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    operation_id = await world.bulk_skip((await world.retrying()).id, new_id())
    await db.execute("DELETE FROM operation_item WHERE n = 2")
    return operation_id


@plants("operations")
async def an_item_was_forgotten(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    operation_id = await world.bulk_skip(new_id(), new_id())
    await db.execute("UPDATE operation_item SET state = 'waiting' WHERE n = 2")
    return operation_id


@plants("operations")
async def items_are_left_of_an_operation(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    operation_id = await world.bulk_skip(new_id())
    await db.execute("DELETE FROM operation")
    return operation_id


@plants("counters")
async def a_counter_is_wrong(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    await world.accept()
    await db.execute("UPDATE counter SET n = n + 1 WHERE name = 'task.waiting'")
    return world.org_id


@plants("counters")
async def a_counter_is_gone(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    await world.retrying()
    await db.execute("DELETE FROM counter WHERE name = 'retrying'")
    return world.org_id


@plants("counters")
async def the_bytes_of_an_org_are_wrong(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    await world.accept()
    await db.execute("UPDATE counter SET n = n + 1 WHERE name = 'event.bytes'")
    return world.org_id


@plants("counters")
async def an_acknowledged_event_is_not_counted(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    event_id = await world.to_inbox()
    await db.execute("UPDATE event SET acked_at = now(), acked_by = 'me' WHERE id = $1", event_id)
    await db.execute("UPDATE counter SET n = n - 1 WHERE name = 'event.inbox'")
    return world.org_id


@plants("rollups")
async def a_day_is_not_what_its_hours_are(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    await world.accept()
    engine = await Database.open(world.url, role="redrive_engine", size=1)
    assert await Roller(engine, DatabaseClock()).roll() > 0
    await engine.close()
    await db.execute("UPDATE rollup SET created = created + 1 WHERE span = 'day' AND dimension = 'event_type'")
    return world.org_id


@plants("runs")
async def a_run_goes_on_that_has_no_step_to_go_on_with(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    run_id = await world.run()
    await db.execute("UPDATE task SET run_id = NULL WHERE run_id = $1", run_id)
    return run_id


@plants("runs")
async def a_run_has_ended_though_a_step_waits(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    run_id = await world.run()
    await db.execute("UPDATE run SET status = 'FAILED', finished_at = now() WHERE id = $1", run_id)
    await db.execute("UPDATE counter SET name = 'run.FAILED' WHERE name = 'run.PENDING'")
    return run_id


@plants("broker")
async def a_dead_message_forgot_where_it_came_from(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    await world.dead_message(retries=0)
    task_id: UUID = await db.fetchval("DELETE FROM broker_message RETURNING task_id")
    return task_id


@plants("broker")
async def a_dead_message_has_the_task_of_something_else(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    task_id = await world.dead_message()
    await db.execute("UPDATE task SET queue = 'http' WHERE id = $1", task_id)
    return task_id


@plants("attempts")
async def a_dead_message_says_more_retries_than_its_task(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    task_id = await world.dead_message()
    await db.execute("UPDATE broker_message SET retries = 4")
    return task_id


@plants("letter_counts")
async def a_group_is_counted_too_big(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    await world.dead()
    await db.execute("UPDATE letter_count SET n = n + 1 WHERE state = 'open'")
    return world.org_id


@plants("letter_counts")
async def a_group_is_not_counted(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    await world.mark(await world.dead(), "resolve")
    await db.execute("DELETE FROM letter_count WHERE state = 'resolved'")
    return world.org_id


@plants("letter_counts")
async def a_group_is_counted_of_which_nothing_is_left(world: World, db: "Connection[asyncpg.Record]") -> UUID:
    await world.dead()
    await db.execute(
        "INSERT INTO letter_count (org_id, state, fingerprint, shard, n) VALUES ($1, 'open', 'x', 7, 1)", world.org_id
    )
    return world.org_id


@pytest.mark.parametrize(
    ("rule", "plant"),
    [pytest.param(rule, plant, id=f"{rule}-{plant.__name__}") for rule, planted in PLANTS.items() for plant in planted],
)
async def test_a_violation_breaks_its_own_rule_and_no_other(
    world: World, postgres: EmbeddedPostgres, rule: str, plant: Plant
) -> None:
    async with vandal(postgres, world) as db:
        offender = await plant(world, db)
    report = await check(world.url)
    assert [violation.rule.name for violation in report.violations] == [rule]
    [violation] = report.violations
    assert [offence.id for offence in violation.offences] == [offender]
    assert violation.offences[0].detail
    assert not report.clean


def test_every_rule_has_a_violation_in_these_tests() -> None:
    assert set(PLANTS) == {rule.name for rule in RULES}


async def test_ten_offenders_are_named_and_more_are_told_of(world: World, postgres: EmbeddedPostgres) -> None:
    for _ in range(MAX_OFFENCES + 2):
        await world.accept()
    async with vandal(postgres, world) as db:
        await db.execute("UPDATE event SET tasks = 2")
    [violation] = (await check(world.url)).violations
    assert len(violation.offences) == MAX_OFFENCES
    assert violation.more


async def test_held_tasks_are_not_overdue(world: World) -> None:
    await world.set_disabled(True)
    await world.accept()
    assert await world.claim() == []
    assert (await check(world.url, now=datetime.now(UTC) + timedelta(days=1))).clean


RELAY = "kind = 'relay', hook_hash = 'h', hook_lookup = 'l', hook_sealed = 's'"


@pytest.mark.parametrize("change", ["max_in_flight = 1", "rate_per_s = 1", RELAY])
async def test_what_must_wait_for_its_turn_or_its_hub_is_not_overdue(world: World, change: str) -> None:
    await world.accept()
    owner = await asyncpg.connect(world.url, server_settings={"role": "redrive_engine"})
    await owner.execute(f"UPDATE redrive.endpoint SET {change}")
    await owner.close()
    assert (await check(world.url, now=datetime.now(UTC) + timedelta(days=1))).clean


@pytest.mark.parametrize("change", [f"{RELAY}, deleted_at = now()", RELAY])
async def test_neither_what_a_deleted_relay_left_nor_a_lease_that_ended_waits_for_a_hub(
    world: World, change: str
) -> None:
    await (world.accept() if "deleted" in change else world.leased())
    owner = await asyncpg.connect(world.url, server_settings={"role": "redrive_engine"})
    await owner.execute(f"UPDATE redrive.endpoint SET {change}")
    await owner.close()
    report = await check(world.url, now=datetime.now(UTC) + timedelta(days=1))
    assert [violation.rule.name for violation in report.violations] == ["overdue"]


async def test_the_grace_says_how_late_is_overdue(world: World) -> None:
    await world.accept()
    later = datetime.now(UTC) + timedelta(seconds=90)
    assert [v.rule.name for v in (await check(world.url, now=later)).violations] == ["overdue"]
    assert (await check(world.url, now=later, grace_s=120)).clean
