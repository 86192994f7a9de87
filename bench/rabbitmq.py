"""Consumers of RabbitMQ: `python -m bench.rabbitmq [--small] [--rounds N]`.

How many messages a consumer process gets through per second, of a queue that is already filled: Redrive's
`@app.consume`, the same handler by aio-pika alone, Celery and Dramatiq, in turn on one broker. The handler does
nothing; or it fails at the first try of one message in ten, and each system tries again in its own way, as soon as it
can. Run by itself; writes bench/results/rabbitmq.json and its part of docs/benchmarks.md, unless small.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json

import aio_pika
from aio_pika.abc import AbstractChannel
from aiormq.exceptions import ChannelNotFoundEntity

from bench.alone import Measured, by_itself
from bench.broker import rabbitmq, require_rabbitmq
from bench.model import NotRun, Run
from bench.peers.base import python_venv
from bench.peers.consumers import CONSUMERS, JOBS, Consumer, Kind
from bench.peers.workers.tally import DONE, message
from bench.postgres import BenchPostgres
from bench.processes import Child, ProcessError, children, command

SCENARIO = "rabbitmq"
ROUNDS = 3
TIMEOUT_S = 120.0
STOP_GRACE_S = 20.0
FILL_TIMEOUT_S = 120.0
SETTLE_S = 0.5  # for the last acknowledgements, which nobody can see from outside; not timed
CONFIRMED_TOGETHER = 500
PREFETCH = 100


async def consume(broker: str, system: Consumer, kind: Kind, queue: str, messages: int, *, flaky: bool) -> Run:
    """From the first message that its handler gets to the last that succeeds."""
    env = {
        "BENCH_BROKER": broker,
        "REDRIVE_RABBITMQ_URL": broker,
        "BENCH_QUEUE": queue,
        "BENCH_KIND": kind,
        "BENCH_MESSAGES": str(messages),
        "BENCH_FLAKY": str(int(flaky)),
        **system.env,
    }
    if system.enqueue:
        await command(system.enqueue, env=env, timeout_s=FILL_TIMEOUT_S)
    else:
        await _fill(broker, queue, kind, messages)
    async with children(STOP_GRACE_S) as started:
        started.append(await Child.start(system.name, system.work, env=env, ready=DONE, ready_timeout_s=TIMEOUT_S))
        facts = json.loads(started[0].ready_line.removeprefix(DONE))
        await asyncio.sleep(SETTLE_S)
    if facts["failed"] != (messages // 10 if flaky else 0):
        raise ProcessError(f"{system.name} failed {facts['failed']} of {messages} messages")
    left = await _left_in(broker, queue)
    if left > PREFETCH:
        raise ProcessError(f"{system.name} has left {left} messages in its queues")
    return Run.timed(system.name, messages, facts["seconds"], {"repeated": facts["repeated"], "left": left})


async def _fill(broker: str, queue: str, kind: Kind, messages: int) -> None:
    async with asyncio.timeout(FILL_TIMEOUT_S), await aio_pika.connect(broker) as connection:
        channel = await connection.channel()
        await channel.declare_queue(queue, durable=True, arguments={"x-queue-type": kind})
        for start in range(0, messages, CONFIRMED_TOGETHER):
            numbers = range(start, min(start + CONFIRMED_TOGETHER, messages))
            await asyncio.gather(*(_publish(channel, queue, number) for number in numbers))


async def _publish(channel: AbstractChannel, queue: str, number: int) -> None:
    body = json.dumps(message(number)).encode()
    persistent = aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT, message_id=str(number))
    await channel.default_exchange.publish(persistent, routing_key=queue)


async def _left_in(broker: str, queue: str) -> int:
    """What a consumer that has ended did not acknowledge is in the queue again; what it gave up is in another."""
    left = 0
    async with await aio_pika.connect(broker) as connection:
        for name in (queue, f"{queue}-dlq", f"{queue}.DQ", f"{queue}.XQ"):
            channel = await connection.channel()
            try:
                found = await channel.declare_queue(name, passive=True)
            except ChannelNotFoundEntity:
                continue
            left += found.declaration_result.message_count or 0
    return left


async def measure(_: BenchPostgres, small: bool, found: Measured) -> None:
    systems = [system for system in CONSUMERS if await _is_ready(system, found)]
    if not systems:
        return
    places = [(system, kind) for system in systems for kind in system.kinds]
    async with rabbitmq() as broker:
        for (variant, flaky), (system, kind) in itertools.product(JOBS.items(), places):
            messages = system.messages // 10 if small else system.messages
            queue = f"{system.name}-{kind}-{'flaky' if flaky else 'plain'}"  # the broker is a new one in each round
            work = consume(broker, system, kind, queue, messages, flaky=flaky)
            await found.attempt(variant, work, system.labelled(kind))
    for variant, system in itertools.product(JOBS, systems):
        found.compare(variant, variant, ("per_s",), against=system.labelled(system.kinds[0]))


async def _is_ready(system: Consumer, found: Measured) -> bool:
    try:
        require_rabbitmq()
        if system.pins:
            await python_venv(system.venv, system.pins)
    except NotRun as why:
        for variant, kind in itertools.product(JOBS, system.kinds):
            found.refuse(variant, str(why), system.labelled(kind))
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    by_itself(SCENARIO, parser, measure, rounds=ROUNDS)


if __name__ == "__main__":
    main()
