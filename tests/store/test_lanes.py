"""Lanes: what must stay in order stays in order, whoever adds, ends, skips, deletes or redrives."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from redrive.core.decide import Reason
from redrive.core.ports import HTTP_QUEUE, Released
from redrive.store.check import check
from redrive.store.db import query
from redrive.store.dead_letters import Order, redrive
from redrive.store.endpoints import delete_endpoint
from redrive.store.events import accept_test
from support.engine import PERSON, Engine, ManualClock, Shared, claim_arguments, open_engine

EXPIRE = "UPDATE redrive.task SET state = 'dead', reason = 'expired', due_at = 'infinity' WHERE event_id = $1"
ANYBODY_WAITS = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"


async def _redrive(engine: Engine, task_id: UUID, order: Order | None = None) -> None:
    async with engine.app.tenant(engine.org_id) as session:
        refusal = await redrive(session, task_id, PERSON, engine.clock, roll=0.5, at_once=True, order=order)
    assert refusal is None


async def _skip_waiting(engine: Engine, task_id: UUID) -> None:
    """A dead letter of one that waits behind others, and was never tried."""
    given = (engine.clock.now(), engine.org_id, [task_id], ["unknown"], ["a cause"], ["skipped"])
    await engine.sql.fetch(query("skip_many"), *given)


@asynccontextmanager
async def _expiring(engine: Engine, event_id: UUID) -> AsyncIterator[None]:
    """One that waits dies in a transaction that is committed at the end of the block."""
    async with engine.sql.acquire() as other, other.transaction():
        await other.execute(EXPIRE, event_id)
        yield


async def test_of_an_ordered_endpoint_only_the_head_is_claimed(engine: Engine) -> None:
    await engine.endpoint(ordered=True)
    events = [await engine.accept() for _ in range(3)]
    for event_id in events:
        (job,) = await engine.claim()
        assert job.event_id == event_id
        assert await engine.claim() == []
        await engine.succeed(job)
    assert await engine.claim() == []


async def test_events_of_one_batch_keep_their_order(engine: Engine) -> None:
    await engine.endpoint(ordered=True)
    events = await engine.accept_many(50)
    got = []
    while jobs := await engine.claim():
        (job,) = jobs
        got.append(job.event_id)
        await engine.succeed(job)
    assert got == events


async def test_a_head_that_waits_for_its_retry_keeps_its_lane_and_nobody_else_s(
    engine: Engine, clock: ManualClock
) -> None:
    await engine.endpoint("one", event_types=("one",), ordered=True)
    await engine.endpoint("other", event_types=("other",), ordered=True)
    first, _ = [await engine.accept("one") for _ in range(2)]
    await engine.fail(await engine.claim_one(), 30)
    other = await engine.accept("other")
    (job,) = await engine.claim()
    assert job.event_id == other
    clock.advance(30)
    (job,) = await engine.claim()
    assert (job.event_id, job.attempts) == (first, 1)


async def test_ordering_keys_are_lanes_of_their_own(engine: Engine) -> None:
    await engine.endpoint()
    a1, a2 = [await engine.accept(ordering_key="a") for _ in range(2)]
    b1, _ = [await engine.accept(ordering_key="b") for _ in range(2)]
    free = await engine.accept()
    jobs = await engine.claim()
    assert {job.event_id for job in jobs} == {a1, b1, free}
    await engine.succeed(next(job for job in jobs if job.event_id == a1))
    assert [job.event_id for job in await engine.claim()] == [a2]


async def test_an_ordered_endpoint_is_one_lane_whatever_the_keys(engine: Engine) -> None:
    await engine.endpoint(ordered=True)
    first = await engine.accept(ordering_key="a")
    await engine.accept(ordering_key="b")
    assert [job.event_id for job in await engine.claim()] == [first]


async def test_a_lost_lease_is_taken_over_before_anything_behind_it(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint(ordered=True)
    first, _ = [await engine.accept() for _ in range(2)]
    lost = await engine.claim_one()
    clock.advance(3600)
    (again,) = await engine.claim()
    assert (again.event_id, again.fence) == (first, lost.fence + 1)
    assert not (await engine.succeed(lost)).held_lease
    assert await engine.claim() == []


async def test_a_held_head_keeps_its_lane(engine: Engine) -> None:
    endpoint_id = await engine.endpoint(ordered=True, disabled=True)
    first, _ = [await engine.accept() for _ in range(2)]
    assert await engine.claim() == []
    assert (await engine.task_of(first))["state"] == "held"
    await engine.change_endpoint(endpoint_id, disabled=False)
    assert [job.event_id for job in await engine.claim()] == [first]


@pytest.mark.parametrize("how", ["die", "skip"])
async def test_a_lane_goes_on_when_its_head_ends_without_success(engine: Engine, clock: ManualClock, how: str) -> None:
    await engine.endpoint(ordered=True)
    _, second = [await engine.accept() for _ in range(2)]
    job = await engine.claim_one()
    if how == "die":
        await engine.kill(job)
    else:
        await engine.fail(job, 5)
        assert await engine.skip(job.id) is None
    (following,) = await engine.claim()
    assert (following.event_id, following.gap) == (second, 1)
    await engine.succeed(following)
    third = await engine.accept()
    (following,) = await engine.claim()
    assert (following.event_id, following.gap) == (third, 0)


async def test_what_is_given_back_stays_the_head(engine: Engine) -> None:
    await engine.endpoint(ordered=True)
    first, _ = [await engine.accept() for _ in range(2)]
    await engine.settle(await engine.claim_one(), None, Released("a shutdown"))
    assert [job.event_id for job in await engine.claim()] == [first]


async def test_a_dead_head_halts_a_lane_that_asked_for_it_until_a_person_acts(live: Engine) -> None:
    engine = live
    await engine.endpoint(ordered=True, on_block="halt")
    first, second = [await engine.accept() for _ in range(2)]
    dead = await engine.claim_one()
    await engine.kill(dead, Reason.EXHAUSTED)
    third = await engine.accept()
    assert await engine.claim() == []
    assert (await check(engine.url)).clean
    await _redrive(engine, dead.id)  # in its place, by default
    for expected in (first, second, third):
        (job,) = await engine.claim()
        assert (job.event_id, job.out_of_order) == (expected, False)
        assert job.gap == 0
        await engine.succeed(job)


@pytest.mark.parametrize("verb", ["resolved", "ignored", "deleted"])
async def test_whatever_is_done_with_the_letter_that_halted_a_lane_lets_it_go_on(engine: Engine, verb: str) -> None:
    await engine.endpoint(ordered=True, on_block="halt")
    _, second = [await engine.accept() for _ in range(2)]
    dead = await engine.claim_one()
    await engine.kill(dead)
    assert await engine.claim() == []
    await engine.mark_letter(dead.id, verb)
    (job,) = await engine.claim()
    assert (job.event_id, job.gap) == (second, 1)


async def test_to_delete_the_event_that_halted_a_lane_lets_it_go_on(live: Engine) -> None:
    engine = live
    await engine.endpoint(ordered=True, on_block="halt")
    first, second = [await engine.accept() for _ in range(2)]
    await engine.kill(await engine.claim_one())
    assert await engine.claim() == []
    assert await engine.delete_event(first) is None
    assert (await check(engine.url)).clean
    (job,) = await engine.claim()
    assert (job.event_id, job.gap) == (second, 1)


async def test_to_delete_an_endpoint_ends_what_waits_in_its_halted_lanes(live: Engine) -> None:
    engine = live
    endpoint_id = await engine.endpoint(ordered=True, on_block="halt")
    _, second, third = [await engine.accept() for _ in range(3)]
    await engine.kill(await engine.claim_one())
    await engine.delete_endpoint(endpoint_id)
    await engine.run_until_idle()
    assert [(await engine.task_of(event_id))["state"] for event_id in (second, third)] == ["dead", "dead"]
    assert (await check(engine.url)).clean


async def test_a_head_that_dies_while_its_endpoint_is_being_deleted_halts_nothing(live: Engine) -> None:
    engine = live
    endpoint_id = await engine.endpoint(ordered=True, on_block="halt")
    await engine.accept_many(2)
    head = await engine.claim_one()
    async with engine.app.tenant(engine.org_id) as session:
        assert await delete_endpoint(session, endpoint_id, PERSON)
        dying = asyncio.create_task(engine.kill(head))
        await engine.until(ANYBODY_WAITS)
    assert (await dying).held_lease
    await engine.run_until_idle()
    assert await engine.counts("SELECT state, count(*) FROM redrive.task GROUP BY state") == {"dead": 2}


async def test_a_skip_halts_nothing(engine: Engine) -> None:
    await engine.endpoint(ordered=True, on_block="halt")
    _, second = [await engine.accept() for _ in range(2)]
    head = await engine.claim_one()
    await engine.fail(head, 5)
    assert await engine.skip(head.id) is None
    assert [job.event_id for job in await engine.claim()] == [second]


@pytest.mark.parametrize(("order", "expected"), [(None, [2, 3, 1]), ("tail", [2, 3, 1]), ("in_place", [2, 1, 3])])
async def test_a_dead_letter_of_a_lane_that_went_on_is_redriven_where_the_person_says(
    engine: Engine, order: Order | None, expected: list[int]
) -> None:
    await engine.endpoint(ordered=True)
    events = [await engine.accept() for _ in range(3)]
    dead = await engine.claim_one()
    await engine.kill(dead)
    second = await engine.claim_one()
    await _redrive(engine, dead.id, order)
    await engine.succeed(second)
    got = [(2, False)]
    while jobs := await engine.claim():
        (job,) = jobs
        got.append((events.index(job.event_id) + 1, job.out_of_order))
        await engine.succeed(job)
    # In its place it goes before what was not sent yet. The second was at the head already.
    assert got == [(n, n == 1) for n in expected]


async def test_one_redriven_in_its_place_after_others_were_delivered_is_marked(engine: Engine) -> None:
    await engine.endpoint(ordered=True)
    [await engine.accept() for _ in range(3)]
    dead = await engine.claim_one()
    await engine.kill(dead)
    await engine.succeed(await engine.claim_one())
    await _redrive(engine, dead.id, "in_place")
    third = await engine.claim_one()
    await engine.succeed(third)
    (job,) = await engine.claim()
    assert (job.id, job.out_of_order) == (dead.id, True)


async def test_one_that_dies_behind_others_is_told_of_by_the_next_behind_it(engine: Engine) -> None:
    await engine.endpoint(ordered=True)
    first, second, third, fourth = [await engine.accept() for _ in range(4)]
    await engine.tasks.wake_lanes()
    await engine.sql.execute(EXPIRE, second)
    got = []
    while jobs := await engine.claim():
        (job,) = jobs
        got.append((job.event_id, job.gap))
        await engine.succeed(job)
    assert got == [(first, 0), (third, 1), (fourth, 0)]


async def test_one_that_died_behind_others_and_comes_later_than_it_should_is_marked(engine: Engine) -> None:
    await engine.endpoint(ordered=True)
    _, second, third = [await engine.accept() for _ in range(3)]
    dead = (await engine.task_of(second))["id"]
    head = await engine.claim_one()
    await _skip_waiting(engine, dead)
    await engine.succeed(head)
    following = await engine.claim_one()
    assert (following.event_id, following.gap) == (third, 1)
    await engine.succeed(following)
    await _redrive(engine, dead, "in_place")
    (job,) = await engine.claim()
    assert (job.event_id, job.out_of_order) == (second, True)


@pytest.mark.parametrize(("order", "expected"), [("in_place", [(2, 0), (3, 0)]), ("tail", [(3, 1), (2, 0)])])
async def test_one_redriven_in_its_place_fills_its_gap_and_at_the_tail_it_does_not(
    engine: Engine, order: Order, expected: list[tuple[int, int]]
) -> None:
    await engine.endpoint(ordered=True)
    events = [await engine.accept() for _ in range(3)]
    head = await engine.claim_one()
    dead = (await engine.task_of(events[1]))["id"]
    await _skip_waiting(engine, dead)
    await _redrive(engine, dead, order)
    await engine.succeed(head)
    got = []
    while jobs := await engine.claim():
        (job,) = jobs
        got.append((events.index(job.event_id) + 1, job.gap))
        assert job.out_of_order is (order == "tail" and job.id == dead)
        await engine.succeed(job)
    assert got == expected


async def test_what_dies_while_the_head_is_tried_is_not_told_by_it(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint(ordered=True)
    _, second, third = [await engine.accept() for _ in range(3)]
    await engine.kill(await engine.claim_one())
    head = await engine.claim_one()
    assert (head.event_id, head.gap) == (second, 1)
    late = await engine.accept()
    # It was handed in before the others, and committed only now.
    await engine.sql.execute("UPDATE redrive.task SET place = 1 WHERE event_id = $1", late)
    clock.advance(1)
    await engine.sql.execute(EXPIRE.replace("reason", "updated_at = $2, reason"), late, clock.now())
    await engine.succeed(head)
    (job,) = await engine.claim()
    assert (job.event_id, job.gap) == (third, 1)


async def test_deaths_in_a_lane_wait_for_nobody_who_ends_another_one_of_it(live: Engine) -> None:
    """A head dies while a transaction that let its second follower die stays open."""
    engine = live
    await engine.endpoint(ordered=True)
    _, second, third = [await engine.accept() for _ in range(3)]
    head = await engine.claim_one()
    async with _expiring(engine, third):
        async with asyncio.timeout(10):
            await engine.kill(head)
        assert [job.event_id for job in await engine.claim()] == [second]


async def test_a_transaction_that_stays_open_after_adding_to_a_lane_stops_nobody(engine: Engine) -> None:
    """It may be a caller's own. Its event comes when it commits; the others do not wait for it."""
    await engine.endpoint(ordered=True)
    first = await engine.accept()
    late = await asyncpg.connect(engine.url)
    try:
        transaction = late.transaction()
        await transaction.start()
        late_id = await late.fetchval("SELECT redrive.publish('invoice.paid', '{}')")
        third = await engine.accept()
        for expected in (first, third):
            (job,) = await engine.claim()
            assert job.event_id == expected
            await engine.succeed(job)
        assert await engine.claim() == []
        await transaction.commit()
        assert [job.event_id for job in await engine.claim()] == [late_id]
    finally:
        await late.close()


async def test_what_is_added_while_the_head_is_ending_is_not_forgotten(database_url: str) -> None:
    """The end does not see the new one, the new one still sees the head: the wake-up stays until it can be told."""
    async with open_engine(database_url) as engine:
        await engine.endpoint(ordered=True)
        await engine.accept()
        head = await engine.claim_one()
        async with engine.sql.acquire() as ending:
            transaction = ending.transaction()
            await transaction.start()
            await ending.execute(
                "UPDATE redrive.task SET state = 'succeeded', worker_id = NULL, lease_ends_at = NULL WHERE id = $1",
                head.id,
            )
            second = await engine.accept()
            assert (await engine.tasks.wake_lanes()).streams == []
            await transaction.commit()
        (stream,) = (await engine.tasks.wake_lanes()).streams
        assert stream.place.queue == HTTP_QUEUE
        assert [job.event_id for job in await engine.claim()] == [second]


async def test_a_head_that_ends_while_the_next_one_is_being_ended_leaves_the_lane_to_the_one_behind(
    live: Engine,
) -> None:
    engine = live
    await engine.endpoint(ordered=True)
    _, second, third = [await engine.accept() for _ in range(3)]
    head = await engine.claim_one()
    async with _expiring(engine, second):
        ending = asyncio.create_task(engine.succeed(head))
        await engine.until(ANYBODY_WAITS)
    assert (await ending).held_lease
    assert [job.event_id for job in await engine.claim()] == [third]


async def test_a_test_delivery_does_not_wait_for_a_lane(engine: Engine) -> None:
    endpoint_id = await engine.endpoint(ordered=True)
    await engine.accept()
    await engine.claim_one()
    async with engine.db.tenant(engine.org_id) as session:
        event = engine.new_event("redrive.test", endpoint_id=endpoint_id)
        await accept_test(session, event, PERSON, engine.clock)
    assert [job.event_id for job in await engine.claim()] == [event.id]


async def test_a_lane_has_one_head_whatever_happens(engine: Engine) -> None:
    await engine.endpoint(ordered=True)
    [await engine.accept() for _ in range(2)]
    await engine.tasks.wake_lanes()
    with pytest.raises(asyncpg.UniqueViolationError):
        await engine.sql.execute("UPDATE redrive.task SET behind = NULL")


# As after an ANALYZE that saw pages, and no row in them: the planner believes that there never is one.
EMPTIED = """
SELECT pg_restore_relation_stats('schemaname', 'redrive', 'relname', name, 'relpages', 100, 'reltuples', 0::real)
  FROM unnest($1::text[]) name"""


@pytest.mark.parametrize("believed_empty", [False, True])
async def test_a_long_lane_costs_a_claim_nothing(engine: Engine, shared_database: Shared, believed_empty: bool) -> None:
    """Pages touched by a claim of another endpoint: the same with thousands of tasks behind a blocked head."""
    if believed_empty:
        await shared_database.owner.execute(EMPTIED, ["task"])
    await engine.endpoint("blocked", event_types=("blocked",), ordered=True)
    other = await engine.endpoint("other", event_types=("other",))

    async def pages() -> int:
        text = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query('claim')}"
        async with engine.db.transaction() as session:  # under the engine's own settings
            await session._connection.execute("SAVEPOINT trial")
            asked = claim_arguments(engine, engine.first_tries(other))
            (plan,) = json.loads(await session._connection.fetchval(text, *asked))
            await session._connection.execute("ROLLBACK TO trial")
        return int(plan["Plan"]["Shared Hit Blocks"]) + int(plan["Plan"]["Shared Read Blocks"])

    await engine.accept("other")
    await engine.accept("blocked")
    await pages()
    few = await pages()
    await engine.accept_many(3_000, event_type="blocked")
    assert await pages() <= few * 1.5 + 20


async def test_a_look_behind_the_floor_costs_the_same_however_many_wake_ups_were_done_with(engine: Engine) -> None:
    """Pages touched while somebody holds a snapshot open, and nothing that was removed can go."""
    endpoint_id = await engine.endpoint(ordered=True)

    async def pages(floor: int) -> int:
        text = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query('wake_lanes')}"
        (plan,) = json.loads(await engine.sql.fetchval(text, 1_000, engine.clock.now(), floor))
        return int(plan["Plan"]["Shared Hit Blocks"]) + int(plan["Plan"]["Shared Read Blocks"])

    fill = "INSERT INTO redrive.lane_wake (org_id, lane) SELECT $1, $2 FROM generate_series(1, 10000)"
    last = "SELECT max(number) FROM redrive.lane_wake"
    async with engine.sql.acquire() as other, other.transaction(isolation="repeatable_read", readonly=True):
        await other.fetchval("SELECT count(*) FROM redrive.event")
        await pages(0)
        few = await pages(0)
        await engine.sql.execute(fill, engine.org_id, endpoint_id)
        floor = await engine.sql.fetchval(last)
        await engine.sql.execute("DELETE FROM redrive.lane_wake")
        assert await pages(0) > few + 50
        assert await pages(floor) <= few + 5


@pytest.mark.parametrize("believed_empty", [False, True])
async def test_to_wake_many_lanes_each_is_looked_for_by_its_key(
    engine: Engine, shared_database: Shared, believed_empty: bool
) -> None:
    """Whatever the planner takes a thousand for: each compared with each would hold up every claim."""
    if believed_empty:
        await shared_database.owner.execute(EMPTIED, ["lane_wake", "lane"])
    await engine.accept_all([engine.new_event("h", handler="h", ordering_key=f"k{n}") for n in range(1_000)])
    async with engine.db.transaction() as session:
        text = f"EXPLAIN (ANALYZE, FORMAT JSON) {query('wake_lanes')}"
        plan = await session._connection.fetchval(text, 1_000, engine.clock.now(), 0)
    assert _most(json.loads(plan)[0]["Plan"], "Rows Removed by Join Filter") == 0


def _most(node: dict[str, Any], fact: str) -> int:
    """The most that any node of a plan says of it."""
    said: int = node.get(fact, 0)
    return max(said, *(_most(child, fact) for child in node.get("Plans", ())), 0)
