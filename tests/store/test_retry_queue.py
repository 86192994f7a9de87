"""The retry queue: what failed and will be tried again, in order, and what a person may do with it."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from redrive.core.decide import AwaitPerson
from redrive.core.outcome import Category, Failure
from redrive.store import retry_queue
from redrive.store.events import get_event_status
from redrive.store.lanes import Ahead, ahead_of
from redrive.store.logs import get_log, list_task_attempts
from redrive.store.paging import Page
from redrive.store.retry_queue import Refusal, RetryQueueFilter, list_retry_queue
from support.engine import PERSON, UNAVAILABLE, Engine, ManualClock


async def queue(engine: Engine, limit: int = 50, after: Any = None, **filters: Any) -> Page:
    async with engine.app.tenant(engine.org_id) as session:
        return await list_retry_queue(session, RetryQueueFilter(**filters), limit=limit, after=after)


async def a_failed_task(
    engine: Engine,
    event_type: str = "invoice.paid",
    delay_s: float = 5.0,
    failure: Failure = UNAVAILABLE,
    **fields: Any,
) -> UUID:
    await engine.accept(event_type, **fields)
    job = await engine.claim_one()
    await engine.fail(job, delay_s, failure)
    return job.id


async def test_a_task_that_has_not_failed_yet_is_not_in_the_retry_queue(engine: Engine) -> None:
    await engine.endpoint()
    await engine.accept_many(2)
    await engine.claim_one()
    page = await queue(engine)
    assert (page.rows, page.total) == ([], 0)


async def test_the_soonest_retry_comes_first_and_pages_lose_nothing(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    ids = [await a_failed_task(engine, delay_s=delay_s) for delay_s in (30, 10, 20, 10, 40)]
    await engine.accept()
    manual = await engine.claim_one()
    await engine.settle(manual, UNAVAILABLE, AwaitPerson())
    expected = [*sorted([ids[1], ids[3]]), ids[2], ids[0], ids[4], manual.id]
    seen, after = [], None
    while True:
        page = await queue(engine, limit=2, after=after)
        seen += [row["id"] for row in page.rows]
        after = page.next_key
        assert page.total == 6
        if after is None:
            break
    assert seen == expected


async def test_an_entry_tells_of_its_last_failure_and_its_policy(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint(external_system="SAP")
    task_id = await a_failed_task(engine, correlation_id="c-1")
    (entry,) = (await queue(engine)).rows
    assert (entry["id"], entry["attempts"], entry["policy"]) == (task_id, 1, "integration")
    assert (entry["error_message"], entry["category"]) == (UNAVAILABLE.message, "server_error")
    assert (entry["correlation_id"], entry["external_system"]) == ("c-1", "SAP")
    assert entry["due_at"] == entry["last_failed_at"] + timedelta(seconds=5)


async def test_filters_choose_by_status_type_system_and_endpoint(engine: Engine, clock: ManualClock) -> None:
    a = await engine.endpoint("a", event_types=("a",), external_system="SAP")
    await engine.endpoint("b", event_types=("b",))
    in_a, in_b = await a_failed_task(engine, "a"), await a_failed_task(engine, "b", delay_s=60)
    clock.advance(5)
    assert (await engine.claim_one()).id == in_a
    for filters, expected in (
        ({"event_type": "a"}, [in_a]),
        ({"external_system": "SAP"}, [in_a]),
        ({"endpoint_id": a}, [in_a]),
        ({"status": "in_progress"}, [in_a]),
        ({"status": "pending"}, [in_b]),
        ({"status": "pending", "event_type": "a"}, []),
    ):
        page = await queue(engine, **filters)
        assert ([row["id"] for row in page.rows], page.total) == (expected, len(expected)), filters


async def test_filters_choose_by_patterns_of_types_and_by_the_last_failure(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    slow = await a_failed_task(engine, "order.placed", failure=Failure(Category.TIMEOUT, "no answer in 30 s"))
    busy = await a_failed_task(engine, "order.paid", failure=Failure(Category.SERVER_ERROR, "100% busy"), delay_s=60)
    clock.advance(5)
    await engine.fail(await engine.claim_one(), 60, Failure(Category.NETWORK, "connection refused"))
    cases: list[tuple[dict[str, Any], list[UUID]]] = [
        ({"event_type": "order.*"}, [busy, slow]),
        ({"event_type": "*.placed"}, [slow]),
        ({"event_type": "order_*"}, []),
        ({"category": "network"}, [slow]),
        ({"category": "timeout"}, []),  # that was the failure before
        ({"q": "no answer"}, []),
        ({"q": "REFUSED"}, [slow]),
        ({"q": "100%"}, [busy]),
        ({"q": "100_"}, []),
        ({"q": "order.pa"}, [busy]),
        ({"q": "order.pa", "category": "server_error"}, [busy]),
        ({"q": "order.pa", "category": "network"}, []),
        ({"q": "refused", "status": "in_progress"}, []),
    ]
    for filters, expected in cases:
        page = await queue(engine, **filters)
        assert ([row["id"] for row in page.rows], page.total) == (expected, len(expected)), filters


async def test_what_is_far_in_the_queue_is_found_by_going_on_page_by_page(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each page looks at so many entries. The total is known only where all of them were asked."""
    await engine.endpoint()
    monkeypatch.setattr(retry_queue, "LOOK_FACTOR", 1)
    monkeypatch.setattr(retry_queue, "MAX_LOOKED", 4)
    monkeypatch.setattr(retry_queue, "MAX_COUNTED", 8)
    for number in range(9):
        await a_failed_task(engine, "order.placed" if number in (5, 8) else "invoice.paid", delay_s=60 + number)
    sizes, totals, after = [], [], None
    while True:
        page = await queue(engine, limit=1, after=after, event_type="order.placed")
        sizes.append(len(page.rows))
        totals.append(page.total)
        after = page.next_key
        if after is None:
            break
    assert sizes == [0, 1, 1]
    assert totals == [None, None, None]
    monkeypatch.setattr(retry_queue, "MAX_COUNTED", 9)
    assert (await queue(engine, limit=1, event_type="order.placed")).total == 2


async def test_retry_now_is_due_at_once_in_progress_and_audited(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    task_id = await a_failed_task(engine, delay_s=300)
    assert await engine.retry_now(task_id) is None
    assert [row["id"] for row in (await queue(engine, status="pending")).rows] == [task_id]
    job = await engine.claim_one()
    assert [row["id"] for row in (await queue(engine, status="in_progress")).rows] == [task_id]
    assert await engine.retry_now(task_id) is Refusal.IN_PROGRESS
    await engine.fail(job, 30)
    assert [row["id"] for row in (await queue(engine, status="pending")).rows] == [task_id]
    assert await _audited(engine) == [("task.retry", task_id, PERSON.actor, PERSON.because)]


async def test_retry_now_also_wakes_what_waits_for_a_person(engine: Engine) -> None:
    await engine.endpoint(policy="manual")
    await engine.accept()
    await engine.settle(await engine.claim_one(), UNAVAILABLE, AwaitPerson())
    (entry,) = (await queue(engine)).rows
    assert await engine.retry_now(entry["id"]) is None
    assert (await engine.claim_one()).id == entry["id"]


async def test_skip_kills_with_the_last_error_and_is_audited(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    task_id = await a_failed_task(engine)
    skipped_at = clock.advance(1)
    assert await engine.skip(task_id) is None
    task = await engine.task(task_id)
    assert (task["state"], task["reason"], task["attempts"]) == ("dead", "skipped", 1)
    letter = await engine.letter(task_id)
    assert letter is not None
    assert (letter["reason"], letter["category"], letter["failed_at"]) == ("skipped", "server_error", skipped_at)
    assert letter["error_message"] == UNAVAILABLE.message
    assert (await engine.event(task["event_id"]))["status"] == "failed"
    assert await _audited(engine) == [("task.skip", task_id, PERSON.actor, PERSON.because)]
    clock.advance(3600)
    assert await engine.claim() == []


async def test_a_held_task_can_be_skipped_but_not_retried(engine: Engine, clock: ManualClock) -> None:
    endpoint_id = await engine.endpoint()
    task_id = await a_failed_task(engine)
    await engine.change_endpoint(endpoint_id, disabled=True)
    clock.advance(5)
    assert await engine.claim() == []
    assert await engine.retry_now(task_id) is Refusal.HELD
    assert await engine.skip(task_id) is None
    assert (await engine.task(task_id))["state"] == "dead"


async def test_what_is_not_in_the_queue_cannot_be_retried_or_skipped(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    await engine.accept()
    job = await engine.claim_one()
    other = await engine.org("other")
    for action in (engine.retry_now, engine.skip):
        assert await action(other) is Refusal.UNKNOWN
        assert await action(job.id) is Refusal.UNKNOWN  # in its first try
    await engine.fail(job)
    clock.advance(5)
    retry = await engine.claim_one()
    assert await engine.skip(job.id) is Refusal.IN_PROGRESS
    await engine.succeed(retry)
    assert await engine.retry_now(job.id) is await engine.skip(job.id) is Refusal.NOT_OPEN


async def test_the_status_of_an_event_counts_retries_granted(engine: Engine, clock: ManualClock) -> None:
    """Row C: 1 after the first failure, 3 after the third and when dead; the next retry while there is one."""
    await engine.endpoint()
    event_id = await engine.accept()

    async def status() -> tuple[str, int, datetime | None, datetime | None]:
        async with engine.app.tenant(engine.org_id) as session:
            row = await get_event_status(session, event_id)
        assert row is not None
        return row["status"], row["retry_attempts"], row["next_retry_at"], row["last_retry_at"]

    assert await status() == ("queued", 0, None, None)
    for failures in (1, 2, 3):
        job = await engine.claim_one()
        assert (await status())[2] is None
        await engine.fail(job, 10)
        assert await status() == ("queued", failures, clock.now() + timedelta(seconds=10), clock.now())
        clock.advance(10)
    await engine.kill(await engine.claim_one())
    assert await status() == ("failed", 3, None, clock.now())


async def test_a_log_holds_the_payload_and_every_try_the_open_one_too(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    task_id = await a_failed_task(engine, body=b"[1]")
    clock.advance(5)
    await engine.claim_one()
    async with engine.app.tenant(engine.org_id) as session:
        log = await get_log(session, task_id)
        tries = await list_task_attempts(session, task_id)
    assert log is not None
    assert log["body"] == b"[1]"
    assert [(row["fence"], row["number"], row["result"]) for row in tries] == [(1, 1, "failed"), (2, 2, "open")]


async def _audited(engine: Engine) -> list[tuple[Any, ...]]:
    rows = await engine.sql.fetch(
        "SELECT action, subject_id, actor, because FROM redrive.audit WHERE subject_kind = 'task' ORDER BY id"
    )
    return [tuple(row) for row in rows]


async def test_one_that_waits_behind_others_of_its_lane_cannot_be_hurried(engine: Engine) -> None:
    await engine.endpoint(ordered=True)
    await engine.accept_many(2)
    dead = await engine.claim_one()
    await engine.kill(dead)
    head = await engine.claim_one()
    await engine.fail(head, 3600)
    assert await engine.redrive(dead.id, at_once=True) is None
    assert await engine.retry_now(dead.id) is Refusal.BEHIND
    async with engine.app.tenant(engine.org_id) as session:
        assert await ahead_of(session, dead.id) == Ahead(head.id, None)
    assert await engine.retry_now(head.id) is None


async def test_the_log_and_the_dead_letter_of_what_was_skipped_name_one_time(live: Engine) -> None:
    await live.endpoint()
    await live.accept()
    job = await live.claim_one()
    await live.fail(job)
    with capture_logs() as logged:
        assert await live.skip(job.id) is None
    (line,) = [line for line in logged if line["event"] == "event_failed"]
    letter = await live.letter(job.id)
    assert letter is not None
    assert datetime.fromisoformat(line["failed_at"]) == letter["failed_at"]
