"""The queues that a consumer needs, asserted when it starts: its source, delay queues and the dead-letter queue.

The source and the dead-letter queue are shared with other services: used as they are, and made as
`assertQueue(name, {durable: true})` makes them. Delay queues are ours alone. They have no consumers: what expires in
one goes back to the source, by the broker itself.
"""

from collections.abc import Iterable, Mapping

from aiormq.abc import AbstractConnection
from aiormq.exceptions import ChannelAccessRefused, ChannelNotFoundEntity, ChannelPreconditionFailed

from redrive.broker.link import said, scratch
from redrive.core.broker import ConsumerSpec
from redrive.core.delay_queues import DelayQueue

Arguments = Mapping[str, str | int]

QUORUM: Arguments = {"x-queue-type": "quorum"}
# At least once: a message leaves its queue when the next one has it. Only queues that refuse instead of dropping can.
_SAFELY: Arguments = {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
# As RabbitMQ names them where a queue that is there outlives less than one that is asked for.
_LIFETIME = ("'durable'", "'auto_delete'", "'exclusive'")


class TopologyError(Exception):
    """A queue is not there, or not as it must be. The message says which, and what to do."""


def delay_arguments(source: str, ttl_ms: int | None = None) -> Arguments:
    way_back: Arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": source}
    return {**QUORUM, **_SAFELY, **way_back, **({} if ttl_ms is None else {"x-message-ttl": ttl_ms})}


async def assert_consumer(
    connection: AbstractConnection, spec: ConsumerSpec, delay_queues: Iterable[DelayQueue]
) -> None:
    await assert_dead_queue(connection, spec)
    if not await exists(connection, spec.queue):
        if not spec.declare:
            raise TopologyError(
                f"There is no queue {spec.queue!r} to consume, and the consumer was told not to make it."
            )
        await _assert_shared(connection, spec.queue, spec.queue_type)
    for queue in (suspects(spec), *delay_queues):
        await assert_delay_queue(connection, spec.queue, queue)


def suspects(spec: ConsumerSpec) -> DelayQueue:
    """Where what is out of its delivery limit, which RabbitMQ 4 has by default, goes back to the source, too."""
    return DelayQueue(spec.suspects_queue, None)


async def assert_delay_queue(connection: AbstractConnection, source: str, queue: DelayQueue) -> None:
    arguments = delay_arguments(source, queue.ttl_ms)
    try:
        await _declare(connection, queue.name, arguments)
    except ChannelPreconditionFailed as problem:
        wanted = ", ".join(f"{name}={value!r}" for name, value in sorted(arguments.items()))
        raise TopologyError(
            f"There is a queue {queue.name!r}, but not as this consumer needs it: durable, with {wanted}. "
            f"RabbitMQ says: {said(problem)}. Delete it once it is empty, or rename it, and start the consumer again."
        ) from problem


async def assert_dead_queue(connection: AbstractConnection, spec: ConsumerSpec) -> None:
    await _assert_shared(connection, spec.dead_queue, spec.queue_type)


async def _assert_shared(connection: AbstractConnection, queue: str, queue_type: str | None) -> None:
    """Make it where it does not exist; use it as it is where it does, unless it may vanish with what is in it."""
    try:
        await _declare(connection, queue, {} if queue_type is None else {"x-queue-type": queue_type})
    except ChannelPreconditionFailed as problem:
        if any(name in said(problem) for name in _LIFETIME):
            raise TopologyError(
                f"There is a queue {queue!r}, but it is not durable, so messages in it could be lost. RabbitMQ says: "
                f"{said(problem)}. Delete it once it is empty, or name another one, and start the consumer again."
            ) from problem


async def waiting(connection: AbstractConnection, queue: str) -> int:
    """How many messages are ready in it."""
    async with scratch(connection) as channel:
        return (await channel.queue_declare(queue, passive=True)).message_count or 0


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
    except ChannelAccessRefused as problem:
        if await exists(connection, queue):
            return  # somebody else made it, and answers for it: who may not make a queue is not told how it is made
        raise TopologyError(
            f"This user of RabbitMQ may not make the queue {queue!r}: {said(problem)}. Allow it, or make the queue "
            "yourself (docs/rabbitmq.md names the arguments)."
        ) from problem
