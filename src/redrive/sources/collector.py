"""Empties dead-letter queues of RabbitMQ into the dead letters: many by one commit, and only then acknowledged.

Whatever is in a queue is stored; a message that was stored and is given out again, since its acknowledgement was lost,
is known by its id. What cannot be stored stays in the broker. Run by workers (app.run_worker).
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import structlog
from aiormq.abc import AbstractChannel, AbstractConnection, DeliveredMessage
from aiormq.exceptions import ChannelNotFoundEntity

from redrive.broker.link import LOST, Patience, close, said, scratch
from redrive.core.broker import DEAD_SUFFIX, DeadMessage, DeadMessageBook, QueueState
from redrive.core.broker_route import is_short
from redrive.core.jobs import JobRecord
from redrive.ending import end
from redrive.sources.reading import read_dead_message
from redrive.sources.staying import first_of, stay_connected, watch

PREFETCH = 500
BATCH = 200
BATCH_BYTES = 16 * 1024 * 1024
GATHER_S = 0.02  # for messages that come together to be stored together
ACKNOWLEDGE_TIMEOUT_S = 10.0
NOTE_EVERY_S = 10.0
LOOK_AGAIN_S = 5.0  # for a queue that does not exist
DRAIN_S = 5.0
MAX_ORIGINS = 100  # queues that messages died in, looked at for how they do

UNKNOWN_SIZE: tuple[int | None, int | None] = (None, None)

log = structlog.get_logger("redrive.collector")


@dataclass(slots=True)
class _Count:
    collected: int = 0
    duplicates: int = 0
    problem: str | None = "It is not connected yet."


@dataclass(slots=True)
class _Subscription:
    """A queue on a channel of its own: batches are acknowledged up to their last message."""

    queue: str
    channel: AbstractChannel
    inbox: "asyncio.Queue[DeliveredMessage]" = field(default_factory=asyncio.Queue)
    storing: asyncio.Lock = field(default_factory=asyncio.Lock)
    refused: int = 0  # never acknowledged: the broker keeps them


class Collector:
    """`refusals` are what the book raises where it cannot take a message, however often it is asked."""

    def __init__(
        self,
        urls: Sequence[str],
        queues: Sequence[str],
        book: DeadMessageBook,
        *,
        refusals: tuple[type[Exception], ...],
        note_every_s: float = NOTE_EVERY_S,
        job: JobRecord | None = None,
    ) -> None:
        self._urls = urls
        self._queues = queues
        self._book = book
        self._refusals = refusals
        self._note_every_s = note_every_s
        self._job = job
        self._connection: AbstractConnection | None = None
        self._counts = {queue: _Count() for queue in queues}
        self._origins: dict[str, None] = {
            name: None for queue in queues if (name := queue.removesuffix(DEAD_SUFFIX)) != queue
        }

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`; a broker or a database that is gone is waited for."""
        noting = asyncio.create_task(self._keep_noting())
        try:
            await stay_connected(self._urls, "redrive collector", stop, partial(self._session, stop), log)
        finally:
            await end(noting)

    async def _session(self, stop: asyncio.Event, connection: AbstractConnection, began: Callable[[], None]) -> str:
        began()
        self._connection = connection
        collecting = [asyncio.create_task(self._collect(stop, connection, queue)) for queue in self._queues]
        try:
            await first_of([asyncio.ensure_future(stop.wait()), connection.closing])
            return "the connection was lost"
        finally:
            self._connection = None
            await end(*collecting, again_s=2 * DRAIN_S)  # they may be draining
            for count in self._counts.values():
                count.problem = "RabbitMQ is not connected."

    async def _collect(self, stop: asyncio.Event, connection: AbstractConnection, queue: str) -> None:
        """One queue, again and again: one that is deleted or does not exist yet takes no other with it."""
        while not connection.is_closed:
            try:
                problem = await self._subscribe(stop, connection, queue)
            except ChannelNotFoundEntity:
                problem = "There is no such queue."
            except LOST as lost:
                problem = f"It cannot be consumed: {said(lost)}."
            self._counts[queue].problem = problem
            log.warning("queue_not_collected", queue=queue, why=problem, again_in_s=LOOK_AGAIN_S)
            await asyncio.sleep(LOOK_AGAIN_S)

    async def _subscribe(self, stop: asyncio.Event, connection: AbstractConnection, queue: str) -> str:
        channel = await connection.channel(publisher_confirms=False)
        subscription = _Subscription(queue, channel)
        cancelled = asyncio.Event()
        channel.on_consumer_cancel_callbacks.add(lambda _: cancelled.set())

        async def receive(message: DeliveredMessage) -> None:
            subscription.inbox.put_nowait(message)

        storing = asyncio.create_task(self._store(subscription))
        try:
            await channel.basic_qos(prefetch_count=PREFETCH)
            await channel.basic_consume(queue, receive)
            self._counts[queue].problem = None
            log.info("collector_started", queue=queue)
            ends = (asyncio.ensure_future(cancelled.wait()), asyncio.ensure_future(watch(channel, queue)))
            over = await first_of([*ends, channel.closing, storing])
            if over is storing:
                return _failed(queue, storing)
            return "The broker cancelled the consumer: was the queue deleted?"
        finally:
            if stop.is_set():
                await _until_free(subscription.storing)
            await end(storing)
            await close(channel)

    async def _store(self, subscription: _Subscription) -> None:
        while True:
            batch = await _batch(subscription.inbox)
            async with subscription.storing:  # a stop waits for its end: what is stored should be acknowledged
                await _acknowledge(subscription, await self._kept(subscription, batch))

    async def _kept(self, subscription: _Subscription, batch: Sequence[DeliveredMessage]) -> list[DeliveredMessage]:
        """Those of them that are dead letters now. What the database refuses takes no other with it."""
        messages = [read_dead_message(subscription.queue, message) for message in batch]
        for name in {message.origin.queue for message in messages}:
            if len(self._origins) < MAX_ORIGINS and is_short(name) and name.isprintable():  # a header may claim any
                self._origins.setdefault(name)
        try:
            stored = await self._keep(messages)
        except self._refusals as problem:
            if len(batch) > 1:
                return [kept for message in batch for kept in await self._kept(subscription, [message])]
            self._refuse(subscription, messages[0], problem)
            return []
        count = self._counts[subscription.queue]
        count.collected += sum(stored)
        count.duplicates += len(stored) - sum(stored)
        return list(batch)

    async def _keep(self, messages: Sequence[DeadMessage]) -> list[bool]:
        """However long the database takes to come back: the broker keeps what is not acknowledged."""
        patience = Patience()
        while True:
            try:
                return await self._book.keep(messages)
            except self._refusals:
                raise
            except Exception as problem:  # noqa: BLE001 - whatever keeps the database from answering
                wait_s = patience.next_s()
                log.warning(
                    "dead_messages_not_stored",
                    queue=messages[0].source,
                    messages=len(messages),
                    error_type=type(problem).__name__,
                    why=str(problem),
                    again_in_s=round(wait_s, 1),
                )
                await asyncio.sleep(wait_s)

    def _refuse(self, subscription: _Subscription, message: DeadMessage, problem: Exception) -> None:
        """It stays in the broker, unacknowledged, for a person to look at."""
        subscription.refused += 1
        named = f"the message {message.message_id!r}" if message.message_id else "a message without an id"
        self._counts[
            subscription.queue
        ].problem = (
            f"{subscription.refused} messages stay in the queue since they cannot be stored, the last of them {named}."
        )
        log.error(
            "dead_message_refused",
            queue=subscription.queue,
            message_id=message.message_id,
            error_type=type(problem).__name__,
        )

    # -- how the queues do -------------------------------------------------------------------------------------------

    async def _keep_noting(self) -> None:
        """Also while the broker is gone: that is what people should hear."""
        while True:
            await asyncio.sleep(self._note_every_s)
            states = await self._states()
            self._note_job(states)
            try:
                await self._book.note(states)
            except Exception as problem:  # noqa: BLE001 - it is said again soon
                log.warning("queues_not_noted", error_type=type(problem).__name__, why=str(problem))
                continue
            for state in states:
                if state.is_source:
                    self._counts[state.queue].collected -= state.collected
                    self._counts[state.queue].duplicates -= state.duplicates

    def _note_job(self, states: Sequence[QueueState]) -> None:
        """It goes well where every queue is consumed."""
        if self._job is None:
            return
        self._job.begin()
        problems = [f"{state.queue}: {state.problem}" for state in states if state.is_source and state.problem]
        if problems:
            self._job.fail(problems[0])
        else:
            self._job.succeed()

    async def _sizes(self) -> dict[str, tuple[int | None, int | None]]:
        connection = self._connection
        if connection is None:
            return {}
        try:
            return {queue: await _size(connection, queue) for queue in (*self._queues, *self._origins)}
        except LOST:
            return {}  # it was lost meanwhile

    async def _states(self) -> list[QueueState]:
        sizes = await self._sizes()
        states = [
            QueueState(queue, True, count.problem, *sizes.get(queue, UNKNOWN_SIZE), count.collected, count.duplicates)
            for queue, count in self._counts.items()
        ]
        for queue in self._origins:
            size = sizes.get(queue, UNKNOWN_SIZE)
            problem = "There is no such queue." if sizes and size == UNKNOWN_SIZE else None
            states.append(QueueState(queue, False, problem, *size, 0, 0))
        return states


async def _batch(inbox: "asyncio.Queue[DeliveredMessage]") -> list[DeliveredMessage]:
    """Those that came together, as many as one transaction should hold."""
    batch = [await inbox.get()]
    if inbox.empty():
        await asyncio.sleep(GATHER_S)
    size = len(batch[0].body)
    while not inbox.empty() and len(batch) < BATCH and size < BATCH_BYTES:
        batch.append(inbox.get_nowait())
        size += len(batch[-1].body)
    return batch


async def _acknowledge(subscription: _Subscription, kept: Sequence[DeliveredMessage]) -> None:
    """All up to the last one at once, unless one before it was refused."""
    tags = [message.delivery_tag for message in kept]
    async with asyncio.timeout(ACKNOWLEDGE_TIMEOUT_S):
        for tag in tags if subscription.refused else tags[-1:]:
            assert tag is not None
            await subscription.channel.basic_ack(tag, multiple=not subscription.refused)


def _failed(queue: str, storing: "asyncio.Task[None]") -> str:
    problem = storing.exception()
    if not isinstance(problem, LOST):
        log.error("collector_failed", queue=queue, exc_info=problem)
    return f"It is not collected: {type(problem).__name__}."


async def _until_free(lock: asyncio.Lock) -> None:
    try:
        async with asyncio.timeout(DRAIN_S), lock:
            return
    except TimeoutError:
        return


async def _size(connection: AbstractConnection, queue: str) -> tuple[int | None, int | None]:
    """Messages that wait in a queue, and its consumers."""
    try:
        async with scratch(connection) as channel:
            found = await channel.queue_declare(queue, passive=True)
    except ChannelNotFoundEntity:
        return UNKNOWN_SIZE
    return found.message_count, found.consumer_count
