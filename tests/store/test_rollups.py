"""What happens is tallied as it is written and rolled up afterwards: nothing twice, nothing missed, at any moment."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from redrive.core.analytics import Dimension, Outcomes, Period
from redrive.core.breaker import BreakerState
from redrive.core.decide import Reason
from redrive.core.policy import DAY_S
from redrive.engine.janitor import Janitor
from redrive.store import rollups
from redrive.store.analytics import by_key, over_time, waits_of
from redrive.store.audit import Act
from redrive.store.check import RULES, check
from redrive.store.db import Record, query
from redrive.store.dead_messages import DeadMessages
from redrive.store.endpoint_states import BreakerStates
from redrive.store.events import accept, accept_test
from redrive.store.expiry import Expiry
from redrive.store.orgs import new_id
from redrive.store.retention import Retention
from redrive.store.rollups import KEPT_S, MAX_KEYS_A_DAY, Death, Roller, totals
from support.dead_messages import dead_message
from support.engine import PERSON, REFUSED, UNAVAILABLE, Engine, ManualClock, Shared, clear, engine_by

from .rollup_log import Log, Place, delivered, died, tried
from .test_plans import _nodes

TYPES = ("t.one", "t.two", "nobody.s")
SYSTEMS = (None, "sap", "crm")
ACTS = (
    *("accept", "accept", "accept", "succeed", "succeed", "fail", "fail", "die", "redrive", "redrive", "skip", "lose"),
    *("ack", "delete", "sweep", "test", "roll", "roll", "look", "wait"),
)
acts = st.tuples(st.sampled_from(ACTS), st.integers(0, 10**6))


class Traffic:
    """One act after another, each written down as it is done."""

    def __init__(self, engine: Engine, clock: ManualClock) -> None:
        self.engine, self.clock = engine, clock
        self.log = Log()
        self.roller = Roller(engine.db, clock)
        self.forgotten = clock.now() - timedelta(days=3650)
        self.endpoints: list[Any] = []

    async def begin(self) -> None:
        await self.engine.policy("short", kind="immediate", delays_s=[1], max_retries=50, max_age_s=2 * DAY_S)
        for name, spec in (("a", {"event_types": ["t.*"]}), ("b", {"event_types": ["t.two"], "external_system": "b"})):
            self.endpoints.append(await self.engine.endpoint(name, policy="short", **spec))

    async def rows(self, condition: str) -> list[Record]:
        return await self.engine.sql.fetch(f"SELECT * FROM redrive.task WHERE {condition} ORDER BY id")

    async def one(self, condition: str, pick: int) -> Record | None:
        rows = await self.rows(condition)
        return rows[pick % len(rows)] if rows else None

    def note(self, row: Record, what: Outcomes, *deaths: Death, state: str | None = None) -> None:
        """`state`: where it came to stand, if it ended or was redriven, alone of its event."""
        if not row["is_test"]:
            self.log.task(self.clock.now(), row, what, *deaths)
        if row["has_siblings"] and state is not None:
            self.log.moved(self.clock.now(), [row], state)

    async def accept(self, pick: int) -> None:
        fields = {"event_type": TYPES[pick % 3], "external_system": SYSTEMS[pick // 3 % 3]}
        for event_id in await self.engine.accept_many(1 + pick % 4, **fields):
            self.log.event(self.clock.now(), await self.engine.event(event_id), Outcomes(created=1))
            tasks = [row["id"] for row in await self.rows(f"event_id = '{event_id}'")]
            if len(tasks) > 1:
                self.log.fanned_out(event_id, tasks)

    async def test(self, pick: int) -> None:
        event = self.engine.new_event("a.test", endpoint_id=self.endpoints[pick % 2])
        async with self.engine.db.tenant(self.engine.org_id) as session:
            await accept_test(session, event, PERSON, self.clock)

    async def claimed(self, pick: int) -> tuple[Any, Record] | None:
        """A lease, and its task as it was. What a claim finds lost was tried, and counts."""
        lost = {row["id"]: row for row in await self.rows("state = 'leased'")}
        jobs = await self.engine.claim(1 + pick % 3)
        for job in jobs:
            if job.lost:
                self.note(lost[job.id], tried(lost[job.id]))
        return (jobs[0], await self.engine.task(jobs[0].id)) if jobs else None

    async def succeed(self, pick: int) -> None:
        if found := await self.claimed(pick):
            job, row = found
            await self.engine.succeed(job)
            self.note(row, delivered(row, self.clock.now()), state="succeeded")

    async def fail(self, pick: int) -> None:
        if found := await self.claimed(pick):
            job, row = found
            await self.engine.fail(job, delay_s=pick % 60)
            self.note(row, tried(row))

    async def die(self, pick: int) -> None:
        if found := await self.claimed(pick):
            job, row = found
            reason, failure = ((Reason.PERMANENT, REFUSED), (Reason.EXHAUSTED, UNAVAILABLE))[pick % 2]
            await self.engine.kill(job, reason, failure)
            self.note(row, died(row, by_try=True), Death(reason, failure.category), state="dead")

    async def lose(self, pick: int) -> None:
        await self.claimed(pick)
        self.clock.advance(3_600)

    async def redrive(self, pick: int) -> None:
        if (row := await self.one("state = 'dead'", pick)) and await self.engine.redrive(row["id"]) is None:
            self.note(row, Outcomes(redriven=1, events_redriven=int(not row["has_siblings"])), state="open")

    async def skip(self, pick: int) -> None:
        row = await self.one("state = 'waiting'", pick)
        if row and await self.engine.skip(row["id"]) is None:
            letter = await self.engine.letter(row["id"])
            assert letter is not None
            self.note(row, died(row, by_try=False), Death("skipped", letter["category"]), state="dead")

    async def ack(self, pick: int) -> None:
        waiting = await self.engine.sql.fetch(
            "SELECT * FROM redrive.event WHERE tasks = 0 AND acked_at IS NULL ORDER BY id"
        )
        if waiting:
            event = waiting[pick % len(waiting)]
            await self.engine.acknowledge(event["id"])
            self.log.event(self.clock.now(), event, Outcomes(acknowledged=1))

    async def delete(self, pick: int) -> None:
        if row := await self.one("NOT open", pick):
            await self.engine.delete_event(row["event_id"])

    async def sweep(self, pick: int) -> None:
        self.clock.advance(pick % int(3 * DAY_S))
        before = {row["id"]: row for row in await self.rows("open")}

        @asynccontextmanager
        async def opened() -> AsyncIterator[Retention]:
            expiry = Expiry(self.engine.db, self.clock, dry_run=False)
            yield Retention(await self.engine.janitor(), self.clock, Act("engine"), expiry=expiry)

        await Janitor(opened, every_s=3_600, dice=lambda: 0.5, rest=0).sweep(rested_s=0)
        self.forgotten = self.clock.now() - timedelta(seconds=KEPT_S["minute"])
        expired = [before[row["id"]] for row in await self.rows("reason = 'expired'") if row["id"] in before]
        for row in expired:
            letter = await self.engine.letter(row["id"])
            assert letter is not None
            self.note(row, died(row, by_try=row["state"] == "leased"), Death("expired", letter["category"]))
        self.log.moved(self.clock.now(), [row for row in expired if row["has_siblings"]], "dead")

    async def roll(self, pick: int) -> None:
        await self.roller.roll(1 + pick % 10)

    async def roll_all(self) -> None:
        while await self.roller.roll(7):
            pass

    async def wait(self, pick: int) -> None:
        self.clock.advance(pick % 7_200)

    async def look(self, pick: int) -> None:
        """However much of it is rolled."""
        assert await totals(self.engine.db) == self.log.totals()
        async with self.engine.app.tenant(self.engine.org_id) as session:
            course = await over_time(session, self.clock, Period.YEAR)
            ranking = await by_key(session, self.clock, Period.YEAR, list(Dimension)[pick % 3], limit=2)
        assert course.whole == self.log.whole(self.engine.org_id)
        listed = sum(keyed.outcomes.delivered for keyed in ranking.keys)
        rest = 0 if ranking.others is None else ranking.others.delivered
        assert listed + rest <= course.whole.delivered

    async def kept(self) -> dict[Place, Outcomes]:
        rows = await self.engine.sql.fetch("SELECT * FROM redrive.rollup")
        return {Place(*(row[name] for name in Place._fields)): _outcomes(row) for row in rows}

    def expected(self) -> dict[Place, Outcomes]:
        return {
            place: what
            for place, what in self.log.rollups().items()
            if place.span != "minute" or place.at >= self.forgotten
        }


async def test_rollups_and_totals_are_what_a_count_of_all_that_happened_says(
    engine: Engine, shared_database: Shared
) -> None:
    async def example(steps: list[tuple[str, int]]) -> None:
        await clear(shared_database.owner)
        clock = ManualClock()
        traffic = Traffic(await engine_by(shared_database.ways, clock), clock)
        await traffic.begin()
        for name, pick in [*steps, ("look", 0)]:
            await getattr(traffic, name)(pick)
        await traffic.roll_all()
        await traffic.sweep(0)
        await traffic.roll_all()
        await traffic.look(0)
        assert _without_tests(await traffic.kept()) == traffic.expected()
        rules = [rule for rule in RULES if rule.name in ("rollups", "counters")]
        report = await check(engine.url, now=clock.now(), rules=rules)
        assert report.clean, report.violations

    loop = asyncio.get_running_loop()

    @given(st.lists(acts, min_size=25, max_size=60))
    @settings(max_examples=12, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    def whatever_happens(steps: list[tuple[str, int]]) -> None:
        asyncio.run_coroutine_threadsafe(example(steps), loop).result()

    await asyncio.to_thread(whatever_happens)


def _without_tests(kept: dict[Place, Outcomes]) -> dict[Place, Outcomes]:
    """A test is taken off again: that leaves rows of nothing."""
    return {place: what for place, what in kept.items() if what != Outcomes()}


def _outcomes(row: Record) -> Outcomes:
    numbers = {name: row[name] for name in ("created", "delivered", "failed", "untried", "redriven")}
    arrays: dict[str, Any] = {name: tuple(row[name]) for name in ("saved", "lost")}
    arrays |= {"waits": waits_of(row), "firsts": waits_of(row, "wait_firsts")}
    tries = {name: row[name] for name in ("attempts", "retries", "retried", "events_failed", "events_redriven")}
    return Outcomes(
        acknowledged=row["acked"],
        events_routed=row["events_delivered"],
        waited_s=row["waited"].total_seconds(),
        **numbers,
        **arrays,
        **tries,
    )


async def test_a_redriven_task_that_dies_again_is_another_death_and_a_test_is_none(
    engine: Engine, clock: ManualClock
) -> None:
    endpoint_id = await engine.endpoint()
    await engine.accept(external_system="sap")
    job = await engine.claim_one()
    await engine.kill(job)
    await engine.redrive(job.id, at_once=True)
    await engine.kill(await engine.claim_one(), Reason.EXHAUSTED, UNAVAILABLE)
    async with engine.db.tenant(engine.org_id) as session:
        await accept_test(session, engine.new_event("a.test", endpoint_id=endpoint_id), PERSON, clock)
    await engine.kill(await engine.claim_one())
    found = await totals(engine.db)
    assert (found.created, found.failed, found.redriven, found.attempts, found.retries) == (1, 2, 1, 2, 1)
    assert found.deaths == {Death("exhausted", "server_error"): 1, Death("permanent", "client_error"): 1}
    assert found.ended_after[:3] == (1, 1, 0)


async def test_a_message_that_died_in_its_broker_is_a_death_here_once(engine: Engine, clock: ManualClock) -> None:
    book = DeadMessages(engine.db, engine.org_id, clock)
    for _ in range(2):  # the second time it is known
        await book.keep([dead_message(message_id="m-1", retries=3), dead_message(message_id="m-2")])
    found = await totals(engine.db)
    assert (found.created, found.failed, found.attempts, found.retries) == (2, 2, 2, 1)
    assert found.deaths == {Death("permanent", "unknown"): 2}
    assert found.ended_after[:4] == (1, 0, 0, 1)


async def test_breakers_that_open_are_in_the_totals_and_ramps_that_fail_are_not(engine: Engine) -> None:
    endpoint_id = await engine.endpoint()
    states, subject = BreakerStates(engine.db, engine.clock), (engine.org_id, endpoint_id)
    assert await states.open_breaker(*subject, taken_for=BreakerState.CLOSED, reason="it fails")
    assert await states.begin_ramp(*subject)
    assert await states.open_breaker(*subject, taken_for=BreakerState.RAMPING, reason="it fails")
    assert (await totals(engine.db)).breaker_openings == 1


async def test_of_many_rollers_one_rolls_and_nothing_is_counted_twice(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    for _ in range(12):
        await engine.accept_many(2)
    before = await totals(engine.db)
    rollers = [Roller(engine.db, clock) for _ in range(4)]
    while any(await asyncio.gather(*(roller.roll(2) for roller in rollers))):
        assert await totals(engine.db) == before
    assert await totals(engine.db) == before
    assert (
        await engine.sql.fetchval("SELECT created FROM redrive.rollup WHERE dimension = 'all' AND span = 'day'") == 24
    )


async def test_a_roller_that_is_killed_in_the_middle_has_moved_nothing(engine: Engine, clock: ManualClock) -> None:
    await engine.accept_many(3)
    connection = await asyncpg.connect(engine.url, server_settings={"role": "redrive_engine"})
    await connection.execute("BEGIN")
    assert await connection.fetchval(query("lead_roll"))
    assert await connection.fetchval(query("roll"), 100, MAX_KEYS_A_DAY, clock.now()) == 1
    assert await Roller(engine.db, clock).roll() == 0  # somebody is at it
    assert (await totals(engine.db)).created == 3
    connection.terminate()  # as if its process were killed
    await engine.until("SELECT NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = 1380271971)")
    assert await Roller(engine.db, clock).roll() == 1
    assert (await totals(engine.db)).created == 3


@pytest.mark.parametrize(("name", "within"), [("lead_roll", "30s"), ("lead_sweep", "5min")])
async def test_whoever_leads_and_says_nothing_is_ended_by_the_server(engine: Engine, name: str, within: str) -> None:
    """A process that is stopped keeps its connection, and with it the lock that everybody else stands back for."""
    asked = "SELECT current_setting('idle_in_transaction_session_timeout')"
    async with engine.sql.acquire() as connection:
        async with connection.transaction():
            assert await connection.fetchval(query(name))
            assert await connection.fetchval(asked) == within
        assert await connection.fetchval(asked) == "0"


async def test_what_commits_late_is_rolled_and_nobody_steps_over_what_is_done_for_ever(
    engine: Engine, clock: ManualClock
) -> None:
    """A writer that stays open has a lower number than what is rolled meanwhile. A reader that stays open keeps
    rows of the tally alive, and the mark passes them all the same."""
    roller = Roller(engine.db, clock)
    reader = await asyncpg.connect(engine.url, server_settings={"role": "redrive_engine"})
    async with engine.db.transaction() as late:
        await accept(late, [engine.new_event()], clock)
        for _ in range(3):
            await engine.accept_many(2)
            assert await roller.roll() == 1
        assert (await totals(engine.db)).created == 6
    assert (await totals(engine.db)).created == 7
    assert await roller.roll() == 1
    async with reader.transaction(isolation="repeatable_read", readonly=True):
        await reader.fetchval("SELECT count(*) FROM redrive.tally")
        for _ in range(3):
            await engine.accept()
            newest = await engine.sql.fetchval("SELECT max(seq) FROM redrive.tally")
            await roller.roll()
        await roller.roll()
        mark = await engine.sql.fetchrow("SELECT * FROM redrive.roll_mark")
        clock.advance(60)
        assert await roller.roll() == 0
        assert await engine.sql.fetchrow("SELECT * FROM redrive.roll_mark") == mark  # an idle one writes nothing
    await reader.close()
    assert mark is not None
    assert mark["done_to"] == newest
    assert (await totals(engine.db)).created == 10


async def test_keys_beyond_the_bound_of_a_day_share_one(
    engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollups, "MAX_KEYS_A_DAY", 3)
    roller = Roller(engine.db, clock)
    for names in ("ab", "bcde", "ae"):
        await engine.accept_all([engine.new_event(f"type.{name}", external_system="one") for name in names])
        await roller.roll()
    kept = "SELECT key, created FROM redrive.rollup WHERE dimension = 'event_type' AND span = '{}' ORDER BY key"
    expected = [("", 3), ("type.a", 2), ("type.b", 2), ("type.c", 1)]
    for span in ("minute", "hour", "day"):
        assert [tuple(row) for row in await engine.sql.fetch(kept.format(span))] == expected
    clock.advance(DAY_S)
    await engine.accept("type.e")
    await roller.roll()
    assert await engine.sql.fetchval("SELECT created FROM redrive.rollup WHERE key = 'type.e' AND span = 'day'") == 1
    async with engine.app.tenant(engine.org_id) as session:
        ranking = await by_key(session, clock, Period.MONTH, Dimension.EVENT_TYPE, limit=2)
    assert [(keyed.key, keyed.outcomes.created) for keyed in ranking.keys] == [("type.a", 2), ("type.b", 2)]
    assert ranking.others is not None
    assert (ranking.others.created, ranking.others_count) == (5, 2)


async def test_what_a_program_calls_a_system_is_rolled_however_long_it_is(engine: Engine, clock: ManualClock) -> None:
    """Of what was handed in by SQL nobody looked how long it was, once, and a key of an index takes 2 700 bytes."""
    name = "".join(map(chr, random.Random(7).choices(range(0x3400, 0x9FFF), k=4_000)))  # that cannot be compressed
    await engine.accept(external_system=name)
    await engine.accept(external_system="short")
    assert await Roller(engine.db, clock).roll() == 2
    keys = await engine.sql.fetch("SELECT key FROM redrive.rollup WHERE dimension = 'external_system' AND span = 'day'")
    assert {row["key"] for row in keys} == {name[:256], "short"}


async def test_keys_that_a_producer_makes_up_cost_no_count_of_all_keys_each(engine: Engine, clock: ManualClock) -> None:
    most = 60
    for prefix in ("known", "new"):
        await engine.accept_all([engine.new_event(f"{prefix}.{n}") for n in range(most)])
        if prefix == "known":
            await Roller(engine.db, clock).roll()
    async with engine.db.transaction() as session:
        await session._connection.execute(f"PREPARE roll AS {query('roll')}")
        explained = await session._connection.fetchval(
            f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE roll(2000, {most}, '{clock.now()}')"
        )
    read = [node for node in _nodes(json.loads(explained)[0]["Plan"]) if node.get("Index Name") == "rollup_pkey"]
    assert 0 < sum(node["Actual Rows"] * node["Actual Loops"] for node in read) < 5 * most


async def test_an_org_sees_its_own_numbers_and_nobody_writes_them_but_the_engine(
    engine: Engine, clock: ManualClock
) -> None:
    other = await engine.org("other")
    await engine.accept_all([engine.new_event(), engine.new_event(org_id=other), engine.new_event(org_id=other)])
    for _ in range(2):
        for org_id, created in ((engine.org_id, 1), (other, 2)):
            async with engine.app.tenant(org_id) as session:
                assert (await over_time(session, clock, Period.HOUR)).whole == Outcomes(created=created)
        assert await Roller(engine.db, clock).roll() in (0, 2)
    for statement in (
        "DELETE FROM redrive.tally",
        "UPDATE redrive.rollup SET failed = 0",
        "SELECT * FROM redrive.total",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            async with engine.app.tenant(engine.org_id) as session:
                await session._connection.execute(statement)


async def test_a_window_is_read_from_its_buckets_and_says_how_it_went(engine: Engine, clock: ManualClock) -> None:
    endpoint_id = await engine.endpoint("hook", external_system="sap")
    await engine.accept_many(4)
    clock.advance(90 * 60)
    first, second, third, fourth = await engine.claim()
    await engine.succeed(first)
    await engine.fail(second, delay_s=0)
    await engine.kill(third)
    await engine.fail(fourth, delay_s=3_600)
    assert await engine.skip(fourth.id) is None
    await engine.succeed(await engine.claim_one())
    await Roller(engine.db, clock).roll(3)  # some of it
    async with engine.app.tenant(engine.org_id) as session:
        hour = await over_time(session, clock, Period.HOUR)
        day = await over_time(session, clock, Period.DAY, Dimension.ENDPOINT, str(endpoint_id))
        (keyed,) = (await by_key(session, clock, Period.WEEK, Dimension.ENDPOINT)).keys
        elsewhere = await over_time(session, clock, Period.DAY, Dimension.ENDPOINT, str(new_id()))
    whole = day.whole
    assert (hour.whole.created, len(hour.moments), hour.moments[-1].outcomes.delivered) == (0, 60, 2)
    assert (keyed.name, keyed.outcomes) == ("hook", whole)
    assert elsewhere.whole == Outcomes()
    assert (whole.delivered, whole.failed, whole.success_rate) == (2, 2, 0.5)
    assert (whole.rescued, whole.rescue_rate, whole.retries_before_success) == (1, 1 / 3, 0.5)
    assert whole.mean_wait_s == 90 * 60
    assert whole.wait_s(0.5) == pytest.approx(5_400, rel=0.025)
