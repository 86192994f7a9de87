"""A consumer of a queue of RabbitMQ: a try for each message, and what follows by its policy.

What succeeds is acknowledged. What is to be tried again is published to a delay queue, what is not to the dead-letter
queue; when the broker has confirmed that, the message itself is acknowledged. So at any moment it is in a queue: a
process or a broker that dies leaves it to be given out again. Needs no database. Run by `redrive consume`.

A message that was given out before may be what its consumer died of. It is a suspect: set apart in a queue of their
own, which counts how often each is given out, whatever the type of the source, and tried with nothing else under way.
"""

import asyncio
import inspect
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec
import structlog
from aiormq.abc import AbstractChannel, AbstractConnection, DeliveredMessage

from redrive.broker import topology
from redrive.broker.link import LOST, said
from redrive.broker.publisher import Publisher
from redrive.broker.wire import FarTime
from redrive.core.broker import ConsumerSpec
from redrive.core.classify import failure_of
from redrive.core.decide import AwaitPerson, Decision, Die, Reason, RetryIn, Succeed, decide
from redrive.core.delay_queues import DelayQueues
from redrive.core.meter import ConsumerMeter
from redrive.core.outcome import Category, Failure, Success
from redrive.core.policy import Policy
from redrive.core.trace import TRACEPARENT
from redrive.destinations.handler_calls import call_handler
from redrive.destinations.threads import DaemonThreads
from redrive.ending import end
from redrive.observe import traces
from redrive.observe.traces import Attributes, Entry, Span, Trouble
from redrive.sources.delivery import Delivery, correlation_of
from redrive.sources.messages import Message
from redrive.sources.onward import Onward
from redrive.sources.staying import first_of, stay_connected, unless, watch

MAX_LOSSES = 15  # a message that takes its consumer with it, again and again, is given up then
MAX_THREADS = 64
LOOK_AGAIN_S = 1.0  # for suspects that are left
BEGIN_S = 2.0  # what has come may still begin when it is to stop
DRAIN_S = 7.0  # and two connections are closed behind it, within ten seconds

log = structlog.get_logger("redrive.consumer")


@dataclass(slots=True)
class _Subscription:
    channel: AbstractChannel
    queue: str
    receive: Callable[[DeliveredMessage], Coroutine[Any, Any, None]]
    tag: str = ""

    async def begin(self, prefetch: int) -> None:
        await self.channel.basic_qos(prefetch_count=prefetch)
        answer = await self.channel.basic_consume(self.queue, self.receive)
        assert answer.consumer_tag is not None
        self.tag = answer.consumer_tag

    async def end(self) -> None:
        await self.channel.basic_cancel(self.tag)


class ConsumerLost(Exception):
    """A message whose consumer was gone, each time, before it answered."""


class Consumer:
    """`service_version` stands in dead letters. `dice` rolls the jitter, `now` is Unix time."""

    def __init__(
        self,
        spec: ConsumerSpec,
        policy: Policy,
        urls: Sequence[str],
        *,
        service_version: str,
        dice: Callable[[], float],
        now: Callable[[], float] = time.time,
        meter: ConsumerMeter | None = None,
    ) -> None:
        self._spec = spec
        self._policy = policy
        self._urls = urls
        self._dice = dice
        self._meter = meter
        self.queue = spec.queue
        self.is_consuming = False
        self._now = now
        self._delay_queues = DelayQueues(spec.queue, policy)
        self._publisher = Publisher(urls, name=f"redrive publisher of {spec.queue}")
        self._onward = Onward(spec, self._delay_queues, self._publisher, service_version=service_version, now=now)
        self._threads = DaemonThreads(min(spec.concurrency, MAX_THREADS), name="redrive-consumer")
        self._inbox: asyncio.Queue[Delivery] = asyncio.Queue()  # never more than the prefetch
        self._suspects: asyncio.Queue[Delivery] = asyncio.Queue()  # never more than one
        self._met_fresh = asyncio.Event()  # a message that was never given out before
        self._at_risk = 0  # see `_under_way`
        self._calm = asyncio.Event()  # nothing is
        self._calm.set()
        self._others_may = asyncio.Event()  # begin: no suspect is under way
        self._others_may.set()
        self._asking = asyncio.Lock()  # the broker for another subscription: not to be given up halfway
        self._is_ending = False
        self._busy = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._log = log.bind(queue=spec.queue, service=spec.service)

    async def run(self, stop: asyncio.Event) -> None:
        """Consume until `stop`, then finish what has begun. TopologyError where the queues cannot be had at start."""
        workers = [asyncio.create_task(self._work()) for _ in range(self._spec.concurrency)]
        workers.append(asyncio.create_task(self._work_alone()))
        try:
            name = f"redrive consumer of {self._spec.queue}"
            await stay_connected(self._urls, name, stop, partial(self._consume, stop), self._log)
        finally:
            await end(*workers)
            await self._publisher.close()

    async def _consume(self, stop: asyncio.Event, connection: AbstractConnection, began: Callable[[], None]) -> str:
        queue, cancelled = self._spec.queue, asyncio.Event()
        subscriptions = await unless(stop, self._subscribe(connection, cancelled))
        source, suspects = subscriptions
        began()
        self.is_consuming = True
        self._log.info("consumer_started", prefetch=self._spec.prefetch, concurrency=self._spec.concurrency)
        widening = asyncio.ensure_future(self._widen(source, suspects))
        ends = {
            asyncio.ensure_future(stop.wait()): "it is to stop",
            asyncio.ensure_future(cancelled.wait()): "the broker cancelled the consumer: was the queue deleted?",
            asyncio.ensure_future(watch(source.channel, queue)): "the broker does not answer, or the queue is gone",
            source.channel.closing: "the connection was lost",
            suspects.channel.closing: "the connection was lost",
            asyncio.ensure_future(asyncio.wait([widening])): "it cannot consume",
        }
        try:
            over = await first_of(ends)
            if stop.is_set() and not source.channel.is_closed:
                await self._drain(subscriptions)
            elif widening.done():
                widening.result()
            assert over is not None
            return ends[over]
        finally:
            await end(widening)
            if not widening.cancelled():
                widening.exception()  # where another end came first, that one tells
            self.is_consuming = False
            self._forget_waiting()

    async def _subscribe(
        self, connection: AbstractConnection, cancelled: asyncio.Event
    ) -> tuple["_Subscription", "_Subscription"]:
        """To the source and to its suspects, one message of each at a time: see `_widen`."""
        await topology.assert_consumer(connection, self._spec, self._delay_queues.all.values())
        self._met_fresh.clear()
        source = _Subscription(await connection.channel(publisher_confirms=False), self._spec.queue, self._receive)
        suspects = _Subscription(
            await connection.channel(publisher_confirms=False), self._spec.suspects_queue, self._receive_suspect
        )
        for subscription in (source, suspects):
            subscription.channel.on_consumer_cancel_callbacks.add(lambda _: cancelled.set())
            await subscription.begin(1)
        return source, suspects

    async def _widen(self, source: "_Subscription", suspects: "_Subscription") -> None:
        """Take one message at a time until no suspect is left: what a process has here when it dies is suspected with
        the one that it died of. Messages that were given out before come first. Where no suspect is tried and yet they
        do not get fewer, since one cannot be handed over, say, the others do not wait for them. Ends with the session.
        """
        await self._met_fresh.wait()
        before: int | None = None
        while True:
            async with self._asking:
                waiting = await topology.waiting(source.channel.connection, suspects.queue)
                if self._others_may.is_set() and waiting in (0, before):
                    await source.end()
                    await source.begin(self._spec.prefetch)
                    break
            before = waiting
            await asyncio.sleep(LOOK_AGAIN_S)
        await asyncio.Event().wait()

    async def _drain(self, subscriptions: Sequence["_Subscription"]) -> None:
        """No new messages. Those that wait here may begin for a while, since what goes back is a suspect; the rest goes
        back when the channel is closed; those under way may end.
        """
        try:
            async with asyncio.timeout(DRAIN_S), self._asking:
                for subscription in subscriptions:
                    await subscription.end()
                await first_of([asyncio.ensure_future(self._finish_waiting())], within_s=BEGIN_S)
                self._is_ending = True
                self._forget_waiting()
                await self._idle.wait()
                # The library drops what it has not sent when it is closed: an answer means that all before it was.
                for subscription in subscriptions:
                    await subscription.channel.basic_qos(prefetch_count=1)
        except LOST as problem:
            self._log.warning("consumer_not_drained", under_way=self._busy, why=said(problem))

    async def _finish_waiting(self) -> None:
        await self._inbox.join()
        await self._suspects.join()

    def _forget_waiting(self) -> None:
        for waiting in (self._inbox, self._suspects):
            while not waiting.empty():
                waiting.get_nowait()
                waiting.task_done()

    async def _receive(self, message: DeliveredMessage) -> None:
        delivery = Delivery.of(message, self._spec, self._policy.max_retries, suspect=False)
        if not delivery.redelivered:
            self._met_fresh.set()
        self._inbox.put_nowait(delivery)

    async def _receive_suspect(self, message: DeliveredMessage) -> None:
        self._suspects.put_nowait(Delivery.of(message, self._spec, self._policy.max_retries, suspect=True))

    async def _work(self) -> None:
        while True:
            delivery = await self._inbox.get()
            while not self._others_may.is_set():
                await self._others_may.wait()
            await self._carry_out(delivery)
            self._inbox.task_done()

    async def _work_alone(self) -> None:
        """A suspect is tried with no other handler under way: should it end this process, it ends no other try."""
        while True:
            delivery = await self._suspects.get()
            if delivery.losses < MAX_LOSSES:
                self._others_may.clear()
                await self._calm.wait()
            await self._carry_out(delivery)
            self._others_may.set()  # also where it was not tried
            self._suspects.task_done()

    async def _carry_out(self, delivery: Delivery) -> None:
        if delivery.channel.is_closed or self._is_ending:
            return  # it is given out again
        self._busy += 1
        self._idle.clear()
        try:
            await self._deal_with(delivery)
        except Exception:  # noqa: BLE001 - ours is the fault; the message goes back, and the others go on
            self._log.exception("consumer_failed", message_id=delivery.properties.message_id)
            await self._onward.give_back(delivery)
        finally:
            self._busy -= 1
            if not self._busy:
                self._idle.set()

    async def _deal_with(self, delivery: Delivery) -> None:
        if delivery.losses >= MAX_LOSSES:
            text = f"It was given out {delivery.losses} times, and each time its consumer was gone before it answered."
            lost = replace(_failure_of(ConsumerLost(text)), possible_duplicate=True)
            await self._onward.bury(delivery, None, lost, Reason.EXHAUSTED, self._now())
            self._note_death(Reason.EXHAUSTED, lost.category, None)
        elif delivery.redelivered and not delivery.losses:
            with self._under_way():
                await self._onward.set_apart(delivery)
        else:
            await self._try(delivery)

    @contextmanager
    def _under_way(self) -> Iterator[None]:
        """What would be lost or done twice if a suspect ended this process meanwhile: none is tried."""
        self._at_risk += 1
        self._calm.clear()
        try:
            yield
        finally:
            self._at_risk -= 1
            if not self._at_risk:
                self._calm.set()

    async def _try(self, delivery: Delivery) -> None:
        began_s = self._now()
        began = time.monotonic()
        entry = traces.entry(_header(delivery, TRACEPARENT))
        if entry is not None and entry.began_ns and TRACEPARENT not in delivery.headers:
            delivery = delivery.with_headers({TRACEPARENT: entry.traceparent})  # its retries are part of this trace
        with self._under_way():
            payload, outcome = await self._outcome(delivery, entry)
        if delivery.losses:
            self._others_may.set()  # it has not ended this process
        took_s = time.monotonic() - began
        if entry is not None and entry.began_ns:
            self._note_span(delivery, entry, outcome)
        match self._decide(delivery, outcome, began_s):
            case Succeed():
                if delivery.retries:
                    named = {"message_id": delivery.properties.message_id, "correlation_id": correlation_of(delivery)}
                    self._log.info("message_recovered", **named, attempt=delivery.retries + 1)
                await self._onward.acknowledge(delivery)
                if self._meter is not None:
                    self._meter.succeeded(self.queue, took_s)
            case RetryIn(delay=delay):
                assert isinstance(outcome, Failure)
                await self._onward.put_off(delivery, outcome, delay, began_s)
                if self._meter is not None:
                    self._meter.retried(self.queue, outcome.category.value, took_s)
            case Die(reason=reason):
                assert isinstance(outcome, Failure)
                await self._onward.bury(delivery, payload, outcome, reason, began_s)
                self._note_death(reason, outcome.category, took_s)
            case AwaitPerson():
                raise AssertionError("a policy that waits for a person has no delay queues")

    def _note_death(self, reason: Reason, category: Category, took_s: float | None) -> None:
        if self._meter is not None:
            self._meter.died(self.queue, reason.value, category.value, took_s)

    def _decide(self, delivery: Delivery, outcome: Success | Failure, began_s: float) -> Decision:
        failures = delivery.retries + 1
        return decide(self._policy, outcome, failures=failures, age=delivery.age(began_s), roll=self._dice())

    def _note_span(self, delivery: Delivery, entry: Entry, outcome: Success | Failure) -> None:
        properties = delivery.properties
        told: Attributes = {
            "messaging.system": "rabbitmq",
            "messaging.operation.type": "process",
            "messaging.operation.name": "process",
            "messaging.destination.name": self._spec.queue,
            "messaging.consumer.group.name": self._spec.service,
            "messaging.message.body.size": len(delivery.body),
            "messaging.rabbitmq.destination.routing_key": delivery.routing_key,
            "redrive.attempt": delivery.retries + 1,
        }
        for name, value in (("id", properties.message_id), ("conversation_id", correlation_of(delivery))):
            if value is not None:
                told[f"messaging.message.{name}"] = value
        trouble = None
        if isinstance(outcome, Failure):
            told["error.type"] = outcome.category.value
            trouble = Trouble(outcome.category.value, outcome.message)
        span = (entry.traceparent, entry.parent_id, entry.began_ns, time.time_ns(), told, trouble)
        traces.note(Span("process", "consumer", *span))

    async def _outcome(self, delivery: Delivery, entry: Entry | None) -> tuple[Any, Success | Failure]:
        payload = None
        if self._spec.is_json:
            try:
                payload = msgspec.json.decode(delivery.body)
            except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as problem:
                text = f"The message is not JSON: {problem}"
                return None, replace(_failure_of(problem), category=Category.VALIDATION, message=text)
        with traces.current(entry.traceparent if entry is not None else None):
            done = await self._call(self._message(delivery, payload, entry))
        return payload, done if isinstance(done, Failure) else Success()

    def _message(self, delivery: Delivery, payload: Any, entry: Entry | None) -> Message:
        properties: Any = delivery.properties
        sent = properties.timestamp
        return Message(
            queue=self._spec.queue,
            body=delivery.body,
            payload=payload,
            headers=delivery.headers,
            message_id=properties.message_id,
            correlation_id=correlation_of(delivery),
            content_type=properties.content_type,
            type=properties.message_type,
            timestamp=sent.moment if isinstance(sent, FarTime) else sent,
            exchange=delivery.exchange,
            routing_key=delivery.routing_key,
            attempt=delivery.retries + 1,
            redelivered=delivery.redelivered,
            traceparent=entry.traceparent if entry is not None else None,
        )

    async def _call(self, message: Message) -> Any:
        handler, timeout_s = self._spec.handler, self._policy.timeout_s
        if inspect.iscoroutinefunction(handler):
            return await call_handler(partial(handler, message), self._spec.service, timeout_s)
        while not await self._threads.take(timeout_s):  # those that were given up keep theirs until they really end
            self._log.warning("no_thread_free", waited_s=timeout_s, message_id=message.message_id)
        return await call_handler(partial(self._in_thread, message), self._spec.service, timeout_s)

    async def _in_thread(self, message: Message) -> Any:
        result = await self._threads.run(partial(copy_context().run, self._spec.handler, message))
        return await result if inspect.isawaitable(result) else result


def _failure_of(error: Exception) -> Failure:
    return failure_of(error, "".join(traceback.format_exception(error)))


def _header(delivery: Delivery, name: str) -> str | None:
    value = delivery.headers.get(name)
    return value if isinstance(value, str) else None
