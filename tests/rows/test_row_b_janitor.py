"""Row B: the hourly jobs of the webhook relay: what is pending for too long, and what is kept how long."""

import json
from datetime import timedelta
from uuid import UUID

import pytest

from redrive.app import open_sweeper
from redrive.core.breaker import BreakerRules
from redrive.core.policy import DAY_S
from redrive.core.ports import RELAY_QUEUE, Ask, Place, Stream
from redrive.core.sweep import Swept
from redrive.engine.herald import Herald
from redrive.engine.janitor import Janitor
from redrive.engine.outlet import START
from redrive.settings import Settings
from redrive.store.audit import Act
from redrive.store.notices import Notices
from redrive.store.orgs import new_id
from redrive.store.tasks import Tasks
from support.engine import ManualClock
from support.holding import HoldingReceiver
from support.hubs import PlayedHub
from support.installation import Installation
from support.remote import at

WEEK_S = 7 * DAY_S


async def hourly_pass(redrive: Installation) -> Swept:
    janitor = Janitor(
        lambda: open_sweeper(redrive.settings, redrive.url, Act("engine"), clock=redrive.clock),
        every_s=redrive.settings.retention_every_s,
        dice=lambda: 0.5,
        rest=0,
    )
    return (await janitor.sweep(rested_s=redrive.settings.retention_every_s / 2))["default"]


async def herald(redrive: Installation) -> int:
    return await Herald(Notices(redrive.stores.engine, redrive.clock)).look()


@pytest.mark.parametrize("with_hub", [True, False])
async def test_b5_pending_for_seven_days_is_a_dead_letter_with_a_notification(
    redrive: Installation, clock: ManualClock, receiver: HoldingReceiver, with_hub: bool
) -> None:
    """Nobody tries them any more, or nobody ever did for want of a hub. The hourly job finds them all the same."""
    relay = await redrive.api.relay()
    await redrive.api.endpoint(receiver.url, name="ops", event_types=["redrive.dead_letter"])
    if with_hub:
        PlayedHub(redrive, relay, 503)
    first = await redrive.api.webhook(relay, b"1")
    await redrive.work()
    second = await redrive.api.webhook(relay, b"2")
    clock.advance(WEEK_S - 1)
    assert (await hourly_pass(redrive)).expired == 0
    assert [one["status"] for one in await redrive.api.deliveries(relay["id"])] == ["pending"] * 2
    clock.advance(3600)
    assert (await hourly_pass(redrive)).expired == 2
    assert [one["status"] for one in await redrive.api.deliveries(relay["id"])] == ["dead_letter"] * 2

    letters = (await redrive.api.get("/v1/dead-letters", reason="expired"))["data"]
    errors = {letter["event_id"]: letter["error_message"] for letter in letters}
    untried = "It was not delivered within the 7 days that its policy allows: no try was made in that time."
    assert errors == {first: "HTTP 503 Service Unavailable" if with_hub else untried, second: untried}
    for event_id in (first, second):
        status = await redrive.api.status(event_id)
        assert (status["status"], status["next_retry_at"]) == ("failed", None)
        assert at(status["failed_at"]) == clock.now()

    assert await herald(redrive) == 2
    await redrive.work()
    told = [json.loads(request.body) for request in receiver.requests]
    assert {body["facts"]["event_id"] for body in told} == {first, second}
    assert {(body["kind"], body["facts"]["reason"]) for body in told} == {("dead_letter", "expired")}
    listed = (await redrive.api.get("/v1/notices", kind="dead_letter"))["data"]
    assert {notice["id"] for notice in listed} == {body["id"] for body in told}


async def test_b5_a_lease_that_was_lost_with_its_edge_is_given_back_without_a_hub_and_does_not_outlive_seven_days(
    redrive: Installation, clock: ManualClock
) -> None:
    relay = await redrive.api.relay()
    lost = await redrive.api.webhook(relay, b"1")
    behind = await redrive.api.webhook(relay, b"2")
    await redrive.work()  # the lane gets its head
    stream = Stream(Place(RELAY_QUEUE, redrive.org_id, UUID(relay["id"])), False)
    tasks = Tasks(redrive.stores.engine, clock)
    claim = await tasks.claim([Ask(stream, 1, START)], limit=1, worker_id=new_id(), margin_s=15)
    assert [str(job.event_id) for job in claim.jobs] == [lost]  # and its edge is killed: nobody settles
    await redrive.work()
    assert [one["result"] for one in await redrive.api.attempts(lost)] == ["open"]
    clock.advance(3600)
    await redrive.work()
    tried = [(one["result"], one["possible_duplicate"]) for one in await redrive.api.attempts(lost)]
    assert ("lost", True) in tried
    rows = {one["event_id"]: one for one in await redrive.api.deliveries(relay["id"])}
    assert [(rows[id]["status"], rows[id]["attempts"]) for id in (lost, behind)] == [("pending", 1), ("pending", 0)]
    clock.advance(WEEK_S)
    await redrive.work()
    await hourly_pass(redrive)
    assert [one["status"] for one in await redrive.api.deliveries(relay["id"])] == ["dead_letter"] * 2


async def test_b5_the_relay_preset_keeps_delivered_and_failed_seven_days_and_the_dead_fourteen(
    redrive: Installation, clock: ManualClock, receiver: HoldingReceiver
) -> None:
    """Delivered: counted from the delivery. Failed: from the last attempt. Dead: from the day it was received."""
    endpoints = [
        await redrive.api.endpoint(receiver.url_of(path), name=path, policy="relay", event_types=["webhook"])
        for path in ("/delivered", "/refused", "/dead")
    ]
    receiver.script(503, 200, path="/delivered")
    receiver.script(503, 404, path="/refused")
    receiver.usual = 503
    delivered, refused, dead = [await redrive.api.event(endpoint["id"]) for endpoint in endpoints]
    received_at = clock.now()
    await redrive.work()
    clock.advance(DAY_S)
    await redrive.work()
    ended_at = clock.now()
    assert [(await redrive.api.status(id))["status"] for id in (delivered, refused)] == ["delivered", "failed"]

    clock.advance((received_at + _days(7) - clock.now()).total_seconds())
    assert (await hourly_pass(redrive)).expired == 1
    goes = {delivered: ended_at + _days(7), refused: ended_at + _days(7), dead: received_at + _days(14)}
    for moment in sorted(set(goes.values())):
        clock.advance((moment - clock.now()).total_seconds() - 1)
        await hourly_pass(redrive)
        assert await _left(redrive) == {id for id, end in goes.items() if end >= moment}
        clock.advance(3600)
        await hourly_pass(redrive)
        assert await _left(redrive) == {id for id, end in goes.items() if end > moment}


async def test_b5_the_jobs_are_hourly_and_of_many_workers_one_does_them(
    redrive: Installation, clock: ManualClock
) -> None:
    every_s = redrive.settings.retention_every_s
    assert every_s == 3600
    await hourly_pass(redrive)
    async with open_sweeper(redrive.settings, redrive.url, Act("engine"), clock=clock) as another:
        assert await another.orgs(every_s / 2) == []
        clock.advance(every_s)
        assert [org.name for org in await another.orgs(every_s / 2)] == ["default"]


@pytest.mark.parametrize("end", ["the hub is there", "the hub is gone"])
async def test_b7_a_webhook_that_failed_for_seven_days_is_a_dead_letter_with_its_last_real_error(
    redrive: Installation, clock: ManualClock, end: str
) -> None:
    relay = await redrive.api.relay()
    event_id = await redrive.api.webhook(relay)
    played = PlayedHub(redrive, relay, 503)
    for _ in range(13):  # until the delays are an hour long
        await redrive.work()
        clock.advance(3600)
    played.status = 502
    await redrive.work()
    if end == "the hub is gone":
        played.seat.leave()
    clock.advance(WEEK_S)
    if end == "the hub is gone":
        assert (await hourly_pass(redrive)).expired == 1
    else:
        await redrive.work()
    error = "HTTP 502 Bad Gateway"
    (row,) = await redrive.api.deliveries(relay["id"])
    assert (row["status"], row["attempts"], row["error_message"]) == ("dead_letter", 14, error)
    (letter,) = (await redrive.api.get("/v1/dead-letters"))["data"]
    shown = (letter["event_id"], letter["reason"], letter["error_message"], letter["category"])
    assert shown == (event_id, "expired", error, "server_error")
    (notice,) = (await redrive.api.get("/v1/notices", kind="dead_letter"))["data"]
    assert error in notice["text"]
    assert (await redrive.api.get("/v1/stats"))["dead_letters"]["open"] == 1


@pytest.mark.parametrize("kept_by", ["a breaker", "a disabled relay", "an edge that was killed"])
async def test_b9_seven_days_after_it_was_received_a_webhook_is_a_dead_letter_whatever_kept_it(
    redrive: Installation, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, kept_by: str
) -> None:
    monkeypatch.setattr(Settings, "breaker_rules", lambda _: BreakerRules(min_tries=1, min_span_s=0.0))
    relay = await redrive.api.relay()
    events = [await redrive.api.webhook(relay, b"%d" % n) for n in range(3)]
    received_at = clock.now()
    if kept_by == "a breaker":
        PlayedHub(redrive, relay, 503)
        await redrive.work()
        health = await redrive.api.get(f"/v1/endpoints/{relay['id']}/health")
        assert health["breaker"]["state"] == "open"
    elif kept_by == "a disabled relay":
        await redrive.api.post(f"/v1/endpoints/{relay['id']}/disable", {"because": "it is being replaced"})
        await redrive.work()
        clock.advance(5 * DAY_S)
        await redrive.api.post(f"/v1/endpoints/{relay['id']}/enable")  # which begins nothing anew
        await redrive.api.post(f"/v1/endpoints/{relay['id']}/disable")
    else:
        await redrive.work()  # the lane gets its head
        stream = Stream(Place(RELAY_QUEUE, redrive.org_id, UUID(relay["id"])), False)
        tasks = Tasks(redrive.stores.engine, clock)
        assert (await tasks.claim([Ask(stream, 1, START)], limit=1, worker_id=new_id(), margin_s=15)).jobs
    clock.advance((received_at + _days(7) - clock.now()).total_seconds() - 1)
    assert (await hourly_pass(redrive)).expired == 0
    assert {one["status"] for one in await redrive.api.deliveries(relay["id"])} == {"pending"}
    clock.advance(3600)
    assert (await hourly_pass(redrive)).expired == len(events)
    assert {one["status"] for one in await redrive.api.deliveries(relay["id"])} == {"dead_letter"}
    letters = (await redrive.api.get("/v1/dead-letters", reason="expired"))["data"]
    assert {letter["event_id"] for letter in letters} == set(events)
    told = (await redrive.api.get("/v1/notices", kind="dead_letter"))["data"]
    assert {notice["facts"]["event_id"] for notice in told} == set(events)


@pytest.mark.parametrize("is_back", [True, False])
async def test_b9_what_is_too_old_when_a_pause_ends_gets_one_attempt_and_then_becomes_a_dead_letter(
    redrive: Installation, clock: ManualClock, is_back: bool
) -> None:
    relay = await redrive.api.relay()
    for number in range(3):
        await redrive.api.webhook(relay, b"%d" % number)
    await redrive.api.post(f"/v1/endpoints/{relay['id']}/pause", {"because": "the service moves"})
    played = PlayedHub(redrive, relay, 200 if is_back else 503)
    await redrive.work()
    clock.advance(30 * DAY_S)
    assert (await hourly_pass(redrive)).expired == 0
    assert {one["status"] for one in await redrive.api.deliveries(relay["id"])} == {"pending"}
    await redrive.api.post(f"/v1/endpoints/{relay['id']}/resume")
    clock.advance(3600)
    assert (await hourly_pass(redrive)).expired == 0
    await redrive.work()
    rows = await redrive.api.deliveries(relay["id"])
    assert {(one["status"], one["attempts"]) for one in rows} == {("delivered" if is_back else "dead_letter", 1)}
    assert [one.body for one in played.deliveries] == [b"0", b"1", b"2"]  # each once, in order
    if not is_back:
        letters = (await redrive.api.get("/v1/dead-letters", reason="expired"))["data"]
        assert {letter["error_message"] for letter in letters} == {"HTTP 503 Service Unavailable"}


async def test_b9_a_pause_that_ended_in_time_is_part_of_the_seven_days(
    redrive: Installation, clock: ManualClock
) -> None:
    relay = await redrive.api.relay()
    await redrive.api.webhook(relay)
    await redrive.api.post("/v1/retries/pause", {"scope": "org"})
    await redrive.work()
    clock.advance(3 * DAY_S)
    await redrive.api.post("/v1/retries/resume", {"scope": "org"})
    await redrive.work()
    clock.advance(4 * DAY_S)
    assert (await hourly_pass(redrive)).expired == 1


async def test_b9_a_webhook_that_a_worker_finds_too_old_has_no_try_of_a_number_that_another_one_has(
    redrive: Installation, clock: ManualClock
) -> None:
    relay = await redrive.api.relay()
    event_id = await redrive.api.webhook(relay)
    PlayedHub(redrive, relay, 503)
    for _ in range(5):
        await redrive.work()
        clock.advance(3600)
    clock.advance(WEEK_S)
    await redrive.work()
    assert [one["status"] for one in await redrive.api.deliveries(relay["id"])] == ["dead_letter"]
    tried = [(one["number"], one["result"]) for one in await redrive.api.attempts(event_id)]
    assert tried == [*((number, "failed") for number in range(1, 6)), (None, "released")]


async def test_b9_lost_workers_do_not_end_a_webhook(redrive: Installation, clock: ManualClock) -> None:
    relay = await redrive.api.relay()
    event_id = await redrive.api.webhook(relay)
    await redrive.work()
    tasks = Tasks(redrive.stores.engine, clock)
    place = Place(RELAY_QUEUE, redrive.org_id, UUID(relay["id"]))
    for lost in range(20):
        asks = [Ask(Stream(place, lost > 1), 1, START)]
        assert (await tasks.claim(asks, limit=1, worker_id=new_id(), margin_s=15)).jobs
        clock.advance(3600)
    PlayedHub(redrive, relay)
    await redrive.work()  # the last loss is a try; the next one follows its delay
    clock.advance(3600)
    await redrive.work()
    assert (await redrive.api.status(event_id))["status"] == "delivered"


async def _left(redrive: Installation) -> set[str]:
    return {event["event_id"] for event in (await redrive.api.get("/v1/events"))["data"]}


def _days(n: int) -> timedelta:
    return timedelta(days=n)


async def test_a29_a_webhook_that_a_hub_could_not_deliver_has_an_error_stack(redrive: Installation) -> None:
    relay = await redrive.api.relay()
    PlayedHub(redrive, relay, 503)
    event_id = await redrive.api.webhook(relay, b"1")
    await redrive.work()
    (attempt,) = await redrive.api.attempts(event_id)
    where, answered, why = attempt["error_stack"].splitlines()
    assert where.startswith("a hub, which forwards to ")
    assert answered.endswith(" ms")
    assert why == "server_error: HTTP 503 Service Unavailable"
