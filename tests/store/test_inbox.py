"""The inbox in the database: pages that cost the same from first to last, and actions that meet each other."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from redrive.store import removal
from redrive.store.check import check
from redrive.store.db import Record, Session, query
from redrive.store.events import get_event_status
from redrive.store.inbox import MAX_PAGE_BYTES, list_inbox
from redrive.store.orgs import new_id
from redrive.store.paging import MAX_PAGE_ROWS, Page
from redrive.store.retry_queue import Refusal
from support.engine import PERSON, Engine, ManualClock, Shared

FAILED = 10_000
PAGED = 1_000  # every page of them is read
# As settling leaves them: an event, its dead task, the one try, the dead letter. Two of them have the same age.
_FAIL_MANY = """
WITH n AS MATERIALIZED (
  SELECT n, gen_random_uuid() AS event_id, gen_random_uuid() AS task_id,
         $2::timestamptz + (n / 2) * interval '1 s' AS at
    FROM generate_series(1, $3::int) n),
events AS (
  INSERT INTO redrive.event (org_id, id, event_type, tasks, occurred_at, received_at, body)
  SELECT $1, event_id, 'paid', 1, at, at, convert_to('{"n":' || n || '}', 'UTF8') FROM n),
tasks AS (
  INSERT INTO redrive.task (org_id, id, event_id, policy_id, kind, queue, state, event_type, reason, due_at,
                            received_at, begun_at, updated_at, first_failed_at, last_failed_at, fence, attempts)
  SELECT $1, task_id, event_id, p.id, 'http', 'http', 'dead', 'paid', 'exhausted', 'infinity', at, at, at, at, at, 1, 1
    FROM n, redrive.policy p WHERE p.org_id = $1 AND p.name = 'integration')
INSERT INTO redrive.attempt (org_id, task_id, fence, generation, number, result, started_at, ended_at)
SELECT $1, task_id, 1, 0, 1, 'failed', at, at FROM n"""
# As accepting leaves them, for one endpoint.
_ACCEPT_MANY = """
WITH n AS MATERIALIZED (
  SELECT n, gen_random_uuid() AS event_id, gen_random_uuid() AS task_id FROM generate_series(1, $4::int) n),
events AS (
  INSERT INTO redrive.event (org_id, id, event_type, tasks, occurred_at, received_at, body)
  SELECT $1, event_id, 'invoice.paid', 1, $3::timestamptz, $3, '{"n":1}' FROM n)
INSERT INTO redrive.task (org_id, id, event_id, endpoint_id, policy_id, kind, queue, state, event_type, due_at,
                          received_at, begun_at, updated_at)
SELECT $1, task_id, event_id, $2, p.id, 'http', 'http', 'waiting', 'invoice.paid', $3, $3, $3, $3
  FROM n, redrive.policy p WHERE p.org_id = $1 AND p.name = 'integration'"""


async def page_of(
    engine: Engine, status: str, after: Sequence[object] | None = None, limit: int = MAX_PAGE_ROWS
) -> Page:
    async with engine.app.tenant(engine.org_id) as session:
        return await list_inbox(session, status=status, event_type=None, limit=limit, after=after)


async def buffers(engine: Engine, name: str, after: Sequence[object] | None) -> int:
    """Pages of the database that one page of the list looks at."""
    async with engine.app.tenant(engine.org_id) as session:
        explained: str = await session._connection.fetchval(
            "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + query(name),
            *(engine.org_id, None, *(after or (None, None, None)), MAX_PAGE_ROWS + 1, MAX_PAGE_BYTES),
        )
    plan: dict[str, Any] = json.loads(explained)[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


async def test_the_last_page_of_failed_events_costs_as_much_as_the_first(engine: Engine, clock: ManualClock) -> None:
    await engine.sql.execute(_FAIL_MANY, engine.org_id, clock.now(), PAGED)
    seen: list[UUID] = []
    ages = []
    after = before_last = None
    while True:
        page = await page_of(engine, "failed", after)
        assert page.total == PAGED
        seen += [row["id"] for row in page.rows]
        ages += [(row["received_at"], row["id"]) for row in page.rows]
        if page.next_key is None:
            break
        before_last, after = after, page.next_key
    assert len(set(seen)) == len(seen) == PAGED
    assert ages == sorted(ages)
    first, last = [
        await buffers(engine, "list_inbox_failed", place) for place in (None, before_last and before_last[:3])
    ]
    assert last <= 1.5 * first + 20


async def test_a_page_begins_with_what_waits_however_much_was_acknowledged(engine: Engine, clock: ManualClock) -> None:
    ids = await engine.accept_many(2_000, event_type="for nobody")
    async with engine.app.tenant(engine.org_id) as session:
        await session._connection.execute("UPDATE redrive.event SET acked_at = $1, acked_by = 'me'", clock.now())
    clock.advance(1)
    newest = await engine.accept("for nobody")
    page = await page_of(engine, "received")
    assert ([row["id"] for row in page.rows], page.total) == ([newest], 1)
    assert newest not in ids


async def test_an_event_is_acknowledged_once_however_many_do_it(engine: Engine) -> None:
    event_id = await engine.accept("for nobody")
    stood = await asyncio.gather(*(engine.acknowledge(event_id) for _ in range(8)))
    assert sorted(map(str, stood)) == ["delivered"] * 7 + ["received"]
    audited = await engine.sql.fetch("SELECT * FROM redrive.audit WHERE subject_id = $1", event_id)
    assert [row["action"] for row in audited] == ["event.ack"]
    async with engine.app.tenant(engine.org_id) as session:
        row = await get_event_status(session, event_id)
    assert row is not None
    assert row["status"] == "delivered"


async def test_a_removal_and_a_redrive_at_once_are_one_of_the_two(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    for _ in range(20):
        event_id = await engine.accept()
        job = await engine.claim_one()
        await engine.kill(job)
        removed, redriven = await asyncio.gather(engine.delete_event(event_id), engine.redrive(job.id))
        assert (removed, redriven) in ((None, Refusal.UNKNOWN), (Refusal.IN_PROGRESS, None))
        for again in await _redriven(engine, clock):
            await engine.succeed(again)
    assert (await check(engine.url, now=clock.now())).clean


async def _redriven(engine: Engine, clock: ManualClock) -> list[Any]:
    clock.advance(10)
    return await engine.claim()


async def test_an_event_is_removed_once_and_its_id_can_be_used_again(engine: Engine) -> None:
    event_id = await engine.accept("for nobody")
    answers = await asyncio.gather(*(engine.delete_event(event_id) for _ in range(4)))
    assert sorted(map(str, answers)) == ["None", *["Refusal.UNKNOWN"] * 3]
    assert await engine.acknowledge(event_id) is None
    assert await engine.delete_event(new_id()) is Refusal.UNKNOWN
    assert await engine.accept("for nobody", id=event_id) == event_id
    assert (await check(engine.url)).violations == []


async def test_an_event_that_comes_while_it_is_removed_is_not_removed_with_an_open_task(engine: Engine) -> None:
    await engine.endpoint()
    event_id = new_id()

    class Meanwhile(Session):
        async def fetchrow(self, name: str, *args: object) -> Record | None:
            if name == "describe_event":
                await engine.accept(id=event_id)
            return await super().fetchrow(name, *args)

    async with engine.app.tenant(engine.org_id) as session:
        slow = Meanwhile(session._connection, engine.org_id)
        assert await removal.delete_event(slow, event_id, PERSON) is Refusal.IN_PROGRESS
    assert (await engine.event(event_id))["status"] == "queued"


async def test_failed_events_are_found_soon_by_a_planner_that_believes_the_table_empty(
    engine: Engine, clock: ManualClock, shared_database: Shared
) -> None:
    endpoint_id = await engine.endpoint()
    waiting = (engine.org_id, endpoint_id, clock.now(), FAILED)
    await engine.sql.execute(_ACCEPT_MANY, *waiting)
    for table in ("attempt", "task", "event"):  # pages without a row: so many rows to a page, it seems, for ever
        await shared_database.owner.execute(f"DELETE FROM redrive.{table}; ANALYZE redrive.{table}")
    await engine.sql.execute(_ACCEPT_MANY, *waiting)
    await engine.sql.execute(_FAIL_MANY, engine.org_id, clock.now(), FAILED)
    page = await page_of(engine, "failed", None)  # within the statement's time-out: not every one with every other
    assert page.total == FAILED
