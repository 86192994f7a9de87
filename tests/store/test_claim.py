"""Claiming: a due task is leased to one worker at a time, and a lease that ends without a report is a lost try."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from redrive.core.decide import AwaitPerson, Reason, Succeed
from redrive.core.outcome import Success
from redrive.core.ports import (
    HTTP_QUEUE,
    NO_ENDPOINT,
    NO_EXCHANGE,
    Ask,
    Floor,
    Job,
    Place,
    Released,
    Settlement,
    Stream,
)
from redrive.engine.outlet import START as START_OF_STREAM
from redrive.store.db import DEADLOCK_TRIES, Database, Record, query
from redrive.store.orgs import new_id
from redrive.store.tasks import Tasks
from support.engine import (
    MARGIN_S,
    START,
    UNAVAILABLE,
    Engine,
    ManualClock,
    claim_arguments,
    claim_due,
    until,
)

LEASE_S = 30.0 + MARGIN_S  # the default policy's time-out, and the margin


async def test_fifty_claimers_at_once_lease_each_task_exactly_once(engine: Engine) -> None:
    await engine.endpoint()
    event_ids = await engine.accept_many(500)
    db = await Database.open(engine.url, role="redrive_engine", size=50)
    try:
        tasks = Tasks(db, engine.clock)

        async def claimer() -> list[Job]:
            mine: list[Job] = []
            while jobs := await engine.claim(7, store=tasks):
                mine += jobs
            return mine

        claimed = [job for jobs in await asyncio.gather(*(claimer() for _ in range(50))) for job in jobs]
    finally:
        await db.close()
    assert sorted(job.event_id for job in claimed) == sorted(event_ids)
    assert {job.fence for job in claimed} == {1}


async def test_a_lease_holds_for_the_time_out_and_a_margin(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint("quick", timeout_s=2.0, event_types=("quick",))
    await engine.endpoint("usual", event_types=("usual",))
    await engine.accept("quick")
    await engine.accept("usual")
    leases = {
        job.event_type: (await engine.task(job.id))["lease_ends_at"] - clock.now() for job in await engine.claim()
    }
    assert leases == {"quick": timedelta(seconds=2 + MARGIN_S), "usual": timedelta(seconds=LEASE_S)}
    clock.advance(2 + MARGIN_S - 0.001)
    assert await engine.claim() == []
    clock.advance(0.001)
    assert [job.event_type for job in await engine.claim()] == ["quick"]


async def test_what_is_not_due_or_not_ours_to_do_is_left_alone(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    await engine.accept("unknown", handler="nobody.knows")
    await engine.accept("later")
    await engine.fail(await engine.claim_one(), 60)
    assert await engine.claim(queues=[HTTP_QUEUE, "handler:other"]) == []
    clock.advance(60)
    assert [job.event_type for job in await engine.claim(queues=[HTTP_QUEUE])] == ["later"]
    assert [job.queue for job in await engine.claim(queues=["handler:nobody.knows"])] == ["handler:nobody.knows"]


async def test_the_longest_due_are_claimed_first(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    ids = []
    for _ in range(6):
        ids.append(await engine.accept())
        clock.advance(1)
    claimed = [job.event_id for _ in range(3) for job in await engine.claim(2)]
    assert claimed == ids


async def test_a_lease_that_ran_out_is_taken_over_and_counts_as_a_lost_try(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    await engine.accept()
    lost = await engine.claim_one(worker_id=new_id())
    began = clock.now()
    clock.advance(LEASE_S)
    taken = await engine.claim_one()
    assert (taken.id, taken.fence, taken.attempts, taken.lost) == (lost.id, 2, 1, True)
    (attempt,) = await engine.attempts(lost.id)
    assert (attempt["fence"], attempt["number"], attempt["result"], attempt["category"]) == (1, 1, "lost", "timeout")
    assert (attempt["started_at"], attempt["ended_at"]) == (began, clock.now())
    assert attempt["possible_duplicate"]
    task = await engine.task(lost.id)
    assert task["first_failed_at"] == task["last_failed_at"] == clock.now()


async def test_a_worker_that_lost_its_lease_changes_nothing_and_leaves_evidence(
    engine: Engine, clock: ManualClock
) -> None:
    await engine.endpoint()
    event_id = await engine.accept()
    slow = await engine.claim_one()
    clock.advance(LEASE_S)
    await engine.succeed(await engine.claim_one())
    before = dict(await engine.task(slow.id))
    late = await engine.kill(slow, Reason.EXHAUSTED)
    assert not late.held_lease
    assert dict(await engine.task(slow.id)) == before
    assert (await engine.event(event_id))["status"] == "delivered"
    assert await engine.letter(slow.id) is None
    first, second = await engine.attempts(slow.id)
    assert (first["result"], first["late_result"], first["late_at"]) == ("lost", "failed", clock.now())
    assert (second["result"], second["late_at"]) == ("succeeded", None)


async def test_a_task_that_kills_its_worker_each_time_dies_exhausted(engine: Engine, clock: ManualClock) -> None:
    """max_retries = 3: four tries, each lost; the fifth lease finds no try left and is not tried."""
    await engine.endpoint()
    event_id = await engine.accept()
    for _ in range(4):
        await engine.claim_one()
        clock.advance(LEASE_S)
    await engine.run_until_idle()
    task = await engine.task_of(event_id)
    assert (task["state"], task["reason"], task["attempts"]) == ("dead", "exhausted", 4)
    results = [attempt["result"] for attempt in await engine.attempts(task["id"])]
    assert results == ["lost"] * 4 + ["released"]
    letter = await engine.letter(task["id"])
    assert letter is not None
    assert (letter["state"], letter["category"], letter["first_failed_at"] is None) == ("open", "timeout", False)
    assert (await engine.event(event_id))["status"] == "failed"


async def test_tasks_of_a_disabled_endpoint_are_held_and_go_on_with_their_old_due_time(
    engine: Engine, clock: ManualClock
) -> None:
    endpoint_id = await engine.endpoint()
    event_id = await engine.accept()
    await engine.fail(await engine.claim_one(), 5)
    due = clock.advance(5)
    await engine.change_endpoint(endpoint_id, disabled=True)
    clock.advance(3600)
    assert await engine.claim() == []
    held = await engine.task_of(event_id)
    assert (held["state"], held["attempts"], held["due_at"], held["fence"]) == ("held", 1, due, 1)
    await engine.change_endpoint(endpoint_id, disabled=False)
    waiting = await engine.task_of(event_id)
    assert (waiting["state"], waiting["due_at"]) == ("waiting", due)
    assert (await engine.claim_one()).fence == 2


async def test_a_lost_lease_of_a_disabled_endpoint_is_counted_and_held(engine: Engine, clock: ManualClock) -> None:
    endpoint_id = await engine.endpoint()
    await engine.accept()
    job = await engine.claim_one()
    await engine.change_endpoint(endpoint_id, disabled=True)
    clock.advance(LEASE_S)
    assert await engine.claim() == []
    task = await engine.task(job.id)
    assert (task["state"], task["attempts"], task["fence"], task["worker_id"]) == ("held", 1, 1, None)
    assert [attempt["result"] for attempt in await engine.attempts(job.id)] == ["lost"]
    assert not (await engine.succeed(job)).held_lease


async def test_a_task_claimed_while_its_endpoint_is_enabled_is_not_held_for_ever(engine: Engine) -> None:
    """The claim has seen a disabled endpoint and not yet committed; the enabling releases what is held, and commits.

    Whichever comes first, the task goes on: one of the two must see the other.
    """
    endpoint_id = await engine.endpoint(disabled=True)
    event_id = await engine.accept()
    async with engine.sql.acquire() as other:
        claiming = other.transaction()
        await claiming.start()
        claim = await other.fetch(query("claim"), *claim_arguments(engine, engine.first_tries(endpoint_id)))
        assert [row["state"] for row in claim] == ["held"]
        enabling = asyncio.create_task(engine.change_endpoint(endpoint_id, disabled=False))

        async def enabled_or_waiting() -> bool:
            return enabling.done() or await other.fetchval(
                "SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"
            )

        await until(enabled_or_waiting)
        await claiming.commit()
        await enabling
    assert (await engine.task_of(event_id))["state"] == "waiting"
    assert (await engine.claim_one()).event_id == event_id


async def test_tasks_of_a_deleted_endpoint_are_let_go_to_die_in_front_of_a_person(engine: Engine) -> None:
    endpoint_id = await engine.endpoint(disabled=True)
    event_id = await engine.accept()
    assert await engine.claim() == []
    await engine.delete_endpoint(endpoint_id)
    await engine.run_until_idle()
    task = await engine.task_of(event_id)
    assert (task["state"], task["reason"]) == ("dead", "permanent")
    letter = await engine.letter(task["id"])
    assert letter is not None
    assert letter["error_message"] == "The endpoint 'hook' was deleted."


async def test_a_queue_with_a_backlog_does_not_starve_the_others(engine: Engine) -> None:
    await engine.endpoint()
    await engine.accept_many(40)
    for name in ("a", "b"):
        await engine.accept(name, handler=name)
    survey = await engine.tasks.survey([HTTP_QUEUE, "handler:a", "handler:b"])
    asks = [Ask(stream, 3, Floor(START, UUID(int=0))) for stream in survey.due_at]
    claim = await engine.tasks.claim(asks, limit=9, worker_id=new_id(), margin_s=MARGIN_S)
    assert Counter(job.queue for job in claim.jobs) == {HTTP_QUEUE: 3, "handler:a": 1, "handler:b": 1}
    assert {stream.place.queue for stream in claim.ends} == {HTTP_QUEUE}


async def test_a_claim_begins_behind_its_floor_and_answers_the_next_one(engine: Engine, clock: ManualClock) -> None:
    stream = engine.first_tries(await engine.endpoint())
    for _ in range(4):
        await engine.accept()
        clock.advance(1)
    first = await claim_due(engine.tasks, 2)
    floor = first.ends[stream]
    # Rows settled since would still be in the index: here the first two are simply due again.
    for job in first.jobs:
        await engine.settle(job, None, Released("given back", delay_s=-60))
    rest = await claim_due(engine.tasks, 10, floors={stream: floor})
    behind = rest.jobs
    assert dict(rest.ends) == {}  # nothing more there
    assert len(behind) == 2
    assert {job.id for job in behind}.isdisjoint(job.id for job in first.jobs)
    assert len(await engine.claim(10)) == 2  # without a floor they are found


async def test_stepping_over_thousands_of_settled_rows_costs_a_floor_nothing(
    engine: Engine, clock: ManualClock
) -> None:
    """While somebody holds a snapshot open, vacuum may not remove the index entries of what was settled."""
    stream = engine.first_tries(await engine.endpoint())
    async with engine.sql.acquire() as onlooker, onlooker.transaction(isolation="repeatable_read"):
        await onlooker.fetchval("SELECT count(*) FROM redrive.task")
        await engine.accept_many(2_000)
        floor = Floor(clock.now(), UUID(int=0))
        for _ in range(10):
            claim = await claim_due(engine.tasks, 200, floors={stream: floor})
            floor = claim.ends[stream]
            await engine.tasks.settle([Settlement(job, Success(), Succeed(), NO_EXCHANGE, 0.1) for job in claim.jobs])
        clock.advance(1)
        await engine.accept()
        from_the_start = await _buffers_of_claim(engine, stream, Floor(START, UUID(int=0)))
        behind_the_floor = await _buffers_of_claim(engine, stream, floor)
    assert behind_the_floor * 5 < from_the_start, (behind_the_floor, from_the_start)


@pytest.mark.parametrize("queues", [[], ["handler:none"]])
async def test_a_claim_of_nothing_answers_nothing(engine: Engine, queues: list[str]) -> None:
    await engine.endpoint()
    await engine.accept()
    claim = await claim_due(engine.tasks, 10, queues=queues)
    assert (claim.jobs, claim.held, dict(claim.ends)) == ([], 0, {})


async def test_a_survey_finds_each_stream_once_with_its_soonest_due_time(engine: Engine, clock: ManualClock) -> None:
    one = await engine.endpoint("one", event_types=("one",))
    other = await engine.endpoint("other", org=(org := await engine.org("another")))
    await engine.accept_many(50, event_type="one")
    for job, delay_s in zip(await engine.claim(2), (60, 30), strict=True):
        await engine.fail(job, delay_s)
    await engine.accept(org_id=org)
    await engine.accept("a", handler="a")
    survey = await engine.tasks.survey([HTTP_QUEUE, "handler:a", "handler:b"])
    assert survey.now == clock.now()
    assert survey.due_at == {
        engine.first_tries(one): clock.now(),
        engine.retries(one): clock.now() + timedelta(seconds=30),
        Stream(Place(HTTP_QUEUE, org, other), False): clock.now(),
        Stream(Place("handler:a", engine.org_id, NO_ENDPOINT), False): clock.now(),
    }


async def test_what_waits_for_a_person_never_falls_due(engine: Engine) -> None:
    await engine.endpoint(policy="manual")
    await engine.accept()
    await engine.settle(await engine.claim_one(), UNAVAILABLE, AwaitPerson())
    assert (await engine.tasks.survey([HTTP_QUEUE])).due_at == {}


async def test_a_claim_writes_no_index(engine: Engine) -> None:
    """Every row is updated in its place (HOT): nothing that an index speaks of changes, and its page has the room."""
    stream = engine.first_tries(await engine.endpoint())
    await engine.accept_many(200)
    connection = await asyncpg.connect(engine.url, server_settings={"role": "redrive_engine"})  # nothing counted yet
    async with connection.transaction():
        taken = await connection.fetch(query("claim"), *claim_arguments(engine, stream))
        written = await connection.fetchrow(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relname = 'task'"
        )
    await connection.close()
    assert written is not None
    assert (written["n_tup_upd"], written["n_tup_hot_upd"]) == (200, 200) == (len(taken), len(taken))


async def test_a_claim_reads_what_it_takes_and_no_more_of_its_stream(engine: Engine) -> None:
    stream = engine.first_tries(await engine.endpoint())
    await engine.accept_many(1_000)
    async with engine.db.transaction() as session:  # under the engine's own settings
        text = f"EXPLAIN (ANALYZE, FORMAT JSON) {query('claim')}"
        (plan,) = json.loads(await session._connection.fetchval(text, *claim_arguments(engine, stream, most=10)))
    search = next(node for node in _nodes(plan["Plan"]) if node.get("Subplan Name") == "CTE due")
    looked_at = [node["Actual Rows"] for node in _nodes(search) if node.get("Relation Name") == "task"]
    assert looked_at
    assert max(looked_at) == 10
    assert not [node for node in _nodes(search) if node["Node Type"] == "Sort"]


async def _buffers_of_claim(engine: Engine, stream: Stream, floor: Floor) -> int:
    """Pages touched by the claim's search for due rows. The claim itself is undone."""
    async with engine.sql.acquire() as connection:
        trial = connection.transaction()
        await trial.start()
        await connection.execute("SET LOCAL enable_seqscan = off")
        text = await connection.fetchval(
            "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + query("claim"), *claim_arguments(engine, stream, floor=floor)
        )
        await trial.rollback()
    (plan,) = json.loads(text)
    search = next(node for node in _nodes(plan["Plan"]) if node.get("Subplan Name") == "CTE due")
    return int(search["Shared Hit Blocks"]) + int(search["Shared Read Blocks"])


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from _nodes(child)


async def test_a_claim_locks_the_states_of_endpoints_in_the_order_of_all_who_write_them(live: Engine) -> None:
    """A worker's report that has come half way waits for nobody who waits for it."""
    ids = sorted([await live.endpoint(f"e{n}", max_in_flight=100, event_types=(f"t{n}",)) for n in range(40)])
    for n in range(40):
        await live.accept(f"t{n}")
    places = [Place(HTTP_QUEUE, live.org_id, id) for id in ids]
    me = new_id()
    await live.tasks.own(places, me, 600)
    asks = [Ask(Stream(place, False), 1, START_OF_STREAM) for place in places]
    half = len(ids) // 2
    write = "UPDATE redrive.endpoint_state SET failures = failures WHERE endpoint_id = ANY ($1)"
    async with live.sql.acquire() as other:
        report = other.transaction()
        await report.start()
        await other.execute(write, ids[:half])
        claiming = asyncio.create_task(live.tasks.claim(asks, limit=400, worker_id=me, margin_s=MARGIN_S))
        pid = await other.fetchval("SELECT pg_backend_pid()")
        await live.until("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)))", pid)
        free = "SELECT count(*) FROM (SELECT FROM redrive.endpoint_state FOR UPDATE SKIP LOCKED) s"
        assert await live.sql.fetchval(free) == half
        await other.execute(write, ids[half:])
        await report.commit()
    assert len((await claiming).jobs) == len(ids)


async def test_a_claim_that_the_server_broke_up_is_made_again(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint_id = await engine.endpoint()
    await engine.accept()
    real, left = engine.db.fetch, [DEADLOCK_TRIES - 1]

    async def fetch(name: str, *args: object) -> list[Record]:
        if left[0]:
            left[0] -= 1
            raise asyncpg.DeadlockDetectedError("deadlock detected")
        return await real(name, *args)

    monkeypatch.setattr(engine.db, "fetch", fetch)
    asks = [Ask(engine.first_tries(endpoint_id), 1, START_OF_STREAM)]
    claim = await engine.tasks.claim(asks, limit=1, worker_id=new_id(), margin_s=MARGIN_S)
    assert len(claim.jobs) == 1
    left[0] = DEADLOCK_TRIES
    with pytest.raises(asyncpg.DeadlockDetectedError):
        await engine.tasks.claim(asks, limit=1, worker_id=new_id(), margin_s=MARGIN_S)
