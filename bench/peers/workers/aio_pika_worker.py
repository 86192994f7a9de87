"""A consumer as one writes it with aio-pika alone: JSON read, the handler called, the message acknowledged.

What fails is given back to the queue, and comes again at once: no delay, no count, no dead letters. The floor that
everything else is measured from. Broker and queue, which exists, from BENCH_BROKER, BENCH_QUEUE.
"""

import asyncio
import json
import os
import signal

import aio_pika
import uvloop
from aio_pika.abc import AbstractIncomingMessage
from tally import NotYet, Tally

PREFETCH = 100


async def main() -> None:
    tally, stop = Tally(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)

    async def handle(message: AbstractIncomingMessage) -> None:
        payload = json.loads(message.body)
        try:
            tally.handle(payload["number"])
        except NotYet:
            await message.nack(requeue=True)
        else:
            await message.ack()

    connection = await aio_pika.connect(os.environ["BENCH_BROKER"])
    channel = await connection.channel(publisher_confirms=False)
    await channel.set_qos(prefetch_count=PREFETCH)
    queue = await channel.get_queue(os.environ["BENCH_QUEUE"])
    await queue.consume(handle)
    await stop.wait()
    await connection.close()


if __name__ == "__main__":
    uvloop.run(main())
