"""Changes of an endpoint that meet: other changes, the engine that disables it, and claims of its tasks.

Each meeting has two connections. One has done its part and not committed; the other comes then.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from redrive.core.ports import Claim, Floor, Stream
from redrive.store import endpoints
from redrive.store.db import Record, query
from redrive.store.endpoints import Endpoints
from support.engine import NOWHERE, PERSON, Engine, ManualClock, claim_due, until

CLAIM_WITHIN_S = 5.0  # a claim that waited for the change would wait until the test commits: for ever


async def test_a_change_that_meets_the_engine_s_disabling_does_not_undo_it(engine: Engine) -> None:
    endpoint_id = await engine.endpoint()
    async with engine.sql.acquire() as other:
        disabling = other.transaction()
        await disabling.start()
        await other.fetch(
            query("disable_endpoint"), None, engine.org_id, endpoint_id, "It answered 410 Gone.", NOWHERE, None
        )
        changing = await _waiting_for(other, engine.change_endpoint(endpoint_id, timeout_s=3.0))
        await disabling.commit()
        await changing
    row = await _row(engine, endpoint_id)
    assert (row["timeout_s"], row["disabled_reason"]) == (3.0, "It answered 410 Gone.")
    assert row["disabled_at"] is not None


async def test_two_changes_at_once_are_both_kept(engine: Engine) -> None:
    endpoint_id = await engine.endpoint(headers=(("x-key", "1"),))
    async with engine.app.tenant(engine.org_id) as session:
        await Endpoints(engine.sealer).update(session, endpoint_id, {"url": "http://127.0.0.1:9/new"}, PERSON)
        changing = await _waiting_for(session._connection, engine.change_endpoint(endpoint_id, timeout_s=3.0))
    await changing
    row = await _row(engine, endpoint_id)
    assert (row["url"], row["timeout_s"]) == ("http://127.0.0.1:9/new", 3.0)


async def test_enabling_what_the_engine_disabled_meanwhile_releases_what_is_held(engine: Engine) -> None:
    endpoint_id = await engine.endpoint()
    event_id = await engine.accept()
    async with engine.sql.acquire() as other:
        disabling = other.transaction()
        await disabling.start()
        await other.fetch(
            query("disable_endpoint"), None, engine.org_id, endpoint_id, "It answered 410 Gone.", NOWHERE, None
        )
        await other.execute("UPDATE redrive.task SET state = 'held' WHERE event_id = $1", event_id)
        enabling = await _waiting_for(other, engine.change_endpoint(endpoint_id, disabled=False))
        await disabling.commit()
        await enabling
    assert (await _row(engine, endpoint_id))["disabled_at"] is None
    assert (await engine.task_of(event_id))["state"] == "waiting"


async def test_a_claim_passes_over_the_tasks_of_an_endpoint_that_is_being_enabled(engine: Engine) -> None:
    endpoint_id = await engine.endpoint("slow", event_types=("slow",), disabled=True)
    await engine.endpoint("other", event_types=("other",))
    slow, other = await engine.accept("slow"), await engine.accept("other")
    async with _enabling(engine, endpoint_id):
        claim = await _claim(engine)
        assert [job.event_id for job in claim.jobs] == [other]
        task = await engine.task_of(slow)
        assert (task["state"], task["fence"], task["attempts"]) == ("waiting", 0, 0)
    assert [job.event_id for job in (await _claim(engine)).jobs] == [slow]


async def test_a_claim_passes_over_the_tasks_of_an_endpoint_that_is_being_deleted(engine: Engine) -> None:
    endpoint_id = await engine.endpoint(disabled=True)
    event_id = await engine.accept()
    async with engine.app.tenant(engine.org_id) as session:
        assert await endpoints.delete_endpoint(session, endpoint_id, PERSON)
        assert (await _claim(engine)).jobs == []
        assert (await engine.task_of(event_id))["state"] == "waiting"
    await engine.run_until_idle()
    assert (await engine.task_of(event_id))["state"] == "dead"


async def test_a_lost_lease_that_is_passed_over_is_counted_once_when_its_turn_comes(
    engine: Engine, clock: ManualClock
) -> None:
    endpoint_id = await engine.endpoint()
    await engine.accept()
    job = await engine.claim_one()
    await engine.change_endpoint(endpoint_id, disabled=True)
    clock.advance(3600)
    async with _enabling(engine, endpoint_id):
        assert (await _claim(engine)).jobs == []
        assert await engine.attempts(job.id) == []
        assert (await engine.task(job.id))["state"] == "leased"
    (again,) = (await _claim(engine)).jobs
    assert (again.id, again.fence, again.attempts, again.lost) == (job.id, 2, 1, True)
    assert [attempt["result"] for attempt in await engine.attempts(job.id)] == ["lost"]


async def test_what_is_passed_over_does_not_stand_before_the_others(engine: Engine, clock: ManualClock) -> None:
    """More tasks than a claim takes are passed over: the floor goes on behind them."""
    endpoint_id = await engine.endpoint("slow", event_types=("slow",), disabled=True)
    await engine.endpoint("other", event_types=("other",))
    await engine.accept_many(5, event_type="slow")
    clock.advance(1)
    other = await engine.accept("other")
    async with _enabling(engine, endpoint_id):
        floors: dict[Stream, Floor] = {}
        claimed: list[UUID] = []
        for _ in range(3):
            claim = await _claim(engine, limit=2, floors=floors)
            floors.update(claim.ends)
            claimed += [job.event_id for job in claim.jobs]
        assert claimed == [other]
    assert len((await _claim(engine)).jobs) == 5


async def test_a_change_that_leaves_an_endpoint_disabled_holds_its_tasks_afterwards(engine: Engine) -> None:
    endpoint_id = await engine.endpoint(disabled=True)
    event_id = await engine.accept()
    async with engine.app.tenant(engine.org_id) as session:
        await Endpoints(engine.sealer).update(session, endpoint_id, {"timeout_s": 3.0}, PERSON)
        assert (await _claim(engine)).jobs == []
        assert (await engine.task_of(event_id))["state"] == "waiting"
    assert (await _claim(engine)).jobs == []
    assert (await engine.task_of(event_id))["state"] == "held"


@asynccontextmanager
async def _enabling(engine: Engine, endpoint_id: UUID) -> AsyncIterator[None]:
    """Somebody enables the endpoint, and commits at the end."""
    async with engine.app.tenant(engine.org_id) as session:
        assert await Endpoints(engine.sealer).update(session, endpoint_id, {"disabled": False}, PERSON) is not None
        yield


async def _claim(engine: Engine, *, limit: int = 100, floors: dict[Stream, Floor] | None = None) -> Claim:
    async with asyncio.timeout(CLAIM_WITHIN_S):
        return await claim_due(engine.tasks, limit, floors=floors)


async def _waiting_for(holder: Any, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """The work begun, and waiting for a lock that this connection holds."""
    begun = asyncio.create_task(work)

    async def waits() -> bool:
        blocked: int = await holder.fetchval(
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"
        )
        assert not begun.done(), "it did not wait"
        return blocked > 0

    await until(waits)
    return begun


async def _row(engine: Engine, endpoint_id: UUID) -> Record:
    row = await engine.sql.fetchrow("SELECT * FROM redrive.endpoint WHERE id = $1", endpoint_id)
    assert row is not None
    return row
