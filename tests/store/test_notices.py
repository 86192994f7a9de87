"""Notices: written with what they tell, bounded in a storm, told once, and never about themselves."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import msgspec
import pytest
from structlog.testing import capture_logs

from redrive.core.decide import Die, Reason, announces
from redrive.core.notices import SYSTEM_PREFIX, Notice
from redrive.core.outcome import Category, Failure
from redrive.core.policy import Policy, PolicyKind
from redrive.core.ports import NO_EXCHANGE, Settlement
from redrive.store import alerts
from redrive.store import notices as module
from redrive.store.check import check
from redrive.store.db import Session
from redrive.store.events import accept_test
from redrive.store.notices import Notices, list_notices
from redrive.store.pausing import PauseScope
from redrive.store.tasks import Tasks
from support.engine import PERSON, UNAVAILABLE, Engine, ManualClock

MOST_A_MINUTE = 20  # see redrive.notice_room


async def written(engine: Engine, kind: str = "dead_letter") -> list[Any]:
    return await engine.sql.fetch("SELECT * FROM redrive.notice WHERE kind = $1 ORDER BY at, id", kind)


async def counted(engine: Engine) -> int:
    return int(await engine.sql.fetchval("SELECT coalesce(sum(n), 0) FROM redrive.notice_more"))


async def dead(engine: Engine, reason: Reason = Reason.EXHAUSTED, **fields: Any) -> UUID:
    await engine.accept(**fields)
    job = await engine.claim_one()
    await engine.kill(job, reason, UNAVAILABLE)
    return job.id


async def told(engine: Engine) -> list[Notice]:
    """What one look of a herald tells."""
    said: list[Notice] = []
    await Notices(engine.db, engine.clock).hand_over(100, said.extend)
    return said


async def system_events(engine: Engine) -> list[Any]:
    return await engine.sql.fetch("SELECT * FROM redrive.event WHERE starts_with(event_type, 'redrive.') ORDER BY id")


# -- what is written ---------------------------------------------------------------------------------------------------


async def test_a_task_that_dies_is_a_notice_of_the_same_moment(engine: Engine, clock: ManualClock) -> None:
    endpoint_id = await engine.endpoint("billing", external_system="erp")
    task_id = await dead(engine)
    (notice,) = await written(engine)
    assert (notice["severity"], notice["subject_kind"], notice["subject_id"]) == ("error", "dead_letter", task_id)
    assert (notice["at"], notice["told_at"]) == (clock.now(), None)
    assert notice["text"] == (
        'invoice.paid for endpoint "billing" is a dead letter: its retries are used up. The error: HTTP 503 Service '
        "Unavailable. Retry, resolve or ignore it once its cause is dealt with."
    )
    facts = msgspec.json.decode(notice["facts"])
    letter = await engine.letter(task_id)
    assert letter is not None
    assert facts == {
        "task_id": str(task_id),
        "event_id": str(letter["event_id"]),
        "event_type": "invoice.paid",
        "external_system": "erp",
        "endpoint_id": str(endpoint_id),
        "endpoint": "billing",
        "reason": "exhausted",
        "category": "server_error",
        "fingerprint": letter["fingerprint"],
        "generation": 0,
    }


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason is not Reason.SKIPPED])
@pytest.mark.parametrize("notify", [True, False])
@pytest.mark.parametrize("quiet_permanent", [True, False])
async def test_the_database_announces_what_core_announces(
    engine: Engine, reason: Reason, notify: bool, quiet_permanent: bool
) -> None:
    policy = Policy(PolicyKind.MANUAL, notify=notify, quiet_permanent=quiet_permanent)
    await engine.policy("terms", **policy.to_spec())
    await engine.endpoint(policy="terms")
    await dead(engine, reason)
    assert len(await written(engine)) == announces(policy, Die(reason, Category.SERVER_ERROR))


async def test_refusals_under_the_relay_preset_are_quiet_and_expiry_is_not(engine: Engine) -> None:
    await engine.endpoint(policy="relay")
    await dead(engine, Reason.PERMANENT)
    assert await written(engine) == []
    expired = await dead(engine, Reason.EXPIRED)
    assert [notice["subject_id"] for notice in await written(engine)] == [expired]


async def test_what_a_person_skips_or_tests_is_no_news(engine: Engine) -> None:
    endpoint_id = await engine.endpoint()
    await engine.accept()
    job = await engine.claim_one()
    await engine.fail(job)
    assert await engine.skip(job.id) is None
    async with engine.db.tenant(engine.org_id) as session:
        await accept_test(session, engine.new_event("a test", endpoint_id=endpoint_id), PERSON, engine.clock)
    await engine.kill(await engine.claim_one())
    assert await engine.sql.fetchval("SELECT count(*) FROM redrive.dead_letter") == 2
    assert await written(engine) == []


async def test_only_another_death_of_a_redriven_task_is_told_again(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    task_id = await dead(engine)
    await engine.mark_letter(task_id, "resolved")
    await engine.mark_letter(task_id, "open")
    await engine.redrive(task_id, at_once=True)
    assert len(await written(engine)) == 1
    await engine.kill(await engine.claim_one())
    first, second = await written(engine)
    assert (first["subject_id"], second["subject_id"]) == (task_id, task_id)
    assert [msgspec.json.decode(notice["facts"])["generation"] for notice in (first, second)] == [0, 1]


async def test_a_notice_is_not_there_where_its_death_is_rolled_back(engine: Engine) -> None:
    await engine.endpoint()
    await engine.accept()
    job = await engine.claim_one()

    class ChangedMind(Exception):
        pass

    async def die_and_think_better() -> None:
        async with engine.db.transaction() as session:
            settlement = Settlement(job, UNAVAILABLE, Die(Reason.EXHAUSTED, Category.TIMEOUT), NO_EXCHANGE, 0.1)
            await Tasks(session, engine.clock).settle([settlement])
            raise ChangedMind

    with pytest.raises(ChangedMind):
        await die_and_think_better()
    assert await written(engine) == []


async def test_an_endpoint_that_the_engine_disables_is_a_notice(engine: Engine, clock: ManualClock) -> None:
    endpoint_id = await engine.endpoint("billing")
    for _ in range(2):
        await engine.tasks.disable_endpoint(engine.org_id, endpoint_id, "It answered 410 Gone.")
    (notice,) = await written(engine, "endpoint.disabled")
    assert (notice["subject_kind"], notice["subject_id"], notice["at"]) == ("endpoint", endpoint_id, clock.now())
    assert notice["text"].startswith('Endpoint "billing" was disabled: It answered 410 Gone. ')


# -- storms ------------------------------------------------------------------------------------------------------------


async def storm(engine: Engine, deaths: int, batch: int = 500, messages: Sequence[str] = ("HTTP 503",)) -> None:
    await engine.accept_many(deaths)
    while jobs := await engine.claim(batch):
        await engine.tasks.settle(
            [
                Settlement(
                    job,
                    Failure(Category.SERVER_ERROR, messages[n % len(messages)], status_code=503),
                    Die(Reason.EXHAUSTED, Category.SERVER_ERROR),
                    NO_EXCHANGE,
                    0.1,
                )
                for n, job in enumerate(jobs)
            ]
        )


async def test_a_storm_writes_twenty_notices_and_one_that_says_how_many_more(
    engine: Engine, clock: ManualClock
) -> None:
    await engine.endpoint()
    await storm(engine, 600, batch=100)
    assert len(await written(engine)) == MOST_A_MINUTE
    assert await counted(engine) == 600 - MOST_A_MINUTE
    assert len(await told(engine)) == MOST_A_MINUTE
    clock.advance(module.FOLD_AFTER_S - 1)
    assert await told(engine) == []
    clock.advance(1)
    (rest,) = await told(engine)
    assert (rest.kind, rest.subject_kind, rest.facts["more"]) == ("dead_letter", "org", 580)
    assert rest.text.startswith("580 more tasks became dead letters between 12:00:00 and 12:00:00 UTC.")
    assert await counted(engine) == 0
    await storm(engine, 1)
    assert len(await written(engine)) == MOST_A_MINUTE + 2
    assert (await check(engine.url, now=clock.now())).clean


async def test_of_a_storm_every_cause_is_told(engine: Engine) -> None:
    await engine.endpoint()
    await storm(engine, 200, messages=["A", *["the usual"] * 30, "B", "C"])
    fingerprints = {msgspec.json.decode(notice["facts"])["fingerprint"] for notice in await written(engine)}
    assert len(fingerprints) == 4


async def test_each_org_and_each_kind_has_room_of_its_own(engine: Engine) -> None:
    await engine.endpoint()
    await storm(engine, 30)
    other = await engine.org("other")
    endpoint_id = await engine.endpoint(org=other)
    await dead(engine, org_id=other)
    await engine.tasks.disable_endpoint(other, endpoint_id, "It answered 410 Gone.")
    assert len(await written(engine)) == MOST_A_MINUTE + 1
    assert len(await written(engine, "endpoint.disabled")) == 1


async def test_transactions_that_count_at_once_do_not_wait_and_none_is_lost(engine: Engine, clock: ManualClock) -> None:
    """While one stays open, others count on; what it counted is told when it has committed, and not before."""
    at = clock.now()
    more = "SELECT redrive.note_more($1, 'dead_letter', 'error', $2, 100)"
    async with engine.sql.acquire() as slow:
        staying = slow.transaction()
        await staying.start()
        await slow.execute(more, engine.org_id, at)
        async with asyncio.timeout(5):
            await asyncio.gather(*(engine.sql.execute(more, engine.org_id, at) for _ in range(20)))
        clock.advance(module.FOLD_AFTER_S)
        (first,) = await told(engine)
        assert first.facts["more"] == 2_000
        await staying.commit()
    (second,) = await told(engine)
    assert second.facts["more"] == 100


async def test_who_counts_while_the_count_is_being_told_counts_anew(engine: Engine, clock: ManualClock) -> None:
    more = "SELECT redrive.note_more($1, 'dead_letter', 'error', $2, 7)"
    await engine.sql.execute(more, engine.org_id, clock.now())
    clock.advance(module.FOLD_AFTER_S)
    writers: list[asyncio.Task[Any]] = []
    said: list[Notice] = []

    def say(notices: Sequence[Notice]) -> None:
        said.extend(notices)
        writers.extend(asyncio.create_task(engine.sql.execute(more, engine.org_id, clock.now())) for _ in range(3))

    await Notices(engine.db, clock).hand_over(100, say)
    await asyncio.gather(*writers)
    clock.advance(module.FOLD_AFTER_S)
    said += await told(engine)
    assert sum(notice.facts["more"] for notice in said) == 28


async def test_note_is_bounded_too_and_cuts_long_texts(engine: Engine, clock: ManualClock) -> None:
    note = "SELECT redrive.note($1, 'lane.stuck', 'warning', 'endpoint', NULL, $2, '{}', $3)"
    ids = [await engine.sql.fetchval(note, engine.org_id, "x" * 5_000, clock.now()) for _ in range(25)]
    assert ids.count(None) == 5
    assert {len(notice["text"]) for notice in await written(engine, "lane.stuck")} == {1_000}
    clock.advance(module.FOLD_AFTER_S)
    assert (await told(engine))[-1].text.startswith("5 more notices of the kind lane.stuck were due between ")


async def test_a_test_of_alerts_that_is_one_too_many_leaves_nothing_behind(engine: Engine, clock: ManualClock) -> None:
    async def tests(number: int) -> list[UUID | None]:
        ids = []
        for _ in range(number):
            async with engine.db.tenant(engine.org_id) as session:
                notice_id, _ = await alerts.send_test(session, PERSON, clock)
            ids.append(notice_id)
        return ids

    assert (await tests(23)).count(None) == 3
    assert (len(await written(engine, "alert.test")), await counted(engine)) == (MOST_A_MINUTE, 0)
    assert len(await told(engine)) == MOST_A_MINUTE
    clock.advance(module.FOLD_AFTER_S)
    assert await told(engine) == []
    assert None not in await tests(1)


# -- telling -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event_types", "receives"),
    [
        (("redrive.dead_letter",), True),
        (("redrive.*",), True),
        (("invoice.*", "redrive.dead*"), True),
        (("*",), False),
        (("redrive*",), False),
        (("redrive.endpoint.*",), False),
        (("*letter",), False),
    ],
)
async def test_endpoints_that_ask_for_notices_by_name_get_them_as_events(
    engine: Engine, event_types: tuple[str, ...], receives: bool
) -> None:
    await engine.endpoint("failing", event_types=("order.*",))
    ops = await engine.endpoint("ops", event_types=event_types)
    await dead(engine, event_type="order.made")
    (notice,) = await told(engine)
    events = await system_events(engine)
    assert len(events) == receives
    for event in events:
        assert (event["event_type"], event["endpoint_id"], event["tasks"]) == ("redrive.dead_letter", ops, 1)
        body = msgspec.json.decode(event["body"])
        assert (body["id"], body["org"], body["text"]) == (str(notice.id), "default", notice.text)
        assert body["subject"] == {"kind": "dead_letter", "id": str(notice.subject_id)}
        assert body["facts"]["event_type"] == "order.made"
    assert await engine.sql.fetchval("SELECT count(*) FROM redrive.event WHERE tasks = 0") == 0
    assert await told(engine) == []


async def test_each_endpoint_that_asked_gets_its_own_and_other_orgs_get_nothing(engine: Engine) -> None:
    await engine.endpoint("failing", event_types=("order.*",))
    ops = {await engine.endpoint(f"ops {n}", event_types=("redrive.*",)) for n in range(3)}
    await engine.endpoint("theirs", org=await engine.org("other"), event_types=("redrive.*",))
    await dead(engine, event_type="order.made")
    await told(engine)
    assert {event["endpoint_id"] for event in await system_events(engine)} == ops


async def test_a_notice_that_cannot_be_delivered_makes_no_other(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint("failing", event_types=("order.*",))
    await engine.endpoint("ops", event_types=("redrive.*",))
    await dead(engine, event_type="order.made")
    await told(engine)
    job = await engine.claim_one(queues=("notice.http",))
    assert job.event_type == SYSTEM_PREFIX + "dead_letter"
    await engine.kill(job, Reason.EXHAUSTED)
    assert len(await written(engine)) == 1
    assert await told(engine) == []
    assert (await check(engine.url, now=clock.now())).clean


@pytest.mark.parametrize("scope", [PauseScope.ORG, PauseScope.INSTALLATION])
async def test_who_pauses_everything_is_told_of_what_goes_on_unless_they_pause_that_endpoint(
    engine: Engine, scope: PauseScope
) -> None:
    await engine.endpoint("failing", event_types=("order.*",))
    ops = await engine.endpoint("ops", event_types=("redrive.*",))
    for order in ("order.1", "order.2"):
        await dead(engine, event_type=order)
    await told(engine)
    await engine.pause(scope)
    assert len(await engine.claim(1, queues=("notice.http",))) == 1
    await engine.pause(PauseScope.ENDPOINT, ops)
    assert await engine.claim(queues=("notice.http",)) == []
    assert await engine.counts("SELECT state, count(*) FROM redrive.task WHERE endpoint_id = $1 GROUP BY 1", ops) == {
        "leased": 1,
        "held": 1,
    }


async def test_a_herald_that_dies_after_handing_over_has_told_nothing(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection is cut behind the event and before the mark; then two others tell it: one event, for all that."""
    await engine.endpoint("failing", event_types=("order.*",))
    await engine.endpoint("ops", event_types=("redrive.*",))
    await dead(engine, event_type="order.made")
    execute = Session.execute

    async def cut(session: Session, name: str, *args: object) -> str:
        if name == "mark_told":
            pid = session._connection.get_server_pid()
            await engine.sql.execute("SELECT pg_terminate_backend($1)", pid)
        return await execute(session, name, *args)

    monkeypatch.setattr(Session, "execute", cut)
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await told(engine)
    monkeypatch.undo()
    assert await system_events(engine) == []
    assert [notice["told_at"] for notice in await written(engine)] == [None]
    both = await asyncio.gather(told(engine), told(engine))
    assert sorted(map(len, both)) == [0, 1]
    (event,) = await system_events(engine)
    # Were it handed over again after all, it would be the same event.
    await engine.sql.execute("UPDATE redrive.notice SET told_at = NULL")
    (notice,) = await told(engine)
    assert [row["id"] for row in await system_events(engine)] == [event["id"]]
    assert notice.event_id_for(event["endpoint_id"]) == event["id"]


async def test_an_event_that_stands_in_the_way_is_said(engine: Engine) -> None:
    await engine.endpoint("failing", event_types=("order.*",))
    ops = await engine.endpoint("ops", event_types=("redrive.*",))
    await dead(engine, event_type="order.made")
    (notice,) = await written(engine)
    taken = Notice(engine.org_id, "", notice["id"], notice["at"], "", "", "", None, "", {}).event_id_for(ops)
    await engine.accept("something else", id=taken)
    with capture_logs() as logged:
        assert len(await told(engine)) == 1
    assert [(line["event"], line["verdict"]) for line in logged] == [("notice_not_sent", "conflict")]


async def test_two_heralds_tell_each_notice_once(engine: Engine) -> None:
    await engine.endpoint()
    await storm(engine, 20)
    halves = await asyncio.gather(*(Notices(engine.db, engine.clock).hand_over(5, lambda _: None) for _ in range(4)))
    assert sum(halves) == 20 - len([n for n in await written(engine) if n["told_at"] is None])
    while await told(engine):
        pass
    assert all(notice["told_at"] for notice in await written(engine))


# -- callbacks ---------------------------------------------------------------------------------------------------------


async def test_a_call_is_taken_by_one_until_its_time_is_up(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    task_id = await dead(engine)
    store = Notices(engine.db, clock)
    taken = await asyncio.gather(*(store.take_calls(limit=5, most_calls=3, lease_s=60) for _ in range(3)))
    assert sorted(map(len, taken)) == [0, 0, 1]
    (call,) = [call for calls in taken for call in calls]
    assert (call.notice.subject_id, call.calls) == (task_id, 1)
    clock.advance(60)
    (again,) = await store.take_calls(limit=5, most_calls=3, lease_s=60)
    assert again.calls == 2
    await store.end_call(again, again_in_s=5)
    assert await store.take_calls(limit=5, most_calls=3, lease_s=60) == []
    clock.advance(5)
    (last,) = await store.take_calls(limit=5, most_calls=3, lease_s=60)
    assert last.calls == 3
    clock.advance(60)
    (over,) = await store.take_calls(limit=5, most_calls=3, lease_s=60)  # to be told: nothing was heard of the last one
    assert (over.calls, over.is_over, last.is_over) == (3, True, False)
    clock.advance(60)
    assert await store.take_calls(limit=5, most_calls=3, lease_s=60) == []


async def test_a_call_that_ended_late_does_not_undo_what_another_has_heard(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    await dead(engine)
    store = Notices(engine.db, clock)
    (slow,) = await store.take_calls(limit=5, most_calls=3, lease_s=60)
    clock.advance(60)
    (again,) = await store.take_calls(limit=5, most_calls=3, lease_s=60)
    await store.end_call(slow, again_in_s=5)
    clock.advance(5)
    assert await store.take_calls(limit=5, most_calls=3, lease_s=60) == []  # it is under way elsewhere
    await store.end_call(again, again_in_s=None)
    await store.end_call(slow, again_in_s=5)
    clock.advance(600)
    assert await store.take_calls(limit=5, most_calls=3, lease_s=60) == []


async def test_old_news_and_calls_that_ended_are_not_called(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    await dead(engine)
    clock.advance(module.CALL_WINDOW_S)
    await dead(engine)
    store = Notices(engine.db, clock)
    (call,) = await store.take_calls(limit=5, most_calls=3, lease_s=60)
    assert call.notice.at == clock.now()
    await store.end_call(call, again_in_s=None)
    clock.advance(600)
    assert await store.take_calls(limit=5, most_calls=3, lease_s=60) == []


# -- reading -----------------------------------------------------------------------------------------------------------


async def test_notices_are_listed_newest_first_in_pages_and_by_kind(engine: Engine, clock: ManualClock) -> None:
    endpoint_id = await engine.endpoint()
    tasks = []
    for _ in range(5):
        tasks.append(await dead(engine))
        clock.advance(1)
    await engine.tasks.disable_endpoint(engine.org_id, endpoint_id, "It answered 410 Gone.")
    seen: list[UUID] = []
    after: tuple[object, ...] | None = None
    while True:
        async with engine.app.tenant(engine.org_id) as session:
            page = await list_notices(session, kind=None, limit=2, after=after)
        seen += [row["subject_id"] for row in page.rows]
        after = page.next_key
        if after is None:
            break
    assert seen == [endpoint_id, *reversed(tasks)]
    async with engine.app.tenant(engine.org_id) as session:
        assert len((await list_notices(session, kind="dead_letter", limit=50, after=None)).rows) == 5
        assert (await list_notices(session, kind="nothing", limit=50, after=None)).rows == []


async def test_the_app_reads_its_own_org_s_and_changes_none(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    await dead(engine)
    other = await engine.org("other")
    async with engine.app.tenant(other) as session:
        assert (await list_notices(session, kind=None, limit=5, after=None)).rows == []
    for statement in ("UPDATE redrive.notice SET told_at = now()", "DELETE FROM redrive.notice"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            async with engine.app.tenant(engine.org_id) as session:
                await session._connection.execute(statement)


def test_a_notice_s_event_has_one_id_for_each_endpoint() -> None:
    now = ManualClock().now() + timedelta(0)
    notice = Notice(uuid4(), "o", uuid4(), now, "dead_letter", "error", "dead_letter", None, "t", {})
    first, second = uuid4(), uuid4()
    assert notice.event_id_for(first) == notice.event_id_for(first) != notice.event_id_for(second)
