"""Retention: exactly what the policies let go is removed, whole, in batches, and the books still balance."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from redrive.core.decide import Reason
from redrive.core.lifecycle import TaskState
from redrive.core.policy import DAY_S, MAX_RETENTION_S, Policy, PolicyKind
from redrive.core.policy import Retention as Terms
from redrive.core.retention import Finished, event_goes_at, task_goes_at
from redrive.core.sweep import Swept
from redrive.engine.janitor import Janitor
from redrive.store import idempotency, operations, retention
from redrive.store.audit import Act
from redrive.store.check import check
from redrive.store.edits import Edit, replay
from redrive.store.operation_steps import OperationSteps
from redrive.store.operations import OperationSpec
from redrive.store.orgs import new_id
from redrive.store.policies import Binding, put_policy
from redrive.store.retention import Retention
from support.engine import PERSON, START, Connection, Engine, ManualClock

JANITOR = Act("engine")
TOLERANCE = timedelta(microseconds=1)
moments = st.datetimes(datetime(2020, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC))
spans = st.none() | st.integers(0, int(MAX_RETENTION_S)).map(float) | st.floats(0, MAX_RETENTION_S)


@asynccontextmanager
async def sweeping(engine: Engine, **options: Any) -> AsyncIterator[Retention]:
    yield Retention(await engine.janitor(), engine.clock, JANITOR, **options)


async def sweep(engine: Engine, **options: Any) -> Swept:
    """One pass over the one org."""
    janitor = Janitor(lambda: sweeping(engine, **options), every_s=3600, dice=lambda: 0.5, rest=0)
    done = await janitor.sweep(rested_s=0)
    return done["default"]


async def left(engine: Engine) -> set[UUID]:
    return {row["id"] for row in await engine.sql.fetch("SELECT id FROM redrive.event")}


async def delivered(engine: Engine, **fields: Any) -> UUID:
    event_id = await engine.accept(**fields)
    await engine.succeed(await engine.claim_one())
    return event_id


async def dead(engine: Engine, reason: Reason = Reason.PERMANENT, **fields: Any) -> UUID:
    event_id = await engine.accept(**fields)
    await engine.kill(await engine.claim_one(), reason)
    return event_id


@st.composite
def finished(draw: st.DrawFn) -> tuple[Finished, Terms]:
    state = draw(st.sampled_from(TaskState))
    reason = draw(st.sampled_from(Reason)) if state is TaskState.DEAD else None
    task = Finished(state, reason, draw(moments), draw(moments), draw(st.none() | moments))
    return task, Terms(draw(spans), draw(spans), draw(spans))


async def test_the_database_and_the_program_agree_when_a_task_goes(engine: Engine) -> None:
    @given(st.lists(finished(), min_size=50, max_size=100))
    @settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
    def agree(rows: list[tuple[Finished, Terms]]) -> None:
        asked.append(rows)

    asked: list[list[tuple[Finished, Terms]]] = []
    await asyncio.to_thread(agree)
    for rows in asked:
        columns = [
            [task.state.value for task, _ in rows],
            [task.reason and task.reason.value for task, _ in rows],
            *([task[place] for task, _ in rows] for place in (2, 3, 4)),
            [
                msgspec.json.encode(Policy(PolicyKind.MANUAL, max_retries=None, retention=terms).to_spec()).decode()
                for _, terms in rows
            ],
        ]
        answers = await engine.sql.fetch(
            "SELECT redrive.task_goes_at(state, reason, received, updated, failed, spec::jsonb) AS goes"
            "  FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::timestamptz[], $6::text[])"
            "       WITH ORDINALITY AS r(state, reason, received, updated, failed, spec, n) ORDER BY n",
            *columns,
        )
        for (task, terms), answer in zip(rows, answers, strict=True):
            expected = task_goes_at(terms, task)
            assert (expected is None) == (answer["goes"] is None)
            assert expected is None or abs(answer["goes"] - expected) <= TOLERANCE


async def test_exactly_those_go_that_core_lets_go(engine: Engine, clock: ManualClock) -> None:
    """Events for two endpoints with policies of their own, in every pair of ends, seen every few days."""
    terms = {"short": Terms(DAY_S, 2 * DAY_S, 3 * DAY_S), "long": Terms(10 * DAY_S, None, 12 * DAY_S)}
    for name, kept in terms.items():
        await engine.policy(
            name, kind="manual", retention=dict(zip(("delivered_s", "failed_s", "dead_s"), _s(kept), strict=True))
        )
        await engine.endpoint(name, event_types=("paid",), policy=name)
    ends = (None, Reason.PERMANENT, Reason.EXHAUSTED, Reason.EXPIRED, "open")
    expected: dict[UUID, datetime | None] = {}
    for first in ends:
        for second in ends:
            event_id = await engine.accept("paid")
            clock.advance(60)
            for job, end in zip(await engine.claim(), (first, second), strict=True):
                if isinstance(end, Reason):
                    await engine.kill(job, end)
                elif end is None:
                    await engine.succeed(job)
                else:
                    await engine.fail(job, delay_s=1e8)
            policies = await engine.counts(
                "SELECT t.id, CASE p.name WHEN 'short' THEN 0 ELSE 1 END FROM redrive.task t"
                " JOIN redrive.policy p ON p.id = t.policy_id WHERE t.event_id = $1",
                event_id,
            )
            expected[event_id] = event_goes_at(
                task_goes_at(list(terms.values())[policies[str(row["id"])]], _finished(row))
                for row in await engine.tasks_of(event_id)
            )
    for _ in range(15):
        swept = await sweep(engine)
        before = len(expected)
        expected = {event_id: goes for event_id, goes in expected.items() if goes is None or goes > clock.now()}
        assert swept.events == before - len(expected)
        assert await left(engine) == set(expected)
        clock.advance(DAY_S)
    assert {row["state"] for row in await engine.sql.fetch("SELECT state FROM redrive.task")} > {"waiting", "dead"}
    assert (await check(engine.url, now=clock.now(), grace_s=1e9)).clean


def _s(terms: Terms) -> tuple[float | None, float | None, float | None]:
    return terms.delivered_s, terms.failed_s, terms.dead_s


def _finished(row: Any) -> Finished:
    reason = Reason(row["reason"]) if row["reason"] else None
    return Finished(TaskState(row["state"]), reason, row["received_at"], row["updated_at"], row["last_failed_at"])


async def test_by_default_the_dead_stay_and_the_delivered_go_after_thirty_days(
    engine: Engine, clock: ManualClock
) -> None:
    await engine.endpoint()
    gone, kept = await delivered(engine), [await dead(engine, reason) for reason in Reason]
    clock.advance(30 * DAY_S - 1)
    assert await sweep(engine) == Swept()
    clock.advance(2)
    assert await sweep(engine) == Swept(events=1, tasks=1, attempts=1, payload_bytes=7)
    assert await left(engine) == set(kept)
    assert gone not in kept


async def test_c24_events_nobody_fetched_go_after_received_s_which_is_off_by_default(
    engine: Engine, clock: ManualClock
) -> None:
    waiting = await engine.accept("nobody.asked")
    clock.advance(1_000 * DAY_S)
    assert await sweep(engine) == Swept()
    await engine.policy("integration", kind="list", delays_s=[5], retention={"received_s": 2_000 * DAY_S})
    fetched = await engine.accept("nobody.asked")
    await engine.acknowledge(fetched)
    clock.advance(29 * DAY_S)
    assert await sweep(engine) == Swept()
    clock.advance(972 * DAY_S)
    assert (await sweep(engine)).events == 2  # the one that was fetched went by delivered_s
    assert waiting not in await left(engine)
    assert (await check(engine.url, now=clock.now(), grace_s=1e9)).clean


async def test_open_dead_letters_go_where_the_policy_says_so(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint(policy="relay")
    failed, expired = await dead(engine), await dead(engine, Reason.EXPIRED)
    clock.advance(7 * DAY_S)
    assert (await sweep(engine)).dead_letters == 1
    assert await left(engine) == {expired}
    clock.advance(7 * DAY_S)
    assert (await sweep(engine)).dead_letters == 1
    assert failed not in await left(engine) == set()


@pytest.mark.parametrize("by", ["policy", "hand"])
async def test_what_was_edited_goes_with_its_event(engine: Engine, clock: ManualClock, by: str) -> None:
    await engine.endpoint(policy="relay")
    event_id = await dead(engine)
    task_id = (await engine.task_of(event_id))["id"]
    async with engine.app.tenant(engine.org_id) as session:
        edit = Edit(body=b'{"n":2}')
        assert await replay(session, task_id, PERSON, clock, roll=0.5, edit=edit, at_once=True) is None
    await engine.succeed(await engine.claim_one())
    assert await engine.sql.fetchval("SELECT count(*) FROM redrive.edit") == 1
    clock.advance(31 * DAY_S)
    if by == "hand":
        assert await engine.delete_event(event_id) is None
    else:
        assert (await sweep(engine)).events == 1
    assert await engine.sql.fetchval("SELECT count(*) FROM redrive.edit") == 0
    assert (await check(engine.url, now=clock.now())).clean


async def test_a_replaying_letter_stays(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint(policy="relay")
    event_id = await dead(engine)
    assert await engine.redrive((await engine.task_of(event_id))["id"]) is None
    clock.advance(365 * DAY_S)
    assert await sweep(engine) == Swept()


async def test_the_inbox_is_kept_until_it_is_acknowledged_and_thirty_days_more(
    engine: Engine, clock: ManualClock
) -> None:
    waiting, acked = await engine.accept("for nobody"), await engine.accept("for nobody")
    clock.advance(365 * DAY_S)
    assert await sweep(engine) == Swept()
    await engine.acknowledge(acked)
    clock.advance(30 * DAY_S - 1)
    assert await sweep(engine) == Swept()
    clock.advance(2)
    assert await sweep(engine) == Swept(events=1, payload_bytes=7)
    assert await left(engine) == {waiting}


async def test_a_pass_goes_in_batches_through_all_there_is(
    engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH_EVENTS", 7)
    await engine.endpoint(event_types=("paid",))
    kept = []
    for _ in range(6):
        await engine.accept_many(5, event_type="paid")
        kept.append(await engine.accept("for nobody"))
        for job in await engine.claim():
            await engine.succeed(job)
        clock.advance(1)
    clock.advance(31 * DAY_S)
    assert (await sweep(engine)).events == 30
    assert await left(engine) == set(kept)
    assert (await check(engine.url, now=clock.now())).clean


async def test_a_pass_is_one_entry_in_the_audit_and_an_idle_one_is_none(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    await delivered(engine)
    await sweep(engine)
    clock.advance(31 * DAY_S)
    await sweep(engine)
    rows = await engine.sql.fetch("SELECT * FROM redrive.audit WHERE action = 'retention.delete'")
    assert [(row["actor"], row["subject_kind"], row["subject_id"]) for row in rows] == [
        ("engine", "org", engine.org_id)
    ]
    assert msgspec.json.decode(rows[0]["after"]) == {
        "events": 1,
        "tasks": 1,
        "attempts": 1,
        "dead_letters": 0,
        "payload_bytes": 7,
        "idempotency_keys": 0,
        "operations": 0,
        "notices": 0,
        "runs": 0,
        "alerts": 0,
    }


async def test_a_dry_run_says_what_would_go_and_changes_nothing(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint(policy="relay")
    events = {await delivered(engine), await dead(engine)}
    await _claimed(engine)
    clock.advance(31 * DAY_S)
    told = await sweep(engine, dry_run=True)
    assert await left(engine) == events
    assert await engine.sql.fetchval("SELECT count(*) FROM redrive.audit WHERE action = 'retention.delete'") == 0
    assert await sweep(engine) == told == Swept(2, 2, 2, 1, 14, 1)


async def test_what_somebody_holds_waits_for_another_pass(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint(policy="relay")
    event_id, other = await dead(engine), await dead(engine)
    clock.advance(31 * DAY_S)
    async with engine.app.tenant(engine.org_id) as person:
        await person.fetchrow("lock_dead_letter", engine.org_id, (await engine.task_of(event_id))["id"])
        assert (await sweep(engine)).events == 1
    assert await left(engine) == {event_id}
    assert other not in await left(engine)
    assert (await sweep(engine)).events == 1


async def test_what_was_redriven_after_it_was_picked_stays(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint("a", policy="relay")
    await engine.endpoint("b", policy="relay")
    event_id = await engine.accept()
    for job in await engine.claim():
        await engine.kill(job)
    clock.advance(31 * DAY_S)
    async with sweeping(engine) as sweeper:
        (org,) = await sweeper.orgs(0)
        after = START - timedelta(days=1), UUID(int=0)
        async with sweeper._db.tenant(engine.org_id) as session:
            (picked,) = await session.fetch("sweep_pick", org.org_id, org.now, org.until, *after, None, None, 10)
            assert picked["goes"]
            await engine.redrive(job.id)
            assert await session.fetch("sweep_hold", org.org_id, org.now, [event_id]) == []


async def test_one_janitor_leads_and_an_org_has_its_turn_once(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    await delivered(engine)
    clock.advance(31 * DAY_S)
    async with sweeping(engine) as ours, sweeping(engine) as theirs:
        (org,) = await ours.orgs(1800)
        assert sorted(await asyncio.gather(ours.begin(org, 1800), theirs.begin(org, 1800))) == [False, True]
        assert await theirs.orgs(1800) == []
        async with theirs._db.tenant(engine.org_id) as session:
            await session.fetchrow("lead_sweep")
            assert await ours.batch(org, None) is None
        batch = await ours.batch(org, None)
        assert batch is not None
        assert batch.swept.events == 1
    clock.advance(1801)
    async with sweeping(engine) as later:
        assert len(await later.orgs(1800)) == 1


async def test_every_org_is_swept_by_its_own_policies(engine: Engine, clock: ManualClock) -> None:
    mine, other = engine.org_id, await engine.org("other")
    await engine.policy("integration", kind="manual", retention={"delivered_s": None})
    for org_id in (mine, other):
        engine.org_id = org_id
        event_id = await engine.accept("for nobody")
        await engine.acknowledge(event_id)
    clock.advance(31 * DAY_S)
    janitor = Janitor(lambda: sweeping(engine), every_s=3600, dice=lambda: 0.5, rest=0)
    done = await janitor.sweep(rested_s=0)
    assert {name: swept.events for name, swept in done.items()} == {"default": 0, "other": 1}
    assert {row["org_id"] for row in await engine.sql.fetch("SELECT org_id FROM redrive.event")} == {mine}


async def test_the_inbox_goes_by_the_org_s_own_default_where_it_has_one(engine: Engine, clock: ManualClock) -> None:
    await engine.acknowledge(await engine.accept("for nobody"))
    async with engine.app.tenant(engine.org_id) as session:
        ours = Policy.from_spec({"kind": "manual", "retention": {"delivered_s": 40 * DAY_S}})
        await put_policy(session, "ours", ours, PERSON, Binding(is_default=True))
    clock.advance(40 * DAY_S - 1)
    assert await sweep(engine) == Swept()
    clock.advance(2)
    assert (await sweep(engine)).events == 1


async def _claimed(engine: Engine) -> None:
    async with engine.app.tenant(engine.org_id) as session:
        assert await idempotency.claim(session, "endpoint", "order-7", b"digest") is None


async def test_idempotency_keys_go_after_seven_days(engine: Engine, clock: ManualClock) -> None:
    await _claimed(engine)
    claimed_at: datetime = await engine.sql.fetchval("SELECT created_at FROM redrive.idempotency")
    clock.advance((claimed_at + timedelta(days=7, seconds=-1) - clock.now()).total_seconds())
    assert await sweep(engine) == Swept()
    clock.advance(2)
    assert await sweep(engine) == Swept(idempotency_keys=1)
    await _claimed(engine)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM redrive.endpoint",
        "SELECT * FROM redrive.api_key",
        "SELECT * FROM redrive.audit",
        "DELETE FROM redrive.audit",
        "DELETE FROM redrive.policy",
        "DELETE FROM redrive.counter",
        "DELETE FROM redrive.org",
        "UPDATE redrive.task SET state = 'dead'",
        "UPDATE redrive.org SET name = 'x'",
        "INSERT INTO redrive.org (org_id, name) VALUES (gen_random_uuid(), 'x')",
        "UPDATE redrive.dead_letter SET state = 'resolved'",
        "UPDATE redrive.notice SET told_at = now()",
        "SELECT * FROM redrive.notice_more",
        "SELECT * FROM redrive.installation",
    ],
)
async def test_the_janitor_can_do_nothing_else(engine: Engine, statement: str) -> None:
    connection: Connection = await asyncpg.connect(engine.url, server_settings={"role": "redrive_janitor"})
    try:
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="permission denied"):
            await connection.execute(statement)
    finally:
        await connection.close()


async def test_operations_go_with_their_items_some_time_after_their_end(
    engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH_ITEMS", 7)
    monkeypatch.setattr(retention, "BATCH_OPERATIONS", 2)
    await engine.endpoint()
    for items in (20, 1, 3, 5, 6):
        await _ended_operation(engine, items)
    clock.advance(retention.OPERATION_TTL_S)
    assert await sweep(engine) == Swept()
    await _ended_operation(engine, 2)
    await _begun_operation(engine, await _failed_once(engine))  # nobody works on it: it has not ended
    clock.advance(1)
    assert await sweep(engine, dry_run=True) == Swept(operations=5)
    assert await sweep(engine) == Swept(operations=5)
    assert await engine.counts("SELECT total, total FROM redrive.operation") == {"2": 2, "1": 1}
    assert await engine.sql.fetchval("SELECT count(*) FROM redrive.operation_item") == 3
    assert (await check(engine.url, now=clock.now(), grace_s=366 * DAY_S)).clean


async def test_a_batch_of_the_items_of_a_large_operation_leaves_a_sound_database(
    engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH_ITEMS", 7)
    await _ended_operation(engine, 20)
    clock.advance(retention.OPERATION_TTL_S + 1)
    async with sweeping(engine) as sweeper:
        (org,) = await sweeper.orgs(0)
        left_items = []
        place = None
        while (batch := await sweeper.batch(org, place)) is not None:
            left_items.append(await engine.sql.fetchval("SELECT count(*) FROM redrive.operation_item"))
            assert (await check(engine.url, now=clock.now())).clean
            if (place := batch.place) is None:
                break
    assert left_items == [13, 6, 0, 0]


async def _begun_operation(engine: Engine, *ids: UUID) -> UUID:
    async with engine.app.tenant(engine.org_id) as session:
        row = await operations.create(session, OperationSpec("retry_queue", "retry", ids), PERSON, engine.clock)
    steps = OperationSteps(engine.db, engine.clock)
    while (await steps.step_of(engine.org_id, row["id"])).rest_s == 0:
        pass
    operation_id: UUID = row["id"]
    return operation_id


async def _ended_operation(engine: Engine, items: int) -> None:
    """Of tasks that do not exist: each fails at once."""
    await _begun_operation(engine, *(new_id() for _ in range(items)))


async def _failed_once(engine: Engine) -> UUID:
    await engine.accept()
    job = await engine.claim_one()
    await engine.fail(job)
    return job.id


async def test_a_dead_letter_that_halts_a_lane_stays_until_a_person_acts(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint(ordered=True, on_block="halt", policy="relay")
    first = await engine.accept()
    dead = await engine.claim_one()
    await engine.kill(dead)
    clock.advance(400 * DAY_S)
    second = await engine.accept()
    assert await sweep(engine) == Swept()
    assert await left(engine) == {first, second}
    assert (await check(engine.url, now=clock.now())).clean
    await engine.mark_letter(dead.id, "ignored")
    assert (await sweep(engine)).events == 1
    assert [job.event_id for job in await engine.claim()] == [second]


async def test_a_lane_is_forgotten_when_nothing_is_open_in_it_and_no_halt_is_left(
    engine: Engine, clock: ManualClock
) -> None:
    await engine.endpoint("idle", event_types=("idle",), ordered=True, on_block="halt")
    await engine.endpoint("busy", event_types=("busy",), ordered=True, on_block="halt")
    halted = await engine.endpoint("halted", event_types=("halted",), ordered=True, on_block="halt")
    for event_type in ("idle", "busy", "halted"):
        await engine.accept(event_type)
        dead = await engine.claim_one()
        await engine.kill(dead)
        if event_type != "halted":
            await engine.mark_letter(dead.id, "ignored")
    await engine.accept("busy")
    async with sweeping(engine, dry_run=True) as sweeper:
        await sweeper.forget_lanes()
    assert await engine.sql.fetchval("SELECT count(*) FROM redrive.lane") == 3
    await sweep(engine)
    busy = (await engine.claim_one()).lane
    assert {row["lane"] for row in await engine.sql.fetch("SELECT lane FROM redrive.lane")} == {halted, busy}


async def test_a_gap_is_remembered_for_a_year(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint(ordered=True)
    for years, gap in ((0.99, 1), (1.01, 0)):
        await engine.accept()
        await engine.kill(await engine.claim_one())
        clock.advance(years * 365 * DAY_S)
        await sweep(engine)
        await engine.accept()
        job = await engine.claim_one()
        assert job.gap == gap
        await engine.succeed(job)
