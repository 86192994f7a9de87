"""Dead letters: found by what went wrong, and redriven, resolved, ignored or deleted by a person, each time audited."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from redrive.core.outcome import Category, Failure
from redrive.store.dead_letters import DeadLetterFilter, get_dead_letter, list_dead_letters
from redrive.store.logs import get_log, list_task_attempts
from redrive.store.paging import Page
from redrive.store.retry_queue import Refusal
from support.engine import PERSON, Engine, ManualClock


async def letters(engine: Engine, limit: int = 50, after: Any = None, **chosen: Any) -> Page:
    async with engine.app.tenant(engine.org_id) as session:
        return await list_dead_letters(session, DeadLetterFilter(**chosen), limit=limit, after=after)


async def a_dead_task(
    engine: Engine, event_type: str = "invoice.paid", failure: Failure | None = None, **f: Any
) -> UUID:
    await engine.accept(event_type, **f)
    job = await engine.claim_one()
    await (engine.kill(job, failure=failure) if failure else engine.kill(job))
    return job.id


async def test_the_newest_come_first_and_pages_lose_nothing(engine: Engine, clock: ManualClock) -> None:
    """They are sorted by their death, not by when their event came."""
    await engine.endpoint()
    await engine.accept_many(5)
    dead = []
    for job in await engine.claim():
        clock.advance(1)
        await engine.kill(job)
        dead.append(job.id)
    seen: list[UUID] = []
    after = None
    while True:
        page = await letters(engine, limit=2, after=after)
        seen += [row["id"] for row in page.rows]
        assert page.total == 5
        after = page.next_key
        if after is None:
            break
    assert seen == dead[::-1]


async def test_filters_choose_by_everything_a_person_asks_for(engine: Engine, clock: ManualClock) -> None:
    sap = await engine.endpoint("sap", event_types=("a",), external_system="SAP")
    await engine.endpoint("other", event_types=("b",))
    first = await a_dead_task(engine, "a", Failure(Category.CLIENT_ERROR, "HTTP 404 100% gone"))
    start = clock.now()
    clock.advance(60)
    second = await a_dead_task(engine, "b", Failure(Category.VALIDATION, "bad_field"))
    await engine.accept("c", handler="h")
    third = await engine.claim_one(queues=["handler:h"])
    await engine.fail(third)
    await engine.skip(third.id)
    mark = (await letters(engine, event_type="a")).rows[0]["fingerprint"]
    minute = timedelta(seconds=60)
    cases: list[tuple[dict[str, Any], set[UUID]]] = [
        ({}, {first, second, third.id}),
        ({"kind": "handler"}, {third.id}),
        ({"event_type": "a"}, {first}),
        ({"external_system": "SAP"}, {first}),
        ({"endpoint_id": sap}, {first}),
        ({"reason": "skipped"}, {third.id}),
        ({"category": "validation"}, {second}),
        ({"fingerprint": mark}, {first}),
        ({"since": start + minute}, {second, third.id}),
        ({"until": start + minute}, {first}),
        ({"q": "100% GONE"}, {first}),
        ({"q": "d_f"}, {second}),
        ({"q": "100%gone"}, set()),
        ({"q": "adxf"}, set()),
        ({"state": "resolved"}, set()),
    ]
    for chosen, expected in cases:
        page = await letters(engine, **chosen)
        assert ({row["id"] for row in page.rows}, page.total) == (expected, len(expected)), chosen


async def test_a_star_in_an_event_type_stands_for_anything(engine: Engine) -> None:
    """A type may hold a star itself: it is found like any other, but not alone."""
    await engine.endpoint()
    types = ("invoice.paid", "invoice.*", "INVOICE.paid", "in_oice.paid", "pre.invoice.paid", "100%", "a\\b")
    died = {event_type: await a_dead_task(engine, event_type) for event_type in types}
    for pattern, expected in (
        ("invoice.paid", {"invoice.paid"}),
        ("invoice.*", {"invoice.paid", "invoice.*"}),
        ("*.paid", {"invoice.paid", "INVOICE.paid", "in_oice.paid", "pre.invoice.paid"}),
        ("in*e.p*d", {"invoice.paid", "in_oice.paid"}),
        ("in_oice*", {"in_oice.paid"}),
        ("10%*", set()),
        ("100%*", {"100%"}),
        ("a\\*", {"a\\b"}),
        ("*", set(types)),
        ("*.shipped", set()),
    ):
        page = await letters(engine, event_type=pattern)
        assert ({row["id"] for row in page.rows}, page.total) == ({died[t] for t in expected}, len(expected)), pattern
    both = await letters(engine, event_type="*invoice*", fingerprint=page_fingerprint(await letters(engine)))
    assert {row["id"] for row in both.rows} == {died[t] for t in types if "invoice" in t}


def page_fingerprint(page: Page) -> str:
    """Of the letters of one cause."""
    (fingerprint,) = {row["fingerprint"] for row in page.rows}
    return str(fingerprint)


async def test_a_redrive_is_a_new_generation_just_after_a_first_failure(engine: Engine, clock: ManualClock) -> None:
    """A-10: due in the first delay; a failure then waits for the second one."""
    await engine.endpoint()
    task_id = await a_dead_task(engine)
    redriven_at = clock.advance(60)
    assert await engine.redrive(task_id) is None
    task, letter = await engine.task(task_id), await engine.letter(task_id)
    assert (task["state"], task["generation"], task["attempts"], task["reason"]) == ("waiting", 1, 1, None)
    assert (task["due_at"], task["begun_at"]) == (redriven_at + timedelta(seconds=5), redriven_at)
    assert letter is not None
    assert (letter["state"], letter["replays"], letter["replayed_by"]) == ("replaying", 1, PERSON.actor)
    assert (await engine.event(task["event_id"]))["status"] == "queued"
    assert (await letters(engine)).total == 0
    clock.advance(5)
    job = await engine.claim_one()
    assert (job.fence, job.attempts, job.generation) == (2, 1, 1)


async def test_a_redrive_that_succeeds_resolves_the_letter(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    task_id = await a_dead_task(engine)
    await engine.redrive(task_id, at_once=True)
    await engine.succeed(await engine.claim_one())
    letter = await engine.letter(task_id)
    assert letter is not None
    assert (letter["state"], letter["replay_outcome"], letter["closed_by"]) == ("resolved", "succeeded", PERSON.actor)
    assert letter["closed_at"] == clock.now()
    event = await engine.event((await engine.task(task_id))["event_id"])
    assert (event["status"], event["failed_at"], event["dead_tasks"]) == ("delivered", None, 0)
    assert await engine.redrive(task_id) is Refusal.NOT_OPEN


async def test_a_second_death_reopens_the_same_letter(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    task_id = await a_dead_task(engine)
    first_failed_at = clock.now()
    await engine.redrive(task_id, at_once=True)
    died_again = clock.advance(10)
    await engine.kill(await engine.claim_one(), failure=Failure(Category.VALIDATION, "now something else"))
    letter = await engine.letter(task_id)
    assert letter is not None
    assert (letter["state"], letter["category"], letter["replay_outcome"]) == ("open", "validation", "failed")
    assert (letter["generation"], letter["created_at"], letter["failed_at"]) == (1, died_again, died_again)
    assert letter["first_failed_at"] == first_failed_at
    assert [row["generation"] for row in await engine.attempts(task_id)] == [0, 1]
    assert (await letters(engine)).total == 1


async def test_a_redriven_task_that_is_skipped_is_dead_again(engine: Engine) -> None:
    await engine.endpoint()
    task_id = await a_dead_task(engine)
    await engine.redrive(task_id)
    assert await engine.mark_letter(task_id, "resolved") is Refusal.REPLAYING
    assert await engine.skip(task_id) is None
    letter = await engine.letter(task_id)
    assert letter is not None
    assert (letter["state"], letter["reason"], letter["replay_outcome"]) == ("open", "skipped", "failed")


@pytest.mark.parametrize("policy", ["manual", "integration"])
async def test_a_redrive_at_once_or_under_a_manual_policy_is_due_now(engine: Engine, policy: str) -> None:
    await engine.endpoint(policy=policy)
    task_id = await a_dead_task(engine)
    await engine.redrive(task_id, at_once=policy != "manual")
    assert (await engine.claim_one()).id == task_id


async def test_resolving_and_ignoring_close_a_letter_and_a_redrive_opens_it_again(engine: Engine) -> None:
    await engine.endpoint()
    for state in ("resolved", "ignored"):
        task_id = await a_dead_task(engine)
        assert await engine.mark_letter(task_id, state) is None
        assert await engine.mark_letter(task_id, state) is None  # asked twice, done once
        letter = await engine.letter(task_id)
        assert letter is not None
        assert (letter["state"], letter["closed_by"], letter["closed_because"]) == (state, PERSON.actor, PERSON.because)
        assert (await engine.task(task_id))["state"] == "dead"
        assert [row["id"] for row in (await letters(engine, state=state)).rows] == [task_id]
        assert await engine.redrive(task_id, at_once=True) is None
        await engine.kill(await engine.claim_one())
        assert [row["id"] for row in (await letters(engine)).rows] == [task_id]
        await engine.mark_letter(task_id, "deleted")


async def test_a_resolved_letter_cannot_be_ignored_but_an_ignored_one_resolved(engine: Engine) -> None:
    await engine.endpoint()
    resolved, ignored = await a_dead_task(engine), await a_dead_task(engine)
    await engine.mark_letter(resolved, "resolved")
    await engine.mark_letter(ignored, "ignored")
    assert await engine.mark_letter(resolved, "ignored") is Refusal.NOT_OPEN
    assert await engine.mark_letter(ignored, "resolved") is None


@pytest.mark.parametrize("state", ["resolved", "ignored"])
async def test_a_closed_letter_is_reopened_where_it_stood(engine: Engine, state: str) -> None:
    await engine.endpoint()
    first, second = await a_dead_task(engine), await a_dead_task(engine)
    await engine.mark_letter(first, state)
    assert await engine.mark_letter(first, "open") is None
    assert await engine.mark_letter(first, "open") is None  # asked twice, done once
    assert [row["id"] for row in (await letters(engine)).rows] == [second, first]
    letter = await engine.letter(first)
    assert letter is not None
    assert (letter["closed_at"], letter["closed_by"], letter["closed_because"]) == (None, None, None)
    rows = await engine.sql.fetch(
        "SELECT before ->> 'state' FROM redrive.audit WHERE subject_id = $1 AND action = 'dead_letter.reopen'", first
    )
    assert [row[0] for row in rows] == [state]


async def test_what_a_replay_delivered_and_what_is_under_way_is_not_reopened(engine: Engine) -> None:
    await engine.endpoint()
    task_id = await a_dead_task(engine)
    await engine.redrive(task_id, at_once=True)
    assert await engine.mark_letter(task_id, "open") is Refusal.REPLAYING
    await engine.succeed(await engine.claim_one())
    assert await engine.mark_letter(task_id, "open") is Refusal.NOT_OPEN
    assert (await letters(engine)).rows == []


async def test_a_deleted_letter_is_gone_and_its_log_and_audit_stay(engine: Engine) -> None:
    await engine.endpoint()
    task_id = await a_dead_task(engine)
    assert await engine.mark_letter(task_id, "deleted") is None
    for action in (
        engine.redrive(task_id),
        engine.mark_letter(task_id, "resolved"),
        engine.mark_letter(task_id, "open"),
    ):
        assert await action is Refusal.UNKNOWN
    async with engine.app.tenant(engine.org_id) as session:
        assert await get_dead_letter(session, task_id) is None
        assert await get_log(session, task_id) is not None
        assert len(await list_task_attempts(session, task_id)) == 1
    assert (await letters(engine)).rows == []


async def test_every_action_on_a_letter_leaves_one_entry_in_the_audit(engine: Engine) -> None:
    await engine.endpoint()
    task_id = await a_dead_task(engine)
    await engine.mark_letter(task_id, "ignored")
    await engine.mark_letter(task_id, "resolved")
    await engine.redrive(task_id, at_once=True)
    await engine.redrive(task_id)  # refused: it is under way
    await engine.kill(await engine.claim_one())
    await engine.mark_letter(task_id, "deleted")
    rows = await engine.sql.fetch(
        "SELECT action, before ->> 'state', actor, because FROM redrive.audit WHERE subject_id = $1 ORDER BY id",
        task_id,
    )
    expected = [("ignore", "open"), ("resolve", "ignored"), ("retry", "resolved"), ("delete", "open")]
    assert sorted(tuple(row) for row in rows) == sorted(
        (f"dead_letter.{verb}", before, PERSON.actor, PERSON.because) for verb, before in expected
    )


async def test_a_letter_of_another_org_is_unknown(engine: Engine) -> None:
    await engine.endpoint()
    task_id = await a_dead_task(engine)
    engine.org_id = await engine.org("other")
    assert await engine.redrive(task_id) is await engine.mark_letter(task_id, "resolved") is Refusal.UNKNOWN
    assert (await letters(engine)).rows == []
    async with engine.app.tenant(engine.org_id) as session:
        assert await get_dead_letter(session, task_id) is None
