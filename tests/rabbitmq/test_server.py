"""The broker of the tests itself: what it keeps, and that nothing of it stays."""

import asyncio
import sys
from pathlib import Path

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractQueue
from pamqp.common import FieldTable

from conftest import Eventually
from support.rabbitmq import RabbitServer, is_running

QUORUM: FieldTable = {"x-queue-type": "quorum"}
GET_WITHIN_S = 30
KILLED = """
import asyncio, sys
from pathlib import Path
from support.rabbitmq import RabbitServer

async def main():
    server = await RabbitServer.start(Path(sys.argv[1]))
    print(*server.processes(), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def quorum_queue(channel: AbstractChannel, name: str = "orders") -> AbstractQueue:
    return await channel.declare_queue(name, durable=True, arguments=QUORUM)


async def publish(channel: AbstractChannel, body: bytes, queue: str = "orders") -> None:
    message = aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
    await channel.default_exchange.publish(message, routing_key=queue)


async def take(queue: AbstractQueue) -> bytes:
    """The first message, once there is one: after an election it takes a moment."""
    async with asyncio.timeout(GET_WITHIN_S):
        while (message := await queue.get(fail=False)) is None:
            await asyncio.sleep(0.05)
    await message.ack()
    return message.body


async def test_a_confirmed_message_outlives_the_kill_of_its_server(rabbitmq: RabbitServer, vhost_url: str) -> None:
    connection = await aio_pika.connect(vhost_url)
    channel = await connection.channel()
    await quorum_queue(channel)
    await publish(channel, b"kept")

    await rabbitmq.kill()
    with pytest.raises(ConnectionError):
        await aio_pika.connect(vhost_url)
    await rabbitmq.restart()

    async with await aio_pika.connect(vhost_url) as again:
        assert await take(await quorum_queue(await again.channel())) == b"kept"


async def test_tests_do_not_see_each_others_queues(rabbitmq: RabbitServer, vhost_url: str) -> None:
    other = await rabbitmq.make_vhost()
    async with await aio_pika.connect(vhost_url) as mine, await aio_pika.connect(rabbitmq.url_of(other)) as theirs:
        channel = await mine.channel()
        await quorum_queue(channel)
        await publish(channel, b"mine")
        assert await (await quorum_queue(await theirs.channel())).get(fail=False) is None
    await rabbitmq.delete_vhost(other)
    assert other not in await rabbitmq.ask("rabbit_vhost:list_names()")


async def test_a_server_dies_with_the_process_that_started_it(data_dir: Path, eventually: Eventually) -> None:
    owner = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        KILLED,
        str(data_dir / "rabbitmq"),
        stdout=asyncio.subprocess.PIPE,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert owner.stdout is not None
    left = [int(pid) for pid in (await owner.stdout.readline()).split()]
    assert len(left) > 2
    owner.kill()
    await owner.wait()
    await eventually(lambda: not any(is_running(pid) for pid in left))
