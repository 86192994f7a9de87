"""Row E, the last part: what lands in a broker's dead-letter queue is a dead letter, and a redrive brings it back."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import aio_pika
import asyncpg
import pika
import pytest

from redrive import Message
from redrive.broker.topology import delay_arguments
from redrive.core.broker import DeadMessage, DeadMessageBook, QueueState
from redrive.sources.collector import Collector
from redrive.store.dead_messages import REFUSALS, DeadMessagesOf
from support.broker import DEAD, QUICK, SOURCE, Broker, consuming
from support.engine import ManualClock
from support.installation import Installation

NOTE_EVERY_S = 0.1
QUEUES = ("orders-dlq", DEAD)


@asynccontextmanager
async def collecting(
    redrive: Installation, url: str, *queues: str, book: DeadMessageBook | None = None
) -> AsyncIterator[None]:
    stop = asyncio.Event()
    own = DeadMessagesOf(redrive.stores.engine, "default", redrive.clock)
    collector = Collector([url], queues or QUEUES, book or own, refusals=REFUSALS, note_every_s=NOTE_EVERY_S)
    running = asyncio.create_task(collector.run(stop))
    try:
        yield
    finally:
        stop.set()
        async with asyncio.timeout(15):
            await running


async def work(redrive: Installation) -> None:
    """Carry out what was asked for, and when its delay is over."""
    assert isinstance(redrive.clock, ManualClock)
    await redrive.work()
    redrive.clock.advance(5)
    await redrive.work()


async def use_up(redrive: Installation) -> None:
    """All retries of what a person retried: it has them whatever the class of its error."""
    assert isinstance(redrive.clock, ManualClock)
    for _ in range(4):
        await redrive.work()
        redrive.clock.advance(300)


async def letters(redrive: Installation, count: int, **query: str) -> list[dict[str, Any]]:
    """As many as these, once they are there."""
    async with asyncio.timeout(15):
        while True:
            found = (await redrive.api.get("/v1/dead-letters", **query))["data"]
            if len(found) >= count:
                assert len(found) == count
                return [await redrive.api.get(f"/v1/dead-letters/{letter['id']}") for letter in found]
            await asyncio.sleep(0.02)


def reject(url: str, queue: str, count: int) -> None:
    """A consumer that never heard of Redrive, written with pika."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    for method, _, _ in channel.consume(queue, inactivity_timeout=10):
        channel.basic_reject(method.delivery_tag, requeue=False)
        count -= 1
        if not count:
            break
    channel.cancel()
    connection.close()


async def a_shop(broker: Broker) -> None:
    """A topic exchange, a queue of orders, and another that audits them; what is rejected goes to orders-dlq."""
    await broker.channel.declare_exchange("shop.dead", "fanout", durable=True)
    await broker.bind("shop", "order.*", "orders", **{"x-dead-letter-exchange": "shop.dead"})
    await broker.bind("shop", "order.*", "audit")
    await (await broker.channel.declare_queue("orders-dlq", durable=True)).bind("shop.dead")


PROPERTIES: dict[str, Any] = {
    "message_id": "m-1",
    "correlation_id": "c-1",
    "content_type": "application/json",
    "priority": 3,
    "reply_to": "answers",
    "type": "order",
    "app_id": "shop",
    "timestamp": datetime(2031, 5, 4, 12, tzinfo=UTC),
    "headers": {"tenant": "north", "tries": 0.25, "authorization": "Bearer canary"},
}


async def test_e6_what_a_plain_consumer_rejects_is_a_dead_letter_and_a_redrive_brings_it_back_as_it_was(
    redrive: Installation, broker: Broker, vhost_url: str
) -> None:
    await a_shop(broker)
    await broker.publish("order.new", b'{"n":  1.10}', exchange="shop", **PROPERTIES)
    await asyncio.to_thread(reject, vhost_url, "orders", 1)
    async with collecting(redrive, vhost_url, "orders-dlq"):
        (letter,) = await letters(redrive, 1)
    assert (letter["kind"], letter["event_type"], letter["reason"]) == ("rabbitmq", "orders", "permanent")
    assert letter["error_message"] == "A consumer of orders rejected it."
    assert letter["payload_snapshot"] == {"n": 1.10}
    told = letter["broker"]
    assert (told["source"], told["queue"], told["exchange"], told["routing_key"], told["message_id"]) == (
        "orders-dlq",
        "orders",
        "shop",
        "order.new",
        "m-1",
    )
    (death,) = told["deaths"]
    assert (death["queue"], death["reason"], death["count"], death["exchange"], death["routing-keys"]) == (
        "orders",
        "rejected",
        1,
        "shop",
        ["order.new"],
    )
    assert told["properties"]["headers"]["tenant"] == "north"
    assert "canary" not in json.dumps(letter)
    assert await broker.depth("orders-dlq") == 0

    await redrive.api.post(f"/v1/dead-letters/{letter['id']}/retry")
    await work(redrive)
    back = await broker.take("orders")
    assert (back.exchange, back.routing_key, back.body) == ("shop", "order.new", b'{"n":  1.10}')
    kept = {name: getattr(back, name) for name in PROPERTIES if name != "headers"}
    assert kept == {name: value for name, value in PROPERTIES.items() if name != "headers"}
    headers = dict(back.headers)
    assert (headers.pop("x-redrive-letter"), headers.pop("x-redrive-replays")) == (letter["id"], 1)
    assert headers == PROPERTIES["headers"]
    assert back.delivery_mode == aio_pika.DeliveryMode.PERSISTENT
    closed = await redrive.api.get(f"/v1/dead-letters/{letter['id']}")
    assert (closed["state"], closed["replay"]["outcome"]) == ("resolved", "succeeded")


async def test_e6_dead_letters_of_our_own_consumer_stand_beside_them_with_their_tries(
    redrive: Installation, broker: Broker, vhost_url: str
) -> None:
    async def act(message: Message) -> None:
        raise ConnectionError("the hub is down") if message.payload["n"] else ValueError("no unit")

    await broker.bind("shop", "order.*", SOURCE)
    async with consuming(vhost_url, act), collecting(redrive, vhost_url, DEAD):
        await broker.publish("order.new", {"n": 0}, exchange="shop", message_id="a", headers={"tenant": "north"})
        await broker.publish("order.new", {"n": 1, "tenantId": 7}, exchange="shop", message_id="b")
        found = {letter["broker"]["message_id"]: letter for letter in await letters(redrive, 2, kind="rabbitmq")}
    refused, exhausted = found["a"], found["b"]
    assert (refused["category"], refused["reason"], refused["retry_count"]) == ("validation", "permanent", 0)
    assert (exhausted["category"], exhausted["reason"], exhausted["retry_count"]) == ("network", "exhausted", 3)
    assert exhausted["payload_snapshot"] == {"n": 1, "tenantId": 7}
    assert exhausted["broker"]["details"]["metadata"]["tenant_id"] == 7
    assert exhausted["broker"]["service"] == exhausted["external_system"] == SOURCE
    assert "ConnectionError: the hub is down" in exhausted["error_stack"]

    await redrive.api.post(f"/v1/dead-letters/{exhausted['id']}/retry")
    await work(redrive)
    seen: list[Message] = []
    async with consuming(vhost_url, seen.append):
        await _until(lambda: len(seen) == 1)
    assert (seen[0].attempt, seen[0].headers["x-retry-count"]) == (1, 0)
    assert (seen[0].exchange, seen[0].routing_key, seen[0].message_id) == ("shop", "order.new", "b")
    assert {name for name in seen[0].headers if name.startswith("x-")} == {
        "x-retry-count",
        "x-redrive-letter",
        "x-redrive-replays",
    }


async def test_e6_what_dies_again_is_a_letter_of_its_own_that_knows_the_one_before(
    redrive: Installation, broker: Broker, vhost_url: str
) -> None:
    await a_shop(broker)
    packed = gzip.compress(b'{"n": 1}')
    await broker.publish("order.new", packed, exchange="shop", message_id="m", content_encoding="gzip")
    async with collecting(redrive, vhost_url, "orders-dlq"):
        await asyncio.to_thread(reject, vhost_url, "orders", 1)
        (first,) = await letters(redrive, 1)
        await redrive.api.post(f"/v1/dead-letters/{first['id']}/replay", {"payload": {"n": 2}})
        await work(redrive)
        await asyncio.to_thread(reject, vhost_url, "orders", 1)
        (again,) = await letters(redrive, 1, state="open")
    assert again["payload_snapshot"] == {"n": 2}
    assert "content_encoding" not in again["broker"]["properties"]
    assert again["broker"]["redriven_from"] == first["id"]
    assert (await redrive.api.get(f"/v1/dead-letters/{first['id']}"))["state"] == "resolved"


async def test_e6_what_no_queue_takes_stays_open_and_says_why(
    redrive: Installation, broker: Broker, vhost_url: str
) -> None:
    await a_shop(broker)
    for n in range(2):
        await broker.publish("order.new", {"n": n}, exchange="shop", message_id=str(n))
    await asyncio.to_thread(reject, vhost_url, "orders", 2)
    async with collecting(redrive, vhost_url, "orders-dlq"):
        first, second = await letters(redrive, 2)
    for queue in ("orders", "audit"):
        await broker.channel.queue_delete(queue)
    await redrive.api.post(f"/v1/dead-letters/{first['id']}/retry")
    await use_up(redrive)
    unroutable = await redrive.api.get(f"/v1/dead-letters/{first['id']}")
    assert (unroutable["state"], unroutable["category"]) == ("open", "configuration")
    assert unroutable["error_message"] == (
        "No queue takes messages that are published to the exchange 'shop' with the routing key 'order.new'."
    )
    await broker.channel.exchange_delete("shop")
    await redrive.api.post(f"/v1/dead-letters/{second['id']}/retry")
    await use_up(redrive)
    assert "no exchange 'shop'" in (await redrive.api.get(f"/v1/dead-letters/{second['id']}"))["error_message"]


async def test_e6_many_are_redriven_at_once_and_may_go_past_the_others_that_are_bound(
    redrive: Installation, broker: Broker, vhost_url: str
) -> None:
    redrive.settings = redrive.settings.model_copy(update={"rabbitmq_redrive_to": "queue"})
    await a_shop(broker)
    await broker.bind("fan", "", "orders", **{"x-dead-letter-exchange": "shop.dead"})
    await broker.bind("fan", "", "audit")
    for n in range(30):
        exchange, key = ("shop", "order.new") if n else ("fan", "")  # a fanout's messages often have no key
        await broker.publish(key, {"n": n}, exchange=exchange, message_id=str(n))
    await broker.taken("audit")
    await asyncio.to_thread(reject, vhost_url, "orders", 30)
    async with collecting(redrive, vhost_url, "orders-dlq"):
        await letters(redrive, 30)
    await redrive.api.post(
        "/v1/dead-letters/bulk", {"action": "retry", "filter": {"kind": "rabbitmq"}, "because": "the hub is back"}
    )
    await work(redrive)
    assert {json.loads(message.body)["n"] for message in await broker.taken("orders")} == set(range(30))
    assert await broker.depth("audit") == 0


async def test_e6_what_the_broker_puts_out_between_retries_goes_back_to_where_it_came_from(
    redrive: Installation, broker: Broker, vhost_url: str
) -> None:
    """Not to the delay queue that it had waited in: without a time to live it would stay there, and all behind it."""
    await broker.bind("fan", "", SOURCE, **delay_arguments(DEAD))
    tries = []

    async def act(message: Message) -> None:
        tries.append(message)
        raise ConnectionError

    stop_when_tried = _until(lambda: bool(tries))
    async with consuming(vhost_url, act, policy=replace(QUICK, base_s=0.5)):
        await broker.publish("", {"n": 1}, exchange="fan", message_id="m")
        await stop_when_tried
    await asyncio.to_thread(reject, vhost_url, SOURCE, 1)  # once it is back
    async with collecting(redrive, vhost_url, DEAD):
        (letter,) = await letters(redrive, 1)
    told = letter["broker"]
    assert (told["exchange"], told["routing_key"], told["queue"], letter["retry_count"]) == ("fan", "", SOURCE, 1)
    await redrive.api.post(f"/v1/dead-letters/{letter['id']}/retry")
    await work(redrive)
    back = await broker.take(SOURCE)
    assert (back.exchange, back.routing_key) == ("fan", "")


BODIES = [b"", b"\xff\x00\xfe", b"<order/>", b'{"original_message": 1}', b"[1, 2", b'{"a": 1}']


async def test_poison_is_kept_byte_for_byte_and_goes_back_so(
    redrive: Installation, broker: Broker, vhost_url: str
) -> None:
    """Published straight into the dead-letter queue by somebody, too."""
    await broker.channel.declare_queue("orders", durable=True)
    await broker.channel.declare_queue("orders-dlq", durable=True)
    for body in BODIES:
        await broker.publish("orders-dlq", body)
    async with collecting(redrive, vhost_url, "orders-dlq"):
        found = await letters(redrive, len(BODIES))
    assert {letter["error_message"] for letter in found} == {
        "It was published straight to orders-dlq, and does not say why."
    }
    for letter in found:
        await redrive.api.post(f"/v1/dead-letters/{letter['id']}/retry")
    await work(redrive)
    assert sorted(message.body for message in await broker.taken("orders")) == sorted(BODIES)


class Lossy:
    """A book whose answers get lost: what it keeps, it says it could not."""

    def __init__(self, book: DeadMessageBook) -> None:
        self._book = book
        self.left = 2

    async def keep(self, messages: Sequence[DeadMessage]) -> list[bool]:
        stored = await self._book.keep(messages)
        if self.left:
            self.left -= 1
            raise ConnectionError("the connection was lost")
        return stored

    async def note(self, states: Sequence[QueueState]) -> None:
        await self._book.note(states)


async def test_a_message_is_one_letter_however_often_it_is_given_out(
    redrive: Installation, broker: Broker, vhost_url: str
) -> None:
    await broker.channel.declare_queue("orders-dlq", durable=True)
    for n in range(20):
        await broker.publish("orders-dlq", {"n": n}, message_id=str(n))
    book = Lossy(DeadMessagesOf(redrive.stores.engine, "default", redrive.clock))
    async with collecting(redrive, vhost_url, "orders-dlq", book=book):
        await letters(redrive, 20)
        await broker.publish("orders-dlq", {"n": 7}, message_id="7")
        await _until_emptied(broker, "orders-dlq")
        seen = await _noted(redrive, "orders-dlq", messages=0, problem=None)
        while seen["collected"] + seen["duplicates"] < 21:
            seen = await _noted(redrive, "orders-dlq")
    assert seen["duplicates"] > 1
    assert len(await letters(redrive, 20)) == 20


class Refusing(Lossy):
    """A book that cannot take one of the messages."""

    async def keep(self, messages: Sequence[DeadMessage]) -> list[bool]:
        if any(message.message_id == "7" for message in messages):
            raise asyncpg.DataError("not this one")
        return await self._book.keep(messages)


async def test_what_cannot_be_stored_stays_in_the_broker_and_takes_no_other_with_it(
    redrive: Installation, broker: Broker, vhost_url: str
) -> None:
    await broker.channel.declare_queue("orders-dlq", durable=True)
    for n in range(20):
        await broker.publish("orders-dlq", {"n": n}, message_id=str(n))
    book = Refusing(DeadMessagesOf(redrive.stores.engine, "default", redrive.clock))
    async with collecting(redrive, vhost_url, "orders-dlq", book=book):
        await letters(redrive, 19)
        queue = await _noted(redrive, "orders-dlq", collected=19, duplicates=0)
        assert queue["problem"] == (
            "1 messages stay in the queue since they cannot be stored, the last of them the message '7'."
        )
    assert [message.message_id for message in await broker.taken("orders-dlq")] == ["7"]


async def test_a_queue_that_comes_later_is_collected_and_people_see_how_it_does(
    redrive: Installation, broker: Broker, vhost_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.sources.collector.LOOK_AGAIN_S", 0.1)
    async with collecting(redrive, vhost_url):
        absent = await _noted(redrive, "orders-dlq", problem="There is no such queue.")
        assert absent["messages"] is None
        await broker.channel.declare_queue("orders-dlq", durable=True)
        await broker.channel.declare_queue("orders", durable=True)
        await broker.publish("orders", {"n": 0})
        claimed = [{"queue": "x" * 300, "reason": "rejected"}]  # what no queue is called
        await broker.publish("orders-dlq", {"n": 9}, headers={"x-death": claimed})
        await letters(redrive, 1)
        await broker.publish("orders-dlq", {"n": 1}, message_id="m")
        await letters(redrive, 2)
        seen = await _noted(redrive, "orders-dlq", problem=None, consumers=1, collected=2)
        assert seen["messages"] == 0
        nobody = await _noted(redrive, "orders", problem=None, consumers=0, messages=1)
        assert (nobody["is_source"], nobody["open_letters"]) == (False, 1)
        await broker.channel.queue_delete("orders-dlq")
        await _noted(redrive, "orders-dlq", problem="There is no such queue.")
        await broker.channel.declare_queue("orders-dlq", durable=True)
        await broker.publish("orders-dlq", {"n": 2}, message_id="m2")
        await letters(redrive, 3)


async def _noted(redrive: Installation, queue: str, **wanted: Any) -> dict[str, Any]:
    """A queue as people see it, once it is as wanted."""
    row: dict[str, Any] = {}
    try:
        async with asyncio.timeout(15):
            while True:
                rows = (await redrive.api.get("/v1/broker"))["queues"]
                row = next((one for one in rows if one["queue"] == queue), {})
                if row and all(row[name] == value for name, value in wanted.items()):
                    return row
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"{queue} is {row}, and should be {wanted}") from None


async def _until(condition: Any) -> None:
    async with asyncio.timeout(15):
        while not condition():
            await asyncio.sleep(0.02)


async def _until_emptied(broker: Broker, queue: str) -> None:
    async with asyncio.timeout(15):
        while await broker.depth(queue):
            await asyncio.sleep(0.02)
