"""What becomes of an event, by what its receiver does: through a real `redrive serve`."""

import asyncio
import json
import socket
import struct

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from support.holding import HoldingReceiver, open_talking
from support.receiver import HANG, RESET, Answer, socket_of
from support.remote import Remote, at, seconds_between

QUICKLY = {"kind": "list", "delays_s": [0.2], "max_retries": 3}


async def test_an_endpoint_that_recovers_gets_the_event_on_the_third_try(
    api: Remote, receiver: HoldingReceiver
) -> None:
    await api.policy("quick", **QUICKLY)
    endpoint = await api.endpoint(receiver.url, policy="quick", external_system="billing")
    receiver.script(503, Answer(503, b"busy", {"x-node": "7"}), Answer(200, b'{"ok":true}'))

    event_id = await api.event(endpoint["id"], {"invoice": 7})

    assert (await api.delivered(event_id))["retry_attempts"] == 2
    attempts = await api.attempts(event_id)
    assert [attempt["result"] for attempt in attempts] == ["failed", "failed", "succeeded"]
    assert [attempt["number"] for attempt in attempts] == [1, 2, 3]
    second = attempts[1]
    assert second["request"]["method"] == "POST"
    assert second["request"]["url"] == receiver.url
    assert second["request"]["headers"]["webhook-id"] == event_id
    assert (second["response"]["status"], second["response"]["body"]) == (503, "busy")
    assert second["category"] == "server_error"
    assert "503" in second["error_message"]
    assert at(attempts[0]["ended_at"]) < at(second["started_at"]) < at(second["ended_at"])
    assert 0 < second["duration_ms"] < 30_000
    assert 0.2 <= seconds_between(attempts[0]["ended_at"], second["started_at"]) < 3

    log = await api.log(second["task_id"])
    assert (log["status"], log["note"]) == ("success", "Succeeded on retry attempt 2")
    assert (log["response"]["body"], log["external_system"]) == ('{"ok":true}', "billing")
    assert log["request"]["body"] == {"invoice": 7}
    sent = receiver.requests
    assert [request.headers["redrive-attempt"] for request in sent] == ["1", "2", "3"]
    assert {request.body for request in sent} == {b'{"invoice": 7}'}
    assert {request.headers["webhook-id"] for request in sent} == {event_id}


async def test_an_endpoint_that_stays_down_makes_a_dead_letter_after_four_tries(
    api: Remote, receiver: HoldingReceiver
) -> None:
    await api.policy("hasty", kind="list", delays_s=[0.05, 0.05, 0.05], max_retries=3)
    endpoint = await api.endpoint(receiver.url, policy="hasty")
    receiver.usual = 503
    event_id = await api.event(endpoint["id"])
    status = await api.failed(event_id)
    assert (status["retry_attempts"], status["next_retry_at"]) == (3, None)
    letter = await api.letter(endpoint["id"])
    assert (letter["retry_count"], letter["max_retries"], letter["status"]) == (3, 3, "failed")
    assert (letter["reason"], letter["category"], letter["state"]) == ("exhausted", "server_error", "open")
    assert letter["in_dlq"] is True
    assert letter["next_retry_at"] is None
    assert letter["error_message"] == "HTTP 503 Service Unavailable"
    assert len(receiver.requests) == 4
    detail = await api.get(f"/v1/dead-letters/{letter['id']}")
    assert len(detail["attempts"]) == 4
    assert detail["payload_snapshot"] == {"n": 1}


async def test_a_refusal_is_not_tried_again(api: Remote, receiver: HoldingReceiver) -> None:
    endpoint = await api.endpoint(receiver.url)
    receiver.usual = 404
    event_id = await api.event(endpoint["id"])
    await api.failed(event_id)
    letter = await api.letter(endpoint["id"])
    assert (letter["reason"], letter["category"], letter["retry_count"]) == ("permanent", "client_error", 0)
    assert len(receiver.requests) == 1


async def test_a_connection_that_is_refused_is_tried_again(api: Remote, receiver: HoldingReceiver) -> None:
    endpoint = await api.endpoint(f"http://127.0.0.1:{_closed_port()}/hook")
    await api.event(endpoint["id"])
    entry = await api.entry(endpoint["id"])
    assert (entry["status"], entry["retry_count"], entry["in_dlq"]) == ("pending", 0, False)
    assert entry["error_message"]
    assert seconds_between(entry["last_retry_at"], entry["next_retry_at"]) == pytest.approx(5, abs=0.001)
    # Once it is reachable, a person need not wait for the time.
    await _change(api, endpoint["id"], url=receiver.url)
    await asyncio.wait_for(_until_retried(api, receiver, entry["id"]), 30)
    await api.delivered(entry["event_id"])


async def _until_retried(api: Remote, receiver: HoldingReceiver, task_id: str) -> None:
    """Workers learn of a new URL within a second: until then a try goes to the old one."""
    while not receiver.requests:
        await api.http.post(f"/v1/retry-queue/{task_id}/retry")
        await asyncio.sleep(0.1)


async def test_an_answer_after_the_deadline_is_a_time_out_and_may_be_a_duplicate(
    api: Remote, receiver: HoldingReceiver
) -> None:
    await api.policy("quick", **QUICKLY)
    endpoint = await api.endpoint(receiver.url, policy="quick", timeout_s=0.5)
    receiver.script(Answer(200, after_s=1.5))
    event_id = await api.event(endpoint["id"])
    await api.delivered(event_id)
    first, *_, last = await api.attempts(event_id)
    assert (first["result"], first["category"], first["possible_duplicate"]) == ("failed", "timeout", True)
    assert first["duration_ms"] >= 500
    assert last["result"] == "succeeded"
    assert receiver.ids[:2] == [event_id, event_id]


async def test_a_connection_reset_before_the_answer_is_tried_again(api: Remote, receiver: HoldingReceiver) -> None:
    await api.policy("quick", **QUICKLY)
    endpoint = await api.endpoint(receiver.url, policy="quick")
    receiver.script(RESET)
    event_id = await api.event(endpoint["id"])
    await api.delivered(event_id)
    first = (await api.attempts(event_id))[0]
    assert (first["category"], first["possible_duplicate"]) == ("network", True)


@pytest.mark.parametrize(("status", "outcome"), [(200, "succeeded"), (503, "failed")])
async def test_a_reset_within_the_body_is_judged_by_the_status_line(api: Remote, status: int, outcome: str) -> None:
    async def break_off(writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: 1000\r\n\r\nhalf of".encode())
        await writer.drain()
        await asyncio.sleep(0.05)  # a reset at once would overtake what was written
        socket_of(writer).setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async with open_talking(break_off) as url:
        await api.policy("once", kind="list", delays_s=[0], max_retries=0)
        event_id = await api.event((await api.endpoint(url, policy="once"))["id"])
        await (api.delivered if outcome == "succeeded" else api.failed)(event_id)
        (attempt,) = await api.attempts(event_id)
    assert (attempt["result"], attempt["status_code"]) == (outcome, status)
    assert attempt["response"]["body"] == "half of"
    assert attempt["response"]["truncated"] is True


async def test_retry_after_is_a_floor_for_the_next_delay(api: Remote, receiver: HoldingReceiver) -> None:
    await api.policy("quick", **QUICKLY)
    endpoint = await api.endpoint(receiver.url, policy="quick")
    receiver.script(Answer(429, headers={"retry-after": "3"}))
    event_id = await api.event(endpoint["id"])
    entry = await api.entry(endpoint["id"])
    assert 3 <= seconds_between(entry["last_retry_at"], entry["next_retry_at"]) < 3.01
    await api.delivered(event_id)
    first, second = await api.attempts(event_id)
    assert first["category"] == "rate_limited"
    assert seconds_between(first["ended_at"], second["started_at"]) >= 3


async def test_retry_after_is_cut_at_what_the_policy_allows(api: Remote, receiver: HoldingReceiver) -> None:
    await api.policy("impatient", kind="list", delays_s=[0.2], max_retries=3, max_retry_after_s=1)
    endpoint = await api.endpoint(receiver.url, policy="impatient")
    receiver.script(Answer(503, headers={"retry-after": "315360000"}))
    event_id = await api.event(endpoint["id"])
    await api.delivered(event_id)
    first, second = await api.attempts(event_id)
    assert 1 <= seconds_between(first["ended_at"], second["started_at"]) < 10


async def test_the_standard_webhooks_library_verifies_what_we_send(api: Remote, receiver: HoldingReceiver) -> None:
    endpoint = await api.endpoint(receiver.url, headers={"x-team": "billing"})
    payload = {"amount": "12.50", "customer": "Zoë"}
    event_id = await api.event(endpoint["id"], payload)
    (request,) = await receiver.wait_for(1, within_s=30)
    await api.delivered(event_id)
    webhook = Webhook(endpoint["secret"])
    headers = dict(request.headers)
    assert webhook.verify(request.body, headers) == payload
    assert request.headers["x-team"] == "billing"
    with pytest.raises(WebhookVerificationError):
        webhook.verify(request.body.replace(b"12.50", b"99.50"), headers)
    with pytest.raises(WebhookVerificationError):
        webhook.verify(request.body, headers | {"webhook-id": "another"})


async def test_an_endpoint_that_hangs_does_not_delay_another(api: Remote, receiver: HoldingReceiver) -> None:
    await api.policy("once", kind="list", delays_s=[0], max_retries=0)
    hanging = await api.endpoint(receiver.url_of("/hangs"), policy="once")
    healthy = await api.endpoint(receiver.url_of("/healthy"))
    receiver.hold(lambda request: request.path == "/hangs")
    stuck = await api.batch(hanging["id"], 150)
    await receiver.wait_for(50, within_s=30)
    for event_id in await api.batch(healthy["id"], 20):
        await api.delivered(event_id)
    assert 50 <= receiver.held < 150
    assert {(await api.status(event_id))["status"] for event_id in stuck[:10]} == {"queued"}
    receiver.release()
    for event_id in stuck:
        await api.delivered(event_id)


async def test_an_endpoint_that_drips_is_cut_off_at_the_total_deadline(api: Remote, receiver: HoldingReceiver) -> None:
    async def drip(writer: asyncio.StreamWriter) -> None:
        for byte in b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nx-slow: " + b"z" * 10_000:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.02)

    async with open_talking(drip) as url:
        await api.policy("once", kind="list", delays_s=[0], max_retries=0)
        event_id = await api.event((await api.endpoint(url, policy="once", timeout_s=1))["id"])
        await api.failed(event_id)
        (attempt,) = await api.attempts(event_id)
    assert attempt["category"] == "timeout"
    assert 1_000 <= attempt["duration_ms"] < 5_000


async def test_the_same_event_handed_in_twice_at_once_is_one_event(api: Remote, receiver: HoldingReceiver) -> None:
    endpoint = await api.endpoint(receiver.url)
    callers = [Remote(api.http.host, api.http.port, api.http.key or "") for _ in range(8)]
    answers = await asyncio.gather(*(one.try_event(endpoint["id"], Idempotency_Key="order-7") for one in callers))
    for caller in callers:
        caller.close()
    assert {answer.status for answer in answers} == {202}
    (event_id,) = {answer.json["event_id"] for answer in answers}
    assert [answer.json["deduplicated"] for answer in answers].count(False) == 1
    await api.delivered(event_id)
    assert receiver.ids == [event_id]
    other = await api.try_event(endpoint["id"], {"another": "body"}, Idempotency_Key="order-7")
    assert other.status == 409


async def test_an_endpoint_that_is_gone_is_disabled(api: Remote, receiver: HoldingReceiver) -> None:
    endpoint = await api.endpoint(receiver.url)
    receiver.script(410)
    await api.failed(await api.event(endpoint["id"]))
    async with asyncio.timeout(30):
        while not (await api.get(f"/v1/endpoints/{endpoint['id']}"))["disabled"]:
            await asyncio.sleep(0.03)
    held = await api.event(endpoint["id"])
    await _change(api, endpoint["id"], disabled=False)
    await api.delivered(held)
    assert receiver.ids[-1] == held


async def test_a_hanging_endpoint_times_out_and_is_tried_again(api: Remote, receiver: HoldingReceiver) -> None:
    await api.policy("quick", **QUICKLY)
    endpoint = await api.endpoint(receiver.url, policy="quick", timeout_s=0.4)
    receiver.script(HANG)
    event_id = await api.event(endpoint["id"])
    await api.delivered(event_id)
    assert [attempt["category"] for attempt in await api.attempts(event_id)] == ["timeout", None]


async def _change(api: Remote, endpoint_id: str, **fields: object) -> None:
    answer = await api.http.request("PATCH", f"/v1/endpoints/{endpoint_id}", body=json.dumps(fields).encode())
    assert answer.status == 200, answer.body


def _closed_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
