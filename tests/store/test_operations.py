"""Operations step by step: what is collected, what is acted on, what counts as success, and that sums are exact."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
import pytest
from structlog.testing import capture_logs

from redrive.core.lifecycle import MARKS
from redrive.core.operations import MAX_SENT_ITEMS, MAX_STEP_ITEMS, Canary, Command
from redrive.core.ports import Released
from redrive.store import operation_steps, operations
from redrive.store.check import check
from redrive.store.db import Record
from redrive.store.dead_letters import DeadLetterFilter, list_dead_letters
from redrive.store.operation_steps import OperationSteps
from redrive.store.operations import CannotBeTold, OperationSpec
from redrive.store.orgs import new_id
from redrive.store.retry_queue import RetryQueueFilter, list_retry_queue
from support.engine import PERSON, Engine, ManualClock

STEP_ITEMS = 20  # in the tests that ask for small steps; it takes as many of them to get through fewer items


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_STEP_ITEMS == 500
    monkeypatch.setattr("redrive.core.operations.MAX_STEP_ITEMS", STEP_ITEMS)


class Desk:
    """Operations of one org, moved on by hand."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.steps = OperationSteps(engine.db, engine.clock, dice=lambda: 0.5)

    async def begin(self, subject: str, action: str, **spec: Any) -> UUID:
        async with self.engine.app.tenant(self.engine.org_id) as session:
            row = await operations.create(session, OperationSpec(subject, action, **spec), PERSON, self.engine.clock)
        operation_id: UUID = row["id"]
        return operation_id

    async def tell(self, operation_id: UUID, command: Command) -> Record | CannotBeTold | None:
        async with self.engine.app.tenant(self.engine.org_id) as session:
            return await operations.tell(session, operation_id, command, PERSON, self.engine.clock)

    async def look(self, operation_id: UUID) -> Record:
        row = await self.engine.sql.fetchrow("SELECT * FROM redrive.operation WHERE id = $1", operation_id)
        assert row is not None
        return row

    async def run(self, operation_id: UUID) -> Record:
        """Step until nothing more can be done at this moment."""
        while (await self.steps.step_of(self.engine.org_id, operation_id)).rest_s == 0:
            pass
        return await self.look(operation_id)

    async def sums(self, operation_id: UUID) -> tuple[str, int, int, int]:
        row = await self.run(operation_id)
        return row["state"], row["total"], row["succeeded"], row["failed"]

    async def items(self, operation_id: UUID) -> list[Record]:
        return await self.engine.sql.fetch(
            "SELECT * FROM redrive.operation_item WHERE operation_id = $1 ORDER BY n", operation_id
        )


async def _retrying(engine: Engine, count: int, delay_s: float = 300.0) -> list[UUID]:
    """Tasks that failed once and wait for their retry."""
    await engine.accept_many(count)
    ids = []
    while jobs := await engine.claim(1000):
        await engine.fail_all(jobs, delay_s=delay_s)
        ids += [job.id for job in jobs]
    return ids


async def _dead(engine: Engine, count: int, **fields: Any) -> list[UUID]:
    await engine.accept_many(count, **fields)
    ids = []
    while jobs := await engine.claim(1000):
        await engine.kill_all(jobs)
        ids += [job.id for job in jobs]
    return ids


async def _sound(engine: Engine, clock: ManualClock) -> None:
    report = await check(engine.url, now=clock.now(), grace_s=86_400)
    assert report.clean, report.violations


async def test_a_bulk_retry_counts_the_first_try_of_each(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    ids = await _retrying(engine, 5)
    desk = Desk(engine)
    operation = await desk.begin("retry_queue", "retry", ids=ids)
    assert await desk.sums(operation) == ("running", 5, 0, 0)
    jobs = await engine.claim()
    assert {job.id for job in jobs} == set(ids)
    for job in jobs[:3]:
        await engine.succeed(job)
    assert await desk.sums(operation) == ("running", 5, 3, 0)
    for job in jobs[3:]:
        await engine.fail(job)
    assert await desk.sums(operation) == ("completed", 5, 3, 2)
    assert (await desk.look(operation))["finished_at"] == clock.now()
    await _sound(engine, clock)


async def test_ids_that_are_unknown_or_of_another_org_fail_and_disturb_nobody(engine: Engine) -> None:
    await engine.endpoint()
    (mine,) = await _retrying(engine, 1)
    other = await engine.org("other")
    await engine.endpoint("theirs", org=other)
    await engine.accept(org_id=other)
    (theirs,) = await engine.claim()
    await engine.fail(theirs, delay_s=300)
    desk = Desk(engine)
    operation = await desk.begin("retry_queue", "skip", ids=[new_id(), theirs.id, mine])
    assert await desk.sums(operation) == ("completed", 3, 1, 2)
    unknown, foreign, done = await desk.items(operation)
    assert unknown["note"] == foreign["note"] is not None
    assert done["note"] is None
    assert (await engine.task(theirs.id))["state"] == "waiting"


async def test_a_task_that_has_not_failed_yet_is_not_hurried(engine: Engine) -> None:
    await engine.endpoint()
    task = await engine.task_of(await engine.accept())
    desk = Desk(engine)
    assert await desk.sums(await desk.begin("retry_queue", "retry", ids=[task["id"]])) == ("completed", 1, 0, 1)


async def test_a_task_under_way_counts_by_the_end_of_its_try(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    (task,) = await _retrying(engine, 1, delay_s=5)
    clock.advance(6)
    job = await engine.claim_one()
    desk = Desk(engine)
    operation = await desk.begin("retry_queue", "retry", ids=[task])
    assert await desk.sums(operation) == ("running", 1, 0, 0)
    await engine.succeed(job)
    assert await desk.sums(operation) == ("completed", 1, 1, 0)


async def test_a_lost_try_has_failed(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    (task,) = await _retrying(engine, 1)
    desk = Desk(engine)
    operation = await desk.begin("retry_queue", "retry", ids=[task])
    await desk.run(operation)
    await engine.claim_one()
    clock.advance(3600)
    job = await engine.claim_one()  # taken over: the try before is lost
    assert await desk.sums(operation) == ("completed", 1, 0, 1)
    await engine.succeed(job)
    await _sound(engine, clock)


async def test_a_lease_given_back_is_no_try(engine: Engine) -> None:
    await engine.endpoint()
    (task,) = await _retrying(engine, 1)
    desk = Desk(engine)
    operation = await desk.begin("retry_queue", "retry", ids=[task])
    await desk.run(operation)
    await engine.settle(await engine.claim_one(), None, Released("shutting down"))
    assert await desk.sums(operation) == ("running", 1, 0, 0)
    await engine.succeed(await engine.claim_one())
    assert await desk.sums(operation) == ("completed", 1, 1, 0)


async def test_held_tasks_fail_whether_held_before_or_after(engine: Engine) -> None:
    endpoint = await engine.endpoint()
    first, second = await _retrying(engine, 2)
    assert await engine.retry_now(first) is None
    await engine.change_endpoint(endpoint, disabled=True)
    assert await engine.claim() == []
    assert [(await engine.task(id))["state"] for id in (first, second)] == ["held", "waiting"]
    desk = Desk(engine)
    operation = await desk.begin("retry_queue", "retry", ids=[first, second])
    assert await desk.sums(operation) == ("completed", 2, 0, 2)
    assert all("disabled" in item["note"] for item in await desk.items(operation))


async def test_a_task_skipped_meanwhile_has_failed_without_a_try(engine: Engine) -> None:
    await engine.endpoint()
    (task,) = await _retrying(engine, 1)
    desk = Desk(engine)
    operation = await desk.begin("retry_queue", "retry", ids=[task])
    await desk.run(operation)
    assert await engine.skip(task) is None
    assert await desk.sums(operation) == ("completed", 1, 0, 1)


@pytest.mark.parametrize(("at_once", "delay_s"), [(False, 5), (True, 0)])
async def test_dead_letters_are_redriven_as_one_alone_would_be(
    engine: Engine, clock: ManualClock, at_once: bool, delay_s: float
) -> None:
    await engine.endpoint()
    alone, *many = await _dead(engine, 4)
    await engine.redrive(alone, at_once=at_once)
    desk = Desk(engine)
    operation = await desk.begin("dead_letters", "retry", ids=many, at_once=at_once)
    await desk.run(operation)
    ignored = ("id", "event_id", "org_id")
    expected = {name: value for name, value in (await engine.task(alone)).items() if name not in ignored}
    for task in many:
        assert {n: v for n, v in (await engine.task(task)).items() if n not in ignored} == expected
    assert expected["due_at"] == clock.now() + timedelta(seconds=delay_s)
    letter = await engine.letter(many[0])
    assert letter is not None
    assert (letter["state"], letter["replays"], letter["replayed_by"]) == ("replaying", 1, PERSON.actor)
    clock.advance(delay_s)
    for job in await engine.claim():
        await engine.succeed(job)
    assert await desk.sums(operation) == ("completed", 3, 3, 0)
    await _sound(engine, clock)


async def test_dead_letters_named_among_entries_of_the_queue_are_redriven(engine: Engine, clock: ManualClock) -> None:
    """As the single retry takes both, each with its own entry in the audit."""
    await engine.endpoint()
    dead, gone, replaying = await _dead(engine, 3)
    await engine.mark_letter(gone, "deleted")
    await engine.redrive(replaying)
    (waiting,) = await _retrying(engine, 1)
    desk = Desk(engine)
    operation = await desk.begin("retry_queue", "retry", ids=[dead, waiting, gone, replaying])
    await desk.run(operation)
    assert [item["state"] for item in await desk.items(operation)] == ["sent", "sent", "failed", "sent"]
    task = await engine.task(dead)
    assert (task["state"], task["generation"], task["due_at"]) == ("waiting", 1, clock.now() + timedelta(seconds=5))
    assert (await engine.task(waiting))["due_at"] == clock.now()
    rows = await engine.sql.fetch(
        "SELECT action, subject_id FROM redrive.audit WHERE subject_id = ANY ($1) AND after ->> 'operation_id' = $2",
        [dead, waiting, replaying],
        str(operation),
    )
    assert {tuple(row) for row in rows} == {
        ("dead_letter.retry", dead),
        ("task.retry", waiting),
        ("task.retry", replaying),
    }
    clock.advance(5)
    for job in await engine.claim():
        await engine.succeed(job)
    assert await desk.sums(operation) == ("completed", 4, 3, 1)
    await _sound(engine, clock)


@pytest.mark.parametrize("chosen", ["ids", "filter"])
async def test_what_dies_after_the_click_is_not_brought_back(engine: Engine, clock: ManualClock, chosen: str) -> None:
    """Somebody skipped it meanwhile, and knew why."""
    await engine.endpoint()
    (task,) = await _retrying(engine, 1)
    desk = Desk(engine)
    spec = {"ids": [task]} if chosen == "ids" else {"filter": {"event_type": "invoice.paid"}}
    operation = await desk.begin("retry_queue", "retry", **spec)
    if chosen == "filter":
        await desk.steps.step_of(engine.org_id, operation)  # it is collected
    clock.advance(1)
    assert await engine.skip(task) is None
    assert await desk.sums(operation) == ("completed", 1, 0, 1)
    assert (await engine.task(task))["state"] == "dead"


async def test_each_redriven_task_has_a_jitter_of_its_own(engine: Engine, clock: ManualClock) -> None:
    await engine.policy("shaky", kind="list", delays_s=[100], jitter=0.5, max_retries=3)
    await engine.endpoint(policy="shaky")
    ids = await _dead(engine, 3)
    rolls = iter([0.0, 0.5, 1.0])
    desk = Desk(engine)
    desk.steps = OperationSteps(engine.db, clock, dice=lambda: next(rolls))
    await desk.run(await desk.begin("dead_letters", "retry", ids=ids))
    waits = sorted([((await engine.task(id))["due_at"] - clock.now()).total_seconds() for id in ids])
    assert waits == [50, 100, 150]


@pytest.mark.parametrize(("action", "state"), [*MARKS.items()])
async def test_letters_are_marked_or_refused_as_one_alone_would_be(
    engine: Engine, clock: ManualClock, action: str, state: str
) -> None:
    await engine.endpoint()
    letters: dict[str, Sequence[UUID]] = {}
    for name in ("open", "replaying", "resolved", "ignored", "deleted"):
        letters[name] = await _dead(engine, 2)
    for name in ("resolved", "ignored", "deleted"):
        for id in letters[name]:
            assert await engine.mark_letter(id, name) is None
    for id in letters["replaying"]:
        assert await engine.redrive(id) is None
    alone = {name: await engine.mark_letter(ids[0], state) for name, ids in letters.items()}
    desk = Desk(engine)
    operation = await desk.begin("dead_letters", action, ids=[ids[1] for ids in letters.values()])
    await desk.run(operation)
    together = [item["state"] for item in await desk.items(operation)]
    assert together == ["succeeded" if refusal is None else "failed" for refusal in alone.values()]
    for one, other in letters.values():
        first, second = await engine.letter(one), await engine.letter(other)
        assert first is not None
        assert second is not None
        assert first["state"] == second["state"]
    await _sound(engine, clock)


async def test_a_bulk_skip_leaves_what_single_skips_leave(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    alone, *many = await _retrying(engine, 3)
    assert await engine.skip(alone) is None
    desk = Desk(engine)
    assert await desk.sums(await desk.begin("retry_queue", "skip", ids=many)) == ("completed", 2, 2, 0)
    first = await engine.letter(alone)
    assert first is not None
    for id in many:
        letter = await engine.letter(id)
        assert letter is not None
        for column in ("state", "reason", "category", "fingerprint", "error_message", "config", "failed_at"):
            assert letter[column] == first[column], column
    await _sound(engine, clock)


async def test_every_item_and_every_command_stands_in_the_audit(engine: Engine) -> None:
    await engine.endpoint()
    ids = await _dead(engine, 3)
    desk = Desk(engine)
    operation = await desk.begin("dead_letters", "ignore", ids=[*ids, new_id()])
    assert await desk.tell(operation, Command.PAUSE) is not None
    assert await desk.tell(operation, Command.RESUME) is not None
    await desk.run(operation)
    rows = await engine.sql.fetch(
        "SELECT action, subject_id, actor, because, before, after FROM redrive.audit WHERE action ~ 'operation|ignore'"
    )
    assert Counter(row["action"] for row in rows) == {
        "operation.create": 1,
        "operation.pause": 1,
        "operation.resume": 1,
        "dead_letter.ignore": 3,
    }
    ignored = [row for row in rows if row["action"] == "dead_letter.ignore"]
    assert {row["subject_id"] for row in ignored} == set(ids)
    assert {(row["actor"], row["because"], row["before"]) for row in ignored} == {
        (PERSON.actor, PERSON.because, '{"state": "open"}')
    }
    assert all(str(operation) in row["after"] for row in ignored)


@pytest.mark.parametrize("action", ["skip", "retry"])
async def test_the_log_tells_of_each_event_as_if_it_were_alone(engine: Engine, action: str) -> None:
    await engine.endpoint()
    subject = "retry_queue" if action == "skip" else "dead_letters"
    alone, *many = await (_retrying(engine, 3) if action == "skip" else _dead(engine, 3))
    with capture_logs() as said:
        assert await (engine.skip(alone) if action == "skip" else engine.redrive(alone)) is None
        desk = Desk(engine)
        await desk.run(await desk.begin(subject, action, ids=many))
    told = {line.pop("task"): line for line in said if line["event"] == "status_transition"}
    assert set(told) == {str(alone), *map(str, many)}
    for line in told.values():
        del line["event_id"], line["correlation_id"]
    assert list(told.values()) == [told[str(alone)]] * 3


async def test_a_filter_takes_what_is_there_at_the_click(
    engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation_steps, "COLLECT_ROWS", 3)
    await engine.endpoint()
    wanted = await _dead(engine, 7, event_type="order.placed")
    await _dead(engine, 5)
    desk = Desk(engine)
    operation = await desk.begin("dead_letters", "ignore", filter={"event_type": "order.placed"})
    assert (await desk.steps.step_of(engine.org_id, operation)).rest_s == 0
    clock.advance(1)
    await _dead(engine, 2, event_type="order.placed")  # too late
    assert await desk.sums(operation) == ("completed", 7, 7, 0)
    assert {item["task_id"] for item in await desk.items(operation)} == set(wanted)
    await _sound(engine, clock)


@pytest.mark.parametrize("pattern", ["order.*", "*", "*d*.*", "order.placed", "order.%"])
async def test_a_pattern_of_types_takes_what_the_list_shows(
    engine: Engine, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation_steps, "COLLECT_ROWS", 2)
    await engine.endpoint()
    for event_type in ("order.placed", "invoice.paid", "order.*", "orders", "orderXplaced"):
        await _dead(engine, 1, event_type=event_type)
    async with engine.app.tenant(engine.org_id) as session:
        listed = await list_dead_letters(session, DeadLetterFilter(event_type=pattern), limit=50, after=None)
    desk = Desk(engine)
    operation = await desk.begin("dead_letters", "ignore", filter={"event_type": pattern})
    await desk.run(operation)
    assert {item["task_id"] for item in await desk.items(operation)} == {row["id"] for row in listed.rows}


async def test_a_task_that_moves_in_the_queue_meanwhile_is_taken_once(
    engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation_steps, "COLLECT_ROWS", 2)
    await engine.endpoint()
    ids = await _retrying(engine, 6, delay_s=10)
    desk = Desk(engine)
    operation = await desk.begin("retry_queue", "retry", filter={"event_type": "invoice.paid"})
    await desk.steps.step_of(engine.org_id, operation)
    clock.advance(11)
    moved = await engine.claim(2)
    for job in moved:
        await engine.fail(job, delay_s=500)
    await _retrying(engine, 1)
    await desk.run(operation)
    assert Counter(item["task_id"] for item in await desk.items(operation)) == Counter(ids)


@pytest.mark.parametrize(
    ("chosen", "count"),
    [
        ({"event_type": "invoice.paid"}, 4),
        ({"status": "pending"}, 3),
        ({"status": "in_progress"}, 1),
        ({"external_system": "SAP"}, 0),
        ({"event_type": "invoice.*"}, 4),
        ({"event_type": "*.placed"}, 0),
        ({"category": "server_error"}, 4),
        ({"category": "timeout"}, 0),
        ({"q": "503"}, 4),
        ({"q": "INVOICE", "status": "in_progress"}, 1),
        ({"q": "404"}, 0),
    ],
)
async def test_the_retry_queue_is_filtered_as_its_list_is(engine: Engine, chosen: dict[str, Any], count: int) -> None:
    await engine.endpoint()
    ids = await _retrying(engine, 4)
    await engine.retry_now(ids[0])
    await engine.claim_one()
    async with engine.app.tenant(engine.org_id) as session:
        listed = await list_retry_queue(session, RetryQueueFilter(**chosen), limit=50, after=None)
    desk = Desk(engine)
    operation = await desk.begin("retry_queue", "skip", filter=chosen)
    row = await desk.run(operation)
    assert (row["state"], row["total"], listed.total) == ("completed", count, count)
    assert {item["task_id"] for item in await desk.items(operation)} == {entry["id"] for entry in listed.rows}


async def test_a_filter_of_a_newer_version_is_left_alone(engine: Engine) -> None:
    await engine.endpoint()
    await _dead(engine, 1)
    desk = Desk(engine)
    row = await desk.run(await desk.begin("dead_letters", "delete", filter={"colour": "blue"}))
    assert (row["state"], row["total"]) == ("preparing", 0)


async def test_no_more_than_a_limit_of_items_is_taken(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation_steps, "MAX_ITEMS", 3)
    await engine.endpoint()
    await _dead(engine, 5)
    desk = Desk(engine)
    row = await desk.run(await desk.begin("dead_letters", "ignore", filter={"state": "open"}))
    assert (row["state"], row["total"], row["note"]) == ("completed", 3, "Only the first 3 were taken.")


@pytest.mark.usefixtures("small_steps")
async def test_a_paused_operation_does_nothing_new_and_counts_what_is_under_way(
    engine: Engine, clock: ManualClock
) -> None:
    await engine.endpoint()
    ids = await _retrying(engine, STEP_ITEMS + 10)
    desk = Desk(engine)
    operation = await desk.begin("retry_queue", "retry", ids=ids)
    await desk.steps.step_of(engine.org_id, operation)
    await desk.tell(operation, Command.PAUSE)
    await engine.succeed_all(await engine.claim(1000))
    assert await desk.sums(operation) == ("paused", STEP_ITEMS + 10, STEP_ITEMS, 0)
    assert isinstance(await desk.tell(operation, Command.PAUSE), CannotBeTold)
    await desk.tell(operation, Command.RESUME)
    await desk.run(operation)
    await engine.succeed_all(await engine.claim(1000))
    assert await desk.sums(operation) == ("completed", STEP_ITEMS + 10, STEP_ITEMS + 10, 0)
    for command in Command:
        assert isinstance(await desk.tell(operation, command), CannotBeTold)
    await _sound(engine, clock)


@pytest.mark.usefixtures("small_steps")
async def test_a_cancelled_operation_ends_when_what_it_sent_has_ended(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    ids = await _retrying(engine, STEP_ITEMS + 10)
    desk = Desk(engine)
    operation = await desk.begin("retry_queue", "retry", ids=ids)
    await desk.steps.step_of(engine.org_id, operation)
    await desk.tell(operation, Command.CANCEL)
    row = await desk.run(operation)
    assert (row["state"], row["done"], row["finished_at"]) == ("cancelled", 0, None)
    await engine.succeed_all(await engine.claim(1000))
    row = await desk.run(operation)
    assert (row["state"], row["total"], row["done"], row["dispatched"]) == ("cancelled", 30, 20, 20)
    assert row["finished_at"] == clock.now()
    assert {item["state"] for item in (await desk.items(operation))[STEP_ITEMS:]} == {"waiting"}
    await _sound(engine, clock)


async def test_pausing_while_items_are_collected_goes_on_where_it_stopped(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation_steps, "COLLECT_ROWS", 2)
    await engine.endpoint()
    await _dead(engine, 5)
    desk = Desk(engine)
    operation = await desk.begin("dead_letters", "resolve", filter={"state": "open"})
    await desk.steps.step_of(engine.org_id, operation)
    await desk.tell(operation, Command.PAUSE)
    assert (await desk.steps.step()).operation_id is None
    resumed = await desk.tell(operation, Command.RESUME)
    assert isinstance(resumed, asyncpg.Record)
    assert resumed["state"] == "preparing"
    assert await desk.sums(operation) == ("completed", 5, 5, 0)


async def test_a_canary_stops_behind_a_stage_in_which_too_many_fail(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    ids = await _dead(engine, 100)
    desk = Desk(engine)
    canary = Canary((1, 10, 50), 0.2)
    operation = await desk.begin("dead_letters", "retry", ids=ids, at_once=True, canary=canary)
    sizes = []
    for failures in (0, 2, 0):
        await desk.run(operation)
        jobs = await engine.claim(1000)
        sizes.append(len(jobs))
        for place, job in enumerate(jobs):
            await (engine.fail(job) if place < failures else engine.succeed(job))
        row = await desk.run(operation)
        if row["state"] == "paused":
            assert row["note"].startswith(
                "Paused by itself after the first 10 %: 2 of 9 items failed, more than the 20 %"
            )
            await desk.tell(operation, Command.RESUME)
    assert sizes == [1, 9, 40]
    assert (await desk.look(operation))["dispatched"] == 100  # beyond the last stage nothing holds it
    await _sound(engine, clock)


async def test_a_rate_limits_what_is_sent(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    ids = await _dead(engine, 30)
    desk = Desk(engine)
    operation = await desk.begin("dead_letters", "ignore", ids=ids, rate_per_s=2.0)
    done = []
    for _ in range(5):
        done.append((await desk.run(operation))["done"])
        clock.advance(1)
    clock.advance(3600)  # what was not used is not made up for
    done.append((await desk.run(operation))["done"])
    assert done == [1, 3, 5, 7, 9, 11]


async def test_no_more_than_a_limit_is_under_way(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.core.operations.MAX_SENT_ITEMS", 4)
    assert MAX_SENT_ITEMS == 5_000
    await engine.endpoint()
    ids = await _retrying(engine, 10)
    desk = Desk(engine)
    operation = await desk.begin("retry_queue", "retry", ids=ids)
    assert (await desk.run(operation))["dispatched"] == 4
    for job in (await engine.claim())[:3]:
        await engine.succeed(job)
    assert (await desk.run(operation))["dispatched"] == 7


@pytest.mark.usefixtures("small_steps")
async def test_two_runners_at_once_count_nothing_twice(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    ids = await _retrying(engine, 150)
    desk = Desk(engine)
    begun = [
        await desk.begin("retry_queue", "skip", ids=ids[:120]),
        await desk.begin("retry_queue", "skip", ids=ids[30:]),
    ]

    async def run() -> None:
        while (await desk.steps.step()).operation_id is not None:
            pass

    for _ in range(3):  # one who finds all of them taken rests
        await asyncio.gather(*(run() for _ in range(4)))
    rows = [await desk.look(operation) for operation in begun]
    assert [(row["state"], row["done"]) for row in rows] == [("completed", 120), ("completed", 120)]
    assert sum(row["succeeded"] for row in rows) == 150
    assert await engine.sql.fetchval("SELECT count(*) FROM redrive.audit WHERE action = 'task.skip'") == 150
    await _sound(engine, clock)


@pytest.mark.usefixtures("small_steps")
async def test_operations_take_turns(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    ids = await _retrying(engine, 3 * STEP_ITEMS)
    desk = Desk(engine)
    long = await desk.begin("retry_queue", "skip", ids=ids)
    clock.advance(1)
    short = await desk.begin("retry_queue", "skip", ids=[new_id()])
    clock.advance(1)  # else both have waited equally long after the first step
    taken = []
    for _ in range(3):
        clock.advance(1)  # first: an operation that moved when another began would stand level with it
        taken.append((await desk.steps.step()).operation_id)
    assert taken == [long, short, long]


async def test_operations_that_cannot_move_do_not_slow_the_others_down(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    desk, ids = Desk(engine), await _retrying(engine, 3)
    stuck = [await desk.begin("retry_queue", "retry", ids=[task_id]) for task_id in ids]  # nobody works
    for operation_id in stuck:
        await desk.run(operation_id)
    clock.advance(1)
    other = await desk.begin("retry_queue", "skip", ids=[new_id()])
    rests_s = []
    while (await desk.look(other))["finished_at"] is None:
        rests_s.append((await desk.steps.step()).rest_s)
    assert rests_s == [0.0] * len(rests_s)
    assert (await desk.steps.step()).operation_id is None  # each has rested since


async def test_an_operation_that_has_not_moved_for_long_is_looked_at_seldom(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    desk = Desk(engine)
    operation = await desk.begin("retry_queue", "retry", ids=await _retrying(engine, 1))
    await desk.run(operation)
    for still_s, rest_s in ((1.0, 0.2), (100.0, 5.05), (3600.0, 10.0)):
        now = clock.advance(still_s)
        await desk.steps.step()
        assert (await desk.look(operation))["step_at"] == now + timedelta(seconds=rest_s)


async def test_an_operation_whose_steps_fail_does_not_stand_in_the_way_of_others(
    engine: Engine, clock: ManualClock
) -> None:
    await engine.endpoint()
    desk = Desk(engine)
    broken = await desk.begin("retry_queue", "skip", ids=await _retrying(engine, 1))
    await engine.sql.execute("UPDATE redrive.operation SET canary = '[]'")
    clock.advance(1)
    other = await desk.begin("retry_queue", "skip", ids=[new_id()])
    for _ in range(4):
        await desk.steps.step()
    assert [(await desk.look(each))["state"] for each in (broken, other)] == ["running", "completed"]
    await engine.sql.execute("UPDATE redrive.operation SET canary = NULL")
    clock.advance(operation_steps.UNREADABLE_REST_S)
    assert (await desk.steps.step()).operation_id == broken
    assert await desk.sums(broken) == ("completed", 1, 1, 0)


async def test_tasks_are_skipped_whose_policy_cannot_be_read(engine: Engine) -> None:
    await engine.endpoint()
    desk, ids = Desk(engine), await _retrying(engine, 2)
    await engine.sql.execute("""UPDATE redrive.policy SET spec = '{"kind": "of a newer version"}'""")
    assert await desk.sums(await desk.begin("retry_queue", "skip", ids=ids[:1])) == ("completed", 1, 1, 0)
    assert await engine.skip(ids[1]) is None


async def test_a_step_that_breaks_off_leaves_nothing_behind(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    ids = await _retrying(engine, 10)
    desk = Desk(engine)
    operation = await desk.begin("retry_queue", "skip", ids=ids)

    row = await desk.look(operation)

    async def killed() -> None:
        async with engine.db.transaction() as session:
            locked = await session.fetchrow("this_operation", clock.now(), engine.org_id, operation)
            assert locked is not None
            await desk.steps._step(session, locked)
            raise ConnectionError("at the last moment")

    with pytest.raises(ConnectionError):
        await killed()
    assert await desk.look(operation) == row
    assert await desk.sums(operation) == ("completed", 10, 10, 0)


async def test_the_database_refuses_to_count_back_or_to_leave_an_end(engine: Engine) -> None:
    await engine.endpoint()
    ids = await _retrying(engine, 2)
    desk = Desk(engine)
    operation = await desk.begin("retry_queue", "skip", ids=ids)
    await desk.run(operation)
    for statement in (
        "UPDATE redrive.operation SET state = 'running', finished_at = NULL WHERE id = $1",
        "UPDATE redrive.operation SET failed = failed - 1, succeeded = succeeded + 1 WHERE id = $1",
        "UPDATE redrive.operation SET succeeded = succeeded + 1 WHERE id = $1",
        "UPDATE redrive.operation_item SET state = 'failed' WHERE operation_id = $1",
    ):
        with pytest.raises(asyncpg.CheckViolationError):
            await engine.sql.execute(statement, operation)


async def test_a_patch_may_name_what_the_audit_cannot_hold(engine: Engine) -> None:
    await engine.endpoint()
    desk, ids = Desk(engine), await _dead(engine, 1, body=b'{"a\\u0000": 1}')
    operation = await desk.begin("dead_letters", "retry", ids=ids, patch={"a\x00": 2, "\\u0000": 3}, at_once=True)
    assert (await desk.run(operation))["dispatched"] == 1
    after = await engine.sql.fetchval("SELECT after FROM redrive.audit WHERE action = 'operation.create'")
    assert msgspec.json.decode(after)["patched"] == ["\\u0000", "a\ufffd"]
    assert msgspec.json.decode((await engine.claim_one()).body) == {"a\x00": 2, "\\u0000": 3}


async def test_the_tasks_of_items_are_told_in_one_query_and_only_those_of_the_org(engine: Engine) -> None:
    await engine.endpoint()
    await engine.accept()
    job = await engine.claim_one()
    await engine.kill(job)
    task_id = job.id
    async with engine.app.tenant(engine.org_id) as session:
        facts = await operations.item_facts(session, [task_id, new_id()])
    assert {id: (row["event_type"], row["state"]) for id, row in facts.items()} == {task_id: ("invoice.paid", "dead")}
    async with engine.app.tenant(new_id()) as session:
        assert await operations.item_facts(session, [task_id]) == {}
