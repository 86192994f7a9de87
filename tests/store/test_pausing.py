"""The kill switch in the store: what is paused holds its tasks and spends nothing; resuming lets them go on.

Each meeting has two connections. One has done its part and not committed; the other comes then.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from redrive.core.permissions import Role
from redrive.store import pausing
from redrive.store.db import query
from redrive.store.pausing import PauseScope
from redrive.store.retry_queue import Refusal
from support.engine import PERSON, START, Engine, ManualClock, claim_arguments, open_engine, until

CLAIM_WITHIN_S = 5.0  # a claim that waited would wait until the test commits: for ever

every_scope = pytest.mark.parametrize("scope", PauseScope, ids=str)


@every_scope
async def test_what_is_paused_holds_its_tasks_as_they_fall_due_and_lets_them_go_on_where_they_stood(
    engine: Engine, clock: ManualClock, scope: PauseScope
) -> None:
    endpoint_id = await engine.endpoint()
    event_id = await engine.accept()
    await engine.fail(await engine.claim_one(), 5)
    assert await engine.pause(scope, endpoint_id)
    assert (await engine.task_of(event_id))["state"] == "waiting"  # not due yet: nothing to hold
    due = clock.advance(5)
    clock.advance(3600)
    assert await engine.claim() == []
    held = await engine.task_of(event_id)
    assert (held["state"], held["attempts"], held["fence"], held["due_at"]) == ("held", 1, 1, due)
    assert await engine.resume(scope, endpoint_id)
    waiting = await engine.task_of(event_id)
    assert (waiting["state"], waiting["attempts"], waiting["fence"], waiting["due_at"]) == ("waiting", 1, 1, due)
    assert (await engine.claim_one()).attempts == 1


@pytest.mark.parametrize("scope", [PauseScope.ORG, PauseScope.INSTALLATION], ids=str)
async def test_a_call_of_a_handler_is_held_and_released_like_a_webhook(engine: Engine, scope: PauseScope) -> None:
    event_id = await engine.accept(handler="send")
    await engine.pause(scope)
    assert await engine.claim(queues=["handler:send"]) == []
    assert (await engine.task_of(event_id))["state"] == "held"
    await engine.resume(scope)
    assert [job.event_id for job in await engine.claim(queues=["handler:send"])] == [event_id]


async def test_a_paused_org_or_endpoint_holds_up_nobody_else(engine: Engine) -> None:
    other = await engine.org("other")
    await engine.endpoint("theirs", org=other)
    paused = await engine.endpoint("paused", event_types=("a",))
    await engine.endpoint("running", event_types=("b",))
    _, running = await engine.accept("a"), await engine.accept("b")
    theirs = await engine.accept(org_id=other)
    await engine.pause(PauseScope.ENDPOINT, paused)
    assert {job.event_id for job in await engine.claim()} == {running, theirs}
    await engine.pause(PauseScope.ORG)
    await engine.accept("b")
    theirs = await engine.accept(org_id=other)
    assert [job.event_id for job in await engine.claim()] == [theirs]
    await engine.pause(PauseScope.INSTALLATION)
    await engine.accept(org_id=other)
    assert await engine.claim() == []


async def test_what_something_else_still_holds_is_not_released(engine: Engine) -> None:
    endpoint_id = await engine.endpoint()
    event_id = await engine.accept()
    await engine.change_endpoint(endpoint_id, disabled=True)
    for scope in PauseScope:
        await engine.pause(scope, endpoint_id)
    assert await engine.claim() == []
    for scope in PauseScope:
        await engine.resume(scope, endpoint_id)
        assert (await engine.task_of(event_id))["state"] == "held"
    await engine.change_endpoint(endpoint_id, disabled=False)
    assert (await engine.task_of(event_id))["state"] == "waiting"


async def test_the_tasks_of_a_deleted_endpoint_are_held_by_its_org_but_not_by_itself(engine: Engine) -> None:
    endpoint_id = await engine.endpoint()
    event_id = await engine.accept()
    await engine.pause(PauseScope.ENDPOINT, endpoint_id)
    await engine.pause(PauseScope.ORG)
    assert await engine.claim() == []
    await engine.delete_endpoint(endpoint_id)
    assert (await engine.task_of(event_id))["state"] == "held"
    await engine.resume(PauseScope.ORG)
    await engine.run_until_idle()
    assert (await engine.task_of(event_id))["state"] == "dead"


@every_scope
async def test_pausing_and_resuming_are_audited_once_and_the_first_reason_stays(
    engine: Engine, scope: PauseScope
) -> None:
    endpoint_id = await engine.endpoint()
    assert [await engine.pause(scope, endpoint_id) for _ in range(2)] == [True, False]
    async with engine.app.tenant(engine.org_id) as session:
        whole, org = await pausing.pauses(session, engine.clock)
        endpoint = await pausing.endpoint_pause(session, endpoint_id, engine.clock)
        assert endpoint is not None
        (state,) = [pause for pause in (whole, org, endpoint) if pause.paused]
    assert (state.scope, state.paused_at, state.paused_by) == (scope, START, PERSON.actor)
    assert state.because == PERSON.because
    assert [await engine.resume(scope, endpoint_id) for _ in range(2)] == [True, False]
    acts = await engine.sql.fetch(
        "SELECT action, subject_kind FROM redrive.audit"
        " WHERE action LIKE '%.pause' OR action LIKE '%.resume' ORDER BY at"
    )
    assert [tuple(act) for act in acts] == [(f"{scope}.pause", scope), (f"{scope}.resume", scope)]


@pytest.mark.parametrize("role", [role for role in Role if role is not Role.OWNER], ids=str)
async def test_the_database_lets_only_owners_pause_the_installation(engine: Engine, role: Role) -> None:
    async with engine.app.tenant(engine.org_id, role) as session:
        assert not await pausing.pause(session, PauseScope.INSTALLATION, PERSON, engine.clock)
        assert not (await pausing.pauses(session, engine.clock))[0].paused


@every_scope
async def test_whoever_resumes_waits_for_a_claim_that_is_holding_and_releases_what_it_held(
    engine: Engine, scope: PauseScope
) -> None:
    endpoint_id = await engine.endpoint()
    event_id = await engine.accept()
    await engine.pause(scope, endpoint_id)
    async with engine.sql.acquire() as other:
        claiming = other.transaction()
        await claiming.start()
        claim = await other.fetch(query("claim"), *claim_arguments(engine, engine.first_tries(endpoint_id)))
        assert [row["state"] for row in claim] == ["held"]
        resuming = asyncio.create_task(engine.resume(scope, endpoint_id))
        await until(lambda: _blocks(other))
        assert not resuming.done()
        await claiming.commit()
        assert await resuming
    assert (await engine.task_of(event_id))["state"] == "waiting"


@every_scope
async def test_a_claim_passes_over_what_is_being_resumed_and_takes_it_afterwards(
    engine: Engine, scope: PauseScope
) -> None:
    endpoint_id = await engine.endpoint()
    event_id = await engine.accept()
    await engine.pause(scope, endpoint_id)
    async with _resuming(engine, scope, endpoint_id):
        async with asyncio.timeout(CLAIM_WITHIN_S):
            assert await engine.claim() == []
        task = await engine.task_of(event_id)
        assert (task["state"], task["fence"]) == ("waiting", 0)
    assert [job.event_id for job in await engine.claim()] == [event_id]


@every_scope
async def test_whoever_waits_to_resume_has_their_turn_however_many_claims_come(
    engine: Engine, scope: PauseScope
) -> None:
    """Claims that share the lock, one after the other, would keep them waiting while there is something to hold."""
    endpoint_id = await engine.endpoint()
    await engine.accept_many(2)
    await engine.pause(scope, endpoint_id)
    async with engine.sql.acquire() as first, engine.sql.acquire() as second:
        claims = [first.transaction(), second.transaction()]
        for claim in claims:
            await claim.start()
        one_task = claim_arguments(engine, engine.first_tries(endpoint_id), most=1)
        assert [row["state"] for row in await first.fetch(query("claim"), *one_task)] == ["held"]
        resuming = asyncio.create_task(engine.resume(scope, endpoint_id))
        await until(lambda: _blocks(first))
        assert [row["state"] for row in await second.fetch(query("claim"), *one_task)] == ["passed"]
        await claims[0].commit()
        async with asyncio.timeout(CLAIM_WITHIN_S):
            assert await resuming  # the second claim is still open
        await claims[1].commit()
    assert await _states(engine) == {"waiting": 2}


async def test_a_claim_holds_what_another_cause_holds_while_one_is_being_lifted(engine: Engine) -> None:
    endpoint_id = await engine.endpoint(disabled=True)
    event_id = await engine.accept()
    await engine.pause(PauseScope.ORG)
    async with _resuming(engine, PauseScope.ORG, endpoint_id):
        async with asyncio.timeout(CLAIM_WITHIN_S):
            assert await engine.claim() == []
        assert (await engine.task_of(event_id))["state"] == "held"
    await engine.release()
    assert (await engine.task_of(event_id))["state"] == "held"


async def test_a_large_backlog_is_released_in_batches_that_each_commit(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await engine.endpoint()
    await engine.accept_many(25)
    await engine.pause(PauseScope.ORG)
    assert await engine.claim() == []
    async with engine.app.tenant(engine.org_id) as session:
        await pausing.resume(session, PauseScope.ORG, PERSON, engine.clock)
    monkeypatch.setattr(pausing, "HOLD_BATCH", 10)
    assert await pausing.release(engine.db, engine.org_id, engine.clock, within_s=0) == 10
    assert await _states(engine) == {"held": 15, "waiting": 10}
    assert await engine.tasks.release_held(1_000) == 15  # a worker goes on where the caller stopped
    assert await _states(engine) == {"waiting": 25}


async def test_a_worker_releases_for_every_org_and_leaves_what_is_held_for_a_reason(engine: Engine) -> None:
    held = 0
    for n in range(4):
        org = await engine.org(f"org {n}")
        for name, disabled in (("shut", True), ("stray", False)):
            endpoint_id = await engine.endpoint(name, event_types=(name,), org=org)
            await engine.accept(name, org_id=org)
            if disabled:
                await engine.sql.execute("UPDATE redrive.endpoint SET disabled_at = now() WHERE id = $1", endpoint_id)
                held += 1
        await engine.accept("call", handler="absent", org_id=org)
    await engine.sql.execute("UPDATE redrive.task SET state = 'held'")
    paused = await engine.org("org 3")
    await engine.sql.execute("UPDATE redrive.org SET paused_at = now() WHERE org_id = $1", paused)
    assert await engine.tasks.release_held(4) == 4
    assert await engine.tasks.release_held(1_000) == 2  # a stray and a call in each of three orgs
    assert await engine.tasks.release_held(1_000) == 0
    assert await _states(engine) == {"held": held + 2, "waiting": 6}
    await engine.pause(PauseScope.INSTALLATION)
    await engine.sql.execute("UPDATE redrive.task SET state = 'held' WHERE state = 'waiting'")
    assert await engine.tasks.release_held(1_000) == 0


async def test_looking_for_strays_reads_the_index_of_held_tasks_and_no_other(database_url: str) -> None:
    """However many tasks are open: they are not stepped over, neither one by one nor with those of an endpoint.

    In a database of its own: in a shared one this small, what other tests left in the index is more than the table.
    """
    async with open_engine(database_url) as engine:
        await engine.endpoint()
        await engine.accept_many(3_000)
        async with engine.db.transaction() as session:
            connection = session._connection
            text = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query('release_held')}"
            (explained,) = json.loads(await connection.fetchval(text, None, 1_000, START))
    looks = [node for node in _nodes(explained["Plan"]) if node.get("Relation Name") == "task"]
    assert {node["Index Name"] for node in looks if "Index Name" in node} <= {"task_held", "task_pkey"}
    assert sum(node.get("Rows Removed by Filter", 0) for node in looks) == 0


async def test_a_held_task_says_what_holds_it(engine: Engine) -> None:
    endpoint_id = await engine.endpoint("billing")
    await engine.accept()
    job = await engine.claim_one()
    await engine.fail(job, 0)
    await engine.pause(PauseScope.ENDPOINT, endpoint_id)
    assert await engine.claim() == []
    assert await engine.retry_now(job.id) is Refusal.HELD
    assert await _causes(engine, job.id) == ['its endpoint "billing" is paused']
    await engine.change_endpoint(endpoint_id, disabled=True)
    await engine.pause(PauseScope.ORG)
    await engine.pause(PauseScope.INSTALLATION)
    assert await _causes(engine, job.id) == [
        "the installation is paused",
        "the org is paused",
        'its endpoint "billing" is paused',
        'its endpoint "billing" is disabled',
    ]


async def test_a_redrive_is_taken_while_its_org_is_paused_and_held_when_due(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    await engine.accept()
    job = await engine.claim_one()
    await engine.kill(job)
    await engine.pause(PauseScope.ORG)
    assert await engine.redrive(job.id) is None
    assert (await engine.task(job.id))["state"] == "waiting"
    clock.advance(5)
    assert await engine.claim() == []
    assert (await engine.task(job.id))["state"] == "held"
    await engine.resume(PauseScope.ORG)
    assert (await engine.claim_one()).generation == 1


async def test_held_tasks_are_counted(engine: Engine) -> None:
    other = await engine.org("other")
    first, second = await engine.endpoint("a", event_types=("a",)), await engine.endpoint("b", event_types=("b",))
    await engine.endpoint(org=other)
    await engine.accept_many(3, event_type="a")
    await engine.accept_many(2, event_type="b")
    await engine.accept_many(4, org_id=other)
    await engine.pause(PauseScope.INSTALLATION)
    await engine.pause(PauseScope.ENDPOINT, second)
    assert await engine.claim() == []
    async with engine.app.tenant(engine.org_id) as session:
        whole, org = await pausing.pauses(session, engine.clock)
        assert (whole.held, org.held) == (None, 5)
        assert [(pause.id, pause.held) for pause in await pausing.paused_endpoints(session, engine.clock)] == [
            (second, 2)
        ]
        alone = await pausing.endpoint_pause(session, first, engine.clock)
        assert alone is not None
        assert (alone.paused, alone.held) == (False, 3)
    assert await pausing.held_everywhere(engine.db, engine.clock) == 9


@asynccontextmanager
async def _resuming(engine: Engine, scope: PauseScope, endpoint_id: UUID) -> AsyncIterator[None]:
    """Somebody resumes, and commits at the end."""
    async with engine.app.tenant(engine.org_id) as session:
        assert await pausing.resume(session, scope, PERSON, engine.clock, endpoint_id)
        yield


@pytest.mark.parametrize(("function", "index"), [("kept_back", "task_stream"), ("held_by_endpoint", "task_held")])
async def test_what_an_endpoint_holds_is_counted_by_an_index(engine: Engine, function: str, index: str) -> None:
    endpoint_id = await engine.endpoint()
    await engine.accept_many(2_000)
    await engine.sql.execute("ANALYZE redrive.task")
    body: str = await engine.sql.fetchval("SELECT prosrc FROM pg_proc WHERE proname = $1", function)
    now = engine.clock.now()
    given = {"p_org": engine.org_id, "p_endpoint": endpoint_id, "p_now": now, "p_most": 100}
    for name, value in given.items():
        body = re.sub(rf"\b{name}\b", f"'{value}'", body)
    plan = "\n".join(row[0] for row in await engine.sql.fetch(f"EXPLAIN {body}"))
    assert index in plan
    assert "Seq Scan on task" not in plan


async def _blocks(holder: Any) -> bool:
    """Whether somebody waits for a lock that this connection holds."""
    waiting: int = await holder.fetchval(
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"
    )
    return waiting > 0


async def _causes(engine: Engine, task_id: UUID) -> list[str]:
    async with engine.app.tenant(engine.org_id) as session:
        return list((await pausing.hold_of(session, task_id, engine.clock)).shut)


async def _states(engine: Engine) -> dict[str, int]:
    return await engine.counts("SELECT state, count(*) FROM redrive.task GROUP BY state")


def _nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for child in plan.get("Plans", []) for node in _nodes(child))]
