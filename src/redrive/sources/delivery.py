"""A message as a consumer was given it, and what its headers tell of the tries before. Pure, but for the clock given.

Headers are anybody's: what makes no sense in them counts as not there.
"""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from aiormq.abc import AbstractChannel, DeliveredMessage

from redrive.broker.properties import Headers, copy_of, headers_of
from redrive.broker.traces import EXCHANGE, FIRST_ATTEMPT, RETRY_COUNT, ROUTING_KEY
from redrive.broker.wire import Properties
from redrive.core.broker import ConsumerSpec
from redrive.core.trace import CORRELATION

DELIVERY_COUNT = "x-delivery-count"  # kept by quorum queues: how often it was given out before
MAX_UNIX_S = 253_402_300_799  # the end of the year 9999


@dataclass(frozen=True, slots=True)
class Delivery:
    channel: AbstractChannel
    tag: int
    body: bytes
    properties: Properties
    headers: Headers  # those that the publisher set, or we
    exchange: str
    routing_key: str
    retries: int  # made before this try
    first_attempt_s: int | None  # None: this is the first
    redelivered: bool
    losses: int  # of a suspect: how often its consumer was gone before it answered; else 0

    @classmethod
    def of(cls, message: DeliveredMessage, spec: ConsumerSpec, max_retries: int | None, *, suspect: bool) -> "Delivery":
        """From its source, or from the queue of suspects: what was lost once before it came there."""
        frame: Any = message.delivery
        properties = message.header.properties
        headers = headers_of(properties)
        retries = _whole(headers.get(RETRY_COUNT), 0)
        redelivered = bool(frame.redelivered)
        # Others hand headers on: what was not given out before has no count of this queue, and what came by an exchange
        # was not put there by us.
        counted = (properties.headers or {}).get(DELIVERY_COUNT) if redelivered else None
        routing_key = frame.routing_key
        if (frame.exchange, routing_key) != ("", spec.suspects_queue if suspect else spec.queue):
            headers = {name: value for name, value in headers.items() if name not in (EXCHANGE, ROUTING_KEY)}
        elif suspect:
            routing_key = spec.queue
        return cls(
            channel=message.channel,
            tag=frame.delivery_tag,
            body=message.body,
            properties=copy_of(properties, headers),
            headers=headers,
            exchange=_text(headers.get(EXCHANGE), frame.exchange),
            routing_key=_text(headers.get(ROUTING_KEY), routing_key),
            retries=retries if max_retries is None else min(retries, max_retries),
            first_attempt_s=_first_attempt(headers),
            redelivered=redelivered or suspect,
            losses=1 + _whole(counted, 0) if suspect else 0,
        )

    def with_headers(self, more: Headers) -> "Delivery":
        headers = self.headers | more
        return replace(self, headers=headers, properties=copy_of(self.properties, headers))

    def age(self, now_s: float) -> timedelta:
        """Since its first try began; never negative, whatever the clocks of two machines say."""
        return timedelta(seconds=max(now_s - (now_s if self.first_attempt_s is None else self.first_attempt_s), 0.0))


def correlation_of(delivery: Delivery) -> str | None:
    """What the message says it belongs to: its property, or the header of those who know HTTP better."""
    return correlation_in(delivery.properties, delivery.headers)


def correlation_in(properties: Properties, headers: Headers) -> str | None:
    told = properties.correlation_id or headers.get(CORRELATION)
    return told if isinstance(told, str) and told else None


def _first_attempt(headers: Headers) -> int | None:
    moment_s = _whole(headers.get(FIRST_ATTEMPT), 0)
    return moment_s if 0 < moment_s <= MAX_UNIX_S else None


def _whole(value: object, default: int) -> int:
    return max(value, 0) if isinstance(value, int) and not isinstance(value, bool) else default


def _text(value: object, default: str) -> str:
    return value if isinstance(value, str) else default
