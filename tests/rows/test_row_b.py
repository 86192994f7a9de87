"""Row B: webhooks that come in at the edge and are delivered through a hub, which is a real process here."""

import asyncio
import signal
from datetime import timedelta
from typing import Any

import pytest
import structlog
from standardwebhooks import Webhook

from redrive.api_process import open_relay_worker
from redrive.core.breaker import BreakerRules
from redrive.core.policy import DAY_S
from redrive.settings import Settings
from redrive.store.alert_rounds import AlertRounds
from redrive.store.endpoint_history import Ledger
from support.engine import ManualClock
from support.holding import HoldingReceiver
from support.hubs import PlayedHub, forwarded, hub
from support.installation import Installation
from support.processes import until
from support.receiver import Answer
from support.remote import at

DELAYS_S = [2**n for n in range(12)] + [3600, 3600]


def _row(delivery: dict[str, Any]) -> dict[str, Any]:
    """In the row's own words."""
    names = ("status", "attempts", "received_at", "last_attempt_at", "delivered_at", "error_message")
    return {name: delivery[name] for name in names}


async def test_b1_a_webhook_is_stored_whole_before_its_answer_and_reaches_the_local_service_through_the_hub(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    relay = await redrive.api.relay()
    body = b'{"n": 1.50, "n": "\xc3\xa9"}\n'
    answer = await redrive.api.try_webhook(
        relay, body, Content_Type="application/vnd.shop+json", X_Shop="s-7", User_Agent="Shop/1", webhook_id="msg_7"
    )
    assert (answer.status, answer.json["status"]) == (202, "queued")
    event_id = answer.json["event_id"]
    assert [_row(one)["status"] for one in await redrive.api.deliveries(relay["id"])] == ["pending"]
    receiver.usual = Answer(201, b"thanks")
    async with hub(redrive.base_url, relay["id"], receiver.url) as running:
        await redrive.work()
        (request,) = receiver.requests
        assert (request.method, request.path, request.body) == ("POST", "/hook", body)
        sent = request.headers
        assert (sent["content-type"], sent["x-shop"], sent["user-agent"]) == (
            "application/vnd.shop+json",
            "s-7",
            "Shop/1",
        )
        assert (sent["webhook-id"], sent["original-webhook-id"], sent["redrive-attempt"]) == (event_id, "msg_7", "1")
        await until(lambda: len(running.out) == 1)
        assert {"status": 201, "acknowledged": True}.items() <= forwarded(running)[0].items()
    (delivery,) = await redrive.api.deliveries(relay["id"])
    assert delivery["status"] == "delivered"
    log = await redrive.api.log(delivery["log_id"])
    assert (log["response"]["status"], log["response"]["body"]) == (201, "thanks")
    assert log["request"]["url"] == receiver.url


async def test_b1_what_the_hub_forwards_is_signed_with_the_endpoint_s_secret(
    redrive: Installation, receiver: HoldingReceiver, monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    relay = await redrive.api.relay()
    await redrive.api.webhook(relay, b'{"order": 7}')
    async with hub(redrive.base_url, relay["id"], receiver.url):
        await redrive.work()
    (request,) = receiver.requests
    verifier = Webhook(relay["secret"])
    monkeypatch.setattr(verifier, "_Webhook__verify_timestamp", lambda _: clock.now())  # the test's clock is elsewhere
    assert verifier.verify(request.body, dict(request.headers)) == {"order": 7}


async def test_b2_each_webhook_shows_where_it_stands(
    redrive: Installation, receiver: HoldingReceiver, clock: ManualClock
) -> None:
    relays = [await redrive.api.relay() for _ in range(3)]
    delivered, failed, pending = relays
    received_at = clock.now()
    for relay in relays:
        await redrive.api.webhook(relay)
    clock.advance(3)
    for path, status in (("/delivered", 204), ("/failed", 422), ("/pending", 503)):
        receiver.script(status, path=path)
    async with (
        hub(redrive.base_url, delivered["id"], receiver.url_of("/delivered")),
        hub(redrive.base_url, failed["id"], receiver.url_of("/failed")),
        hub(redrive.base_url, pending["id"], receiver.url_of("/pending")),
    ):
        await redrive.work()
    tried_at = clock.now()

    async def row(relay: dict[str, Any]) -> dict[str, Any]:
        (delivery,) = await redrive.api.deliveries(relay["id"])
        times = {name: at(text) for name, text in delivery.items() if name.endswith("_at") and text}
        return _row(delivery) | times

    common = {"attempts": 1, "received_at": received_at, "last_attempt_at": tried_at}
    gone_well = common | {"status": "delivered", "delivered_at": tried_at, "error_message": None}
    assert (await row(delivered)).items() >= gone_well.items()
    not_retried = common | {"status": "failed", "error_message": "HTTP 422 Unprocessable Entity", "delivered_at": None}
    assert (await row(failed)).items() >= not_retried.items()
    to_be_retried = common | {"status": "pending", "error_message": "HTTP 503 Service Unavailable"}
    assert (await row(pending)).items() >= (to_be_retried | {"next_retry_at": tried_at + timedelta(seconds=1)}).items()
    clock.advance(3600)
    async with hub(redrive.base_url, failed["id"], receiver.url):
        await redrive.work()
    assert len(receiver.requests) == 3


async def test_b3_the_delays_double_up_to_an_hour_and_come_from_the_stored_state(
    redrive: Installation, receiver: HoldingReceiver, clock: ManualClock
) -> None:
    receiver.usual = 500
    relay = await redrive.api.relay()
    await redrive.api.webhook(relay)
    tries = 0
    for resumed in (DELAYS_S[:7], DELAYS_S[7:]):  # another hub and another worker go on where the others stood
        async with hub(redrive.base_url, relay["id"], receiver.url):
            for delay_s in resumed:
                await redrive.relay_worker().run_until_idle()
                tries += 1
                assert len(receiver.requests) == tries
                (delivery,) = await redrive.api.deliveries(relay["id"])
                assert at(delivery["next_retry_at"]) == clock.now() + timedelta(seconds=delay_s)
                clock.advance(delay_s - 0.001)
                await redrive.relay_worker().run_until_idle()
                assert len(receiver.requests) == tries, f"too early after {delay_s} s"
                clock.advance(0.001)
    assert [request.headers["redrive-attempt"] for request in receiver.requests] == [
        str(n + 1) for n in range(len(DELAYS_S))
    ]


async def test_b4_the_next_webhook_waits_until_the_one_before_is_delivered_or_failed(
    redrive: Installation, receiver: HoldingReceiver, clock: ManualClock
) -> None:
    relay, other = await redrive.api.relay(), await redrive.api.relay()
    for number in range(1, 5):
        await redrive.api.webhook(relay, b"%d" % number)
        clock.advance(0.001)
    await redrive.api.webhook(other, b"other")
    receiver.script(503, 503, 200, 422, 200, 200, path="/hook")
    async with (
        hub(redrive.base_url, relay["id"], receiver.url),
        hub(redrive.base_url, other["id"], receiver.url_of("/other")),
    ):
        await redrive.work()
        assert [request.body for request in receiver.of_path("/hook")] == [b"1"]
        assert [request.body for request in receiver.of_path("/other")] == [b"other"]  # not held up
        clock.advance(1)
        await redrive.work()
        assert [request.body for request in receiver.of_path("/hook")] == [b"1"] * 2
        clock.advance(2)
        await redrive.work()
    assert [request.body for request in receiver.of_path("/hook")] == [b"1", b"1", b"1", b"2", b"3", b"4"]
    statuses = [one["status"] for one in await redrive.api.deliveries(relay["id"])]
    assert statuses == ["delivered", "failed", "delivered", "delivered"]


# B-5 (pending for seven days, and then a dead letter with a notification) is in test_row_b_janitor.


async def test_b6_every_retry_is_logged_with_the_webhook_s_id_and_its_attempt(
    redrive: Installation, receiver: HoldingReceiver, clock: ManualClock
) -> None:
    relay = await redrive.api.relay()
    event_id = await redrive.api.webhook(relay)
    receiver.script(503, 503, 200)
    with structlog.testing.capture_logs() as lines:
        async with hub(redrive.base_url, relay["id"], receiver.url):
            for delay_s in (1, 2, 4):
                await redrive.relay_worker().run_until_idle()
                clock.advance(delay_s)
    retries = [line for line in lines if line["event"] == "retry_attempted"]
    assert [(line["event_id"], line["attempt"], line["result"]) for line in retries] == [
        (event_id, 2, "failed"),
        (event_id, 3, "succeeded"),
    ]


async def test_without_a_hub_webhooks_wait_and_no_try_is_spent(
    redrive: Installation, receiver: HoldingReceiver, clock: ManualClock
) -> None:
    relay = await redrive.api.relay()
    await redrive.api.webhook(relay)
    for _ in range(5):
        await redrive.work()
        clock.advance(60)
    (delivery,) = await redrive.api.deliveries(relay["id"])
    assert (delivery["status"], delivery["attempts"], delivery["error_message"]) == ("pending", 0, None)
    async with hub(redrive.base_url, relay["id"], receiver.url):
        await redrive.work()
    assert len(receiver.requests) == 1


async def test_when_the_first_hub_goes_the_next_takes_over(
    redrive: Installation, receiver: HoldingReceiver, clock: ManualClock
) -> None:
    relay = await redrive.api.relay()
    async with (
        hub(redrive.base_url, relay["id"], receiver.url_of("/first")) as first,
        hub(redrive.base_url, relay["id"], receiver.url_of("/second")) as second,
    ):
        await redrive.api.webhook(relay, b"1")
        await redrive.work()
        await first.terminated()
        await until(lambda: len(second.log) == 2)  # that it delivers from now on
        await redrive.api.webhook(relay, b"2")
        await redrive.work()
    assert [(request.path, request.body) for request in receiver.requests] == [("/first", b"1"), ("/second", b"2")]


async def test_a_hub_that_is_killed_before_it_answered_leaves_a_possible_duplicate(
    redrive: Installation, receiver: HoldingReceiver, clock: ManualClock
) -> None:
    relay = await redrive.api.relay()
    event_id = await redrive.api.webhook(relay)
    receiver.hold()
    async with hub(redrive.base_url, relay["id"], receiver.url) as running:
        worker = redrive.relay_worker()
        working = asyncio.create_task(worker.run_until_idle())
        await receiver.wait_for(1)
        running.send(signal.SIGKILL)
        await working
    receiver.release()
    (attempt,) = await redrive.api.attempts(event_id)
    assert (attempt["category"], attempt["possible_duplicate"]) == ("network", True)
    clock.advance(1)
    async with hub(redrive.base_url, relay["id"], receiver.url):
        await redrive.work()
    assert receiver.ids == [event_id, event_id]
    assert (await redrive.api.status(event_id))["status"] == "delivered"


async def test_a_local_service_that_is_away_or_too_slow_is_a_failed_try(
    redrive: Installation, receiver: HoldingReceiver, clock: ManualClock
) -> None:
    away, slow = await redrive.api.relay(), await redrive.api.relay(timeout_s=0.5)
    receiver.hold()
    for relay, forward in ((away, "http://127.0.0.1:9/nobody"), (slow, receiver.url)):
        await redrive.api.webhook(relay)
        async with hub(redrive.base_url, relay["id"], forward):
            await redrive.relay_worker().run_until_idle()
    receiver.release()
    rows = [(await redrive.api.deliveries(relay["id"]))[0] for relay in (away, slow)]
    assert {(row["status"], row["attempts"]) for row in rows} == {("pending", 1)}
    tried = [(await redrive.api.attempts(row["event_id"]))[0] for row in rows]
    assert [(one["category"], one["possible_duplicate"]) for one in tried] == [("network", False), ("timeout", True)]


@pytest.mark.parametrize("ordered", [True, False])
async def test_what_a_deleted_relay_left_dies_in_front_of_a_person_whether_a_hub_is_there_or_not(
    redrive: Installation, ordered: bool
) -> None:
    relay = await redrive.api.relay(ordered=ordered)
    events = [await redrive.api.webhook(relay, b"%d" % n) for n in range(5)]
    assert (await redrive.api.http.request("DELETE", f"/v1/endpoints/{relay['id']}")).status == 204
    await redrive.work()
    letters = (await redrive.api.get("/v1/dead-letters"))["data"]
    assert {letter["event_id"] for letter in letters} == set(events)
    assert {letter["category"] for letter in letters} == {"configuration"}


async def test_how_a_relay_does_is_known_as_of_any_endpoint_and_that_no_hub_is_there_counts_as_nothing(
    redrive: Installation, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Settings, "breaker_rules", lambda _: BreakerRules(min_tries=3, min_span_s=0.0))
    relays = [await redrive.api.relay(ordered=False) for _ in range(3)]
    failing, refusing, _without_hub = relays
    PlayedHub(redrive, failing, 503)
    PlayedHub(redrive, refusing, 422)
    for relay in relays:
        for number in range(4):
            await redrive.api.webhook(relay, b"%d" % number)
    async with open_relay_worker(redrive.settings, redrive.stores.engine, redrive.relay, clock) as worker:
        await worker.run_until_idle()
    health = [await redrive.api.get(f"/v1/endpoints/{relay['id']}/health") for relay in relays]
    assert [one["breaker"]["state"] for one in health] == ["open", "closed", "closed"]
    assert [[point["failed"] for point in one["history"]] for one in health] == [[4], [4], []]
    assert [one["failures"] for one in health] == [4, 4, 0]
    assert {one["attempts"] for one in await redrive.api.deliveries(failing["id"])} == {1}


async def test_whatever_a_hub_says_that_its_service_answered_can_be_shown(redrive: Installation) -> None:
    relay = await redrive.api.relay()
    PlayedHub(redrive, relay).headers = {"x-\ud800": "1", "content-type": "text/\ud800", "n\x00": "x"}
    event_id = await redrive.api.webhook(relay)
    await redrive.work()
    assert len(await redrive.api.attempts(event_id)) == 1
    (delivery,) = await redrive.api.deliveries(relay["id"])
    log = await redrive.api.log(delivery["log_id"])
    assert log["response"]["headers"]["content-type"] == "text/\ufffd"


@pytest.mark.parametrize("request_id", ["a", "b"])
async def test_a_sender_that_repeats_what_failed_is_told_so_and_nothing_is_sent_again(
    redrive: Installation, request_id: str
) -> None:
    """GitHub's Redeliver has the id of the first delivery, and other headers or the same."""
    relay = await redrive.api.relay()
    played = PlayedHub(redrive, relay, 422)
    event_id = await redrive.api.webhook(relay, X_GitHub_Delivery="72d3162e", X_Request_Id="a")
    await redrive.work()
    again = await redrive.api.try_webhook(relay, X_GitHub_Delivery="72d3162e", X_Request_Id=request_id)
    assert again.json == {"event_id": event_id, "status": "failed", "deduplicated": True}
    await redrive.work()
    assert len(played.deliveries) == 1


ANY_4XX = [400, 401, 403, 404, 408, 409, 410, 413, 422, 429, 451, 499]


@pytest.mark.parametrize("ordered", [True, False])
async def test_b7_any_4xx_fails_that_one_webhook_quietly_and_the_next_goes_on(
    redrive: Installation, receiver: HoldingReceiver, ordered: bool
) -> None:
    relay = await redrive.api.relay(ordered=ordered)
    for number in range(len(ANY_4XX) + 1):
        await redrive.api.webhook(relay, b"%d" % number)
    receiver.script(*ANY_4XX, 200)
    async with hub(redrive.base_url, relay["id"], receiver.url):
        await redrive.work()
    rows = await redrive.api.deliveries(relay["id"])
    assert sorted(one["status"] for one in rows) == ["delivered", *["failed"] * len(ANY_4XX)]
    assert {one["attempts"] for one in rows} == {1}
    assert len(receiver.requests) == len(ANY_4XX) + 1
    endpoint = await redrive.api.get(f"/v1/endpoints/{relay['id']}")
    assert (endpoint["disabled"], endpoint["disabled_reason"]) == (False, None)

    await AlertRounds(redrive.stores.engine, redrive.clock, every_s=0).look()
    assert (await redrive.api.get("/v1/alerts"))["data"] == []
    assert (await redrive.api.get("/v1/notices"))["data"] == []
    rules = {rule["rule"]: rule for rule in (await redrive.api.get("/v1/alerts/rules"))["data"]}
    rate = rules["failure_rate"]["readings"][0]["saw"]
    assert (rate["failed"], rate["ended"]) == (0, 1)
    assert (await redrive.api.get("/v1/stats"))["dead_letters"]["open"] == 0
    assert (await redrive.api.get("/v1/dead-letters"))["data"] == []
    metrics = (await redrive.api.http.get("/metrics")).body.decode().splitlines()
    moved = [line for line in metrics if line.startswith("redrive_dead_letters_moved_total{")]
    reasons = {line.split('reason="')[1].split('"')[0]: 0 for line in moved}
    for line in moved:
        reasons[line.split('reason="')[1].split('"')[0]] += round(float(line.rpartition(" ")[2]))
    assert reasons == {"permanent": 0, "exhausted": 0, "expired": 0, "skipped": 0, "quiet": len(ANY_4XX)}


async def test_b7_what_failed_quietly_can_be_sent_again(redrive: Installation) -> None:
    relay = await redrive.api.relay()
    played = PlayedHub(redrive, relay, 422)
    event_id = await redrive.api.webhook(relay)
    await redrive.work()
    (letter,) = (await redrive.api.get("/v1/dead-letters", state="ignored"))["data"]
    assert (letter["event_id"], letter["error_message"]) == (event_id, "HTTP 422 Unprocessable Entity")
    shown = await redrive.api.get(f"/v1/dead-letters/{letter['id']}")
    assert shown["resolution"]["by"] == "engine"
    await redrive.api.post(f"/v1/dead-letters/{letter['id']}/retry", {"now": True})
    await redrive.work()  # and fails again: quietly, too
    assert (await redrive.api.get("/v1/stats"))["dead_letters"] == {
        "open": 0,
        "replaying": 0,
        "resolved": 0,
        "ignored": 1,
    }
    played.status = 200
    await redrive.api.post(f"/v1/dead-letters/{letter['id']}/retry", {"now": True})
    await redrive.work()
    assert (await redrive.api.status(event_id))["status"] == "delivered"


async def test_b7_a_relay_whose_service_fails_for_days_is_never_disabled_and_goes_on_when_it_is_back(
    redrive: Installation, clock: ManualClock
) -> None:
    relay = await redrive.api.relay()
    played = PlayedHub(redrive, relay, 503)
    settings = redrive.settings
    assert settings.disable_after_s == 5 * DAY_S
    first = await redrive.api.webhook(relay)
    for _ in range(24):
        async with open_relay_worker(settings, redrive.stores.engine, redrive.relay, clock) as worker:
            await worker.run_until_idle()
        clock.advance(6 * 3600)
    assert len(played.deliveries) == 24
    assert await Ledger(redrive.stores.engine, clock).disable_failing(5 * DAY_S) == []
    endpoint = await redrive.api.get(f"/v1/endpoints/{relay['id']}")
    assert (endpoint["disabled"], endpoint["disabled_reason"]) == (False, None)
    played.status = 200
    await redrive.work()
    assert (await redrive.api.status(first))["status"] == "delivered"


async def test_b8_a_hub_delivers_with_a_key_that_can_do_nothing_else(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    relay = await redrive.api.relay()
    made = await redrive.api.post(
        "/v1/keys", {"name": "laptop", "role": "IT_MANAGER", "scope": "relay", "endpoint_id": relay["id"]}
    )
    await redrive.api.webhook(relay, b"1")
    async with hub(redrive.base_url, relay["id"], receiver.url, key=made["key"]):
        await redrive.work()
    assert [request.body for request in receiver.requests] == [b"1"]
    (delivery,) = await redrive.api.deliveries(relay["id"])
    assert delivery["status"] == "delivered"
