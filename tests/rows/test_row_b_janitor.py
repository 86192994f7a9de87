"""Row B: the hourly jobs of the webhook relay: what is pending for too long, and what is kept how long."""

import json
from datetime import timedelta

from redrive.app import open_sweeper
from redrive.core.policy import DAY_S
from redrive.core.sweep import Swept
from redrive.engine.herald import Herald
from redrive.engine.janitor import Janitor
from redrive.store.audit import Act
from redrive.store.notices import Notices
from support.engine import ManualClock
from support.holding import HoldingReceiver
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


async def test_b5_pending_for_seven_days_is_a_dead_letter_with_a_notification(
    redrive: Installation, clock: ManualClock, receiver: HoldingReceiver
) -> None:
    """Nobody tries it any more: no worker runs, no hub is connected. The hourly job finds it all the same."""
    endpoint = await redrive.api.endpoint(receiver.url, policy="relay", event_types=["webhook"])
    await redrive.api.endpoint(receiver.url, name="ops", event_types=["redrive.dead_letter"])
    receiver.usual = 503
    tried = await redrive.api.event(endpoint["id"], {"hook": 1})
    await redrive.work()
    untried = await redrive.api.event(endpoint["id"], {"hook": 2})
    clock.advance(WEEK_S - 1)
    assert (await hourly_pass(redrive)).expired == 0
    assert {(await redrive.api.status(id))["status"] for id in (tried, untried)} == {"queued"}
    clock.advance(3600)
    assert (await hourly_pass(redrive)).expired == 2

    letters = (await redrive.api.get("/v1/dead-letters", reason="expired"))["data"]
    assert {letter["event_id"] for letter in letters} == {tried, untried}
    errors = {letter["event_id"]: letter["error_message"] for letter in letters}
    week = "It was not delivered within the 7 days that its policy allows"
    assert errors == {tried: f"{week}: the one try failed.", untried: f"{week}: nobody took it up in that time."}
    for event_id in (tried, untried):
        status = await redrive.api.status(event_id)
        assert (status["status"], status["next_retry_at"]) == ("failed", None)
        assert at(status["failed_at"]) == clock.now()

    assert await herald(redrive) == 2
    receiver.usual = 200
    before = len(receiver.requests)
    await redrive.work()
    told = [json.loads(request.body) for request in receiver.requests[before:]]
    assert {body["facts"]["event_id"] for body in told} == {tried, untried}
    assert {(body["kind"], body["facts"]["reason"]) for body in told} == {("dead_letter", "expired")}
    listed = (await redrive.api.get("/v1/notices", kind="dead_letter"))["data"]
    assert {notice["id"] for notice in listed} == {body["id"] for body in told}


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


async def _left(redrive: Installation) -> set[str]:
    return {event["event_id"] for event in (await redrive.api.get("/v1/events"))["data"]}


def _days(n: int) -> timedelta:
    return timedelta(days=n)
