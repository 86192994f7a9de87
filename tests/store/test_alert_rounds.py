"""Alerts on a real database: each rule fires once, stays, and is over once, whatever dies in between."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest
import pytest_asyncio

from redrive.core.alerts import LATELY_S, MAX_TOLD_ALONE, RULES, TOGETHER_EVERY_S
from redrive.core.decide import Reason
from redrive.core.jobs import ALERTS, HEARTBEAT, HERALD, JobReport
from redrive.core.ports import WorkerCard
from redrive.engine.alerts import watch_alerts
from redrive.engine.jobs import unreported
from redrive.store import alert_readings, alert_rounds
from redrive.store.alert_rounds import AlertRounds
from redrive.store.alerts import AlertFilter, get_alert, list_alerts
from redrive.store.audit import Act
from redrive.store.db import Database, Session, query
from redrive.store.events import accept_test
from redrive.store.jobs import JobRows
from redrive.store.orgs import new_id, update_org
from redrive.store.retention import Retention
from redrive.store.stats import stats
from redrive.store.workers import Workers
from support.alerts import EVERY_S, Drive, driven, now_clock
from support.engine import PERSON, Engine, ManualClock, until

CARD = WorkerCard(new_id(), "here", 1, "1", ("http",), 1)
ALSO = {  # what else fires of the same trouble, as it should
    "failure_rate": {"dead_letter_arrived"},
    "dead_letters_open": {"dead_letter_arrived", "failure_rate"},
    "dead_letter_arrived": set(),
    "oldest_due": {"no_worker"},
}


@pytest.fixture
def clock() -> ManualClock:
    return now_clock()


@pytest_asyncio.fixture(loop_scope="session")
async def drive(engine: Engine, clock: ManualClock) -> AsyncIterator[Drive]:
    async with driven(engine, clock) as drive:
        yield drive


async def only(drive: Drive, rule: str) -> None:
    """The others are off, so that one message is one rule's."""
    for name in ALSO.get(rule, set()):
        await drive.set(name, enabled=False)


@pytest.mark.parametrize("rule", RULES)
async def test_a_rule_fires_once_stays_and_is_over_once(drive: Drive, rule: str) -> None:
    await only(drive, rule)
    trouble = drive.of(rule)
    await trouble.begin()
    assert await drive.look() == 1
    opened_at = drive.clock.now()
    assert await drive.firing() == {rule: 1}
    (incident,) = await drive.incidents()
    assert (incident["rule"], incident["severity"], incident["over_at"]) == (rule, RULES[rule].severity, None)
    assert [await drive.look() for _ in range(3)] == [0, 0, 0]
    await trouble.end()
    assert await drive.look() == 1
    assert [await drive.look() for _ in range(3)] == [0, 0, 0]
    (incident,) = await drive.incidents()
    assert incident["opened_at"] == opened_at
    assert incident["over_at"] == drive.clock.now() - timedelta(seconds=3 * EVERY_S)
    fired, over = await drive.notices()
    assert (fired["kind"], fired["severity"], fired["text"]) == ("alert.fired", RULES[rule].severity, incident["text"])
    assert (over["kind"], over["severity"], over["text"]) == ("alert.over", "info", incident["over_text"])
    assert fired["subject_id"] == over["subject_id"] == incident["id"]
    facts = json.loads(fired["facts"])
    assert facts["rule"] == rule
    assert facts["saw"]
    assert json.loads(over["facts"])["since"] is not None
    assert await drive.firing() == {}


@pytest.mark.parametrize("rule", RULES)
async def test_whoever_dies_before_the_commit_has_told_nothing_and_another_tells_once(
    drive: Drive, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute = Session.execute

    async def dies(session: Session, name: str, *args: object) -> str:
        if name == "tell_alerts":
            raise ConnectionResetError("killed")
        return await execute(session, name, *args)

    await only(drive, rule)
    trouble = drive.of(rule)
    for step, kinds in ((trouble.begin, ["alert.fired"]), (trouble.end, ["alert.fired", "alert.over"])):
        await step()
        monkeypatch.setattr(Session, "execute", dies)
        with pytest.raises(ConnectionResetError):
            await drive.look()
        monkeypatch.setattr(Session, "execute", execute)
        assert len(await drive.notices()) == len(kinds) - 1
        assert await drive.look() == 1
        assert [notice["kind"] for notice in await drive.notices()] == kinds


async def test_of_many_who_look_at_once_one_does_and_an_incident_is_opened_once(drive: Drive) -> None:
    await drive.of("dead_letters_open").begin()
    drive.clock.advance(EVERY_S)
    changed = await asyncio.gather(*(drive.rounds.look() for _ in range(6)))
    assert sorted(changed, key=str) == [3, *[None] * 5]
    assert await drive.rounds.look() is None
    assert len(await drive.incidents()) == len(await drive.notices()) == 3
    # Also where two rounds overlap: the index has the last word.
    hurried = [AlertRounds(drive.engine.db, drive.clock, every_s=0) for _ in range(4)]
    assert {*await asyncio.gather(*(one.look() for one in hurried))} <= {0, None}
    with pytest.raises(Exception, match="alert_firing"):
        await drive.engine.sql.execute(
            "INSERT INTO redrive.alert SELECT (jsonb_populate_record(a, jsonb_build_object('id', redrive.uuid7()))).*"
            " FROM redrive.alert a"
        )


async def test_a_window_of_a_minute_does_not_end_with_the_minute(drive: Drive) -> None:
    await only(drive, "failure_rate")
    await drive.set("failure_rate", window_s=60)
    await drive.endpoint()
    drive.clock.advance(60 - drive.clock.now().second + 38)
    await drive.deliver(40, dying=40)
    assert [await drive.look() for _ in range(6)] == [1, 0, 0, 0, 0, 0]
    assert await drive.firing() == {"failure_rate": 1}


async def test_what_a_person_skips_or_tries_out_is_no_failure_of_deliveries(drive: Drive) -> None:
    await only(drive, "failure_rate")
    endpoint_id = await drive.endpoint()
    await drive.engine.accept_many(20)
    for job in await drive.engine.claim(20):
        await drive.engine.fail(job)
        assert await drive.engine.skip(job.id) is None
    for _ in range(20):
        async with drive.engine.db.tenant(drive.engine.org_id) as session:
            event = drive.engine.new_event("redrive.test", endpoint_id=endpoint_id)
            await accept_test(session, event, PERSON, drive.clock)
        await drive.engine.kill(await drive.engine.claim_one())
    assert await drive.look() == 0


async def test_news_of_dead_letters_are_news_until_none_comes_though_the_newest_is_dealt_with(drive: Drive) -> None:
    await drive.set("failure_rate", enabled=False)
    await drive.endpoint()
    await drive.deliver(3, dying=3)
    await drive.looks(16 * 60)
    assert await drive.firing() == {}
    (newest,) = await drive.deliver(1, dying=1)
    await drive.look()
    await drive.engine.mark_letter(newest, "resolved")
    assert await drive.looks(14 * 60) == 0
    assert await drive.looks(60) == 1
    over = (await drive.notices())[-1]
    assert over["text"] == "No dead letter has come for 15 min. 3 dead letters are still open."


async def test_quiet_deaths_hide_no_announced_one(drive: Drive) -> None:
    await drive.set("failure_rate", enabled=False)
    await drive.set("dead_letters_open", enabled=False)
    await drive.endpoint()
    await drive.deliver(1, dying=1)
    await drive.engine.policy("quiet", kind="immediate", max_retries=1, notify=False)
    await drive.engine.accept_many(201, policy="quiet")
    await drive.engine.kill_all(await drive.engine.claim(201))
    assert await drive.look() == 1
    assert await drive.firing() == {"dead_letter_arrived": 1}


async def test_a_worker_that_is_replaced_or_begins_again_is_not_missed(drive: Drive) -> None:
    """One was killed, another took its place, and stops in good order while something is due."""
    await drive.set("oldest_due", enabled=False)
    workers, jobs = Workers(drive.engine.db, drive.clock), JobRows(drive.engine.db, drive.clock)
    other = CARD._replace(worker_id=new_id())
    await workers.beat(CARD)
    for turn in range(60):
        if turn == 47:
            await drive.endpoint()
            await drive.engine.accept()
        await workers.beat(other)
        await jobs.report([JobReport(HEARTBEAT.name, HEARTBEAT.every_s, 0, 0, 0, None, None)])
        assert await drive.look() == 0
    await workers.beat(other)
    await workers.leave(other.worker_id)
    await jobs.leave([HEARTBEAT.name])
    assert await drive.looks(50) == 0
    assert await drive.looks(20) == 1
    (fired,) = await drive.notices()
    assert fired["text"].startswith("No worker is known, and something has been due for 3 min 20 s.")


async def test_while_somebody_keeps_a_lock_on_the_tasks_the_other_rules_are_looked_at(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alert_rounds, "WAITS_S", 0.05)
    trouble = drive.of("dead_letter_arrived")
    await drive.of("oldest_due").begin()
    await drive.set("failure_rate", enabled=False)
    await drive.set("no_worker", enabled=False)
    assert await drive.look() == 1
    await trouble.begin()
    async with drive.engine.sql.acquire() as other, other.transaction(), asyncio.timeout(20):
        await other.execute("LOCK TABLE redrive.task IN ACCESS EXCLUSIVE MODE")
        assert await drive.look() == 2
        # Whose lock it is, for the clock has gone on; and what is not seen is not over.
        assert await drive.firing() == {"oldest_due": 1, "dead_letter_arrived": 1, "long_transaction": 1}


async def test_what_waits_behind_others_of_its_lane_is_late_nowhere(drive: Drive) -> None:
    engine = drive.engine
    await engine.endpoint(ordered=True)
    await engine.accept_many(3)
    await engine.fail(await engine.claim_one(), delay_s=18_000)
    drive.clock.advance(3 * 3_600)
    async with engine.app.tenant(engine.org_id) as session:
        assert (await stats(session, drive.clock)).oldest_due_at is None
    assert await drive.look() == 0


async def fail(drive: Drive, endpoint_id: UUID) -> None:
    org_id = drive.engine.org_id
    await drive.engine.tasks.disable_endpoint(org_id, endpoint_id, "Gone.", tried_url="http://127.0.0.1:9/never")


async def test_many_endpoints_at_once_are_one_message_that_names_them(drive: Drive) -> None:
    ids = [await drive.engine.endpoint(f"e{n:02}") for n in range(30)]
    for endpoint_id in ids:
        await fail(drive, endpoint_id)
    assert await drive.look() == 30
    (fired,) = await drive.notices()
    assert fired["text"].startswith("Redrive disabled 30 endpoints. What is for them is held.")
    facts = json.loads(fired["facts"])
    assert facts["more"] == len(facts["alerts"]) == 30
    incidents = await drive.incidents()
    assert {row["notice_id"] for row in incidents} == {fired["id"]}
    assert {str(row["id"]) for row in incidents} == {each["alert_id"] for each in facts["alerts"]}
    assert await drive.engine.sql.fetchval("SELECT count(*) FROM redrive.notice_more WHERE kind LIKE 'alert.%'") == 0
    for endpoint_id in ids:
        await drive.engine.delete_endpoint(endpoint_id)
    assert await drive.look() == 30
    _, over = await drive.notices()
    assert over["text"].startswith('"Redrive disabled an endpoint" is over for 30 of them: "e')
    assert await drive.firing() == {}


async def test_endpoints_that_fail_one_after_another_are_told_together_once_there_were_a_few(drive: Drive) -> None:
    for n in range(16):
        await fail(drive, await drive.engine.endpoint(f"e{n:02}"))
        await drive.look()
    await drive.looks(TOGETHER_EVERY_S)
    assert await drive.firing() == {"endpoint_disabled": 16}
    sizes = [json.loads(notice["facts"]).get("more", 1) for notice in await drive.notices()]
    assert sizes == [*[1] * MAX_TOLD_ALONE, 6, 5]
    drive.clock.advance(LATELY_S)
    await fail(drive, await drive.engine.endpoint("later"))
    assert await drive.look() == 1
    assert (await drive.notices())[-1]["text"].startswith('Redrive disabled endpoint "later"')


async def test_an_endpoint_that_fires_is_looked_at_however_many_others_are_in_trouble(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    trouble = drive.of("endpoint_disabled")
    await trouble.begin()
    assert await drive.look() == 1
    monkeypatch.setattr(alert_readings, "MAX_ENDPOINTS", 0)
    assert await drive.look() == 0
    await trouble.end()
    assert await drive.look() == 1
    assert (await drive.incidents())[0]["over_text"] == 'Endpoint "billing" was enabled again.'


async def test_where_not_all_that_is_due_could_be_looked_at_nothing_is_called_over(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    await only(drive, "oldest_due")
    trouble = drive.of("oldest_due")
    await trouble.begin()
    assert await drive.look() == 1
    await trouble.end()
    other = await drive.engine.org("another")
    await drive.engine.endpoint(org=other)
    await drive.engine.accept(org_id=other)
    monkeypatch.setattr(alert_readings, "MAX_STREAMS", 1)
    assert await drive.look() == 0
    monkeypatch.undo()
    assert await drive.look() == 1


async def test_an_open_breaker_is_over_when_its_endpoint_is_disabled_or_deleted(drive: Drive) -> None:
    await drive.of("endpoint_open").begin()
    assert await drive.look() == 1
    endpoint_id = await drive.endpoint()
    await drive.engine.change_endpoint(endpoint_id, disabled=True)
    assert await drive.look() == 1
    (incident,) = await drive.incidents()
    assert incident["over_text"] == 'Endpoint "billing" was disabled: nothing waits for its breaker any more.'
    await drive.engine.delete_endpoint(endpoint_id)
    shut = "SELECT count(*) FROM redrive.endpoint_state WHERE breaker <> 'closed'"
    assert await drive.engine.sql.fetchval(shut) == 0  # no round reads it ever again


async def test_an_org_that_is_not_the_default_any_more_has_no_incident_of_the_installation(drive: Drive) -> None:
    await drive.of("no_worker").begin()
    assert await drive.look() == 1
    org_id = drive.engine.org_id
    await update_org(drive.engine.db, org_id, name="acme", limits={}, act=PERSON)
    assert await drive.look() == 1
    await update_org(drive.engine.db, org_id, name="default", limits={}, act=PERSON)
    (incident,) = await drive.incidents()
    assert "is there no more" in incident["over_text"]


# -- who looks -------------------------------------------------------------------------------------------------------


async def test_a_clock_that_was_set_back_keeps_nobody_from_looking(drive: Drive) -> None:
    drive.clock.advance(-3_600)
    assert await drive.rounds.look() == 0
    assert await drive.rounds.look() is None


async def test_silence_is_noticed_also_where_rounds_are_rare(drive: Drive) -> None:
    await Workers(drive.engine.db, drive.clock).beat(CARD)
    drive.every_s = 300
    assert await drive.look() == 1
    assert await drive.firing() == {"no_worker": 1}


async def test_a_restart_in_which_nobody_looked_does_not_end_what_fires(drive: Drive) -> None:
    await drive.of("no_worker").begin()
    assert await drive.look() == 1
    drive.clock.advance(3_600)
    assert await drive.looks(300) == 0
    assert await drive.firing() == {"no_worker": 1}


async def test_a_process_that_ends_in_good_order_does_not_end_what_fires_of_a_job_that_others_run(drive: Drive) -> None:
    trouble = drive.of("job_stale")
    await trouble.begin()
    assert await drive.look() == 1
    jobs = JobRows(drive.engine.db, drive.clock)
    await jobs.leave([HERALD.name])
    assert await drive.look() == 0
    await jobs.report([JobReport(HERALD.name, HERALD.every_s, 70, 70, 70, None, None)])
    assert await drive.look() == 0
    await jobs.leave([HERALD.name])
    assert await drive.looks(30) == 1
    assert "not expected to run any more" in (await drive.incidents())[0]["over_text"]


async def test_whoever_hangs_in_the_middle_of_a_round_does_not_keep_others_from_looking(drive: Drive) -> None:
    """Nor does a machine that is gone: its connection would stay for hours."""
    hung = await asyncpg.connect(drive.engine.url, server_settings={"role": "redrive_engine"})
    drive.kept.append(hung)
    await hung.execute("BEGIN")
    await hung.fetch(query("lead_alerts"), 60)
    await drive.of("endpoint_disabled").begin()
    assert await drive.look() is None
    await hung.fetch(query("lead_alerts"), 0.1)  # from here on it hangs

    async def is_seen() -> bool:
        return await drive.look() == 1

    await until(is_seen)


async def test_that_another_process_has_the_round_is_no_success_of_the_job(drive: Drive) -> None:
    job = unreported(ALERTS)
    watching = asyncio.create_task(watch_alerts(drive.rounds, every_s=0.01, job=job))
    try:

        async def has_looked() -> bool:
            return job.began_at is not None

        async def has_succeeded() -> bool:
            return job.succeeded_at is not None

        await until(has_looked)
        assert not await has_succeeded()
        drive.clock.advance(EVERY_S)
        await until(has_succeeded)
    finally:
        watching.cancel()
        await asyncio.wait([watching])


async def test_what_nobody_is_told_of_is_no_arrival_and_one_that_died_again_is(drive: Drive) -> None:
    await only(drive, "failure_rate")
    await drive.set("dead_letter_arrived")
    await drive.set("failure_rate", enabled=False)
    await drive.endpoint()
    await drive.engine.endpoint("ops", event_types=["redrive.*"])
    await drive.engine.accept()
    await drive.engine.kill(await drive.engine.claim_one(), Reason.SKIPPED)
    assert await drive.look() == 0
    await drive.engine.policy("quiet", kind="immediate", notify=False)
    await drive.engine.accept(policy="quiet")
    await drive.engine.kill(await drive.engine.claim_one())
    assert await drive.look() == 0
    (dead,) = await drive.deliver(1, dying=1)
    assert await drive.look() == 1
    assert await drive.looks(900) == 1
    await drive.engine.redrive(dead, at_once=True)
    await drive.engine.kill(await drive.engine.claim_one())
    assert await drive.look() == 1
    assert [row["over_at"] is None for row in await drive.incidents()] == [False, True]


async def test_nobody_is_missed_by_whoever_has_just_begun_to_look(engine: Engine, clock: ManualClock) -> None:
    """A machine that was switched off overnight: the workers' and jobs' last words are of yesterday."""
    await Workers(engine.db, clock).beat(CARD)
    await JobRows(engine.db, clock).report([("herald", 1.0, 0.0, 0.0, 0.0, None, None)])  # type: ignore[list-item]
    clock.advance(80_000)
    drive = Drive(engine, clock)
    assert await drive.looks(60) == 0
    assert await drive.looks(120) == 1
    assert await drive.firing() == {"no_worker": 1}  # the jobs went with the workers: that is said once


async def test_a_worker_that_left_in_good_order_is_missed_once_there_is_work(drive: Drive) -> None:
    await drive.endpoint()
    assert await drive.looks(120) == 0
    await drive.engine.accept()
    assert await drive.looks(60) == 0
    assert await drive.look() == 1
    (incident,) = await drive.incidents("no_worker")
    assert "No worker is known" in incident["text"]


async def test_rules_are_set_for_each_org_and_the_installation_is_one_s_business(drive: Drive) -> None:
    engine = drive.engine
    other = await engine.org("another")
    await drive.set("dead_letters_open", threshold=0)
    await drive.set("dead_letter_arrived", enabled=False)
    await drive.set("failure_rate", enabled=False)
    for org_id in (other, engine.org_id):
        await engine.endpoint(org=org_id)
        await engine.accept(org_id=org_id)
    for job in await engine.claim(2):
        await engine.kill(job)
    await drive.look()
    seen = {(row["org_id"], row["rule"]) for row in await drive.incidents()}
    assert seen == {(engine.org_id, "dead_letters_open"), (other, "dead_letter_arrived")}
    await drive.set("dead_letters_open", enabled=False)
    assert await drive.look() == 1
    (ended,) = await drive.incidents("dead_letters_open")
    assert "switched off" in ended["over_text"]
    async with engine.app.tenant(other) as session:
        page = await list_alerts(session, AlertFilter(state="firing"), limit=10)
        assert [row["rule"] for row in page.rows] == ["dead_letter_arrived"]
        assert await get_alert(session, ended["id"]) is None


async def test_incidents_that_are_over_are_kept_for_90_days(drive: Drive) -> None:
    trouble = drive.of("endpoint_disabled")
    await trouble.begin()
    await drive.look()
    await trouble.end()
    await drive.look()
    await drive.engine.endpoint("other")
    await drive.engine.sql.execute("UPDATE redrive.notice SET told_at = at")
    db = await Database.open(drive.engine.url, role="redrive_janitor", size=1)

    async def swept(**options: Any) -> int:
        retention = Retention(db, drive.clock, Act("engine"), **options)
        (org,) = await retention.orgs(0)
        batch = await retention.batch(org, None)
        assert batch is not None
        return batch.swept.alerts

    assert [await swept(), len(await drive.incidents())] == [0, 1]
    drive.clock.advance(90 * 86_400 + 1)
    assert [await swept(dry_run=True), len(await drive.incidents())] == [1, 1]
    assert [await swept(), len(await drive.incidents())] == [1, 0]
    await db.close()
