"""Reading a message of a dead-letter queue: who gave it up, why, and where it came from. Never fails.

Three kinds come: those of Redrive's own consumers and of others who write the same form (broker.dead_letters), those
that the broker moved there itself (x-death), and any others. Called by sources.collector.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from aiormq.abc import DeliveredMessage

from redrive.broker import dead_letters
from redrive.broker.dead_letters import Original
from redrive.broker.properties import dumps, headers_of, to_json
from redrive.broker.traces import EXCHANGE, LETTER, REPLAYS, RETRY_COUNT, ROUTING_KEY
from redrive.broker.wire import Properties
from redrive.core.broker import DEAD_SUFFIX, DeadMessage, Origin, Redriven
from redrive.core.classify import category_named
from redrive.core.decide import Reason
from redrive.core.delay_queues import is_delay_queue_of
from redrive.core.outcome import RETRIED_BY_DEFAULT, Category, Failure
from redrive.core.redact import redact_text
from redrive.core.trace import TRACEPARENT, traceparent_of
from redrive.core.x_death import Death, first_death, meaning_of, read_deaths
from redrive.sources.delivery import MAX_UNIX_S, correlation_in

MAX_MESSAGE_CHARS = 2_000
MAX_STACK_CHARS = 16_000
MAX_REPLAYS = 1_000_000


def read_dead_message(source: str, message: DeliveredMessage) -> DeadMessage:
    properties: Any = message.header.properties
    headers: Mapping[str, Any] = properties.headers or {}
    deaths = read_deaths(headers)
    original = dead_letters.read(message.body, properties)
    if original is not None:
        return _of_consumer(source, original, headers, deaths)
    first = first_death(deaths, headers)
    if first is not None:
        return _of_broker(source, message.body, properties, first, deaths)
    return _of_nobody(source, message.body, properties)


def _of_consumer(source: str, original: Original, headers: Mapping[str, Any], deaths: list[Death]) -> DeadMessage:
    details, metadata = original.error_details, original.metadata
    service = _text(metadata.get("service"))
    names = (original.category, _text(details.get("error_type")))
    known = (category_named(name) for name in names if name is not None)
    category = next((found for found in known if found is not None), Category.UNKNOWN)
    retries = _whole(details.get("retry_count"))
    queue = original.queue or _without_suffix(source) or service or source
    failure = Failure(
        category,
        redact_text(_text(details.get("error_message")) or "It does not say why.", MAX_MESSAGE_CHARS),
        stack=redact_text(_text(details.get("stack_trace")) or "", MAX_STACK_CHARS) or None,
    )
    return DeadMessage(
        source=source,
        origin=_origin(original.exchange, original.routing_key, queue),
        body=original.body,
        content_type=_text(original.properties.content_type),
        properties=to_json(original.properties),
        message_id=_text(original.properties.message_id),
        correlation_id=correlation_in(original.properties, original.properties.headers or {}),
        failure=failure,
        reason=_reason(original.reason)
        or (Reason.EXHAUSTED if retries and category in RETRIED_BY_DEFAULT else Reason.PERMANENT),
        retries=retries,
        first_failed_at=_moment(details.get("first_attempt_timestamp")),
        failed_at=_moment(details.get("last_attempt_timestamp")) or _moment(metadata.get("dlq_timestamp")),
        deaths=_deaths_text(headers, deaths),
        details=_details_text(details, metadata),
        service=service,
        redriven=_redriven(headers),
        traceparent=traceparent_of(_text(headers.get(TRACEPARENT))),
    )


def _of_broker(source: str, body: bytes, properties: Properties, first: Death, deaths: list[Death]) -> DeadMessage:
    headers: Mapping[str, Any] = properties.headers or {}
    newest = deaths[0]
    origin, retries = first.origin, max(first.count - 1, 0)
    if any(is_delay_queue_of(first.queue, death.queue) for death in deaths):  # it was on its way through a consumer
        origin = _origin(headers.get(EXCHANGE), headers.get(ROUTING_KEY), first.queue)
        retries = _whole(headers.get(RETRY_COUNT))
    reason, category, sentence = meaning_of(first)
    times = [death.at for death in deaths if death.at is not None]
    return DeadMessage(
        source=source,
        origin=origin,
        body=body,
        content_type=_text(properties.content_type),
        properties=to_json(properties),
        message_id=_text(properties.message_id),
        correlation_id=correlation_in(properties, properties.headers or {}),
        failure=Failure(category, sentence, possible_duplicate=first.reason != "expired"),
        reason=reason,
        retries=retries,
        first_failed_at=min(times, default=None),
        failed_at=newest.at,
        deaths=_deaths_text(headers, deaths),
        details=None,
        service=_text(properties.app_id),
        redriven=_redriven(headers),
        traceparent=traceparent_of(_text(headers.get(TRACEPARENT))),
    )


def _of_nobody(source: str, body: bytes, properties: Properties) -> DeadMessage:
    """Published straight into the dead-letter queue. What it is called after may be where it came from."""
    queue = _without_suffix(source)
    said = f"It was published straight to {source}, and does not say why."
    return DeadMessage(
        source=source,
        origin=Origin("", queue or "", queue or source),
        body=body,
        content_type=_text(properties.content_type),
        properties=to_json(properties),
        message_id=_text(properties.message_id),
        correlation_id=correlation_in(properties, properties.headers or {}),
        failure=Failure(Category.UNKNOWN, said),
        reason=Reason.PERMANENT,
        retries=0,
        first_failed_at=None,
        failed_at=None,
        deaths=None,
        details=None,
        service=_text(properties.app_id),
        redriven=_redriven(headers_of(properties)),
        traceparent=traceparent_of(_text(headers_of(properties).get(TRACEPARENT))),
    )


def _origin(exchange: object, routing_key: object, queue: str) -> Origin:
    """Without a word of ours it went to the queue itself, as far as anybody can tell."""
    if isinstance(exchange, str) and isinstance(routing_key, str) and (exchange or routing_key):
        return Origin(exchange, routing_key, queue)
    return Origin("", queue, queue)


def _deaths_text(headers: Mapping[str, Any], deaths: list[Death]) -> str | None:
    return dumps(headers["x-death"]) if deaths else None


def _details_text(details: Mapping[str, Any], metadata: Mapping[str, Any]) -> str | None:
    """The message and the stack are kept with the attempt, redacted. None: it is nested too deep to be anything."""
    kept = {name: value for name, value in details.items() if name not in ("stack_trace", "error_message")}
    try:
        return dumps({"error_details": kept, "metadata": dict(metadata)})
    except RecursionError:
        return None


def _redriven(headers: Mapping[str, Any]) -> Redriven | None:
    letter, replays = headers.get(LETTER), headers.get(REPLAYS)
    if not isinstance(letter, str) or not isinstance(replays, int) or not 0 < replays <= MAX_REPLAYS:
        return None
    try:
        return Redriven(UUID(letter), replays)
    except ValueError:
        return None


def _without_suffix(source: str) -> str | None:
    name = source.removesuffix(DEAD_SUFFIX)
    return name if name and name != source else None


def _reason(text: str | None) -> Reason | None:
    return Reason(text) if text in set(Reason) else None


def _moment(unix_s: object) -> datetime | None:
    if isinstance(unix_s, bool) or not isinstance(unix_s, int | float) or not 0 < unix_s <= MAX_UNIX_S:
        return None
    return datetime.fromtimestamp(unix_s, UTC)


def _whole(value: object) -> int:
    return min(max(value, 0), 1_000_000) if isinstance(value, int) and not isinstance(value, bool) else 0


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
