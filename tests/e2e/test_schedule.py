"""When a failed delivery is tried again, and what a person does with a dead letter: by a clock that the test moves."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import pytest_asyncio

from support.engine import START, ManualClock
from support.holding import HoldingReceiver
from support.installation import Installation, installation
from support.oracle import assert_sound
from support.remote import at


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest_asyncio.fixture(loop_scope="session")
async def redrive(database_url: str, clock: ManualClock, receiver: HoldingReceiver) -> AsyncIterator[Installation]:
    """An API whose clock stands still. Whatever a test does, the books are in order afterwards."""
    async with installation(database_url, clock=clock) as opened:
        yield opened
        await assert_sound(database_url, received=receiver.ids, now=clock.now())


async def dead_letter(redrive: Installation, clock: ManualClock, receiver: HoldingReceiver) -> tuple[str, str]:
    """The id of a dead letter that failed four times, and of its endpoint."""
    endpoint = await redrive.api.endpoint(receiver.url)
    receiver.usual = 503
    await redrive.api.event(endpoint["id"], {"order": 7})
    for delay_s in (0, 5, 30, 300):
        clock.advance(delay_s)
        await redrive.work()
    letter = await redrive.api.letter(endpoint["id"])
    return letter["id"], endpoint["id"]


async def test_retries_come_after_5_30_and_300_seconds_then_it_is_dead(
    redrive: Installation, clock: ManualClock, receiver: HoldingReceiver
) -> None:
    api = redrive.api
    endpoint = await api.endpoint(receiver.url, external_system="erp")
    receiver.usual = 503
    event_id = await api.event(endpoint["id"])
    assert (await api.get("/v1/retry-queue"))["data"] == []  # nothing has failed yet
    for retries, delay_s in enumerate((5, 30, 300)):
        await redrive.work()
        entry = await api.entry(endpoint["id"])
        assert (entry["retry_count"], entry["max_retries"], entry["status"]) == (retries, 3, "pending")
        assert (entry["retry_policy"], entry["policy"]) == ("exponential", "integration")
        assert at(entry["last_retry_at"]) == clock.now()
        assert at(entry["next_retry_at"]) == clock.now() + timedelta(seconds=delay_s)
        assert (await api.status(event_id))["retry_attempts"] == retries + 1
        clock.advance(delay_s - 0.001)
        await redrive.work()
        assert len(receiver.requests) == retries + 1  # not before its time
        clock.advance(0.001)
    await redrive.work()
    letter = await api.letter(endpoint["id"])
    assert (letter["reason"], letter["retry_count"], letter["in_dlq"]) == ("exhausted", 3, True)
    assert (letter["status"], letter["next_retry_at"]) == ("failed", None)
    assert at(letter["first_failed_at"]) == START
    assert at(letter["failed_at"]) == START + timedelta(seconds=335)
    assert (await api.get("/v1/retry-queue"))["data"] == []
    clock.advance(86_400)
    await redrive.work()
    assert len(receiver.requests) == 4


async def test_a_redriven_dead_letter_is_as_after_a_first_failure(
    redrive: Installation, clock: ManualClock, receiver: HoldingReceiver
) -> None:
    task_id, endpoint_id = await dead_letter(redrive, clock, receiver)
    entry = await redrive.api.post(f"/v1/dead-letters/{task_id}/retry", {"because": "the receiver was repaired"})
    assert (entry["retry_count"], entry["status"], entry["in_dlq"]) == (0, "pending", False)
    assert at(entry["next_retry_at"]) == clock.now() + timedelta(seconds=5)
    # It fails again: back to the retry queue, not straight to the dead letters.
    clock.advance(5)
    await redrive.work()
    entry = await redrive.api.entry(endpoint_id)
    assert (entry["retry_count"], entry["in_dlq"]) == (1, False)
    assert at(entry["next_retry_at"]) == clock.now() + timedelta(seconds=30)
    clock.advance(30)
    receiver.usual = 200
    await redrive.work()
    letter = await redrive.api.letter(endpoint_id, state="resolved")
    assert letter["id"] == task_id
    detail = await redrive.api.get(f"/v1/dead-letters/{task_id}")
    assert (detail["replay"]["count"], detail["replay"]["outcome"]) == (1, "succeeded")
    assert detail["replay"]["because"] == "the receiver was repaired"
    assert [attempt["generation"] for attempt in detail["attempts"]] == [0, 0, 0, 0, 1, 1]


async def test_a_dead_letter_redriven_now_is_delivered_and_resolved(
    redrive: Installation, clock: ManualClock, receiver: HoldingReceiver
) -> None:
    task_id, endpoint_id = await dead_letter(redrive, clock, receiver)
    receiver.usual = 200
    entry = await redrive.api.post(f"/v1/dead-letters/{task_id}/retry", {"now": True})
    assert at(entry["next_retry_at"]) == clock.now()
    await redrive.work()
    letter = await redrive.api.letter(endpoint_id, state="resolved")
    assert (letter["id"], letter["in_dlq"]) == (task_id, False)
    log = await redrive.api.log(task_id)
    assert (log["status"], log["note"]) == ("success", "Succeeded on retry attempt 1")
    assert (await redrive.api.status(letter["event_id"]))["status"] == "delivered"
    again = await redrive.api.http.post(f"/v1/dead-letters/{task_id}/retry")
    assert again.status == 409


@pytest.mark.parametrize(("action", "state"), [("resolve", "resolved"), ("ignore", "ignored")])
async def test_a_dead_letter_can_be_closed_by_a_person(
    redrive: Installation, clock: ManualClock, receiver: HoldingReceiver, action: str, state: str
) -> None:
    task_id, _ = await dead_letter(redrive, clock, receiver)
    closed = await redrive.api.post(f"/v1/dead-letters/{task_id}/{action}", {"because": "done by hand"})
    assert (closed["state"], closed["in_dlq"], closed["status"]) == (state, False, "failed")
    assert (await redrive.api.get("/v1/dead-letters"))["data"] == []
    detail = await redrive.api.get(f"/v1/dead-letters/{task_id}")
    assert detail["resolution"]["because"] == "done by hand"


async def test_a_deleted_dead_letter_leaves_its_log(
    redrive: Installation, clock: ManualClock, receiver: HoldingReceiver
) -> None:
    task_id, _ = await dead_letter(redrive, clock, receiver)
    assert (await redrive.api.http.request("DELETE", f"/v1/dead-letters/{task_id}")).status == 204
    assert (await redrive.api.http.get(f"/v1/dead-letters/{task_id}")).status == 404
    for state in ("open", "replaying", "resolved", "ignored"):
        assert (await redrive.api.get("/v1/dead-letters", state=state))["data"] == []
    log = await redrive.api.log(task_id)
    assert (log["status"], len(log["attempts"])) == ("error", 4)
    assert log["request"]["body"] == {"order": 7}


async def test_retry_now_and_skip_do_not_wait_for_the_time(
    redrive: Installation, clock: ManualClock, receiver: HoldingReceiver
) -> None:
    endpoint = await redrive.api.endpoint(receiver.url)
    receiver.script(503, 503)
    await redrive.api.event(endpoint["id"])
    await redrive.work()
    task_id = (await redrive.api.entry(endpoint["id"]))["id"]
    asked = await redrive.api.post(f"/v1/retry-queue/{task_id}/retry")
    assert (asked["status"], asked["warning"]) == ("pending", "no_worker")  # it works only when told to
    await redrive.work()
    entry = await redrive.api.entry(endpoint["id"])
    assert entry["retry_count"] == 1
    assert at(entry["next_retry_at"]) == clock.now() + timedelta(seconds=30)
    skipped = await redrive.api.post(f"/v1/retry-queue/{task_id}/skip")
    assert (skipped["status"], skipped["in_dlq"], skipped["next_retry_at"]) == ("failed", True, None)
    assert (await redrive.api.letter(endpoint["id"]))["reason"] == "skipped"
