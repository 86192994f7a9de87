"""Connections to RabbitMQ that end or fall silent: others take their place, and nobody waits for ever."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from redrive import Message
from redrive.broker import link, topology
from redrive.core.broker import ConsumerSpec
from support.broker import QUICK, connected, consuming
from support.proxy import Proxy, tcp_proxy
from support.rabbitmq import RabbitServer, linked

pytestmark = pytest.mark.faults

IDS = {"a", "b"}
FEW_QUEUES = replace(QUICK, jitter=0.0, max_retries=1)
ANSWERS = 22  # of the broker, from its first word to the first message that it gives out
SOON_STUCK = "?heartbeat=1"  # who is silent for six seconds is gone


def spec_of(queue: str) -> ConsumerSpec:
    return ConsumerSpec(queue, lambda _: None, FEW_QUEUES, queue, 1, 1)


@asynccontextmanager
async def silent_behind(
    answers: int, rabbitmq: RabbitServer, vhost_url: str, queue: str
) -> AsyncIterator[tuple[Proxy, str]]:
    """A queue with messages, and the URL of a wire to it on which one connection falls silent."""
    async with linked(vhost_url) as connection:
        await topology.assert_consumer(connection, spec_of(queue), [])
    async with connected(vhost_url) as broker:
        for id in IDS:
            await broker.publish(queue, {}, message_id=id)
    async with tcp_proxy("127.0.0.1", rabbitmq.port.number) as (proxy, port):
        proxy.fall_silent_behind(answers)
        yield proxy, vhost_url.replace(str(rabbitmq.port.number), str(port))


async def test_a_consumer_whose_broker_falls_silent_at_any_moment_of_the_beginning_goes_on_with_another_connection(
    rabbitmq: RabbitServer, vhost_url: str
) -> None:
    async def consume_past(answers: int) -> None:
        succeeded = set[str]()

        async def handle(message: Message) -> None:
            if message.attempt == 1:
                raise ConnectionError("no answer")
            succeeded.add(str(message.message_id))

        queue = f"orders-{answers}"
        async with (
            silent_behind(answers, rabbitmq, vhost_url, queue) as (_, through),
            consuming(through + SOON_STUCK, handle, policy=FEW_QUEUES, queue=queue, at_once=True),
            asyncio.timeout(30),
        ):
            while succeeded != IDS:
                await asyncio.sleep(0.02)

    with capture_logs() as lines:
        await asyncio.gather(*(consume_past(answers) for answers in range(1, ANSWERS + 1)))
    assert "consumer_failed" not in {line["event"] for line in lines}


async def test_a_consumer_that_is_told_to_stop_ends_in_time_though_its_broker_hangs(
    rabbitmq: RabbitServer, vhost_url: str
) -> None:
    async def stop_past(answers: int) -> float:
        async def handle(message: Message) -> None:
            raise ConnectionError("no answer")

        queue = f"orders-{answers}"
        async with silent_behind(answers, rabbitmq, vhost_url, queue) as (proxy, through):
            async with consuming(through, handle, policy=FEW_QUEUES, queue=queue, at_once=True):
                await proxy.is_silent.wait()
                proxy.go_silent()  # also for who tries again
                began = time.monotonic()
            return time.monotonic() - began

    took = await asyncio.gather(*(stop_past(answers) for answers in range(1, ANSWERS + 1)))
    assert max(took) < 10


async def test_whoever_waits_for_a_connection_that_ends_is_told_so_and_not_cancelled(
    rabbitmq: RabbitServer, vhost_url: str
) -> None:
    async def close_for(reason: type[BaseException] | None) -> None:
        async with tcp_proxy("127.0.0.1", rabbitmq.port.number) as (proxy, port):
            connection = await link.connect([vhost_url.replace(str(rabbitmq.port.number), str(port))], name="tests")
            channel = await connection.channel()
            proxy.go_silent()
            waiting = [
                asyncio.ensure_future(connection.channel()),
                asyncio.ensure_future(channel.queue_declare("orders")),
                asyncio.ensure_future(channel.basic_publish(b"{}", routing_key="orders")),
            ]
            await asyncio.sleep(0)
            await connection.close(reason)
            ended = await asyncio.gather(*waiting, return_exceptions=True)
            assert all(isinstance(problem, link.LOST) for problem in ended), ended

    # The first is how the library ends one that the broker hung up, the other how it ends one that fell silent.
    await asyncio.gather(close_for(None), close_for(asyncio.CancelledError))
