"""Runs in corners where two things meet: a cancelled run and what waits behind, a result that comes twice."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from redrive.core.decide import Succeed
from redrive.core.outcome import Success
from redrive.core.ports import NO_EXCHANGE, Released, Settled, Settlement
from redrive.store import dead_letters, operations
from redrive.store.check import check
from redrive.store.db import Record, Session, query
from redrive.store.operation_steps import OperationSteps
from redrive.store.operations import OperationSpec
from redrive.store.replays import Replay, replay_letter
from redrive.store.retry_queue import Refusal
from redrive.store.steps import Steps
from redrive.store.tasks import Tasks
from support.engine import PERSON, Engine, until
from support.flows import QUEUE, Flow, put_workflow


async def assert_in_order(engine: Engine) -> None:
    report = await check(engine.url, now=engine.clock.now(), grace_s=1e9)
    assert [(one.rule.name, one.offences) for one in report.violations] == []


async def test_steps_behind_the_one_that_is_replayed_are_pending_though_they_had_died(engine: Engine) -> None:
    flow = await Flow.begun(engine, steps=3)
    await flow.succeed()
    await flow.die()
    assert await flow.statuses() == ("DLQ_PENDING", ["SUCCESS", "DLQ", "PENDING"])
    await flow.replay(0)
    assert await flow.statuses() == ("RUNNING", ["PENDING", "PENDING", "PENDING"])
    await flow.die()
    assert await flow.statuses() == ("DLQ_PENDING", ["DLQ", "DLQ", "PENDING"])
    await assert_in_order(engine)


async def test_a_success_that_is_told_after_the_lease_was_given_back_moves_nothing(engine: Engine) -> None:
    flow = await Flow.begun(engine)
    job = await flow.claim()
    await engine.settle(job, None, Released("the worker was told to stop"))
    await flow.succeed(job)
    assert await flow.statuses() == ("RUNNING", ["PENDING", "PENDING"])
    await assert_in_order(engine)


async def test_a_success_that_is_told_twice_moves_the_run_on_once(engine: Engine) -> None:
    flow = await Flow.begun(engine, steps=3)
    job = await flow.claim()
    for _ in range(2):
        await flow.succeed(job)
    assert await flow.statuses() == ("RUNNING", ["SUCCESS", "PENDING", "PENDING"])
    await flow.succeed()
    await flow.succeed(job)
    assert await flow.statuses() == ("RUNNING", ["SUCCESS", "SUCCESS", "PENDING"])
    await assert_in_order(engine)


async def test_a_run_cancelled_before_it_came_to_a_letter_that_is_replayed_closes_that_letter(engine: Engine) -> None:
    flow = await Flow.begun(engine)
    await flow.succeed()
    dead = await flow.die()
    await flow.replay(0)
    job = await flow.claim()
    await flow.cancel()
    await flow.succeed(job)
    assert await flow.statuses() == ("FAILED", ["SUCCESS", "FAILED"])
    letter = await engine.letter(dead.id)
    assert letter is not None
    assert (letter["state"], letter["replay_outcome"], letter["closed_by"]) == ("ignored", "failed", "key:tester")
    await assert_in_order(engine)


async def test_a_run_whose_letter_was_opened_again_can_be_cancelled_again(engine: Engine) -> None:
    flow = await Flow.begun(engine)
    dead = await flow.die()
    await flow.cancel()
    assert await flow.statuses() == ("FAILED", ["FAILED", "PENDING"])
    await engine.mark_letter(dead.id, "open")
    assert await flow.statuses() == ("DLQ_PENDING", ["DLQ", "PENDING"])
    assert await flow.cancel() is None
    assert await flow.statuses() == ("FAILED", ["FAILED", "PENDING"])
    await assert_in_order(engine)


async def test_a_run_that_comes_to_a_step_whose_letter_was_deleted_makes_another_task_and_no_edit(
    engine: Engine,
) -> None:
    """The step before it runs again meanwhile, and its other output makes another input of it."""
    flow = await Flow.begun(engine, tells_before=True)
    await flow.succeed(output=b'"one"')
    dead = await flow.die()
    await engine.mark_letter(dead.id, "deleted")
    await flow.replay(0, "STEP_ONLY")
    first = await flow.claim()
    await engine.kill(first)
    await engine.redrive(first.id, at_once=True)
    await flow.succeed(output=b'"two"')
    job = await flow.claim()
    assert (job.step, job.body, job.id == dead.id) == (1, b'{"before":"two"}', False)
    assert await engine.sql.fetchval("SELECT count(*) FROM redrive.edit") == 0
    await flow.succeed(job)
    assert await flow.statuses() == ("SUCCESS", ["SUCCESS", "SUCCESS"])
    await assert_in_order(engine)


async def test_a_step_that_is_enqueued_twice_has_one_task(engine: Engine) -> None:
    flow = await Flow.begun(engine)
    given = (
        engine.org_id,
        flow.run_id,
        0,
        "s0",
        QUEUE,
        "flow.s0",
        None,
        None,
        None,
        None,
        b"{}",
        None,
        None,
        None,
        0.0,
    )
    made = await engine.sql.fetchval(query("enqueue_steps"), *([value] for value in given), engine.clock.now())
    assert made == 0
    await flow.succeed()
    assert await flow.statuses() == ("RUNNING", ["SUCCESS", "PENDING"])
    await assert_in_order(engine)


async def until_it_waits(engine: Engine, other: "asyncio.Task[Any]") -> None:
    """For a lock, unless it needs none."""

    async def waits() -> bool:
        return other.done() or bool(await engine.sql.fetchval("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"))

    await until(waits)


async def two_open_letters(flow: Flow) -> tuple[UUID, UUID]:
    """Of the first and the second step: that of the first died when it was run again, alone."""
    await flow.succeed()
    second = await flow.die()
    await flow.replay(0, "STEP_ONLY")
    first = await flow.die()
    assert await flow.statuses() == ("DLQ_PENDING", ["DLQ", "DLQ"])
    return first.id, second.id


async def test_two_people_who_close_the_last_two_letters_at_once_leave_a_run_that_has_failed(engine: Engine) -> None:
    flow = await Flow.begun(engine)
    first, second = await two_open_letters(flow)
    async with engine.app.tenant(engine.org_id) as session:
        await dead_letters.mark(session, first, "resolve", PERSON)
        other = asyncio.create_task(engine.mark_letter(second, "resolved"))
        await until_it_waits(engine, other)
    assert await other is None
    assert await flow.statuses() == ("FAILED", ["FAILED", "FAILED"])
    await assert_in_order(engine)


async def test_of_two_letters_of_a_run_that_are_redriven_at_once_one_is(engine: Engine) -> None:
    flow = await Flow.begun(engine)
    first, second = await two_open_letters(flow)
    async with engine.app.tenant(engine.org_id) as session:
        assert await dead_letters.redrive(session, first, PERSON, engine.clock, roll=0.5) is None
        other = asyncio.create_task(engine.redrive(second))
        await until_it_waits(engine, other)
    assert await other is Refusal.RUN_UNDER_WAY
    assert await flow.statuses() == ("RUNNING", ["PENDING", "DLQ"])
    await assert_in_order(engine)


async def test_of_a_run_whose_letter_is_redriven_at_this_moment_a_bulk_retry_redrives_no_other(engine: Engine) -> None:
    flow = await Flow.begun(engine)
    first, second = await two_open_letters(flow)
    steps = OperationSteps(engine.db, engine.clock)
    async with engine.app.tenant(engine.org_id) as session:
        spec = OperationSpec("dead_letters", "retry", ids=(second,))
        operation_id: UUID = (await operations.create(session, spec, PERSON, engine.clock))["id"]
    async with engine.app.tenant(engine.org_id) as session:
        assert await dead_letters.redrive(session, first, PERSON, engine.clock, roll=0.5) is None
        other = asyncio.create_task(steps.step_of(engine.org_id, operation_id))
        await until_it_waits(engine, other)
    await other
    assert await flow.statuses() == ("RUNNING", ["PENDING", "DLQ"])
    sums = await engine.sql.fetchrow("SELECT succeeded, failed FROM redrive.operation WHERE id = $1", operation_id)
    assert sums is not None
    assert tuple(sums) == (0, 1)
    await assert_in_order(engine)


async def test_a_letter_that_is_replayed_while_its_run_comes_to_it_is_refused_not_broken_up(engine: Engine) -> None:
    """The step before it was run again by a newer task: whoever locks the run's tasks takes the letter's first."""
    flow = await Flow.begun(engine)
    await flow.succeed()
    dead = await flow.die()
    await flow.replay(0)
    job = await flow.claim()
    asked = Replay("FROM_STEP", at_once=True)
    outcomes: list[object] = []

    async def replay() -> None:
        async with engine.app.tenant(engine.org_id) as session:
            outcomes.append(await replay_letter(session, dead.id, None, asked, PERSON, engine.clock, roll=0.5))

    async with engine.db.transaction() as session:
        tasks = Tasks(session, engine.clock)
        await tasks._settle([Settlement(job, Success(200), Succeed(), NO_EXCHANGE, 0.1, b"{}")], None)
        other = asyncio.create_task(replay())
        await until_it_waits(engine, other)
        settled = [Settled(Settlement(job, Success(200), Succeed(), NO_EXCHANGE, 0.1, b"{}"), True, None)]
        await Steps(engine.clock).go_on(session, settled)
    await other
    assert outcomes == [Refusal.REPLAYING]


async def test_a_step_that_had_one_try_in_an_early_stage_has_all_of_its_own_when_its_run_comes_to_it(
    engine: Engine,
) -> None:
    flow = await Flow.begun(engine)
    await flow.succeed()
    dead = await flow.die()
    async with engine.app.tenant(engine.org_id) as session:
        letter = await dead_letters.lock_redrivable(session, dead.id)
        assert not isinstance(letter, Refusal)
        one_try = dead_letters.Goes(once=True)
        await dead_letters.begin_generation(session, letter, PERSON, engine.clock, delay=None, edit=None, goes=one_try)
    trial = await flow.die()
    await flow.replay(0)
    await flow.succeed()
    resumed = await flow.claim()
    assert (trial.id, trial.trial) == (dead.id, True)
    assert (resumed.id, resumed.trial) == (dead.id, False)


@pytest.mark.parametrize("by_its_letter", [True, False])
async def test_a_run_that_was_cancelled_before_it_began_has_begun_once_it_is_replayed(
    engine: Engine, by_its_letter: bool
) -> None:
    flow = await Flow.begun(engine, steps=1)
    await flow.cancel()
    if by_its_letter:
        (task_id,) = [row["id"] for row in await engine.sql.fetch("SELECT id FROM redrive.task")]
        assert await engine.redrive(task_id, at_once=True) is None
    else:
        assert await flow.replay(0) is None
    await flow.succeed()
    run = await engine.sql.fetchrow("SELECT * FROM redrive.run")
    assert run is not None
    assert (run["status"], run["started_at"] is None) == ("SUCCESS", False)
    assert run["started_at"] <= run["finished_at"]


async def test_a_run_does_not_end_in_part_while_a_letter_of_it_waits_for_a_person(engine: Engine) -> None:
    flow = await Flow.begun(engine)
    await flow.succeed()
    dead = await flow.die()
    await flow.replay(0, "STEP_ONLY")
    await flow.succeed()
    assert await flow.statuses() == ("DLQ_PENDING", ["SUCCESS", "DLQ"])
    await assert_in_order(engine)
    await engine.mark_letter(dead.id, "ignored")
    await flow.replay(0, "STEP_ONLY")
    await flow.succeed()
    assert await flow.statuses() == ("PARTIAL", ["SUCCESS", "FAILED"])
    await engine.mark_letter(dead.id, "open")
    assert await flow.statuses() == ("DLQ_PENDING", ["SUCCESS", "DLQ"])
    await assert_in_order(engine)
    await engine.sql.execute("UPDATE redrive.run SET retention_s = 1")
    later = engine.clock.now()
    assert later is not None
    now = later + timedelta(days=1)
    for name, given in (("sweep_runs", (engine.org_id, now, 10)), ("count_old_runs", (engine.org_id, now))):
        rows = await engine.db.fetch(name, *given)
        assert [row for row in rows if row.get("n") != 0] == []
    await engine.mark_letter(dead.id, "ignored")
    assert len(await engine.db.fetch("sweep_runs", engine.org_id, now, 10)) == 1


@pytest.mark.parametrize(("verbs", "ends"), [(("ignore",), "PARTIAL"), (("ignore", "reopen"), "DLQ_PENDING")])
async def test_a_run_that_ends_while_somebody_is_at_a_letter_of_it_goes_by_what_they_did(
    engine: Engine, verbs: tuple[str, ...], ends: str
) -> None:
    flow = await Flow.begun(engine)
    await flow.succeed()
    dead = await flow.die()
    for verb in verbs[:-1]:
        async with engine.app.tenant(engine.org_id) as session:
            assert await dead_letters.mark(session, dead.id, verb, PERSON) is None
    await flow.replay(0, "STEP_ONLY")
    job = await flow.claim()
    async with engine.app.tenant(engine.org_id) as session:
        assert await dead_letters.mark(session, dead.id, verbs[-1], PERSON) is None
        ending = asyncio.create_task(flow.succeed(job))
        await engine.until("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)")
    await ending
    assert (await flow.statuses())[0] == ends
    await assert_in_order(engine)


async def test_of_many_steps_that_end_at_once_no_more_is_read_than_the_memory_holds(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.store.steps.MAX_CONTENT_BYTES", 50)
    sizes: list[int] = []
    come_to = Steps._come_to

    async def seen(self: Steps, session: Session, onward: Sequence[tuple[Record, int]]) -> None:
        sizes.append(len(onward))
        await come_to(self, session, onward)

    monkeypatch.setattr(Steps, "_come_to", seen)
    version = await put_workflow(engine, steps=2)
    flows = [await Flow.begun(engine, version=version) for _ in range(5)]
    jobs = await engine.claim(queues=(QUEUE,))
    ended = [Settlement(job, Success(200), Succeed(), NO_EXCHANGE, 0.1, b'"' + b"x" * 18 + b'"') for job in jobs]
    assert len(await engine.tasks.settle(ended)) == 5
    assert sizes == [2, 2, 1]
    assert [await flow.statuses() for flow in flows] == [("RUNNING", ["SUCCESS", "PENDING"])] * 5
