"""Messages that died in a broker are dead letters, once each, and know the way back."""

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from redrive.core.broker import RETURN_QUEUE, DeadMessage, Origin, QueueState, Redriven
from redrive.core.decide import Die, Reason
from redrive.core.outcome import Category, Failure
from redrive.core.ports import Job
from redrive.store import dead_messages, edits
from redrive.store.archive import Archive
from redrive.store.check import check
from redrive.store.db import Database, Record
from redrive.store.dead_messages import DeadMessages, Returns
from redrive.store.edits import Edit
from redrive.store.orgs import new_id
from redrive.store.retention import Retention
from support.dead_messages import DIED, QUEUE, dead_message
from support.engine import PERSON, START, Engine, ManualClock


def book(engine: Engine) -> DeadMessages:
    return DeadMessages(engine.db, engine.org_id, engine.clock)


async def keep(engine: Engine, *messages: DeadMessage) -> list[bool]:
    return await book(engine).keep(messages)


async def letters(engine: Engine) -> list[Record]:
    return await engine.sql.fetch(
        "SELECT d.*, e.body, e.content_type, e.correlation_id, t.attempts, t.last_failed_at, t.queue, p.name AS policy"
        "  FROM redrive.dead_letter d JOIN redrive.event e ON e.org_id = d.org_id AND e.id = d.event_id"
        "  JOIN redrive.task t ON t.id = d.task_id JOIN redrive.policy p ON p.id = t.policy_id ORDER BY d.task_id"
    )


async def only_letter(engine: Engine) -> Record:
    (letter,) = await letters(engine)
    return letter


async def is_sound(engine: Engine) -> bool:
    report = await check(engine.url, now=engine.clock.now())
    assert report.violations == []
    return report.clean


async def claim_return(engine: Engine) -> Job:
    return await engine.claim_one(queues=[RETURN_QUEUE])


async def test_a_dead_message_is_an_open_dead_letter_with_all_that_was_told_of_it(engine: Engine) -> None:
    message = dead_message(
        failure=Failure(Category.NETWORK, "PostgreSQL is not there", stack="Traceback …"),
        reason=Reason.EXHAUSTED,
        retries=3,
        first_failed_at=DIED - timedelta(seconds=14),
    )
    assert await keep(engine, message) == [True]
    letter = await only_letter(engine)
    assert (letter["state"], letter["kind"], letter["event_type"]) == ("open", "rabbitmq", QUEUE)
    assert (letter["reason"], letter["category"]) == ("exhausted", "network")
    assert (letter["external_system"], letter["correlation_id"]) == ("shop-service", "c-1")
    assert (letter["first_failed_at"], letter["failed_at"]) == (DIED - timedelta(seconds=14), DIED)
    assert (letter["created_at"], letter["last_failed_at"]) == (START, DIED)
    assert (letter["attempts"], letter["queue"], letter["policy"]) == (4, RETURN_QUEUE, "transformer")
    (attempt,) = await engine.attempts(letter["task_id"])
    assert (attempt["number"], attempt["result"], attempt["ended_at"]) == (4, "failed", DIED)
    assert (attempt["error_message"], attempt["error_stack"]) == ("PostgreSQL is not there", "Traceback …")
    assert await engine.sql.fetchval("SELECT text FROM redrive.notice") == (
        'A message of the queue "orders" is a dead letter: its retries are used up. The error: PostgreSQL is not there.'
        " Retry, resolve or ignore it once its cause is dealt with."
    )
    assert await is_sound(engine)


async def test_times_that_cannot_be_are_not_believed(engine: Engine) -> None:
    later = START + timedelta(days=1)
    await keep(engine, dead_message(first_failed_at=later, failed_at=later))
    await keep(engine, dead_message(first_failed_at=DIED + timedelta(minutes=1)))
    await keep(engine, dead_message(failed_at=None))
    times = [(letter["first_failed_at"], letter["failed_at"]) for letter in await letters(engine)]
    assert times == [(START, START), (DIED, DIED), (START, START)]


async def test_a_batch_is_kept_by_few_statements_and_each_message_once(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one statement may not hold all of them, too."""
    monkeypatch.setattr(dead_messages, "STATEMENT_BYTES", 20_000)
    batch = [dead_message(f"q{n % 3}", message_id=f"m{n}", body=b"%d" % n) for n in range(500)]
    assert await keep(engine, *batch, batch[0], batch[7]) == [True] * 500 + [False, False]
    assert await keep(engine, *batch) == [False] * 500
    assert {bytes(letter["body"]) for letter in await letters(engine)} == {b"%d" % n for n in range(500)}
    assert len({letter["fingerprint"] for letter in await letters(engine)}) == 3  # one for each queue
    assert await is_sound(engine)


async def test_known_is_what_has_the_same_source_id_body_and_replays(engine: Engine) -> None:
    first = dead_message(message_id="m")
    again = Redriven(UUID(int=1), 1)
    others = [
        dead_message(message_id="m2"),
        dead_message(message_id="m", body=b"another"),
        dead_message(message_id="m", source="another-dlq"),
        dead_message(message_id="m", redriven=again),
        dead_message(message_id="m", redriven=Redriven(again.letter_id, 2)),
        dead_message(message_id="m", redriven=Redriven(UUID(int=2), 1)),  # it died again, and was redriven from there
    ]
    assert await keep(engine, first, *others) == [True] * 7
    assert await keep(engine, first, *others) == [False] * 7
    assert await keep(engine, dead_message(), dead_message()) == [True, True]  # nobody gave these an id
    other = DeadMessages(engine.db, await engine.org("other"), engine.clock)
    assert await other.keep([first]) == [True]


@pytest.mark.parametrize("state", ["resolved", "ignored"])
async def test_what_dies_again_after_its_letter_was_closed_is_a_letter_of_its_own(engine: Engine, state: str) -> None:
    """Somebody brought it back past us: it must not vanish behind a letter that nobody looks at any more."""
    message = dead_message(message_id="m")
    await keep(engine, message)
    await engine.mark_letter((await only_letter(engine))["task_id"], state)
    with capture_logs() as lines:
        assert await keep(engine, message, dead_message(message_id="m2"), message) == [True, True, False]
    assert sorted(letter["state"] for letter in await letters(engine)) == sorted([state, "open", "open"])
    told = {(line["event_id"], line["task"]) for line in lines}
    assert told == {
        (letter["event_id"], letter["task_id"]) for letter in await letters(engine) if letter["state"] == "open"
    }
    assert await is_sound(engine)


async def test_collectors_at_once_keep_each_message_once(live: Engine) -> None:
    batch = [dead_message(message_id=f"m{n}", body=b"%d" % n) for n in range(200)]
    orders = [batch, batch[::-1], batch[100:] + batch[:100], batch[::-1]]
    answers = await asyncio.gather(*(keep(live, *order) for order in orders))
    assert sum(sum(answer) for answer in answers) == len(batch)
    assert len(await letters(live)) == len(batch)
    assert (await check(live.url)).clean


async def test_nothing_is_kept_of_a_batch_that_fails(engine: Engine) -> None:
    broken = dead_message(redriven=Redriven(UUID(int=1), 2**31))  # more than a column holds
    with pytest.raises(Exception, match="int32"):
        await keep(engine, dead_message(), broken)
    assert await letters(engine) == []


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(st.characters(exclude_categories=()), max_size=40),
    body=st.binary(max_size=200),
    headers=st.dictionaries(st.text(max_size=5), st.text(st.characters(exclude_categories=()), max_size=5), max_size=3),
)
async def test_any_bytes_and_any_names_come_back_as_they_were(
    engine: Engine, text: str, body: bytes, headers: dict[str, str]
) -> None:
    origin = Origin(text, text[::-1], text)
    properties = json.dumps({"headers": headers}, ensure_ascii=False)
    message = dead_message(
        origin=origin,
        source=text or "dlq",
        body=body,
        properties=properties,
        details=properties,
        service=text or None,
        message_id=f"{text}{new_id()}",
        correlation_id=text,
        content_type=text,
        failure=Failure(Category.UNKNOWN, text, stack=text),
    )
    assert await keep(engine, message) == [True]
    rows = await engine.sql.fetch(
        "SELECT b.task_id, e.body FROM redrive.broker_message b JOIN redrive.task t ON t.id = b.task_id"
        " JOIN redrive.event e ON e.id = t.event_id ORDER BY b.task_id DESC LIMIT 1"
    )
    (back,) = await Returns(engine.db).returns([(engine.org_id, rows[0]["task_id"])])
    assert (back.origin, json.loads(back.properties), rows[0]["body"]) == (origin, {"headers": headers}, body)


async def test_a_redriven_letter_is_claimed_for_its_broker_and_dies_in_its_queue_again(engine: Engine) -> None:
    await keep(engine, dead_message(body=b"\xff\x00"))
    letter = await only_letter(engine)
    await engine.redrive(letter["task_id"], at_once=True)
    job = await claim_return(engine)
    assert (job.id, job.body, job.kind, job.endpoint_id) == (letter["task_id"], b"\xff\x00", "rabbitmq", None)
    (back,) = await Returns(engine.db).returns([(engine.org_id, job.id), (engine.org_id, UUID(int=1))])
    assert (back.origin, back.replays) == (Origin("shop", "order.paid", QUEUE), 1)
    await engine.settle(job, dead_message().failure, Die(Reason.PERMANENT, Category.UNKNOWN))
    died = await only_letter(engine)
    assert (died["state"], died["fingerprint"]) == ("open", letter["fingerprint"])
    await engine.redrive(letter["task_id"], at_once=True)
    await engine.succeed(await claim_return(engine))
    assert (await only_letter(engine))["state"] == "resolved"
    assert await is_sound(engine)


async def test_an_edited_body_goes_back_instead_of_the_original(engine: Engine) -> None:
    await keep(engine, dead_message())
    task_id = (await only_letter(engine))["task_id"]
    async with engine.app.tenant(engine.org_id) as session:
        edit = Edit(body=b'{"order": 8}')
        assert await edits.replay(session, task_id, PERSON, engine.clock, edit=edit, roll=0.5, at_once=True) is None
    assert (await claim_return(engine)).body == b'{"order": 8}'


async def test_it_goes_with_its_event_and_the_archive_has_it_without_what_looks_secret(
    engine: Engine, clock: ManualClock, tmp_path: Path
) -> None:
    await engine.policy("transformer", kind="list", delays_s=[2], retention={"failed_s": 60})
    await keep(engine, dead_message(failed_at=DIED - timedelta(days=30)), dead_message())
    janitor = await Database.open(engine.url, role="redrive_janitor", size=1)
    retention = Retention(janitor, clock, PERSON, archive=Archive(tmp_path))
    try:
        swept = [await _swept(retention)]
        clock.advance(61)
        swept.append(await _swept(retention))
    finally:
        await janitor.close()
    assert swept == [0, 2]  # kept from when it came here, however long ago it died
    assert await engine.sql.fetchval("SELECT count(*) FROM redrive.broker_message") == 0
    lines = [json.loads(line) for path in tmp_path.rglob("*.ndjson") for line in path.read_text().splitlines()]
    archived = [line for line in lines if line["record"] == "broker_message"]
    assert [(line["queue"], line["properties"]["headers"]["authorization"]) for line in archived] == [
        (QUEUE, "[redacted]")
    ] * 2
    assert await is_sound(engine)


async def _swept(retention: Retention) -> int:
    (org,) = await retention.orgs(0.0)
    batch = await retention.batch(org, None)
    assert batch is not None
    return batch.swept.dead_letters


async def test_a_person_removes_it_with_its_event(engine: Engine) -> None:
    await keep(engine, dead_message())
    assert await engine.delete_event((await only_letter(engine))["event_id"]) is None
    assert await engine.sql.fetchval("SELECT count(*) FROM redrive.broker_message") == 0
    assert await is_sound(engine)


def queue(name: str = QUEUE, **fields: Any) -> QueueState:
    return QueueState(name, True, None, messages=3, consumers=1, collected=2, duplicates=1)._replace(**fields)


async def queues(engine: Engine) -> list[Record]:
    return await engine.sql.fetch("SELECT * FROM redrive.broker_queue ORDER BY queue")


async def test_of_a_queue_the_newest_word_counts_and_what_was_collected_adds_up(
    engine: Engine, clock: ManualClock
) -> None:
    await book(engine).note([queue(), queue("a\x00", is_source=False, messages=None, collected=0)])
    clock.advance(5)
    await book(engine).note([queue(problem="gone", collected=0, messages=None)])
    await book(engine).note([])
    named, orders = await queues(engine)
    assert (named["queue"], named["messages"], named["collected_at"]) == ("a\ufffd", None, None)
    assert (orders["problem"], orders["messages"], orders["collected"], orders["duplicates"]) == ("gone", None, 2, 2)
    assert (orders["seen_at"], orders["collected_at"]) == (clock.now(), START)


async def test_an_org_has_so_many_queues_and_no_more_until_some_are_forgotten(
    engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_messages, "MAX_QUEUES", 3)
    await book(engine).note([queue("a"), queue("b")])
    await book(engine).note([queue("b"), queue("c"), queue("d"), queue("e")])
    assert [(row["queue"], row["collected"]) for row in await queues(engine)] == [("a", 2), ("b", 4), ("c", 2)]
    clock.advance(31 * 86_400)
    await book(engine).note([queue("e")])
    assert [row["queue"] for row in await queues(engine)] == ["e"]
