"""Row E: a consumer of RabbitMQ. A message succeeds or is in the dead-letter queue; its retries wait in the broker."""

import asyncio
import base64
import json
import random
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

import aio_pika
import asyncpg
import pytest
from aio_pika.abc import AbstractIncomingMessage
from aiormq.abc import AbstractConnection, DeliveredMessage
from pamqp.commands import Basic
from structlog.testing import capture_logs

from conftest import Eventually
from redrive import ConfigurationError, GiveUp, Message, RetryLater
from redrive.broker.topology import TopologyError
from redrive.broker.wire import FarTime, Properties
from redrive.core.presets import PRESETS
from redrive.sources import consumer as consumers
from support.broker import DEAD, QUICK, SOURCE, Broker, consumer, consuming
from support.engine import until
from support.rabbitmq import RabbitServer, linked

pytestmark = pytest.mark.filterwarnings("error")


LATE_S = 1.0  # a retry starts within a second of its time
BURST_LATE_S = 10.0  # 150 of them on a busy machine take theirs to be handed over and called


class Tries:
    """A handler that remembers what it was called with, and does as the message says."""

    def __init__(self, act: Callable[[Message], Awaitable[None]] | None = None) -> None:
        self.messages: list[Message] = []
        self.at: list[float] = []
        self._act = act

    async def __call__(self, message: Message) -> None:
        self.messages.append(message)
        self.at.append(time.monotonic())
        if self._act is not None:
            await self._act(message)

    def of(self, n: int) -> list[Message]:
        return [message for message in self.messages if message.payload["n"] == n]


async def fails(message: Message) -> None:
    raise ConnectionError("the hub is down")


def letter(message: AbstractIncomingMessage) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(message.body)
    return read


class _Refusal(Exception):
    def __init__(self, status: int) -> None:
        self.status_code = status


ERRORS: list[tuple[BaseException, str, int]] = [
    (_Refusal(404), "client_error", 0),
    (GiveUp("never"), "unknown", 0),
    (ValueError("no such unit"), "validation", 0),
    (KeyError("sku"), "validation", 0),
    (ConfigurationError("no credentials"), "configuration", 0),
    (_Refusal(503), "server_error", 3),
    (_Refusal(429), "rate_limited", 3),
    (TimeoutError(), "timeout", 3),
    (ConnectionResetError("redis went away"), "network", 3),
    (asyncpg.CannotConnectNowError("the database system is starting up"), "network", 3),
    (aio_pika.exceptions.DeliveryError(None, Basic.Nack()), "network", 3),
]


async def test_e1_errors_are_classed_and_only_transient_ones_are_tried_again(
    vhost_url: str, broker: Broker, eventually: Eventually
) -> None:
    async def act(message: Message) -> None:
        if message.payload["n"] < len(ERRORS):
            raise ERRORS[message.payload["n"]][0]

    tries = Tries(act)
    async with consuming(vhost_url, tries):
        for n in range(len(ERRORS) + 1):
            await broker.publish(SOURCE, {"n": n})
        dead = [await broker.take(DEAD) for _ in ERRORS]
        await eventually(lambda: len(tries.of(len(ERRORS))) == 1)
    seen = {}
    for message in dead:
        details = letter(message)["error_details"]
        told = (details["error_type"], message.headers["x-redrive-category"], details["retry_count"])
        seen[letter(message)["original_message"]["n"]] = told
        assert message.headers["x-retry-count"] == details["retry_count"]
    assert seen == {n: (type(error).__name__, category, retries) for n, (error, category, retries) in enumerate(ERRORS)}
    assert [len(tries.of(n)) for n in range(len(ERRORS) + 1)] == [retries + 1 for _, _, retries in ERRORS] + [1]
    assert await broker.depth(SOURCE) == 0


async def test_e2_retries_come_after_two_four_and_eight_seconds_with_their_count_in_the_header(
    vhost_url: str, broker: Broker
) -> None:
    """The slow one, with the delays as shipped. Chance shortens the first, lengthens the second, and so on."""
    tries = Tries(fails)
    rolls = iter([0.25, 0.75, 0.25])
    policy = PRESETS["transformer"]
    async with consuming(vhost_url, tries, policy=policy, dice=lambda: next(rolls, 0.5)):
        await broker.publish(SOURCE, {"n": 0}, message_id="m-1", headers={"tenant": "north"})
        dead = await broker.take(DEAD, within_s=40)
    waits = [after - before for before, after in zip(tries.at, tries.at[1:], strict=False)]
    assert waits == [pytest.approx(delay, rel=0.2) for delay in (2, 4, 8)]
    assert all(due <= wait <= due + LATE_S for due, wait in zip((1.85, 4.5, 7.4), waits, strict=True))
    assert [message.headers.get("x-retry-count") for message in tries.messages] == [None, 1, 2, 3]
    assert [message.attempt for message in tries.messages] == [1, 2, 3, 4]
    assert {message.message_id for message in tries.messages} == {"m-1"}
    assert {message.headers["tenant"] for message in tries.messages} == {"north"}
    assert (dead.headers["x-retry-count"], letter(dead)["error_details"]["retry_count"]) == (3, 3)


async def test_e2_the_broker_keeps_the_schedule_while_no_consumer_runs(
    vhost_url: str, broker: Broker, eventually: Eventually
) -> None:
    first, second = Tries(fails), Tries()
    policy = replace(QUICK, base_s=3.0)
    async with consuming(vhost_url, first, policy=policy):
        await broker.publish(SOURCE, {"n": 0})
        await eventually(lambda: len(first.at) == 1)
    assert await broker.depth(f"{SOURCE}-retry-in-3075ms") == 1
    async with consuming(vhost_url, second, policy=policy):
        await eventually(lambda: len(second.at) == 1)
    assert second.messages[0].headers["x-retry-count"] == 1
    assert 3.0 <= second.at[0] - first.at[0] <= 3.1 + LATE_S


async def test_e10_retries_of_a_burst_spread_over_the_whole_jitter(
    vhost_url: str, broker: Broker, eventually: Eventually
) -> None:
    """150 messages that failed together: with the delay as shipped, and what the broker was told to the millisecond."""
    failed: dict[int, float] = {}
    waited: dict[int, float] = {}

    async def act(message: Message) -> None:
        n, now = message.payload["n"], time.monotonic()
        if message.attempt == 1:
            failed[n] = now
            raise ConnectionError
        waited[n] = now - failed[n]

    await broker.channel.declare_queue(SOURCE, durable=True)
    for n in range(150):
        await broker.publish(SOURCE, {"n": n})
    with capture_logs() as lines:
        async with consuming(
            vhost_url, act, policy=PRESETS["transformer"], dice=random.Random(7).random, concurrency=150, prefetch=150
        ):
            await eventually(lambda: len(waited) == 150)
    told = [line["delay_s"] for line in lines if line["event"] == "message_retry"]
    uniform = 0.8 / 12**0.5
    for name, delays in (("told", told), ("seen", list(waited.values()))):
        deviation = statistics.pstdev(delays)
        print(f"{name}: {min(delays):.3f} to {max(delays):.3f} s, deviation {deviation / uniform:.2f} of uniform")
        counts = [sum(low <= delay < low + 0.1 for delay in delays) for low in (1.6 + step / 10 for step in range(8))]
        for step, count in enumerate(counts):
            print(f"  {1.6 + step / 10:.1f} s {count:3} {'#' * count}")
        assert deviation >= 0.8 * uniform
        assert min(delays) >= 1.6
    assert max(told) <= 2.4
    assert max(waited.values()) <= 2.4 + BURST_LATE_S
    assert len(set(told)) == 8


async def test_e2_a_count_that_makes_no_sense_is_none(vhost_url: str, broker: Broker) -> None:
    tries = Tries(fails)
    async with consuming(vhost_url, tries):
        for n, count in enumerate([99, -3, "7", True, None]):
            await broker.publish(
                SOURCE, {"n": n}, headers={"x-retry-count": count, "x-first-attempt-timestamp": 10**15}
            )
        dead = [letter(await broker.take(DEAD)) for _ in range(5)]
    assert {one["error_details"]["retry_count"] for one in dead} == {3}
    assert [len(tries.of(n)) for n in range(5)] == [1, 4, 4, 4, 4]


async def test_e2_a_handler_may_ask_for_its_own_delay(vhost_url: str, broker: Broker, eventually: Eventually) -> None:
    async def act(message: Message) -> None:
        if message.attempt == 1:
            raise RetryLater(after=0.7)

    tries = Tries(act)
    async with consuming(vhost_url, tries):
        await broker.publish(SOURCE, {"n": 0})
        await eventually(lambda: len(tries.at) == 2)
    assert 0.7 <= tries.at[1] - tries.at[0] <= 2.0


async def test_e3_the_queues_are_durable_and_dead_letters_persistent(
    vhost_url: str, broker: Broker, rabbitmq: Any
) -> None:
    async with consuming(vhost_url, fails):
        for name in (SOURCE, DEAD, *(f"{SOURCE}-retry-in-{ms}ms" for ms in (41, 51, 59, 82, 118, 165, 235))):
            await broker._queue(name)
        await broker.publish(SOURCE, {"n": 0}, delivery_mode=aio_pika.DeliveryMode.NOT_PERSISTENT)
        dead = await broker.take(DEAD)
    assert dead.delivery_mode == aio_pika.DeliveryMode.PERSISTENT
    quorum: dict[str, Any] = {"x-queue-type": "quorum"}
    await broker.channel.declare_queue(DEAD, durable=True)  # refused where it is another one
    way_back = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": SOURCE}
    safely = {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
    arguments = {**quorum, **way_back, **safely, "x-message-ttl": 51}
    await broker.channel.declare_queue(f"{SOURCE}-retry-in-51ms", durable=True, arguments=arguments)


async def test_e3_what_cannot_be_handed_over_is_not_acknowledged(
    rabbitmq: RabbitServer, vhost_url: str, broker: Broker, eventually: Eventually
) -> None:
    """Somebody deletes the queues: the message stays where it is until they are there again."""
    gate = asyncio.Event()

    async def act(message: Message) -> None:
        await gate.wait()
        raise ConnectionError if message.payload["n"] == 0 else ValueError

    async def both_are_there() -> bool:
        return (await rabbitmq.totals(urlsplit(vhost_url).path[1:])).get(DEAD) == 2

    tries = Tries(act)
    async with consuming(vhost_url, tries):
        await broker.publish(SOURCE, {"n": 0})
        await broker.publish(SOURCE, {"n": 1})
        await eventually(lambda: len(tries.at) == 2)
        await broker.channel.queue_delete(DEAD)
        await broker.channel.queue_delete(f"{SOURCE}-retry-in-51ms")
        gate.set()
        # RabbitMQ ends the connection of whoever asks for a message while it makes the queue.
        await until(both_are_there)
        numbers = {letter(await broker.take(DEAD))["original_message"]["n"] for _ in range(2)}
    assert numbers == {0, 1}
    assert len(tries.of(0)) == 4


async def test_e3_a_queue_that_does_not_fit_is_a_clear_error(vhost_url: str, broker: Broker) -> None:
    delay = f"{SOURCE}-retry-in-51ms"
    await broker.channel.declare_queue(delay, durable=True)
    with pytest.raises(TopologyError) as caught:
        await consumer(vhost_url, fails).run(asyncio.Event())
    text = str(caught.value)
    assert f"There is a queue '{delay}', but not as this consumer needs it: durable, with x-dead-letter" in text
    assert "Delete it once it is empty, or rename it" in text


async def test_e3_a_dead_letter_queue_that_is_not_durable_is_refused(vhost_url: str, broker: Broker) -> None:
    await broker.channel.declare_queue(DEAD, durable=False, auto_delete=True)
    with pytest.raises(TopologyError, match=f"There is a queue '{DEAD}', but it is not durable"):
        await consumer(vhost_url, fails).run(asyncio.Event())


async def test_e3_a_source_that_is_not_to_be_made_must_be_there(vhost_url: str, broker: Broker) -> None:
    with pytest.raises(TopologyError, match="There is no queue 'outbound-transformer' to consume"):
        await consumer(vhost_url, fails, declare=False).run(asyncio.Event())


async def test_e4_a_dead_letter_has_exactly_this_form(vhost_url: str, broker: Broker) -> None:
    times = iter([1_800_000_000.9, 1_800_000_003.2, 1_800_000_004.8])

    async def act(message: Message) -> None:
        raise ValueError("no such unit: 'dozen'")

    await broker.bind("shop", "order.#", SOURCE)
    message = {"tenantId": "north", "internal_id": 77, "lines": [1.10, "ü"]}
    async with consuming(vhost_url, act, service="outbound-transformer-eu", now=lambda: next(times, 1_800_000_009.0)):
        await broker.publish(
            "order.new", message, exchange="shop", message_id="m-7", correlation_id="c-7", headers={"a": 1}
        )
        dead = await broker.take(DEAD)
    read = letter(dead)
    assert read["error_details"].pop("stack_trace").endswith("ValueError: no such unit: 'dozen'\n")
    assert read == {
        "original_message": message,
        "error_details": {
            "error_type": "ValueError",
            "error_message": "no such unit: 'dozen'",
            "retry_count": 0,
            "first_attempt_timestamp": 1_800_000_000,
            "last_attempt_timestamp": 1_800_000_003,
        },
        "metadata": {
            "tenant_id": "north",
            "internal_id": 77,
            "dlq_timestamp": 1_800_000_004,
            "service": "outbound-transformer-eu",
            "service_version": "2.5.0",
        },
    }
    assert (dead.message_id, dead.correlation_id, dead.content_type) == ("m-7", "c-7", "application/json")
    assert dead.headers["a"] == 1
    assert (dead.headers["x-redrive-exchange"], dead.headers["x-redrive-routing-key"]) == ("shop", "order.new")


BODIES = [b"", b'{"n": 1', b"\xff\xfe\x00", b"[NaN]", b'"\\ud800"', b"\xef\xbb\xbf{}", b"<order/>"]


async def test_e5_what_is_not_json_is_a_dead_letter_that_keeps_every_byte(vhost_url: str, broker: Broker) -> None:
    tries = Tries()
    async with consuming(vhost_url, tries):
        for body in BODIES:
            await broker.publish(SOURCE, body)
        dead = [await broker.take(DEAD) for _ in BODIES]
    assert not tries.messages
    for message in dead:
        read = letter(message)
        assert read["original_message"].keys() == {"encoding", "data"}
        assert read["original_message"]["encoding"] == message.headers["x-redrive-original-encoding"] == "base64"
        assert read["error_details"]["error_type"] == "DecodeError"
        assert message.headers["x-redrive-category"] == "validation"
    assert sorted(base64.b64decode(letter(message)["original_message"]["data"]) for message in dead) == sorted(BODIES)


async def test_e5_a_consumer_of_bytes_gets_them_as_they_are(
    vhost_url: str, broker: Broker, eventually: Eventually
) -> None:
    seen: list[bytes] = []
    async with consuming(vhost_url, lambda message: seen.append(message.body), is_json=False):
        for body in BODIES:
            await broker.publish(SOURCE, body)
        await eventually(lambda: sorted(seen) == sorted(BODIES))
    assert await broker.depth(DEAD) == 0


@pytest.mark.parametrize("kind", ["quorum", "classic"])
async def test_e9_a_message_that_takes_its_consumer_with_it_dies_alone(
    vhost_url: str, broker: Broker, kind: str, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its neighbours, under way or waiting in the process beside it, succeed: at most one of the tries is in vain."""
    monkeypatch.setattr(consumers, "MAX_LOSSES", 4)
    await broker.channel.declare_queue(SOURCE, durable=True, arguments={"x-queue-type": kind})
    for n in range(60):
        await broker.publish(SOURCE, {"n": n}, message_id=str(n))
    poison, crash = 17, asyncio.Event()
    succeeded, under_way = set[int](), 0

    async def act(message: Message) -> None:
        nonlocal under_way
        n = message.payload["n"]
        if n == poison:
            assert under_way == 0 or not message.redelivered
            crash.set()
            await asyncio.Event().wait()
        under_way += 1
        try:
            await asyncio.sleep(0.05)
        finally:
            under_way -= 1
        succeeded.add(n)

    tries, crashes = Tries(act), 0
    while True:
        doomed = asyncio.create_task(consumer(vhost_url, tries).run(asyncio.Event()))
        await eventually(lambda: crash.is_set() or len(succeeded) == 59, within_s=60)
        if not crash.is_set():
            dead = letter(await broker.take(DEAD))
            break
        crashes += 1
        crash.clear()
        doomed.cancel()  # without a word to the broker, as when the process is killed
        await asyncio.gather(doomed, return_exceptions=True)
    assert (crashes, len(tries.of(poison))) == (4, 4)
    assert succeeded == set(range(60)) - {poison}
    assert max(len(tries.of(n)) for n in succeeded) <= 2
    assert dead["original_message"] == {"n": poison}
    details = dead["error_details"]
    said = "It was given out 4 times, and each time its consumer was gone before it answered."
    assert (details["error_type"], details["error_message"]) == ("ConsumerLost", said)
    assert said in details["stack_trace"]  # E-7
    assert await broker.depth(DEAD) == 0
    doomed.cancel()
    await asyncio.gather(doomed, return_exceptions=True)


@pytest.mark.parametrize("kind", ["quorum", "classic"])
async def test_e9_what_was_lost_once_is_tried_again_alone_and_keeps_its_way(
    vhost_url: str, broker: Broker, kind: str, eventually: Eventually
) -> None:
    """Its headers, where it was published to, and the count of its retries."""
    await broker.bind("shop", "order.#", SOURCE, **{"x-queue-type": kind})
    lost = asyncio.Event()

    async def act(message: Message) -> None:
        if not lost.is_set():
            lost.set()
            await asyncio.Event().wait()
        if message.attempt == 1:
            raise ConnectionError("no answer")

    tries = Tries(act)
    await broker.publish("order.new", {"n": 0}, exchange="shop", message_id="m", headers={"tenant": "north"})
    doomed = asyncio.create_task(consumer(vhost_url, tries).run(asyncio.Event()))
    await eventually(lost.is_set, within_s=60)
    doomed.cancel()
    await asyncio.gather(doomed, return_exceptions=True)
    async with consuming(vhost_url, tries):
        await eventually(lambda: len(tries.messages) == 3, within_s=60)
    assert [(message.attempt, message.redelivered) for message in tries.messages] == [(1, False), (1, True), (2, False)]
    for message in tries.messages:
        assert (message.exchange, message.routing_key, message.message_id) == ("shop", "order.new", "m")
        assert message.headers["tenant"] == "north"


async def test_e9_a_suspect_that_cannot_be_handed_over_does_not_hold_up_the_others(
    vhost_url: str, broker: Broker, eventually: Eventually
) -> None:
    """The dead-letter queue is full: a suspect that died waits, and others behind it; the rest goes on."""
    full: dict[str, Any] = {"x-max-length": 1, "x-overflow": "reject-publish"}
    await broker.channel.declare_queue(DEAD, durable=True, arguments=full)
    await broker.publish(DEAD, {"n": "filler"})
    lost = asyncio.Event()

    async def act(message: Message) -> None:
        n = message.payload["n"]
        if n == 0 and not lost.is_set():
            lost.set()
            await asyncio.Event().wait()
        if n < 3:
            raise ValueError("no such unit")

    tries = Tries(act)
    await broker.channel.declare_queue(SOURCE, durable=True)
    await broker.publish(SOURCE, {"n": 0})
    doomed = asyncio.create_task(consumer(vhost_url, tries).run(asyncio.Event()))
    await eventually(lost.is_set, within_s=60)
    doomed.cancel()
    await asyncio.gather(doomed, return_exceptions=True)
    for n in range(1, 6):
        await broker.publish(SOURCE if n > 1 else f"{SOURCE}-suspects", {"n": n})
    async with consuming(vhost_url, tries):
        await eventually(lambda: all(tries.of(n) for n in range(2, 6)), within_s=60)
        dead = set[Any]()
        while len(dead) < 4:
            message = await broker.take(DEAD, within_s=60)
            dead.add(json.loads(message.body).get("original_message", {"n": "filler"})["n"])
    assert dead == {"filler", 0, 1, 2}


async def test_e5_a_stop_finishes_what_has_come_already(vhost_url: str, broker: Broker, eventually: Eventually) -> None:
    """What goes back is given out again as a suspect, one message at a time: a stop should leave few."""

    async def act(message: Message) -> None:
        await asyncio.sleep(0.05)

    tries, stop = Tries(act), asyncio.Event()
    await broker.channel.declare_queue(SOURCE, durable=True)
    for n in range(40):
        await broker.publish(SOURCE, {"n": n})
    running = asyncio.create_task(consumer(vhost_url, tries, concurrency=2, prefetch=10).run(stop))
    await eventually(lambda: len(tries.at) >= 3)
    stop.set()
    await asyncio.wait_for(running, 15)
    begun = len(tries.at)
    assert await broker.depth(SOURCE) == 40 - begun
    assert await broker.depth(f"{SOURCE}-suspects") == 0
    async with consuming(vhost_url, tries):
        await eventually(lambda: len(tries.at) == 40)
    assert not any(message.redelivered for message in tries.messages)


async def test_e5_a_stop_lets_what_has_begun_end_and_gives_the_rest_back(
    vhost_url: str, broker: Broker, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()

    async def act(message: Message) -> None:
        await gate.wait()

    monkeypatch.setattr(consumers, "BEGIN_S", 0.1)
    tries, stop = Tries(act), asyncio.Event()
    consumes = consumer(vhost_url, tries, concurrency=2)
    running = asyncio.create_task(consumes.run(stop))
    await eventually(lambda: consumes.is_consuming)
    for n in range(10):
        await broker.publish(SOURCE, {"n": n})
    await eventually(lambda: len(tries.at) == 2 and consumes._inbox.qsize() == 8)
    stop.set()
    await eventually(lambda: consumes._inbox.empty())  # what has not begun in time
    gate.set()
    await asyncio.wait_for(running, 15)
    assert len(tries.at) == 2
    assert await broker.depth(SOURCE) == 8


async def test_properties_that_the_library_cannot_read_do_not_end_the_consumer(
    vhost_url: str, broker: Broker, eventually: Eventually
) -> None:
    """A time beyond the year 9999, a float with all its digits, bytes, decimals: all come back as they were."""
    headers: dict[str, Any] = {
        "f": 0.1,
        "d": Decimal("1.25"),
        "t": datetime(2031, 5, 4, tzinfo=UTC),
        "l": [1, "a", {"b": None}],
    }
    tries = Tries(fails)
    async with consuming(vhost_url, tries):
        await publish(vhost_url, {"n": 0}, Properties(message_id="ordinary", headers=dict(headers)))
        far: Any = FarTime(2**62)
        await publish(vhost_url, {"n": 1}, Properties(message_id="\udcff\udcfe", timestamp=far, headers={"far": far}))
        await eventually(lambda: len(tries.messages) == 8)
        async with linked(vhost_url) as connection:
            dead = {message.header.properties.message_id: message for message in await _two_dead(connection)}
    kept = dead["ordinary"].header.properties.headers or {}
    assert {name: kept[name] for name in headers} == headers
    assert dead["\udcff\udcfe"].header.properties.timestamp == 2**62
    odd = [message for message in tries.messages if message.message_id != "ordinary"]
    assert len(odd) == 4
    assert {message.message_id for message in odd} == {"\udcff\udcfe"}
    assert {message.headers["far"] for message in odd} == {2**62}


async def publish(url: str, body: Any, properties: Properties) -> None:
    """As a client in another language might."""
    async with linked(url) as connection:
        channel = await connection.channel()
        await channel.basic_publish(json.dumps(body).encode(), routing_key=SOURCE, properties=properties)


async def _two_dead(connection: AbstractConnection) -> list[DeliveredMessage]:
    channel = await connection.channel()
    found: list[DeliveredMessage] = []
    async with asyncio.timeout(10):
        while len(found) < 2:
            message = await channel.basic_get(DEAD, no_ack=True)
            found += [message] if message.header.properties.message_id else []
    return found
