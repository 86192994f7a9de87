"""What becomes of a message after its try: acknowledged, or first handed over to another queue.

Called by sources.consumer. A copy is confirmed by the broker before the message itself is acknowledged; where a process
dies in between, both are there, and the message is tried once more than it had to be.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import structlog

from redrive.broker import dead_letters, topology, traces
from redrive.broker.link import LOST, BrokerDown, Patience, said
from redrive.broker.properties import Headers, copy_of
from redrive.broker.publisher import Outgoing, Publisher, PublishRefused, Unconfirmed, Unfit
from redrive.broker.topology import TopologyError
from redrive.broker.traces import FIRST_ATTEMPT, RETRY_COUNT
from redrive.core.broker import ConsumerSpec
from redrive.core.decide import Reason
from redrive.core.delay_queues import DelayQueues
from redrive.core.outcome import Failure
from redrive.sources.delivery import Delivery, correlation_of
from redrive.sources.staying import first_of

CONFIRM_WITHIN_S = 15.0  # what takes longer is said to
ACKNOWLEDGE_TIMEOUT_S = 10.0  # the library waits for ever for a connection that just ended

log = structlog.get_logger("redrive.consumer")


class Onward:
    def __init__(
        self,
        spec: ConsumerSpec,
        delay_queues: DelayQueues,
        publisher: Publisher,
        *,
        service_version: str,
        now: Callable[[], float],
    ) -> None:
        self._spec = spec
        self._delay_queues = delay_queues
        self._publisher = publisher
        self._version = service_version
        self._now = now
        self._known = {**delay_queues.all, spec.suspects_queue: topology.suspects(spec)}
        self._log = log.bind(queue=spec.queue, service=spec.service)

    async def acknowledge(self, delivery: Delivery) -> None:
        """It has succeeded, or a copy of it is where it belongs."""
        await self._answer(delivery, partial(delivery.channel.basic_ack, delivery.tag, wait=False))

    async def give_back(self, delivery: Delivery) -> None:
        await self._answer(delivery, partial(delivery.channel.basic_nack, delivery.tag, requeue=True, wait=False))

    async def _answer(self, delivery: Delivery, answer: Callable[[], Awaitable[object]]) -> None:
        try:
            async with asyncio.timeout(ACKNOWLEDGE_TIMEOUT_S):
                await answer()
        except LOST as problem:
            self._log.warning("message_not_acknowledged", **_named(delivery), why=said(problem))

    async def put_off(self, delivery: Delivery, failure: Failure, delay: timedelta, began_s: float) -> None:
        """It waits in a delay queue, and comes back to the source by itself."""
        asked = None if failure.retry_after is None else min(failure.retry_after, delay)
        queue = self._delay_queues.queue_of(delivery.retries, delay, asked)
        delay_ms = round(delay.total_seconds() * 1000) if queue.ttl_ms is None else queue.ttl_ms
        told = _origin(delivery) | {RETRY_COUNT: delivery.retries + 1, FIRST_ATTEMPT: _first_s(delivery, began_s)}
        copy = copy_of(delivery.properties, delivery.headers | told)
        copy.expiration = str(delay_ms) if queue.ttl_ms is None else None
        self._log.warning(
            "message_retry",
            **_named(delivery),
            attempt=delivery.retries + 1,
            category=failure.category.value,
            error=failure.message,
            error_type=_error_type(failure),
            delay_s=delay_ms / 1000,
            retry_in_ms=delay_ms,
        )
        if queue.name not in self._known:
            self._known[queue.name] = queue
            await self._make(queue.name)
        await self._hand_over(delivery, Outgoing("", queue.name, delivery.body, copy))

    async def set_apart(self, delivery: Delivery) -> None:
        """Its consumer was gone before it answered: it joins the suspects, which are tried one by one. When this
        returns, the broker has the acknowledgement: else a crash would leave the message in both queues.
        """
        copy = copy_of(delivery.properties, delivery.headers | _origin(delivery))
        self._log.warning("message_suspected", **_named(delivery), to=self._spec.suspects_queue)
        await self._hand_over(delivery, Outgoing("", self._spec.suspects_queue, delivery.body, copy))
        await self._answer(delivery, partial(delivery.channel.queue_declare, self._spec.queue, passive=True))

    async def bury(self, delivery: Delivery, payload: Any, failure: Failure, reason: Reason, began_s: float) -> None:
        """It goes to the dead-letter queue. `payload` is None where it is not JSON, or nobody looked."""
        self._log.error(
            "message_dead",
            **_named(delivery),
            attempts=delivery.retries + 1,
            reason=reason.value,
            category=failure.category.value,
            error=failure.message,
            error_type=_error_type(failure),
        )
        body, properties = dead_letters.write(
            delivery.body,
            delivery.properties,
            is_json=_is_json(delivery.body),
            details=self._details(delivery, failure, began_s),
            metadata=self._metadata(payload),
            headers=_origin(delivery)
            | {
                traces.QUEUE: self._spec.queue,
                traces.REASON: reason.value,
                traces.CATEGORY: failure.category.value,
                RETRY_COUNT: delivery.retries,
            },
        )
        await self._hand_over(delivery, Outgoing("", self._spec.dead_queue, body, properties))

    def _details(self, delivery: Delivery, failure: Failure, began_s: float) -> dead_letters.ErrorDetails:
        return dead_letters.ErrorDetails(
            error_type=_error_type(failure),
            error_message=failure.message,
            stack_trace=failure.stack,
            retry_count=delivery.retries,
            first_attempt_timestamp=_first_s(delivery, began_s),
            last_attempt_timestamp=int(self._now()),
        )

    def _metadata(self, payload: Any) -> dead_letters.Metadata:
        tenant_id, internal_id = dead_letters.names_in(payload)
        return dead_letters.Metadata(
            tenant_id=tenant_id,
            internal_id=internal_id,
            dlq_timestamp=int(self._now()),
            service=self._spec.service,
            service_version=self._version,
        )

    async def _hand_over(self, delivery: Delivery, copy: Outgoing) -> None:
        """Publish the copy, however long it takes, then acknowledge. Until then the broker keeps the message: where the
        connection is lost meanwhile, it is given out again. A message that can take nothing in addition, since it is as
        large as RabbitMQ allows, goes on as it is, and instead of waiting for a retry to the dead-letter queue.
        """
        patience = Patience()
        while not delivery.channel.is_closed:
            try:
                await self._publish(delivery, copy)
            except Unfit as problem:
                is_suspect = copy.routing_key == self._spec.suspects_queue
                target = self._spec.suspects_queue if is_suspect else self._spec.dead_queue
                bare = Outgoing("", target, delivery.body, delivery.properties)
                can_go_bare = copy != bare
                self._log.error(
                    "message_not_to_be_handed_over", **_named(delivery), why=str(problem), is_moved=can_go_bare
                )
                if not can_go_bare:
                    return  # it stays unacknowledged, for a person to look at
                copy = bare
            except (PublishRefused, Unconfirmed, BrokerDown) as problem:
                wait_s = patience.next_s()
                self._log.warning(
                    "message_not_handed_over",
                    **_named(delivery),
                    to=copy.routing_key,
                    why=str(problem),
                    again_in_s=round(wait_s, 1),
                )
                if isinstance(problem, PublishRefused):
                    await self._make(copy.routing_key)
                await first_of([delivery.channel.closing], within_s=wait_s)
            else:
                await self.acknowledge(delivery)
                return

    async def _publish(self, delivery: Delivery, copy: Outgoing) -> None:
        """A broker that is short of memory, or of nodes, takes what is written to it when it can again: another copy
        would come on top. So this one is waited for as long as its connection is there.
        """
        later = asyncio.get_running_loop().call_later(
            CONFIRM_WITHIN_S,
            partial(self._log.warning, "message_not_confirmed_yet", **_named(delivery), to=copy.routing_key),
        )
        try:
            await self._publisher.publish(copy, None)
        finally:
            later.cancel()

    async def _make(self, queue: str) -> None:
        """Somebody deleted it; or it is for a delay that a handler asked for, and nobody had before."""
        try:
            connection = await self._publisher.connection()
            if queue == self._spec.dead_queue:
                await topology.assert_dead_queue(connection, self._spec)
            elif queue in self._known:
                await topology.assert_delay_queue(connection, self._spec.queue, self._known[queue])
        except (TopologyError, BrokerDown, *LOST) as problem:
            self._log.error("queue_not_made", to=queue, why=str(problem))


def _origin(delivery: Delivery) -> Headers:
    return {traces.EXCHANGE: delivery.exchange, traces.ROUTING_KEY: delivery.routing_key}


def _first_s(delivery: Delivery, began_s: float) -> int:
    return int(began_s) if delivery.first_attempt_s is None else delivery.first_attempt_s


def _named(delivery: Delivery) -> dict[str, str | None]:
    return {"message_id": delivery.properties.message_id, "correlation_id": correlation_of(delivery)}


def _error_type(failure: Failure) -> str:
    assert failure.error_type is not None, "every failure of a message comes from an exception"
    return failure.error_type


def _is_json(body: bytes) -> bool:
    try:
        msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return False
    return True
