"""Redriven messages of a broker: published again to where they came from, with what they had, and confirmed.

Called by engine.worker; what cannot be published is a failure like any other, and its dead letter stays open.
"""

from collections.abc import Sequence
from datetime import datetime
from json import loads
from typing import Any
from uuid import UUID

from redrive.broker.link import BrokerDown
from redrive.broker.properties import from_json, headers_of
from redrive.broker.publisher import Outgoing, Publisher, PublishRefused, Unconfirmed, failure_of_publish
from redrive.broker.traces import LETTER, REPLAYS, without_tries
from redrive.broker.wire import Properties
from redrive.core.broker import RETURN_QUEUE, Origin, Return, ReturnBook
from redrive.core.broker_route import route_url
from redrive.core.outcome import Category, Failure, Success
from redrive.core.ports import Exchange, Job, Released, Try
from redrive.core.trace import TRACESTATE, passed_on, with_context
from redrive.destinations.answers import shown_headers
from redrive.observe import traces

JSON_TYPE = "application/json"
_COMPRESSED = frozenset({"gzip", "x-gzip", "deflate", "br", "zstd", "bzip2", "lzma", "snappy", "lz4"})
UNKNOWN = Released("Not tried: what is kept of the message could not be read.", delay_s=5.0)
NOWHERE = (
    "It was published straight to a dead-letter queue, and nothing tells which queue it came from. Publish it "
    "yourself, and resolve this one."
)


class ReturnDestination:
    """`to_queue`: straight to the queue that it died in, past whatever else is bound to the exchange."""

    def __init__(self, publisher: Publisher, book: ReturnBook, *, to_queue: bool = False) -> None:
        self._publisher = publisher
        self._book = book
        self._to_queue = to_queue
        self._returns: dict[UUID, Return] = {}

    @property
    def queues(self) -> Sequence[str]:
        return (RETURN_QUEUE,)

    async def prepare(self, jobs: Sequence[Job]) -> None:
        for found in await self._book.returns([(job.org_id, job.id) for job in jobs]):
            self._returns[found.task_id] = found

    async def attempt(self, job: Job, now: datetime) -> Try | Released:
        back = self._returns.pop(job.id, None)
        if back is None:
            return UNKNOWN
        exchange, routing_key = self._way(back.origin)
        if not exchange and not routing_key:
            return Try(Failure(Category.CONFIGURATION, NOWHERE))
        message = self._message(job, back, exchange, routing_key)
        sent = Exchange(route_url(exchange, routing_key), _shown(message))
        try:
            await self._publisher.publish(message, job.timeout_s)
        except (PublishRefused, Unconfirmed, BrokerDown, TimeoutError) as problem:
            return Try(failure_of_publish(problem), sent)
        return Try(Success(), sent)

    def _way(self, origin: Origin) -> tuple[str, str]:
        is_known = bool(origin.exchange or origin.routing_key)
        return ("", origin.queue) if self._to_queue and is_known else (origin.exchange, origin.routing_key)

    def _message(self, job: Job, back: Return, exchange: str, routing_key: str) -> Outgoing:
        properties = from_json(back.properties)
        headers: dict[str, Any] = without_tries(properties.headers or {})
        if job.edited_headers is not None:
            headers |= headers_of(Properties(headers=loads(job.edited_headers)))  # not what the broker acts upon
        if job.content_type == JSON_TYPE and "json" not in (properties.content_type or "json"):
            properties.content_type = JSON_TYPE  # somebody edited what was none before
        if (properties.content_encoding or "").lower() in _COMPRESSED and _is_json(job.body):
            properties.content_encoding = None  # likewise
        traced = passed_on(job, tracing=traces.is_on())
        if traced is not None:
            headers = with_context(headers, traced, headers.get(TRACESTATE))
        properties.headers = headers | {LETTER: str(job.id), REPLAYS: back.replays}
        return Outgoing(exchange, routing_key, job.body, properties)

    async def aclose(self) -> None:
        """The publisher is whoever's who made it."""


def _is_json(body: bytes) -> bool:
    try:
        loads(body)
    except (ValueError, RecursionError):
        return False
    return True


def _shown(message: Outgoing) -> str | None:
    return shown_headers({name: str(value) for name, value in (message.properties.headers or {}).items()})
