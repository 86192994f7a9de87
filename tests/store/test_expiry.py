"""Expiry by the janitor: what waits longer than its policy allows dies, and nothing else does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from structlog.testing import capture_logs

from redrive.core.decide import Reason
from redrive.core.fingerprint import fingerprint
from redrive.core.policy import DAY_S
from redrive.core.sweep import Swept
from redrive.engine.janitor import Janitor
from redrive.store import expiry
from redrive.store.audit import Act
from redrive.store.check import check
from redrive.store.db import Record, Session
from redrive.store.events import accept_test
from redrive.store.expiry import Expiry
from redrive.store.lanes import resume_lane
from redrive.store.notices import CALL_WINDOW_S, Notices
from redrive.store.pausing import PauseScope
from redrive.store.retention import NOTICE_TTL_S, Retention
from support.engine import PERSON, UNAVAILABLE, Engine, ManualClock

WEEK_S = 7 * DAY_S


@asynccontextmanager
async def sweeping(engine: Engine, *, dry_run: bool = False) -> AsyncIterator[Retention]:
    lets_die = Expiry(engine.db, engine.clock, dry_run=dry_run)
    yield Retention(await engine.janitor(), engine.clock, Act("engine"), expiry=lets_die, dry_run=dry_run)


async def sweep(engine: Engine, **options: Any) -> Swept:
    """One pass over the one org."""
    janitor = Janitor(lambda: sweeping(engine, **options), every_s=3600, dice=lambda: 0.5, rest=0)
    return (await janitor.sweep(rested_s=0))["default"]


async def states(engine: Engine) -> dict[str, int]:
    return await engine.counts("SELECT state || coalesce(' ' || reason, ''), count(*) FROM redrive.task GROUP BY 1")


async def test_what_nobody_takes_up_dies_when_its_policy_says_so(engine: Engine, clock: ManualClock) -> None:
    endpoint_id = await engine.endpoint("hub", policy="relay")
    event_id = await engine.accept(correlation_id="c-7")
    clock.advance(WEEK_S - 1)
    assert (await sweep(engine)).expired == 0
    clock.advance(1)
    with capture_logs() as logged:
        assert await sweep(engine) == Swept(expired=1)
    task = await engine.task_of(event_id)
    assert (task["state"], task["reason"], task["updated_at"]) == ("dead", "expired", clock.now())
    letter = await engine.letter(task["id"])
    assert letter is not None
    message = "It was not delivered within the 7 days that its policy allows: no try was made in that time."
    assert (letter["state"], letter["reason"], letter["category"]) == ("open", "expired", "timeout")
    assert (letter["error_message"], letter["failed_at"]) == (message, clock.now())
    assert letter["fingerprint"] == fingerprint("http", str(endpoint_id), "timeout", message)
    assert '"name": "hub"' in letter["config"]
    assert await engine.sql.fetchval("SELECT count(*) FROM redrive.notice WHERE subject_id = $1", task["id"]) == 1
    assert [line["event"] for line in logged] == ["event_failed", "status_transition", "tasks_expired"]
    failed = logged[0]
    assert (failed["event_id"], failed["task"], failed["correlation_id"]) == (str(event_id), str(task["id"]), "c-7")
    assert (failed["reason"], failed["last_error"], failed["failed_at"]) == (
        "expired",
        message,
        clock.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
    )
    assert (logged[1]["old_status"], logged[1]["new_status"]) == ("queued", "failed")
    assert "attempt" not in failed.keys() | logged[1].keys()  # nobody tried it
    assert await sweep(engine) == Swept()
    assert (await check(engine.url, now=clock.now())).clean


async def test_a_retry_that_is_due_later_than_the_end_does_not_save_a_task(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint(policy="relay")
    event_id = await engine.accept()
    await engine.fail(await engine.claim_one(), delay_s=30 * DAY_S)
    clock.advance(WEEK_S)
    assert (await sweep(engine)).expired == 1
    letter = await engine.letter((await engine.task_of(event_id))["id"])
    assert letter is not None
    assert letter["error_message"] == "HTTP 503 Service Unavailable"


async def test_what_is_paused_or_in_hand_or_has_no_end_does_not_expire(engine: Engine, clock: ManualClock) -> None:
    paused = await engine.endpoint("paused", policy="relay", event_types=("held",))
    await engine.endpoint("relay", policy="relay", event_types=("leased", "done"))
    await engine.endpoint("patient", policy="manual", event_types=("patient",))
    await engine.pause(PauseScope.ENDPOINT, paused)
    for event_type in ("held", "leased", "done"):
        await engine.accept(event_type)
    await engine.accept("patient")
    clock.advance(WEEK_S - 1)
    for job in await engine.claim():
        if job.event_type == "done":
            await engine.succeed(job)
        if job.event_type == "patient":
            await engine.fail(job)
    clock.advance(1)
    assert await states(engine) == {"held": 1, "leased": 1, "succeeded": 1, "waiting": 1}
    assert (await sweep(engine)).expired == 0


SCOPES = (PauseScope.ENDPOINT, PauseScope.ORG, PauseScope.INSTALLATION)


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("is_held", [True, False])
async def test_b9_a_pause_suspends_the_age_and_what_is_too_old_when_it_ends_gets_one_try(
    engine: Engine, clock: ManualClock, scope: PauseScope, is_held: bool
) -> None:
    endpoint_id = await engine.endpoint(policy="relay")
    old = await engine.accept()
    await engine.fail(await engine.claim_one())
    clock.advance(3 * DAY_S)
    young = await engine.accept()
    which = endpoint_id if scope is PauseScope.ENDPOINT else None
    await engine.pause(scope, which)
    clock.advance(5 * DAY_S)
    if is_held:
        assert await engine.claim() == []
    assert (await sweep(engine)).expired == 0
    await engine.resume(scope, which)
    resumed_at = clock.now()
    assert (await sweep(engine)).expired == 0
    jobs = {job.event_id: job for job in await engine.claim()}
    assert {job.free_since for job in jobs.values()} == {resumed_at}
    assert jobs[old].begun_at == resumed_at - timedelta(days=8)  # the pause is part of its age
    clock.advance(1)
    for job in jobs.values():
        await engine.fail(job, delay_s=2 * WEEK_S)
    assert (await sweep(engine)).expired == 1  # the old one: it had its try
    assert (await engine.task_of(old))["reason"] == "expired"
    clock.advance(2 * DAY_S - 2)
    assert (await sweep(engine)).expired == 0
    clock.advance(1)
    assert (await sweep(engine)).expired == 1  # the other one, seven days after it was received
    assert (await engine.task_of(young))["reason"] == "expired"
    assert (await check(engine.url, now=clock.now())).clean


async def test_b9_what_gets_no_try_after_a_pause_dies_too(engine: Engine, clock: ManualClock) -> None:
    """Its hub does not come back, say: then it waits for its one try as long as its policy allows, and no longer."""
    endpoint_id = await engine.endpoint(policy="relay")
    await engine.accept()
    await engine.pause(PauseScope.ENDPOINT, endpoint_id)
    clock.advance(WEEK_S)
    await engine.resume(PauseScope.ENDPOINT, endpoint_id)
    clock.advance(WEEK_S - 1)
    assert (await sweep(engine)).expired == 0
    clock.advance(1)
    assert (await sweep(engine)).expired == 1


@pytest.mark.parametrize("is_held", [True, False])
@pytest.mark.parametrize("by", ["person", "engine"])
async def test_b9_neither_disabling_nor_enabling_changes_the_age(
    engine: Engine, clock: ManualClock, by: str, is_held: bool
) -> None:
    endpoint_id = await engine.endpoint(policy="relay")
    await engine.accept_many(2)
    clock.advance(DAY_S)
    if by == "person":
        await engine.change_endpoint(endpoint_id, disabled=True)
    else:
        await engine.tasks.disable_endpoint(engine.org_id, endpoint_id, "It answered 410 Gone.")
    if is_held:
        assert await engine.claim() == []
    clock.advance(5 * DAY_S)
    await engine.change_endpoint(endpoint_id, disabled=False)
    await engine.change_endpoint(endpoint_id, disabled=True)
    if is_held:
        assert await engine.claim() == []
    clock.advance(DAY_S - 1)
    assert (await sweep(engine)).expired == 0
    assert await states(engine) == {"held" if is_held else "waiting": 2}
    clock.advance(1)
    assert (await sweep(engine)).expired == 2
    await engine.change_endpoint(endpoint_id, disabled=False)
    assert await states(engine) == {"dead expired": 2}
    counted = "SELECT name, sum(n) FROM redrive.counter WHERE name LIKE 'task.%' GROUP BY 1 HAVING sum(n) <> 0"
    assert await engine.counts(counted) == {"task.dead": 2}
    assert (await check(engine.url, now=clock.now())).clean


@pytest.mark.parametrize("breaker", ["open", "ramping"])
async def test_b9_a_breaker_does_not_change_the_age(engine: Engine, clock: ManualClock, breaker: str) -> None:
    endpoint_id = await engine.endpoint(policy="relay")
    await engine.accept()
    await engine.sql.execute(
        "INSERT INTO redrive.endpoint_state (org_id, endpoint_id, breaker) VALUES ($1, $2, $3)",
        *(engine.org_id, endpoint_id, breaker),
    )
    await engine.accept()
    clock.advance(WEEK_S - 1)
    assert (await sweep(engine)).expired == 0
    clock.advance(1)
    assert (await sweep(engine)).expired == 2


async def test_b9_a_lease_that_was_lost_does_not_outlive_the_age(engine: Engine, clock: ManualClock) -> None:
    """Also where nobody takes it over: no worker is there, or a breaker is open."""
    endpoint_id = await engine.endpoint(policy="relay")
    event_id = await engine.accept()
    lost = await engine.claim_one()
    await engine.sql.execute(
        "INSERT INTO redrive.endpoint_state (org_id, endpoint_id, breaker) VALUES ($1, $2, 'open')",
        *(engine.org_id, endpoint_id),
    )
    clock.advance(WEEK_S)
    assert await engine.claim() == []
    assert (await sweep(engine)).expired == 1
    task = await engine.task_of(event_id)
    assert (task["state"], task["reason"], task["attempts"]) == ("dead", "expired", 1)
    (attempt,) = await engine.attempts(task["id"])
    assert (attempt["result"], attempt["possible_duplicate"], attempt["number"]) == ("lost", True, 1)
    assert not (await engine.succeed(lost)).held_lease  # its worker was not dead
    assert (await engine.attempts(task["id"]))[0]["late_result"] == "succeeded"
    assert (await check(engine.url, now=clock.now())).clean


async def test_b9_the_followers_in_a_halted_lane_do_not_expire_and_get_one_try_when_it_is_resumed(
    engine: Engine, clock: ManualClock
) -> None:
    endpoint_id = await engine.endpoint(policy="relay", ordered=True, on_block="halt")
    _, second, _ = [await engine.accept() for _ in range(3)]
    await engine.kill(await engine.claim_one())
    clock.advance(2 * WEEK_S)
    assert (await sweep(engine)).expired == 0
    async with engine.app.tenant(engine.org_id) as session:
        assert await resume_lane(session, endpoint_id, endpoint_id, PERSON, clock)
    resumed_at = clock.now()
    clock.advance(WEEK_S - 1)
    assert (await sweep(engine)).expired == 0
    job = await engine.claim_one()
    assert (job.event_id, job.free_since) == (second, resumed_at)
    assert job.begun_at == resumed_at - timedelta(days=14)
    await engine.succeed(job)
    clock.advance(1)
    assert (await sweep(engine)).expired == 1


async def test_b9_what_a_person_does_with_the_letter_that_halted_a_lane_gives_its_followers_their_try(
    engine: Engine, clock: ManualClock
) -> None:
    await engine.endpoint(policy="relay", ordered=True, on_block="halt")
    _, second = [await engine.accept() for _ in range(2)]
    job = await engine.claim_one()
    await engine.kill(job)
    clock.advance(WEEK_S)
    assert await engine.redrive(job.id, at_once=True) is None
    assert (await sweep(engine)).expired == 0
    await engine.succeed(await engine.claim_one())
    job = await engine.claim_one()
    assert (job.event_id, job.free_since) == (second, clock.now())
    await engine.fail(job)
    assert (await sweep(engine)).expired == 1


async def test_what_waits_behind_a_head_that_was_held_does_not_die_without_a_try(
    engine: Engine, clock: ManualClock
) -> None:
    endpoint_id = await engine.endpoint(policy="relay", ordered=True)
    _, second = [await engine.accept() for _ in range(2)]
    await engine.pause(PauseScope.ENDPOINT, endpoint_id)
    assert await engine.claim() == []
    clock.advance(WEEK_S)
    await engine.resume(PauseScope.ENDPOINT, endpoint_id)
    assert (await sweep(engine)).expired == 0
    await engine.succeed(await engine.claim_one())
    job = await engine.claim_one()
    assert (job.event_id, job.free_since) == (second, clock.now())


async def test_what_dies_late_in_a_pass_has_died_then_and_is_told(engine: Engine, clock: ManualClock) -> None:
    """A pass over many orgs takes hours. A death that were dated by its beginning would be no news any more."""
    await engine.endpoint(policy="relay")
    event_id = await engine.accept()
    clock.advance(WEEK_S)
    async with sweeping(engine) as sweeper:
        (org,) = await sweeper.orgs(0)
        young = await engine.accept()
        clock.advance(CALL_WINDOW_S + 1)
        batch = await sweeper.expire(org, None)
    assert batch is not None
    assert [task.died_at for task in batch.tasks] == [clock.now()]
    letter = await engine.letter((await engine.task_of(event_id))["id"])
    assert letter is not None
    assert (letter["failed_at"], letter["created_at"]) == (clock.now(), clock.now())
    calls = await Notices(engine.db, clock).take_calls(limit=5, most_calls=3, lease_s=60)
    assert [call.notice.at for call in calls] == [clock.now()]
    assert (await engine.task_of(young))["state"] == "waiting"


async def test_a_batch_that_the_server_broke_up_is_made_again(
    engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await engine.endpoint(policy="relay")
    await engine.accept()
    clock.advance(WEEK_S)
    real = Session.fetch
    met: list[str] = []

    async def fetch(session: Session, name: str, *args: object) -> list[Record]:
        if name == "expire_many" and not met:
            met.append(name)
            raise asyncpg.DeadlockDetectedError("deadlock detected")
        return await real(session, name, *args)

    monkeypatch.setattr(Session, "fetch", fetch)
    assert (await sweep(engine)).expired == 1
    assert met


async def test_a_redriven_task_has_its_time_anew(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint(policy="relay")
    await engine.accept()
    job = await engine.claim_one()
    await engine.kill(job, Reason.PERMANENT)
    clock.advance(WEEK_S - 1)
    assert await engine.redrive(job.id) is None
    clock.advance(WEEK_S - 1)
    assert (await sweep(engine)).expired == 0
    clock.advance(1)
    assert (await sweep(engine)).expired == 1
    letter = await engine.letter(job.id)
    assert letter is not None
    assert (letter["state"], letter["generation"], letter["replay_outcome"]) == ("open", 1, "failed")
    assert letter["error_message"] == "HTTP 404 Not Found"
    assert (await check(engine.url, now=clock.now())).clean


async def test_a_test_that_expires_is_nobody_s_work(engine: Engine, clock: ManualClock) -> None:
    endpoint_id = await engine.endpoint(policy="relay")
    async with engine.db.tenant(engine.org_id) as session:
        await accept_test(session, engine.new_event("a test", endpoint_id=endpoint_id), PERSON, clock)
    clock.advance(WEEK_S)
    assert (await sweep(engine)).expired == 1
    assert await engine.sql.fetchval("SELECT state FROM redrive.dead_letter") == "ignored"
    assert await engine.sql.fetchval("SELECT count(*) FROM redrive.notice") == 0
    assert (await check(engine.url, now=clock.now())).clean


async def test_a_pass_goes_in_batches_past_what_stays_and_through_events_with_many_tasks(
    engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "BATCH_TASKS", 3)
    for n in range(4):
        await engine.endpoint(f"relay {n}", policy="relay", event_types=("old",))
    await engine.endpoint("patient", policy="manual", event_types=("old", "patient"))
    await engine.accept_many(5, event_type="old")
    await engine.accept_many(10, event_type="patient")
    clock.advance(1)
    await engine.accept_many(3, event_type="old")
    clock.advance(WEEK_S)
    assert (await sweep(engine, dry_run=True)).expired == 32
    assert await states(engine) == {"waiting": 50}
    assert (await sweep(engine)).expired == 32
    assert await states(engine) == {"waiting": 18, "dead expired": 32}
    assert await engine.counts("SELECT name, sum(n) FROM redrive.counter WHERE name LIKE 'task.%' GROUP BY 1") == {
        "task.waiting": 18,
        "task.dead": 32,
    }
    assert (await check(engine.url, now=clock.now(), grace_s=2 * WEEK_S)).clean


async def test_what_a_worker_takes_up_meanwhile_is_left_to_it(
    engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await engine.endpoint(policy="relay")
    await engine.accept_many(3)
    clock.advance(WEEK_S)
    taken: list[UUID] = []

    async def work() -> None:
        (job,) = await engine.claim(1)
        taken.append(job.id)

    async with sweeping(engine) as sweeper, engine.sql.acquire() as person, person.transaction():
        (org,) = await sweeper.orgs(0)
        assert sweeper._expiry is not None
        async with engine.db.transaction() as session:
            rows = await session.fetch("expire_pick", *_terms(org))
            await work()
            held = next(row["id"] for row in rows if row["id"] not in taken)
            await person.execute("SELECT FROM redrive.task WHERE id = $1 FOR UPDATE", held)
            deaths = [expiry._death(row, None) for row in rows]
            died = await session.fetch("expire_many", org.now, org.org_id, *zip(*deaths, strict=True))
    assert len(died) == 1
    assert {row["id"] for row in died}.isdisjoint({held, *taken})


def _terms(org: Any) -> tuple[object, ...]:
    return org.org_id, org.now, org.aged_until, expiry._START.due_at, expiry._START.task_id, 10


async def test_one_janitor_at_a_time_lets_tasks_die(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint(policy="relay")
    await engine.accept()
    clock.advance(WEEK_S)
    async with sweeping(engine) as sweeper, engine.db.transaction() as other:
        (org,) = await sweeper.orgs(0)
        await other.fetchrow("lead_sweep")
        assert await sweeper.expire(org, None) is None
    assert await states(engine) == {"waiting": 1}


async def test_an_org_whose_policies_know_no_end_is_not_looked_through(engine: Engine, clock: ManualClock) -> None:
    await engine.sql.execute("""UPDATE redrive.policy SET spec = spec || '{"max_age_s": null}'""")
    await engine.endpoint()
    await engine.accept()
    clock.advance(365 * DAY_S)
    async with sweeping(engine) as sweeper:
        (org,) = await sweeper.orgs(0)
        assert org.aged_until is None
    assert (await sweep(engine)).expired == 0


async def test_a_storm_of_expiry_is_told_in_few_words(
    engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "BATCH_TASKS", 50)  # it takes some of them
    await engine.endpoint(policy="relay")
    await engine.accept_many(120)
    clock.advance(WEEK_S)
    assert (await sweep(engine)).expired == 120
    assert await engine.sql.fetchval("SELECT count(*) FROM redrive.notice") == 20
    assert await engine.sql.fetchval("SELECT sum(n) FROM redrive.notice_more") == 100


async def test_worker_and_janitor_at_once_let_each_task_die_once(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint(policy="relay")
    await engine.accept_many(300)
    clock.advance(WEEK_S)
    await asyncio.gather(sweep(engine), engine.run_until_idle())
    assert await states(engine) == {"dead expired": 300}
    assert await engine.sql.fetchval("SELECT count(*) FROM redrive.dead_letter") == 300
    told = "SELECT (SELECT count(*) FROM redrive.notice) + (SELECT coalesce(sum(n), 0) FROM redrive.notice_more)"
    assert await engine.sql.fetchval(told) == 300
    assert (await check(engine.url, now=clock.now())).clean


async def test_notices_go_thirty_days_after_they_were_told(engine: Engine, clock: ManualClock) -> None:
    note = "SELECT redrive.note($1, 'a', 'info', 'org', $1, 'A word.', '{}', $2)"
    await engine.sql.execute(note, engine.org_id, clock.now())
    await engine.sql.execute("UPDATE redrive.notice SET told_at = at")
    await engine.sql.execute(note, engine.org_id, clock.now())  # which nobody has told
    clock.advance(NOTICE_TTL_S)
    assert await sweep(engine) == Swept()
    clock.advance(1)
    assert await sweep(engine, dry_run=True) == await sweep(engine) == Swept(notices=1)
    assert await engine.sql.fetchval("SELECT told_at FROM redrive.notice") is None


async def test_the_dry_run_of_an_expiry_writes_nothing(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint(policy="relay")
    await engine.accept()
    await engine.fail(await engine.claim_one(), failure=UNAVAILABLE)
    clock.advance(WEEK_S)
    expiring = Expiry(engine.db, engine.clock, dry_run=True)
    async with sweeping(engine) as sweeper:
        (org,) = await sweeper.orgs(0)
    batch = await expiring.batch(org, None)
    assert batch is not None
    assert (batch.expired, batch.tasks) == (1, [])
    assert await states(engine) == {"waiting": 1}
