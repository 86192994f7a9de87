"""A virtual host of RabbitMQ as its other users see it, and consumers of Redrive in it.

async with connected(vhost_url) as broker, consuming(vhost_url, handler, policy=QUICK):
    await broker.publish("orders", {"n": 1})
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage
from aiormq.exceptions import ChannelNotFoundEntity

from redrive.core.broker import ConsumerSpec
from redrive.core.outcome import Category
from redrive.core.policy import Policy, PolicyKind
from redrive.sources.consumer import Consumer
from support.processes import until

SOURCE = "outbound-transformer"
DEAD = f"{SOURCE}-dlq"
# As `transformer`, but forty times as fast.
QUICK = Policy(
    PolicyKind.EXPONENTIAL, base_s=0.05, factor=2.0, cap_s=3.0, jitter=0.2, fail=frozenset({Category.UNKNOWN})
)


@dataclass(frozen=True, slots=True)
class Broker:
    url: str
    connection: aio_pika.abc.AbstractConnection
    channel: AbstractChannel

    async def bind(self, exchange: str, key: str, queue: str = "inbox", **arguments: Any) -> None:
        made = await self.channel.declare_exchange(exchange, "topic", durable=True)
        await (await self.channel.declare_queue(queue, durable=True, arguments=arguments)).bind(made, key)

    async def publish(self, key: str, body: Any, *, exchange: str = "", **properties: Any) -> None:
        """To a queue, or to an exchange; anything but bytes as JSON."""
        target = await self.channel.get_exchange(exchange) if exchange else self.channel.default_exchange
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        await target.publish(aio_pika.Message(raw, **properties), key)

    async def taken(self, queue: str = "inbox") -> list[AbstractIncomingMessage]:
        """All that lie in a queue, taken out of it."""
        source = await self.channel.get_queue(queue)
        messages: list[AbstractIncomingMessage] = []
        while (message := await source.get(no_ack=True, fail=False)) is not None:
            messages.append(message)
        return messages

    async def take(self, queue: str, *, within_s: float = 10.0) -> AbstractIncomingMessage:
        """The next one, which may still be on its way."""
        async with asyncio.timeout(within_s):
            source = await self._queue(queue)
            while (message := await source.get(no_ack=True, fail=False)) is None:
                await asyncio.sleep(0.02)
            return message

    async def _queue(self, name: str) -> aio_pika.abc.AbstractQueue:
        """When it is there."""
        while True:
            channel = await self.connection.channel()
            try:
                await channel.get_queue(name)
            except ChannelNotFoundEntity:
                await asyncio.sleep(0.02)
            else:
                return await self.channel.get_queue(name)
            finally:
                await channel.close()

    async def depth(self, queue: str) -> int:
        """How many messages are ready in it."""
        return (await self._look(queue)).message_count or 0

    async def consumers(self, queue: str) -> int:
        return (await self._look(queue)).consumer_count or 0

    async def _look(self, queue: str) -> Any:
        channel = await self.connection.channel()
        try:
            return (await channel.declare_queue(queue, passive=True)).declaration_result
        finally:
            await channel.close()


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Broker]:
    async with await aio_pika.connect(url) as connection:
        yield Broker(url, connection, await connection.channel())


def consumer(
    url: str,
    handler: Callable[[Any], Any],
    *,
    policy: Policy = QUICK,
    queue: str = SOURCE,
    service: str | None = None,
    concurrency: int = 10,
    prefetch: int = 20,
    is_json: bool = True,
    declare: bool = True,
    dead_letter_queue: str | None = None,
    queue_type: str | None = None,
    now: Callable[[], float] = time.time,
    dice: Callable[[], float] = lambda: 0.5,
) -> Consumer:
    spec = ConsumerSpec(
        queue,
        handler,
        policy,
        service or queue,
        concurrency,
        prefetch,
        is_json=is_json,
        declare=declare,
        dead_letter_queue=dead_letter_queue,
        queue_type=queue_type,
    )
    return Consumer(spec, policy, [url], service_version="2.5.0", dice=dice, now=now)


@asynccontextmanager
async def consuming(
    url: str, handler: Callable[[Any], Any], *, at_once: bool = False, **terms: Any
) -> AsyncIterator[asyncio.Event]:
    """A consumer that consumes; gives what stops it. It has ended when this is over.

    Its queues are there: RabbitMQ shows one to others while it is being made, and refuses or hangs up on whoever uses
    it then. `at_once`: it has only begun.
    """
    stop = asyncio.Event()
    made = consumer(url, handler, **terms)
    running = asyncio.create_task(made.run(stop))
    try:
        await until(lambda: at_once or made.is_consuming or running.done(), within_s=15)
        yield stop
    finally:
        stop.set()
        async with asyncio.timeout(15):
            await running
