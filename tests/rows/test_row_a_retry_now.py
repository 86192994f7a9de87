"""A person's retry always makes an attempt, or says why it cannot and what to do: answers and pages agree."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from redrive.core.breaker import BreakerState
from redrive.library import Redrive
from redrive.store.endpoint_states import BreakerStates
from redrive.store.orgs import new_id
from rows.conftest import Story
from support.engine import ManualClock, until
from support.holding import HoldingReceiver
from support.http import Answer
from support.installation import Installation
from support.page import Page, read

QUEUE = "/integrations/logs/retry-queue"
FEW, MANY = 5, 60


async def open_breaker(redrive: Installation, endpoint_id: str) -> None:
    states = BreakerStates(redrive.stores.engine, redrive.clock)
    place = (redrive.org_id, UUID(endpoint_id))
    assert await states.open_breaker(*place, taken_for=BreakerState.CLOSED, reason="20 of the last 20 tries failed")


async def given_to_another_worker(redrive: Installation, endpoint_id: str) -> None:
    """It counts what may be tried, and tries nothing itself."""
    async with redrive.stores.engine.transaction() as session:
        now = redrive.clock.now()
        owned = await session.fetch("own_endpoints", now, [redrive.org_id], [UUID(endpoint_id)], new_id(), 3_600.0)
    assert len(owned) == 1


async def retry(redrive: Installation, entry: dict[str, Any]) -> Answer:
    return await redrive.api.http.post(f"/v1/retry-queue/{entry['id']}/retry")


async def entry_of(redrive: Installation, entry: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = await redrive.api.get(f"/v1/retry-queue/{entry['id']}")
    return found


async def pages_of(redrive: Installation, entry: dict[str, Any]) -> tuple[Page, Page]:
    """The list and the entry's own page."""
    http = redrive.api.http
    return await read(http, QUEUE), await read(http, f"/integrations/logs/{entry['id']}")


@asynccontextmanager
async def working(redrive: Installation) -> AsyncIterator[None]:
    async with redrive.working():
        await redrive.has_worker()
        yield


async def is_tried_at_once(redrive: Installation, receiver: HoldingReceiver, entry: dict[str, Any]) -> None:
    """Asked for, answered as in progress while the receiver has it, shown so, and delivered."""
    receiver.usual = 200
    receiver.hold()
    answer = await retry(redrive, entry)
    assert (answer.status, answer.json["status"], answer.json["warning"]) == (200, "in_progress", None)
    await until(lambda: is_so(receiver.held == 1))
    listed, own = await pages_of(redrive, entry)
    assert listed.one("span", data_cell="next").text == "in progress"
    assert "A try is under way" in own.text
    receiver.release()
    await until(lambda: has_status(redrive, entry, "succeeded"))


@pytest.mark.parametrize("owner", ["nobody", "another worker"])
async def test_a16_against_an_open_breaker_a_retry_is_tried_at_once_and_is_its_probe(
    redrive: Installation, receiver: HoldingReceiver, failing: Story, owner: str
) -> None:
    entry = await failing()
    await open_breaker(redrive, entry["endpoint_id"])
    if owner == "another worker":
        await given_to_another_worker(redrive, entry["endpoint_id"])
    listed, own = await pages_of(redrive, entry)
    for page in (listed, own):
        assert "disabled" not in page.one("button", text="Retry Now").attributes
    async with working(redrive):
        await is_tried_at_once(redrive, receiver, entry)
        await until(lambda: has_breaker(redrive, entry["endpoint_id"], "ramping"))


async def test_a16_a_retry_does_not_wait_for_a_rate_limit(
    redrive: Installation, receiver: HoldingReceiver, failing: Story
) -> None:
    entry = await failing(rate_per_s=0.001, max_in_flight=1)
    async with working(redrive):
        await is_tried_at_once(redrive, receiver, entry)


@pytest.mark.parametrize(
    ("action", "is_what", "way_out"), [("pause", "paused", "Resume"), ("disable", "disabled", "Enable")]
)
async def test_a16_what_is_paused_or_disabled_is_refused_with_the_reason_and_the_way_out(
    redrive: Installation, receiver: HoldingReceiver, failing: Story, action: str, is_what: str, way_out: str
) -> None:
    entry = await failing(name="billing")
    tried = len(receiver.requests)
    await redrive.api.post(f"/v1/endpoints/{entry['endpoint_id']}/{action}")
    why = f'It cannot be tried: its endpoint "billing" is {is_what}. {way_out} endpoint "billing", then retry.'
    async with working(redrive):
        answer = await retry(redrive, entry)
        assert (answer.status, answer.json["detail"]) == (409, why)
        many = await redrive.api.post("/api/integrations/retry-queue/bulk-retry", {"ids": [entry["id"]]})
        assert (many["succeeded"], many["failed"]) == (0, 1)
    listed, own = await pages_of(redrive, entry)
    for page in (listed, own):
        assert page.has("button", text="Retry Now", disabled="", title=why)
    assert listed.one("span", data_cell="next").text == "held when due"
    assert f'its endpoint "billing" is {is_what}. {way_out} endpoint "billing"' in own.text
    assert (await entry_of(redrive, entry))["status"] == "pending"
    assert len(receiver.requests) == tried


async def test_a16_a_paused_org_and_installation_refuse_too(redrive: Installation, failing: Story) -> None:
    entry = await failing()
    for scope, what in (("org", "the org"), ("installation", "the installation")):
        await redrive.api.post("/v1/retries/pause", {"scope": scope})
        answer = await retry(redrive, entry)
        resume = f"Resume {what}, then retry."
        assert (answer.status, answer.json["detail"]) == (409, f"It cannot be tried: {what} is paused. {resume}")
        await redrive.api.post("/v1/retries/resume", {"scope": scope})


async def test_a16_a_queue_without_a_worker_is_answered_as_pending_with_a_warning(
    redrive: Installation, clock: ManualClock
) -> None:
    app = Redrive(redrive.url)

    @app.handler("edi.orders", policy="integration")
    async def send_order(task: Any) -> None:
        raise ConnectionError("the EDI partner hung up")

    try:
        await app.enqueue("edi.orders", {"order": 7})
    finally:
        await app.close()
    await redrive.work(app.handlers)
    (entry,) = (await redrive.api.get("/v1/retry-queue"))["data"]
    async with working(redrive):  # for endpoints
        answer = await retry(redrive, entry)
        assert (answer.status, answer.json["status"], answer.json["warning"]) == (200, "pending", "no_worker")
        assert (await entry_of(redrive, entry))["status"] == "pending"
        listed, own = await pages_of(redrive, entry)
    assert not listed.has("span", text="in progress")
    assert "No worker serves its queue, handler:edi.orders: it waits until one is started." in own.text


async def test_a16_an_entry_behind_another_one_of_its_lane_is_refused_naming_the_head(
    redrive: Installation, receiver: HoldingReceiver, clock: ManualClock
) -> None:
    receiver.usual = 404
    endpoint = await redrive.api.endpoint(receiver.url, ordered=True)
    await redrive.api.event(endpoint["id"], {"n": 1})
    await redrive.work()
    dead = await redrive.api.letter(endpoint["id"])
    receiver.usual = 503
    await redrive.api.event(endpoint["id"], {"n": 2})
    await redrive.work()
    head = await redrive.api.entry(endpoint["id"])
    answer = await redrive.api.http.post(f"/v1/dead-letters/{dead['id']}/retry", {"now": True})
    assert answer.status == 409
    assert head["id"] in answer.json["detail"]
    assert (await redrive.api.post(f"/v1/dead-letters/{dead['id']}/retry"))["status"] == "pending"
    answer = await retry(redrive, dead)
    assert answer.status == 409
    assert head["id"] in answer.json["detail"]


async def test_a16_a_dead_letter_that_is_retried_now_is_tried_at_once_against_an_open_breaker(
    redrive: Installation, receiver: HoldingReceiver, dead: Story
) -> None:
    letter = await dead()
    await open_breaker(redrive, letter["endpoint_id"])
    receiver.usual = 200
    async with working(redrive):
        receiver.hold()
        answer = await redrive.api.post(f"/v1/dead-letters/{letter['id']}/retry", {"now": True})
        assert (answer["status"], answer["warning"]) == ("in_progress", None)
        receiver.release()
        await until(lambda: has_status(redrive, letter, "succeeded"))


async def test_a16_few_go_at_once_against_an_open_breaker_and_the_alias_answers_with_sums(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    endpoint = await redrive.api.endpoint(receiver.url)
    receiver.usual = 503
    await fail(redrive, endpoint["id"], FEW)
    entries = (await redrive.api.get("/v1/retry-queue"))["data"]
    assert len(entries) == FEW
    await open_breaker(redrive, endpoint["id"])
    receiver.usual = 200
    async with working(redrive), asyncio.timeout(10):
        ids = [entry["id"] for entry in entries]
        answer = await redrive.caller().post("/api/integrations/retry-queue/bulk-retry", {"ids": ids})
    assert answer == {"succeeded": FEW, "failed": 0}


async def test_a16_many_follow_the_breaker_behind_one_probe(redrive: Installation, receiver: HoldingReceiver) -> None:
    endpoint = await redrive.api.endpoint(receiver.url)
    receiver.usual = 503
    await fail(redrive, endpoint["id"], MANY)
    await open_breaker(redrive, endpoint["id"])
    await given_to_another_worker(redrive, endpoint["id"])  # so that nothing but the probe gets through here
    before = len(receiver.requests)
    async with working(redrive):
        made = await redrive.api.post("/v1/retry-queue/bulk-retry", {"filter": {"endpoint_id": endpoint["id"]}})
        await receiver.wait_for(before + 1)
        await until(lambda: has_failed(redrive, made["id"], 1))
    assert len(receiver.requests) == before + 1


async def fail(redrive: Installation, endpoint_id: str, count: int) -> None:
    await redrive.api.batch(endpoint_id, count)

    async def all_failed() -> bool:
        rows = await redrive.api.deliveries(endpoint_id)
        return all(row["attempts"] == 1 for row in rows)

    async with redrive.working():
        await until(all_failed)


async def is_so(fact: bool) -> bool:
    return fact


async def has_status(redrive: Installation, entry: dict[str, Any], wanted: str) -> bool:
    return str((await entry_of(redrive, entry))["status"]) == wanted


async def has_breaker(redrive: Installation, endpoint_id: str, wanted: str) -> bool:
    health = await redrive.api.get(f"/v1/endpoints/{endpoint_id}/health")
    return str(health["breaker"]["state"]) == wanted


async def has_failed(redrive: Installation, operation_id: str, count: int) -> bool:
    failed: int = (await redrive.api.get(f"/v1/operations/{operation_id}"))["failed"]
    return failed == count
