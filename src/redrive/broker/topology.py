"""The queues that a consumer needs, asserted when it starts: its source, delay queues and the dead-letter queue.

Delay queues have no consumers: what expires in one goes back to the source, by the broker itself.
"""

from collections.abc import Mapping, Sequence

from aiormq.abc import AbstractConnection
from aiormq.exceptions import ChannelAccessRefused, ChannelNotFoundEntity, ChannelPreconditionFailed

from redrive.broker.link import said, scratch
from redrive.core.broker import DEAD_SUFFIX

Arguments = Mapping[str, str]

QUORUM: Arguments = {"x-queue-type": "quorum"}
CLASSIC: Arguments = {}
# At least once: a message leaves its queue when the next one has it. Only queues that refuse instead of dropping can.
_SAFELY: Arguments = {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}


class TopologyError(Exception):
    """A queue is not there, or not as it must be. The message says which, and what to do."""


def dead_queue(source: str) -> str:
    return source + DEAD_SUFFIX


def delay_arguments(source: str) -> Arguments:
    return {**QUORUM, **_SAFELY, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": source}


async def assert_consumer(
    connection: AbstractConnection, source: str, delay_queues: Sequence[str], *, declare_source: bool
) -> bool:
    """Whether what is rejected goes to the dead-letter queue by the broker itself."""
    await assert_dead_queue(connection, dead_queue(source))
    # What the broker itself puts out (too many deliveries, too old, too many) is a dead letter too.
    arguments = delay_arguments(dead_queue(source))
    is_there = await exists(connection, source)
    if not is_there:
        if not declare_source:
            raise TopologyError(f"There is no queue {source!r} to consume, and the consumer was told not to make it.")
        await _declare(connection, source, arguments)
    for queue in delay_queues:
        await assert_delay_queue(connection, source, queue)
    return not is_there or await _fits(connection, source, arguments)


async def assert_delay_queue(connection: AbstractConnection, source: str, queue: str) -> None:
    await _declare(connection, queue, delay_arguments(source))


async def assert_dead_queue(connection: AbstractConnection, queue: str) -> None:
    """A quorum queue, unless there is a durable classic one already."""
    try:
        await _declare(connection, queue, QUORUM)
    except TopologyError:
        if not await _fits(connection, queue, CLASSIC):
            raise


async def exists(connection: AbstractConnection, queue: str) -> bool:
    try:
        async with scratch(connection) as channel:
            await channel.queue_declare(queue, passive=True)
    except ChannelNotFoundEntity:
        return False
    return True


async def _declare(connection: AbstractConnection, queue: str, arguments: Arguments) -> None:
    try:
        async with scratch(connection) as channel:
            await channel.queue_declare(queue, durable=True, arguments=dict(arguments))
    except ChannelPreconditionFailed as problem:
        wanted = ", ".join(f"{name}={value!r}" for name, value in sorted(arguments.items()))
        raise TopologyError(
            f"There is a queue {queue!r}, but not as this consumer needs it: durable, with {wanted}. RabbitMQ says: "
            f"{said(problem)}. Delete it once it is empty, or rename it, and start the consumer again."
        ) from problem
    except ChannelAccessRefused as problem:
        if await exists(connection, queue):
            return  # somebody else made it, and answers for it: who may not make a queue is not told how it is made
        raise TopologyError(
            f"This user of RabbitMQ may not make the queue {queue!r}: {said(problem)}. Allow it, or make the queue "
            "yourself (docs/rabbitmq.md names the arguments)."
        ) from problem


async def _fits(connection: AbstractConnection, queue: str, arguments: Arguments) -> bool:
    """Whether it is known to be so."""
    try:
        async with scratch(connection) as channel:
            await channel.queue_declare(queue, durable=True, arguments=dict(arguments))
    except (ChannelPreconditionFailed, ChannelAccessRefused):
        return False
    return True
