"""Row A: the retry queue and the dead-letter queue of integrations."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from redrive import DeadLetterNotice
from redrive.app import open_worker
from redrive.destinations.callbacks import awaitable
from redrive.engine.callbacks import Callbacks
from redrive.engine.herald import Herald
from redrive.library import Redrive
from redrive.store.notices import Notices
from support.engine import ManualClock
from support.holding import HoldingReceiver
from support.installation import Installation
from support.receiver import Answer
from support.remote import at

from .conftest import Story


async def test_a1_a_failure_writes_a_log_and_an_entry_that_is_retried_after_5_seconds(
    redrive: Installation, clock: ManualClock, receiver: HoldingReceiver
) -> None:
    endpoint = await redrive.api.endpoint(receiver.url, external_system="erp")
    receiver.script(Answer(503, b"maintenance"))
    await redrive.api.event(endpoint["id"], {"order": 7})
    await redrive.work()
    entry = await redrive.api.entry(endpoint["id"])
    expected: dict[str, Any] = {"retry_count": 0, "max_retries": 3, "retry_policy": "exponential", "status": "pending"}
    assert {name: entry[name] for name in expected} == expected
    assert at(entry["next_retry_at"]) == clock.now() + timedelta(seconds=5)
    assert "503" in entry["error_message"]
    log = await redrive.api.log(entry["log_id"])
    assert (log["status"], log["external_system"], log["event_type"]) == ("error", "erp", "invoice.paid")
    assert (log["request"]["body"], log["response"]["body"]) == ({"order": 7}, "maintenance")
    assert log["error_message"] == entry["error_message"]
    assert log["created_at"]
    assert "error_stack" in entry
    assert "error_stack" in log
    clock.advance(5)
    await redrive.work()
    assert len(receiver.requests) == 2


async def test_a2_a_retry_that_succeeds_turns_the_log_and_one_that_fails_moves_on(
    redrive: Installation, clock: ManualClock, receiver: HoldingReceiver, failing: Story
) -> None:
    entry = await failing()
    clock.advance(5)
    await redrive.work()
    again = await redrive.api.entry(entry["endpoint_id"])
    assert (again["retry_count"], again["status"]) == (1, "pending")
    assert at(again["next_retry_at"]) == clock.now() + timedelta(seconds=30)
    receiver.usual = Answer(200, b'{"booked":true}')
    clock.advance(30)
    await redrive.work()
    assert (await redrive.api.get("/v1/retry-queue"))["data"] == []
    log = await redrive.api.log(entry["log_id"])
    assert (log["status"], log["note"]) == ("success", "Succeeded on retry attempt 2")
    assert log["response"]["body"] == '{"booked":true}'


async def test_a3_the_last_retry_s_failure_makes_a_dead_letter_and_in_dlq_implies_failed(
    redrive: Installation, receiver: HoldingReceiver, dead: Story
) -> None:
    letter = await dead()
    assert (letter["status"], letter["in_dlq"], letter["next_retry_at"]) == ("failed", True, None)
    assert (letter["retry_count"], letter["reason"]) == (3, "exhausted")
    assert letter["error_message"] == "HTTP 503 Service Unavailable"
    # Whoever writes: a task that is not dead has no reason, and one without a reason is not dead.
    connection = await asyncpg.connect(redrive.url, server_settings={"role": "redrive_engine"})
    try:
        with pytest.raises(asyncpg.CheckViolationError):
            await connection.execute("UPDATE redrive.task SET reason = NULL WHERE id = $1", letter["id"])
    finally:
        await connection.close()


async def test_a3_administrators_are_notified_of_a_dead_letter(
    redrive: Installation, receiver: HoldingReceiver, dead: Story
) -> None:
    """In the list of notices, by a webhook to whoever asked for them, and by the callback of a program."""
    app = Redrive(redrive.url)
    heard: list[DeadLetterNotice] = []
    app.on_dead_letter(heard.append)
    await redrive.api.endpoint(receiver.url_of("/ops"), name="ops", event_types=["redrive.*"])
    letter = await dead(event_types=["invoice.*"])
    (notice,) = (await redrive.api.get("/v1/notices"))["data"]
    assert (notice["kind"], notice["subject_id"]) == ("dead_letter", letter["id"])
    notices = Notices(redrive.stores.engine, redrive.clock)
    assert await Herald(notices).look() == 1
    receiver.usual = 200
    await redrive.work()
    (told,) = receiver.of_path("/ops")
    assert (told.headers["redrive-event-type"], json.loads(told.body)["text"]) == (
        "redrive.dead_letter",
        notice["text"],
    )
    assert told.headers["webhook-signature"].startswith("v1,")
    assert app.dead_letter_callback is not None
    await Callbacks(notices, awaitable(app.dead_letter_callback)).look()
    assert [str(one.task_id) for one in heard] == [letter["id"]]


@pytest.mark.parametrize(
    ("policy", "kind", "delays"),
    [("integration", "exponential", [5, 30, 300]), ("immediate", "immediate", [5, 5, 5]), ("manual", "manual", [None])],
)
async def test_a4_the_policies_keep_their_delays_and_the_database_says_the_same(
    redrive: Installation, clock: ManualClock, failing: Story, policy: str, kind: str, delays: list[int | None]
) -> None:
    entry = await failing(policy=policy)
    assert (entry["retry_policy"], entry["policy"]) == (kind, policy)
    connection = await asyncpg.connect(redrive.url)
    try:
        for retry, delay_s in enumerate(delays):
            told = await connection.fetchval("SELECT redrive.retry_delay($1, $2::text)", retry, kind)
            entry = await redrive.api.entry(entry["endpoint_id"])
            if delay_s is None:
                assert (told, entry["next_retry_at"]) == (None, None)
                break
            assert told == timedelta(seconds=delay_s)
            assert at(entry["next_retry_at"]) == clock.now() + told
            clock.advance(delay_s)
            await redrive.work()
        for count, name, seconds in ((3, "exponential", 300), (99, "exponential", 300), (1, "no such policy", 5)):
            told = await connection.fetchval("SELECT redrive.retry_delay($1, $2::text)", count, name)
            assert told == timedelta(seconds=seconds)
    finally:
        await connection.close()


async def test_a4_max_retries_are_set_per_integration(
    redrive: Installation, clock: ManualClock, failing: Story
) -> None:
    await redrive.api.policy("once", kind="list", delays_s=[5], max_retries=1)
    entry = await failing(policy="once")
    assert entry["max_retries"] == 1
    clock.advance(5)
    await redrive.work()
    assert (await redrive.api.letter(entry["endpoint_id"]))["retry_count"] == 1


async def test_a5_the_queue_is_filtered_and_sorted_by_the_next_retry(
    redrive: Installation, clock: ManualClock, receiver: HoldingReceiver
) -> None:
    receiver.usual = 503
    for event_type, wait_s in (("order.created", 2), ("order.paid", 1), ("order.created", 0)):
        endpoint = await redrive.api.endpoint(receiver.url, external_system="shop")
        given = {"event_type": event_type, "payload": {}, "endpoint_id": endpoint["id"]}
        await redrive.api.post("/v1/events", given)
        await redrive.work()
        clock.advance(wait_s)
    rows = (await redrive.api.get("/v1/retry-queue"))["data"]
    due = [at(row["next_retry_at"]) for row in rows]
    assert due == sorted(due)
    assert len(rows) == 3
    for row in rows:
        assert row["event_type"]
        assert row["external_system"] == "shop"
        assert row["error_message"]
        assert (row["retry_count"], row["max_retries"]) == (0, 3)
        assert (await redrive.api.log(row["log_id"]))["event_type"] == row["event_type"]
    created = (await redrive.api.get("/v1/retry-queue", event_type="order.created"))["data"]
    assert len(created) == 2
    assert len((await redrive.api.get("/v1/retry-queue", status="pending"))["data"]) == 3
    assert (await redrive.api.get("/v1/retry-queue", status="in_progress"))["data"] == []


async def test_a6_retry_now_is_in_progress_at_once_and_executed_at_once(
    redrive: Installation, clock: ManualClock, receiver: HoldingReceiver, failing: Story
) -> None:
    entry = await failing()
    receiver.hold()
    async with redrive.working():
        await redrive.has_worker()
        asked = await redrive.api.post(f"/v1/retry-queue/{entry['id']}/retry")
        assert (asked["status"], asked["warning"]) == ("in_progress", None)
        receiver.release()
    moved = await redrive.api.entry(entry["endpoint_id"])
    assert (moved["retry_count"], moved["status"]) == (1, "pending")
    assert at(moved["next_retry_at"]) == clock.now() + timedelta(seconds=30)
    receiver.usual = 200
    await redrive.api.post(f"/v1/retry-queue/{entry['id']}/retry")
    await redrive.work()
    assert (await redrive.api.get("/v1/retry-queue"))["data"] == []


async def test_a7_a_skipped_entry_is_a_dead_letter(redrive: Installation, failing: Story) -> None:
    entry = await failing()
    skipped = await redrive.api.post(f"/v1/retry-queue/{entry['id']}/skip", {"because": "duplicate order"})
    assert (skipped["status"], skipped["in_dlq"], skipped["next_retry_at"]) == ("failed", True, None)
    assert (await redrive.api.get("/v1/retry-queue"))["data"] == []
    letter = await redrive.api.letter(entry["endpoint_id"])
    assert (letter["id"], letter["reason"]) == (entry["id"], "skipped")


async def test_a8_retry_all_selected_counts_who_succeeded_and_who_failed(
    redrive: Installation, clock: ManualClock, receiver: HoldingReceiver
) -> None:
    receiver.usual = 503
    endpoint = await redrive.api.endpoint(receiver.url)
    events = await redrive.api.batch(endpoint["id"], 5)
    await redrive.work()
    entries = (await redrive.api.get("/v1/retry-queue"))["data"]
    mended = set(events[:3])
    receiver.usual = lambda request: 200 if request.headers["webhook-id"] in mended else 503
    asked = await redrive.api.post("/v1/retry-queue/bulk-retry", {"ids": [entry["id"] for entry in entries]})
    assert asked["total"] == 5
    operation = await _finished(redrive, clock, asked["operation_id"])
    assert (operation["succeeded"], operation["failed"], operation["done"]) == (3, 2, 5)
    assert operation["progress"] == "3/5 succeeded, 2/5 failed"
    assert operation["message"] == "Bulk retry complete. 3 succeeded, 2 failed."
    left = (await redrive.api.get("/v1/retry-queue"))["data"]
    waiting = asyncio.create_task(
        redrive.caller().post("/v1/retry-queue/bulk-skip?wait=true", {"ids": [entry["id"] for entry in left]})
    )
    assert await waiting == {"succeeded": 2, "failed": 0}
    assert (await redrive.api.get("/v1/retry-queue"))["data"] == []


async def _finished(redrive: Installation, clock: ManualClock, operation_id: str) -> dict[str, Any]:
    """The operation at its end: it looks for results at short intervals."""
    for _ in range(5):
        await redrive.work()
        operation: dict[str, Any] = await redrive.api.get(f"/v1/operations/{operation_id}")
        if operation["state"] == "completed":
            return operation
        clock.advance(1)
    raise AssertionError(operation)


async def test_a9_dead_letters_are_newest_first_filtered_and_show_every_attempt(
    redrive: Installation, clock: ManualClock, dead: Story
) -> None:
    early = await dead()
    clock.advance(3600)
    late = await dead()
    assert [row["id"] for row in (await redrive.api.get("/v1/dead-letters"))["data"]] == [late["id"], early["id"]]
    for row in (early, late):
        assert (row["event_type"], row["external_system"]) == ("invoice.paid", "erp")
        assert (row["retry_count"], row["max_retries"]) == (3, 3)
        assert row["first_failed_at"] == row["created_at"] < row["failed_at"]
    between = (at(early["created_at"]) + timedelta(minutes=1)).isoformat()
    assert [row["id"] for row in (await redrive.api.get("/v1/dead-letters", since=between))["data"]] == [late["id"]]
    assert [row["id"] for row in (await redrive.api.get("/v1/dead-letters", until=between))["data"]] == [early["id"]]
    assert (await redrive.api.get("/v1/dead-letters", event_type="other"))["data"] == []
    detail = await redrive.api.get(f"/v1/dead-letters/{early['id']}")
    assert [attempt["number"] for attempt in detail["attempts"]] == [1, 2, 3, 4]
    assert {attempt["error_message"] for attempt in detail["attempts"]} == {"HTTP 503 Service Unavailable"}


async def test_a10_a_manual_retry_of_a_dead_letter_starts_over_and_fails_back_into_the_queue(
    redrive: Installation, clock: ManualClock, dead: Story
) -> None:
    letter = await dead()
    entry = await redrive.api.post(f"/api/integrations/retry-queue/{letter['id']}/retry")
    assert (entry["retry_count"], entry["max_retries"], entry["in_dlq"], entry["status"]) == (0, 3, False, "pending")
    assert at(entry["next_retry_at"]) == clock.now() + timedelta(seconds=5)
    clock.advance(5)
    await redrive.work()
    entry = await redrive.api.entry(letter["endpoint_id"])
    assert (entry["retry_count"], entry["in_dlq"]) == (1, False)
    assert at(entry["next_retry_at"]) == clock.now() + timedelta(seconds=30)
    assert (await redrive.api.get("/v1/dead-letters"))["data"] == []


async def test_a11_a_deleted_entry_is_gone_and_its_log_stays(redrive: Installation, dead: Story) -> None:
    letter = await dead()
    path = f"/api/integrations/dead-letter-queue/{letter['id']}"
    assert (await redrive.api.http.request("DELETE", path)).status == 204
    assert (await redrive.api.get("/v1/dead-letters"))["data"] == []
    assert (await redrive.api.http.get(f"/v1/dead-letters/{letter['id']}")).status == 404
    assert (await redrive.api.log(letter["log_id"]))["status"] == "error"
    (entry,) = (await redrive.api.get("/v1/audit", action="dead_letter.delete"))["data"]
    assert entry["subject_id"] == letter["id"]


@pytest.mark.parametrize(
    ("role", "may_change"),
    [("OWNER", True), ("ADMIN", True), ("IT_MANAGER", True), ("STAFF", False), ("VIEWER", False)],
)
async def test_a12_members_read_and_three_roles_change_and_the_database_holds_it(
    redrive: Installation, failing: Story, role: str, may_change: bool
) -> None:
    entry = await failing()
    made = await redrive.api.post("/v1/keys", {"name": role, "role": role})
    member = redrive.caller()
    member.http.key = made["key"]
    assert (await member.http.get("/v1/retry-queue")).status == 200
    skipped = await member.http.post(f"/v1/retry-queue/{entry['id']}/skip")
    assert skipped.status == (200 if may_change else 403)
    stranger = await redrive.other_org(f"other {role}")
    assert (await stranger.get("/v1/retry-queue"))["data"] == []
    assert (await stranger.http.post(f"/v1/retry-queue/{entry['id']}/skip")).status == 404
    connection = await asyncpg.connect(redrive.url, server_settings={"role": "redrive_app"})
    try:
        async with connection.transaction():
            await connection.execute(f"SET LOCAL redrive.org = '{redrive.org_id}'; SET LOCAL redrive.role = '{role}'")
            assert await connection.fetchval("SELECT count(*) FROM redrive.task") == 1
            changed = await connection.execute("UPDATE redrive.task SET updated_at = updated_at")
            assert changed == f"UPDATE {int(may_change)}"
        assert await connection.fetchval("SELECT count(*) FROM redrive.task") == 0
    finally:
        await connection.close()
        member.close()
        stranger.close()


async def test_a13_the_promised_paths_answer(redrive: Installation, receiver: HoldingReceiver, failing: Story) -> None:
    retries, letters = "/api/integrations/retry-queue", "/api/integrations/dead-letter-queue"
    entry = await failing()
    assert [row["id"] for row in (await redrive.api.get(retries))["data"]] == [entry["id"]]
    assert (await redrive.api.post(f"{retries}/{entry['id']}/retry"))["warning"] == "no_worker"
    await redrive.work()
    assert (await redrive.api.post(f"{retries}/{entry['id']}/skip"))["in_dlq"] is True
    assert [row["id"] for row in (await redrive.api.get(letters))["data"]] == [entry["id"]]
    assert (await redrive.api.http.request("DELETE", f"{letters}/{entry['id']}")).status == 204
    other = await failing()
    receiver.usual = 200
    bulk = asyncio.create_task(redrive.caller().post(f"{retries}/bulk-retry", {"ids": [other["id"]]}))
    async with asyncio.timeout(20):
        while not bulk.done():
            await redrive.work()
            await asyncio.sleep(0.05)
    assert bulk.result() == {"succeeded": 1, "failed": 0}


async def test_a14_a_handler_gets_the_same_retries_logs_and_dead_letters(
    redrive: Installation, clock: ManualClock
) -> None:
    app = Redrive(redrive.url)
    tries: list[object] = []

    @app.handler("edi.orders", policy="integration")
    async def send_order(task: Any) -> None:
        tries.append(task.payload)
        raise ConnectionError("the EDI partner hung up")

    try:
        await app.enqueue("edi.orders", {"order": 7}, external_system="edi")
    finally:
        await app.close()
    # Handed in by the database's clock: by the test's own, which lies ahead, it is due.
    for delay_s in (0, 5, 30, 300):
        clock.advance(delay_s)
        async with open_worker(
            redrive.settings, redrive.stores.engine, handlers=app.handlers, clock=clock, dice=lambda: 0.5
        ) as worker:
            await worker.run_until_idle()
    assert len(tries) == 4
    (letter,) = (await redrive.api.get("/v1/dead-letters", kind="handler"))["data"]
    assert (letter["event_type"], letter["external_system"], letter["reason"]) == ("edi.orders", "edi", "exhausted")
    assert (letter["category"], letter["retry_count"]) == ("network", 3)
    log = await redrive.api.log(letter["log_id"])
    assert (log["status"], log["error_message"]) == ("error", "the EDI partner hung up")
    assert "send_order" in log["error_stack"]
