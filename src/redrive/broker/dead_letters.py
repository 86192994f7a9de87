"""The message that a consumer leaves in its dead-letter queue, written and read.

    {"original_message": …, "error_details": {…}, "metadata": {…}}

`original_message` is the body as it came, byte for byte where it is JSON; else an object that holds it in base64. Where
the message came from and what its properties were is told by headers. Others may write the same form without them.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from redrive.broker.properties import Headers, copy_of, headers_of
from redrive.broker.traces import (
    AROUND,
    CATEGORY,
    CONTENT_ENCODING,
    CONTENT_TYPE,
    ENCODING,
    EXCHANGE,
    OF_DEATH,
    QUEUE,
    REASON,
    ROUTING_KEY,
)
from redrive.broker.wire import Properties

JSON_TYPE = "application/json"

_BASE64 = "base64"
_WHITESPACE = b" \t\n\r"
_TENANT_NAMES = ("tenantId", "tenant_id")
_INTERNAL_NAMES = ("internalId", "internal_id")


class ErrorDetails(msgspec.Struct, frozen=True, kw_only=True):
    error_type: str
    error_message: str
    stack_trace: str | None
    retry_count: int
    first_attempt_timestamp: int
    last_attempt_timestamp: int


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    tenant_id: str | int | None
    internal_id: str | int | None
    dlq_timestamp: int
    service: str
    service_version: str


class _Written(msgspec.Struct, frozen=True):
    original_message: msgspec.Raw
    error_details: ErrorDetails
    metadata: Metadata


class _Read(msgspec.Struct, frozen=True):
    """Of what others write, only the form is known."""

    original_message: msgspec.Raw
    error_details: dict[str, Any]
    metadata: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Original:
    """A message as it was before it died, and what was said of its death."""

    body: bytes
    properties: Properties
    error_details: Mapping[str, Any]
    metadata: Mapping[str, Any]
    exchange: str | None
    routing_key: str | None
    queue: str | None
    reason: str | None
    category: str | None


def write(
    body: bytes, properties: Properties, *, is_json: bool, details: ErrorDetails, metadata: Metadata, headers: Headers
) -> tuple[bytes, Properties]:
    """The dead-letter message; `headers` come on top of those of the message itself."""
    told: Headers = {CONTENT_TYPE: properties.content_type, CONTENT_ENCODING: properties.content_encoding}
    if is_json:
        inner = body.strip(_WHITESPACE)
        original = msgspec.Raw(inner)
        if inner != body:
            before = body.index(inner)
            told[AROUND] = [body[:before].decode(), body[before + len(inner) :].decode()]
    else:
        told[ENCODING] = _BASE64
        original = msgspec.Raw(
            msgspec.json.encode({"encoding": _BASE64, "data": base64.b64encode(body).decode()}),
        )
    told = {name: value for name, value in told.items() if value is not None}
    # Of another death it tells nothing: somebody may have moved a dead letter back by hand.
    own = {name: value for name, value in headers_of(properties).items() if name not in OF_DEATH}
    copied = copy_of(properties, {**own, **headers, **told})
    copied.content_type, copied.content_encoding = JSON_TYPE, None
    return msgspec.json.encode(_Written(original, details, metadata)), copied


def read(body: bytes, properties: Properties) -> Original | None:
    """None where it is another kind of message."""
    try:
        found = msgspec.json.decode(body, type=_Read)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    headers = headers_of(properties)
    original = _original_body(bytes(found.original_message), headers)
    if original is None:
        return None
    kept = copy_of(properties, {name: value for name, value in headers.items() if name not in OF_DEATH})
    kept.content_type = _text(headers.get(CONTENT_TYPE))
    kept.content_encoding = _text(headers.get(CONTENT_ENCODING))
    if REASON not in headers:  # another's: it says nothing of the type, and the body is JSON
        kept.content_type = JSON_TYPE
    named = {name: _text(headers.get(header)) for name, header in _NAMED.items()}
    return Original(original, kept, found.error_details, found.metadata, **named)


_NAMED = {"exchange": EXCHANGE, "routing_key": ROUTING_KEY, "queue": QUEUE, "reason": REASON, "category": CATEGORY}


def _original_body(raw: bytes, headers: Headers) -> bytes | None:
    if headers.get(ENCODING) == _BASE64:
        try:
            return base64.b64decode(msgspec.json.decode(raw)["data"], validate=True)
        except (msgspec.MsgspecError, RecursionError, ValueError, LookupError, TypeError):
            return None
    match headers.get(AROUND):
        case [str(before), str(behind)] if not (before + behind).strip(_WHITESPACE.decode()):
            return before.encode() + raw + behind.encode()
    return raw


def names_in(payload: object) -> tuple[str | int | None, str | int | None]:
    """The tenant and the internal id that a message names, by either spelling."""
    if not isinstance(payload, Mapping):
        return None, None
    return _first(payload, _TENANT_NAMES), _first(payload, _INTERNAL_NAMES)


def _first(payload: Mapping[Any, Any], names: tuple[str, ...]) -> str | int | None:
    for name in names:
        value = payload.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool):
            return value
    return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
