"""Endpoints of kind rabbitmq on a real broker: confirmed, noticed where nobody takes it, retried as others are."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import aio_pika
import pytest
from pydantic import SecretStr
from standardwebhooks import Webhook
from structlog.testing import capture_logs

from redrive.app import open_worker
from redrive.engine.worker import Worker
from support.broker import Broker, connected
from support.engine import ManualClock
from support.installation import Installation
from support.page import read
from support.proxy import tcp_proxy
from support.rabbitmq import RabbitServer


async def exchange(redrive: Installation, name: str = "orders", **fields: object) -> dict[str, Any]:
    given = {"name": f"exchange {uuid4().hex}", "kind": "rabbitmq", "exchange": name, "event_types": ["only.this"]}
    made: dict[str, Any] = await redrive.api.post("/v1/endpoints", {**given, **fields})
    return made


@asynccontextmanager
async def worker(redrive: Installation, url: str | None = None) -> AsyncIterator[Worker]:
    """One that keeps its connection to the broker."""
    other = {"rabbitmq_url": SecretStr(url)} if url is not None else {}
    settings = redrive.settings.model_copy(update=other)
    async with open_worker(settings, redrive.stores.engine, clock=redrive.clock, dice=lambda: 0.5) as opened:
        yield opened


async def test_an_event_is_a_persistent_message_that_says_what_it_is_and_who_it_is_from(
    redrive: Installation, broker: Broker, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.bind("orders", "invoice.*")
    endpoint = await exchange(redrive, headers={"X-Tenant": "canary"})
    event_id = await redrive.api.event(endpoint["id"], {"order": 7}, x_correlation_id="c-7")
    with capture_logs() as lines:
        await redrive.work()
    (message,) = await broker.taken()
    assert (message.body, message.routing_key) == (b'{"order": 7}', "invoice.paid")
    assert (message.message_id, message.type, message.content_type) == (event_id, "invoice.paid", "application/json")
    assert (message.app_id, message.correlation_id, message.timestamp) == ("redrive", "c-7", clock.now())
    assert message.delivery_mode == aio_pika.DeliveryMode.PERSISTENT
    headers = {name: str(value) for name, value in message.headers.items()}
    assert (headers["x-tenant"], headers["redrive-event-type"], headers["redrive-attempt"]) == (
        "canary",
        "invoice.paid",
        "1",
    )
    assert headers["x-correlation-id"] == "c-7"
    verifier = Webhook(endpoint["secret"])
    monkeypatch.setattr(verifier, "_Webhook__verify_timestamp", lambda _: clock.now())  # the test's clock is elsewhere
    assert verifier.verify(message.body, headers) == {"order": 7}

    (attempt,) = await redrive.api.attempts(event_id)
    assert (attempt["result"], attempt["request"]["method"]) == ("succeeded", "PUBLISH")
    assert attempt["request"]["url"] == "rabbitmq://orders/invoice.paid"
    assert attempt["request"]["headers"]["x-tenant"] == "[redacted]"
    assert "canary" not in json.dumps(attempt) + str(lines)
    page = await read(redrive.api.http, f"/integrations/logs/{attempt['task_id']}")
    assert "RabbitMQ has confirmed it." in page.text
    assert "cURL" not in page.text

    await redrive.api.post(f"/v1/endpoints/{endpoint['id']}/test", {"event_type": "invoice.test"})
    await redrive.work()
    assert [message.type for message in await broker.taken()] == ["invoice.test"]


async def test_what_no_queue_takes_is_a_dead_letter_at_once_and_goes_out_edited_when_one_is_there(
    redrive: Installation, broker: Broker, clock: ManualClock
) -> None:
    await broker.bind("orders", "other.*")
    endpoint = await exchange(redrive, routing_key="eu.new", headers={"X-Tenant": "a"})
    event_id = await redrive.api.event(endpoint["id"], {"order": 7})
    await redrive.work()
    letter = await redrive.api.letter(endpoint["id"])
    assert (letter["kind"], letter["reason"], letter["category"]) == ("rabbitmq", "permanent", "configuration")
    assert "'orders'" in letter["error_message"]
    assert "'eu.new'" in letter["error_message"]
    detail = await redrive.api.get(f"/v1/dead-letters/{letter['id']}")
    config = detail["config_snapshot"]["endpoint"]
    assert (config["exchange"], config["routing_key"]) == ("orders", "eu.new")
    assert "guest" not in json.dumps(detail)

    await broker.bind("orders", "eu.*")
    edited = {"payload": {"order": 8}, "headers": {"x-tenant": "b", "x-more": "c", "cc": "everybody"}}
    await redrive.api.post(f"/v1/dead-letters/{letter['id']}/replay", edited)
    clock.advance(5)
    await redrive.work()
    (message,) = await broker.taken()
    assert (message.message_id, json.loads(message.body)) == (event_id, {"order": 8})
    assert (message.headers["x-tenant"], message.headers["x-more"], "cc" in message.headers) == ("b", "c", False)
    assert (await redrive.api.letter(endpoint["id"], state="resolved"))["id"] == letter["id"]


async def test_an_exchange_that_is_not_there_is_a_dead_letter_and_holds_up_no_other(
    redrive: Installation, broker: Broker
) -> None:
    await broker.bind("orders", "#")
    missing, there = await exchange(redrive, "nowhere"), await exchange(redrive)
    lost = await redrive.api.batch(missing["id"], 5)
    kept = await redrive.api.batch(there["id"], 5)
    await redrive.work()
    assert {message.message_id for message in await broker.taken()} == set(kept)
    listed = await redrive.api.get("/v1/dead-letters", endpoint_id=missing["id"])
    assert {letter["event_id"] for letter in listed["data"]} == set(lost)
    assert {letter["category"] for letter in listed["data"]} == {"configuration"}
    assert all("'nowhere'" in letter["error_message"] for letter in listed["data"])


async def test_while_the_broker_is_down_deliveries_are_retried_and_what_it_had_is_still_there_afterwards(
    redrive: Installation, broker: Broker, rabbitmq: RabbitServer, clock: ManualClock
) -> None:
    await broker.bind("orders", "#")
    endpoint = await exchange(redrive)
    async with worker(redrive) as working:
        before = await redrive.api.event(endpoint["id"])
        await working.run_until_idle()
        await rabbitmq.kill()
        try:
            during = await redrive.api.event(endpoint["id"])
            await working.run_until_idle()
            entry = await redrive.api.entry(endpoint["id"])
            assert (entry["event_id"], entry["retry_count"]) == (during, 0)
            (failed,) = await redrive.api.attempts(during)
            assert failed["category"] == "network"
            assert "guest" not in json.dumps(failed)
        finally:
            await rabbitmq.restart()
        clock.advance(5)
        await working.run_until_idle()
    async with connected(broker.url) as again:
        assert [message.message_id for message in await again.taken()] == [before, during]


async def test_a_confirm_that_is_lost_makes_a_second_copy_under_the_same_id(
    redrive: Installation, broker: Broker, rabbitmq: RabbitServer, clock: ManualClock
) -> None:
    await broker.bind("orders", "#")
    endpoint = await exchange(redrive)
    async with tcp_proxy("127.0.0.1", rabbitmq.port.number) as (proxy, port):
        through = broker.url.replace(str(rabbitmq.port.number), str(port))
        async with worker(redrive, through) as working:
            await redrive.api.event(endpoint["id"])
            await working.run_until_idle()
            proxy.swallow_answers()
            event_id = await redrive.api.event(endpoint["id"])
            await working.run_until_idle()
            clock.advance(5)
            await working.run_until_idle()
    first, second = await redrive.api.attempts(event_id)
    assert (first["category"], first["possible_duplicate"], second["result"]) == ("network", True, "succeeded")
    copies = [message for message in await broker.taken() if message.message_id == event_id]
    assert [message.headers["redrive-attempt"] for message in copies] == ["1", "2"]


async def test_an_ordered_endpoint_publishes_one_after_another(redrive: Installation, broker: Broker) -> None:
    await broker.bind("orders", "#")
    endpoint = await exchange(redrive, ordered=True)
    ids = [await redrive.api.event(endpoint["id"]) for _ in range(5)]
    async with worker(redrive) as working:
        for _ in ids:
            await working.run_until_idle()
    assert [message.message_id for message in await broker.taken()] == ids


async def test_a_worker_without_the_broker_leaves_its_tasks_and_one_of_another_org_s_broker_refuses_them(
    redrive: Installation, broker: Broker
) -> None:
    await broker.bind("orders", "#")
    endpoint = await exchange(redrive)
    await redrive.api.event(endpoint["id"])
    without = redrive.settings.model_copy(update={"rabbitmq_url": None})
    async with open_worker(without, redrive.stores.engine, clock=redrive.clock) as working:
        await working.run_until_idle()
    (delivery,) = await redrive.api.deliveries(endpoint["id"])
    assert (delivery["status"], delivery["attempts"]) == ("pending", 0)
    others = redrive.settings.model_copy(update={"rabbitmq_org": "another"})
    async with open_worker(others, redrive.stores.engine, clock=redrive.clock) as working:
        await working.run_until_idle()
    letter = await redrive.api.letter(endpoint["id"])
    assert "another org" in letter["error_message"]
    assert await broker.taken() == []
