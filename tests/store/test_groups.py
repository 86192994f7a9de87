"""Groups of dead letters are counted on write: each is as big as its letters are many, whoever changes them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from redrive.core.outcome import Category, Failure
from redrive.core.policy import DAY_S
from redrive.store import groups, retention
from redrive.store.check import check
from redrive.store.db import Database, Session, query
from redrive.store.dead_letters import DeadLetterFilter
from redrive.store.groups import Groups
from redrive.store.retention import Retention
from support.engine import PERSON, Connection, Engine, ManualClock

KEPT = """SELECT state || ' ' || fingerprint, sum(n) FROM redrive.letter_count WHERE org_id = $1
           GROUP BY state, fingerprint HAVING sum(n) <> 0"""
THERE = "SELECT state || ' ' || fingerprint, count(*) FROM redrive.dead_letter WHERE org_id = $1 GROUP BY 1"
COUNT = """INSERT INTO redrive.letter_count AS c (org_id, state, fingerprint, shard, n) VALUES ($1, 'open', $2, $3, $4)
           ON CONFLICT (org_id, state, fingerprint, shard) DO UPDATE SET n = c.n + excluded.n"""

WAITS = "SELECT EXISTS (SELECT FROM pg_locks WHERE pid = $1 AND NOT granted)"


async def deaths(
    engine: Engine, count: int, message: str = "busy", category: Category = Category.CLIENT_ERROR
) -> list[UUID]:
    """So many letters of one cause."""
    await engine.accept_many(count)
    jobs = await engine.claim(count)
    for job in jobs:
        await engine.kill(job, failure=Failure(category, message))
    return [job.id for job in jobs]


async def listed(engine: Engine, limit: int = 50, **chosen: Any) -> Groups:
    async with engine.app.tenant(engine.org_id) as session:
        return await groups.list_groups(session, DeadLetterFilter(**chosen), limit=limit)


async def counted_right(engine: Engine, *orgs: UUID) -> bool:
    return all(
        [await engine.counts(KEPT, org_id) == await engine.counts(THERE, org_id) for org_id in orgs or (engine.org_id,)]
    )


@asynccontextmanager
async def connected(engine: Engine, role: str = "redrive_engine") -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(engine.url, server_settings={"role": role})
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def janitor(engine: Engine) -> AsyncIterator[Database]:
    db = await Database.open(engine.url, role="redrive_janitor", size=2, name="test-janitor")
    try:
        yield db
    finally:
        await db.close()


async def fold(engine: Engine, limit: int = 1_000) -> int:
    async with janitor(engine) as db, db.tenant(engine.org_id) as session:
        return await folded(session, limit)


async def folded(session: Session, limit: int = 1_000) -> int:
    row = await session.fetchrow("fold_letter_counts", session.org_id, limit)
    assert row is not None
    return int(row["n"])


async def rows(engine: Engine) -> list[tuple[str, str, int, int]]:
    found = await engine.sql.fetch(
        "SELECT state, fingerprint, shard, n FROM redrive.letter_count WHERE org_id = $1 ORDER BY 1, 2, 3",
        engine.org_id,
    )
    return [tuple(row) for row in found]


async def test_every_change_of_a_letter_is_counted_for_its_group(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    other = await engine.org("other")
    await engine.endpoint(org=other)
    await engine.accept_many(2, org_id=other)
    for job in await engine.claim():
        await engine.kill(job)
    busy = await deaths(engine, 6)
    gone = await deaths(engine, 2, "gone")
    assert [row["n"] for row in (await listed(engine)).rows] == [6, 2]
    for task_id, state in zip(busy, ("resolved", "ignored", "deleted"), strict=False):
        await engine.mark_letter(task_id, state)
    for task_id in (*busy[3:5], gone[0]):
        await engine.redrive(task_id, at_once=True)
    assert await counted_right(engine, engine.org_id, other)
    first, second, third = await engine.claim()
    await engine.succeed(first)
    await engine.kill(second)  # another cause than before
    assert await counted_right(engine, engine.org_id, other)
    await engine.skip(third.id)
    await engine.delete_event((await engine.task(gone[1]))["event_id"])
    assert await counted_right(engine, engine.org_id, other)
    assert (await check(engine.url, now=clock.now(), grace_s=1e9)).clean


async def test_what_retention_removes_is_counted_no_more_and_leaves_no_row(engine: Engine, clock: ManualClock) -> None:
    await engine.policy("brief", kind="list", delays_s=[1], retention={"failed_s": DAY_S, "dead_s": DAY_S})
    await engine.endpoint(policy="brief")
    await deaths(engine, 3)
    clock.advance(2 * DAY_S)
    stays = await deaths(engine, 2, "gone")
    async with janitor(engine) as db:
        sweeper = Retention(db, engine.clock, PERSON)
        (org,) = await sweeper.orgs(0)
        batch = await sweeper.batch(org, None)
        assert batch is not None
        assert batch.swept.dead_letters == 3
        assert await counted_right(engine)
        await sweeper.batch(org, None)
    letter = await engine.letter(stays[0])
    assert letter is not None
    assert await rows(engine) == [("open", letter["fingerprint"], -1, 2)]


async def test_all_groups_are_whole_however_many_letters_they_have(
    engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "FIRST_COUNT", 1)
    monkeypatch.setattr(groups, "SECOND_COUNT", 1)
    endpoint_id = await engine.endpoint()
    busy = await deaths(engine, 4)
    clock.advance(60)
    busy += await deaths(engine, 1)
    clock.advance(1)
    refused = await deaths(engine, 5, "bad field", Category.VALIDATION)
    clock.advance(60)
    gone = await deaths(engine, 1, "gone")
    found = await listed(engine)
    assert [(row["n"], row["is_whole"]) for row in found.rows] == [(5, True), (5, True), (1, True)]
    assert [row["sample_id"] for row in found.rows] == [max(refused), busy[-1], gone[0]]
    assert (found.total, found.has_more) == (3, False)
    second = found.rows[1]
    assert (second["last_at"] - second["first_at"]).total_seconds() == 60
    assert (second["endpoint_id"], second["category"], second["error_message"]) == (endpoint_id, "client_error", "busy")
    assert [row["n"] for row in (await listed(engine, category="validation")).rows] == [5]
    assert [row["n"] for row in (await listed(engine, kind="handler")).rows] == []
    assert len((await listed(engine, endpoint_id=endpoint_id)).rows) == 3
    page = await listed(engine, limit=2)
    assert (len(page.rows), page.total, page.has_more) == (2, 3, True)
    # Of some letters of a group only so many are counted.
    assert [row["is_whole"] for row in (await listed(engine, failed_since=clock.now())).rows] == [False]


async def test_of_too_many_groups_the_biggest_are_found_and_their_number_is_not_told(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "MAX_GROUPS_LOOKED", 3)
    await engine.endpoint()
    sizes = {"alpha": 1, "beta": 2, "gamma": 7, "delta": 1, "epsilon": 4, "zeta": 1, "eta": 1}
    for message, count in sizes.items():
        await deaths(engine, count, message)
    found = await listed(engine, limit=3)
    assert [row["error_message"] for row in found.rows] == ["gamma", "epsilon", "beta"]
    assert [row["n"] for row in found.rows] == [7, 4, 2]
    assert (found.total, found.has_more) == (None, False)
    assert (await listed(engine, limit=2)).has_more
    monkeypatch.setattr(groups, "MAX_GROUPS_LOOKED", 7)
    assert (await listed(engine, limit=3)).total == 7


async def test_groups_of_which_nothing_is_left_hide_none_that_is(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the janitor folds them, their counts stand before those of smaller ones."""
    monkeypatch.setattr(groups, "MAX_COUNTS_LOOKED", 4)
    await engine.endpoint()
    (task_id,) = await deaths(engine, 1)
    for number in range(5):
        await engine.sql.execute(COUNT, engine.org_id, f"{number}", 1, 9)
        await engine.sql.execute(COUNT, engine.org_id, f"{number}", 2, -9)
    assert [row["sample_id"] for row in (await listed(engine)).rows] == [task_id]
    await fold(engine)
    found = await listed(engine)
    assert ([row["sample_id"] for row in found.rows], found.total) == ([task_id], 1)


async def test_shards_become_one_row_and_none_where_nothing_is_left(engine: Engine) -> None:
    for fingerprint, shard, n in (("a", -1, 5), ("a", 3, 2), ("a", 4, -1), ("b", 3, 4), ("b", 4, -4), ("c", -1, 7)):
        await engine.sql.execute(COUNT, engine.org_id, fingerprint, shard, n)
    other = await engine.org("other")
    await engine.sql.execute(COUNT, other, "a", 3, 1)
    assert await fold(engine) == 4
    assert await rows(engine) == [("open", "a", -1, 6), ("open", "c", -1, 7)]
    assert await fold(engine) == 0
    assert await engine.sql.fetchval("SELECT shard FROM redrive.letter_count WHERE org_id = $1", other) == 3


async def test_the_janitor_folds_batch_by_batch(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH_COUNTS", 2)
    for number in range(5):
        await engine.sql.execute(COUNT, engine.org_id, f"{number}", 1, 1)
    async with janitor(engine) as db:
        dry = Retention(db, engine.clock, PERSON, dry_run=True)
        (org,) = await dry.orgs(0)
        await dry.batch(org, None)
        assert len(await rows(engine)) == 5
        sweeper, place, batches = Retention(db, engine.clock, PERSON), None, 0
        while (batch := await sweeper.batch(org, place)) is not None:
            batches += 1
            if (place := batch.place) is None:
                break
    assert batches == 3
    assert [(shard, n) for *_, shard, n in await rows(engine)] == [(-1, 1)] * 5


async def test_a_count_that_is_being_added_to_is_left_for_the_next_time(engine: Engine) -> None:
    await engine.sql.execute(COUNT, engine.org_id, "a", 1, 2)
    await engine.sql.execute(COUNT, engine.org_id, "a", 2, 3)
    async with connected(engine) as adding:
        transaction = adding.transaction()
        await transaction.start()
        await adding.execute(COUNT, engine.org_id, "a", 2, 10)
        assert await fold(engine) == 1  # and waits for nobody
        await transaction.commit()
    assert await rows(engine) == [("open", "a", -1, 2), ("open", "a", 2, 13)]
    assert await fold(engine) == 1
    assert await rows(engine) == [("open", "a", -1, 15)]


async def test_whoever_waits_for_a_fold_adds_to_a_new_row(engine: Engine) -> None:
    await engine.sql.execute(COUNT, engine.org_id, "a", 1, 2)
    await engine.sql.execute(COUNT, engine.org_id, "b", 1, -2)
    await engine.sql.execute(COUNT, engine.org_id, "b", 2, 2)
    async with janitor(engine) as db, connected(engine) as adding:
        async with db.tenant(engine.org_id) as session:
            assert await folded(session) == 3
            waiting = asyncio.create_task(adding.execute(COUNT, engine.org_id, "b", 1, 1))
            await engine.until(WAITS, adding.get_server_pid())
        await waiting
    assert await rows(engine) == [("open", "a", -1, 2), ("open", "b", 1, 1)]


async def test_what_is_added_between_the_look_and_the_lock_is_folded_too(engine: Engine) -> None:
    """The statement looks at the rows as they were when it began, and locks them as they are."""
    async with (
        connected(engine) as blocker,
        connected(engine) as adding,
        connected(engine, "redrive_janitor") as folding,
    ):
        await engine.sql.execute(COUNT, engine.org_id, "a", 1, 2)
        held = blocker.transaction()
        await held.start()
        await blocker.execute("SELECT pg_advisory_xact_lock(4711)")
        # The same statement, which stops after its snapshot was taken and before it reads.
        text = (
            query("fold_letter_counts")
            .replace(
                "WITH picked AS MATERIALIZED (",
                "WITH stop AS MATERIALIZED (SELECT pg_advisory_xact_lock(4711) AS done), picked AS MATERIALIZED (",
            )
            .replace("AND c.shard >= 0", "AND c.shard >= 0 AND (SELECT count(done) FROM stop) = 1")
        )
        await folding.execute(f"SET redrive.org = '{engine.org_id}'")
        running = asyncio.create_task(folding.fetchval(text, engine.org_id, 10))
        await engine.until(WAITS, folding.get_server_pid())
        await adding.execute(COUNT, engine.org_id, "a", 1, 40)
        await held.commit()
        assert await running == 1
    assert await rows(engine) == [("open", "a", -1, 42)]


async def test_folds_and_deaths_at_once_lose_nothing(engine: Engine) -> None:
    """Several add to the same few rows, up and down, while shards are folded again and again."""
    done = asyncio.Event()

    async def add(shard: int) -> None:
        async with connected(engine) as connection:
            for number in range(150):
                await connection.execute(COUNT, engine.org_id, f"{number % 3}", shard % 2, 1 if number % 5 else -3)

    async def fold_on() -> int:
        times = 0
        async with janitor(engine) as db:
            while not done.is_set():
                async with db.tenant(engine.org_id) as session:
                    times += await folded(session)
        return times

    folding = asyncio.create_task(fold_on())
    await asyncio.gather(*(add(shard) for shard in range(4)))
    done.set()
    assert await folding > 0
    expected = {f"open {f}": 4 * sum(1 if n % 5 else -3 for n in range(150) if n % 3 == f) for f in range(3)}
    assert await engine.counts(KEPT, engine.org_id) == expected
