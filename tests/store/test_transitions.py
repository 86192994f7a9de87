"""The database refuses what the lifecycle does not know, whoever writes: core's lists and the triggers are the same."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from itertools import combinations_with_replacement, product
from typing import Any
from uuid import UUID

import asyncpg
import pytest
import pytest_asyncio

from conftest import database_of
from redrive.core.lifecycle import (
    DEAD_LETTER_TRANSITIONS,
    TERMINAL_STATES,
    TRANSITIONS,
    DeadLetterState,
    TaskState,
    event_status,
)
from redrive.core.run_states import RUN_ACTS, RUN_TRANSITIONS, RunStatus
from redrive.store.embedded import EmbeddedPostgres
from redrive.store.orgs import new_id
from support.engine import SHARED, Connection, Engine
from support.flows import Flow, put_workflow

# The columns that a state needs beside itself, so that only the transition is judged.
_TASK = """UPDATE redrive.task SET state = $2, reason = CASE WHEN $2 = 'dead' THEN 'permanent' END,
  worker_id = CASE WHEN $2 = 'leased' THEN id END, fence = fence + 1, generation = generation + 1 WHERE id = $1"""
_LETTER = "UPDATE redrive.dead_letter SET state = $2 WHERE task_id = $1"
_RUN = """UPDATE redrive.run SET status = $2, replays = replays + 1,
  finished_at = CASE WHEN $2 IN ('SUCCESS', 'PARTIAL', 'FAILED') THEN now() END WHERE id = $1"""
_WAYS = {
    RunStatus.PENDING: (),
    RunStatus.SUCCESS: (RunStatus.RUNNING, RunStatus.SUCCESS),
    RunStatus.PARTIAL: (RunStatus.RUNNING, RunStatus.PARTIAL),
}


async def test_tasks_move_as_the_lifecycle_says_and_in_no_other_way(engine: Engine) -> None:
    made: dict[TaskState, UUID] = {}
    for state in (*set(TaskState) - {TaskState.WAITING}, TaskState.WAITING):  # a claim takes whatever waits
        made[state] = (await engine.task_of(await _in_state(engine, state)))["id"]
    await engine.sql.execute("UPDATE redrive.dead_letter SET state = 'ignored'")  # an open one needs a dead task
    allowed = await _tried(engine, _TASK, made)
    # A lease that ran out and is taken over; the other states may be written again without moving.
    stays = {(state, state) for state in TaskState}
    assert allowed - stays == {(a.value, b.value) for a, b in TRANSITIONS} - stays
    assert ("leased", "leased") in allowed


async def test_nothing_leaves_succeeded(engine: Engine) -> None:
    event_id = await _in_state(engine, TaskState.SUCCEEDED)
    task_id = (await engine.task_of(event_id))["id"]
    for state in set(TaskState) - {TaskState.SUCCEEDED}:
        with pytest.raises(asyncpg.CheckViolationError, match="illegal transition of task"):
            await engine.sql.execute(_TASK, task_id, state.value)


@pytest.mark.parametrize(
    ("role", "change"),
    [
        ("redrive_engine", "UPDATE redrive.event SET body = ''"),
        ("redrive_engine", "UPDATE redrive.event SET acked_at = now()"),
        ("redrive_engine", "DELETE FROM redrive.event"),
        ("redrive_app", "UPDATE redrive.event SET body = ''"),
        ("redrive_janitor", "UPDATE redrive.event SET acked_at = now()"),
    ],
)
async def test_an_event_is_never_written_again(engine: Engine, role: str, change: str) -> None:
    await engine.accept()
    connection = await asyncpg.connect(engine.url, server_settings={"role": role})
    try:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(change)
    finally:
        await connection.close()


@pytest.mark.parametrize(
    ("event_type", "change"),
    [
        ("for nobody", "acked_at = NULL, acked_by = NULL"),
        ("for nobody", "acked_at = now(), acked_by = NULL"),
        ("for nobody", "acked_at = now(), acked_by = 'me', body = ''"),
        ("for nobody", "acked_at = now(), acked_by = 'me', received_at = now()"),
        ("for nobody", "body = ''"),
        ("for us", "acked_at = now(), acked_by = 'me'"),
    ],
)
async def test_an_event_is_acknowledged_and_not_changed_otherwise(
    engine: Engine, owner: Connection, event_type: str, change: str
) -> None:
    """Whoever writes: here it is somebody whom no grant and no row-level security hinders."""
    await engine.endpoint(event_types=("for us",))
    await engine.accept(event_type)
    with pytest.raises(asyncpg.CheckViolationError, match="illegal change of event"):
        await owner.execute(f"UPDATE redrive.event SET {change}")


async def test_an_acknowledgement_is_not_taken_back(engine: Engine, owner: Connection) -> None:
    event_id = await engine.accept()
    await owner.execute("UPDATE redrive.event SET acked_at = now(), acked_by = 'me' WHERE id = $1", event_id)
    assert (await engine.event(event_id))["status"] == event_status((), acked=True) == "delivered"
    for change in ("acked_at = NULL, acked_by = NULL", "acked_by = 'you'", "acked_at = acked_at"):
        with pytest.raises(asyncpg.CheckViolationError, match="illegal change of event"):
            await owner.execute(f"UPDATE redrive.event SET {change}")


@pytest.mark.parametrize("state", TaskState)
async def test_a_task_that_is_open_cannot_be_removed_by_anyone(
    engine: Engine, owner: Connection, state: TaskState
) -> None:
    event_id = await _in_state(engine, state)
    await owner.execute("DELETE FROM redrive.dead_letter")
    removed = None
    with contextlib.suppress(asyncpg.CheckViolationError):
        removed = await owner.execute("DELETE FROM redrive.task WHERE event_id = $1", event_id)
    assert (removed == "DELETE 1") == (state in TERMINAL_STATES)


@pytest_asyncio.fixture(loop_scope="session")
async def owner(engine: Engine, postgres: EmbeddedPostgres) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(database_of(postgres.superuser_url, SHARED))
    yield connection
    await connection.close()


async def test_an_event_stands_where_its_tasks_do(engine: Engine) -> None:
    """The view and core.lifecycle say the same, of any two tasks."""
    for name in "ab":
        await engine.endpoint(name)
    for states in combinations_with_replacement(TaskState, 2):
        event_id = await engine.accept()
        tasks = await engine.sql.fetch("SELECT id FROM redrive.task WHERE event_id = $1", event_id)
        for task, state in zip(tasks, states, strict=True):
            for step in (TaskState.LEASED, state) if state is TaskState.SUCCEEDED else (state,):
                await engine.sql.execute(_TASK, task["id"], step.value)
        assert (await engine.event(event_id))["status"] == event_status(states)


async def test_dead_letters_move_as_the_lifecycle_says_and_in_no_other_way(engine: Engine) -> None:
    made: dict[DeadLetterState, UUID] = {}
    for state in DeadLetterState:
        made[state] = (await engine.task_of(await _in_state(engine, TaskState.DEAD)))["id"]
        await engine.sql.execute(_LETTER, made[state], state.value)
    allowed = await _tried(engine, _LETTER, made)
    assert {(a, b) for a, b in allowed if a != b} == {(a.value, b.value) for a, b in DEAD_LETTER_TRANSITIONS}


async def test_runs_move_as_their_states_say_and_in_no_other_way(engine: Engine) -> None:
    version = await put_workflow(engine)
    made: dict[RunStatus, UUID] = {}
    for status in RunStatus:
        made[status] = (await Flow.begun(engine, version=version)).run_id
        for step in _WAYS.get(status, (status,)):
            await engine.sql.execute(_RUN, made[status], step.value)
    allowed = await _tried(engine, _RUN, made)
    assert {(a, b) for a, b in allowed if a != b} == {(a.value, b.value) for a, b in RUN_TRANSITIONS}
    # Only a replay, which is counted, sets one going again.
    uncounted = await _tried(engine, _RUN.replace("replays + 1", "replays"), made)
    assert {(a, b) for a, b in allowed - uncounted} == {(a.value, b.value) for a, b in RUN_ACTS if b == "RUNNING"}


async def test_a_fence_never_goes_back_and_a_new_lease_raises_it(engine: Engine) -> None:
    await engine.endpoint()
    await engine.accept()
    job = await engine.claim_one()
    for statement in (
        "UPDATE redrive.task SET fence = fence - 1 WHERE id = $1",
        "UPDATE redrive.task SET due_at = due_at + interval '1 hour' WHERE id = $1",  # a lease prolonged by nobody
    ):
        with pytest.raises(asyncpg.CheckViolationError, match="illegal transition of task"):
            await engine.sql.execute(statement, job.id)
    await engine.fail(job)
    with pytest.raises(asyncpg.CheckViolationError):
        await engine.sql.execute("UPDATE redrive.task SET state = 'leased', worker_id = id WHERE id = $1", job.id)
    assert (await engine.task(job.id))["fence"] == 1


async def test_a_dead_task_lives_again_only_as_a_new_generation(engine: Engine) -> None:
    task_id = (await engine.task_of(await _in_state(engine, TaskState.DEAD)))["id"]
    with pytest.raises(asyncpg.CheckViolationError):
        await engine.sql.execute("UPDATE redrive.task SET state = 'waiting', reason = NULL WHERE id = $1", task_id)


@pytest.mark.parametrize(
    "change",
    [
        "reason = 'skipped'",  # only the dead have a reason
        "worker_id = id",  # only a lease has a worker
        "attempts = -1",
        "state = 'asleep'",
    ],
)
async def test_a_row_that_contradicts_itself_is_refused(engine: Engine, change: str) -> None:
    await engine.endpoint()
    await engine.accept()
    with pytest.raises(asyncpg.CheckViolationError):
        await engine.sql.execute(f"UPDATE redrive.task SET {change}")


async def _tried(engine: Engine, update: str, made: Mapping[Any, UUID]) -> set[tuple[str, str]]:
    """Every pair of states that the database lets pass."""
    async with engine.sql.acquire() as connection:
        return {
            (str(before), str(after))
            for (before, row_id), after in product(made.items(), made)
            if await _passes(connection, update, row_id, str(after))
        }


async def _passes(connection: Any, update: str, row_id: UUID, state: str) -> bool:
    """Whether the update is allowed. It is tried and undone."""
    trial = connection.transaction()
    await trial.start()
    try:
        return bool(await connection.execute(update, row_id, state) == "UPDATE 1")
    except asyncpg.CheckViolationError:
        return False
    finally:
        await trial.rollback()


async def _in_state(engine: Engine, state: TaskState) -> UUID:
    """An event whose one task came into this state in the ordinary way."""
    endpoint_id = await engine.endpoint(f"hook-{new_id()}")
    event_id = await engine.accept(endpoint_id=endpoint_id)
    if state is TaskState.HELD:
        await engine.change_endpoint(endpoint_id, disabled=True)
        assert await engine.claim() == []
    elif state is not TaskState.WAITING:
        job = await engine.claim_one()
        if state is TaskState.SUCCEEDED:
            await engine.succeed(job)
        elif state is TaskState.DEAD:
            await engine.kill(job)
    assert (await engine.task_of(event_id))["state"] == state.value
    return event_id
