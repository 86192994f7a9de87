"""Properties of messages: copied for another publish, and as JSON text that brings back what it was made of.

JSON knows neither bytes, times nor decimals: they are objects with one key that begins with a dollar sign.
"""

import base64
import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from pamqp.commands import Basic

from redrive.broker.wire import Deep, FarTime, Properties

Headers = dict[str, Any]

PERSISTENT = 2

# What the broker adds itself, or acts upon: a copy would be sent to others too (CC), or be taken for a circle and
# dropped (x-death).
_BROKERS_OWN = frozenset(
    {
        "x-death",
        "x-first-death-queue",
        "x-first-death-reason",
        "x-first-death-exchange",
        "x-last-death-queue",
        "x-last-death-reason",
        "x-last-death-exchange",
        "x-delivery-count",
        "cc",
        "bcc",
    }
)
_KEPT = (
    "content_type",
    "content_encoding",
    "priority",
    "correlation_id",
    "reply_to",
    "message_id",
    "timestamp",
    "message_type",
    "app_id",
)


def copy_of(properties: Basic.Properties, headers: Mapping[str, Any]) -> Properties:
    """For another publish: persistent, without an expiry, and with these headers.

    `user_id` stays behind: the broker refuses one that is not the publisher's own.
    """
    kept = {name: getattr(properties, name) for name in _KEPT}
    return Properties(**kept, headers=dict(headers) or None, delivery_mode=PERSISTENT)


def headers_of(properties: Basic.Properties) -> Headers:
    """Those that the publisher set."""
    return {name: value for name, value in (properties.headers or {}).items() if str(name).lower() not in _BROKERS_OWN}


def to_json(properties: Basic.Properties) -> str:
    """All that is known of it, its user too; headers as `headers_of`."""
    kept = {name: getattr(properties, name) for name in (*_KEPT, "expiration", "delivery_mode", "user_id")}
    told = {name: value for name, value in kept.items() if value is not None}
    headers = headers_of(properties)
    return dumps(told | ({"headers": headers} if headers else {}))


def from_json(text: str) -> Properties:
    told = loads(text)
    kept = {name: told.get(name) for name in _KEPT}
    return copy_of(Properties(**kept), told.get("headers") or {})


def dumps(value: object) -> str:
    """In ASCII: what PostgreSQL's text cannot hold is escaped."""
    return json.dumps(_plain(value), separators=(",", ":"), allow_nan=False)


def loads(text: str) -> Any:
    return _restored(json.loads(text))


def _plain(value: object) -> object:
    match value:
        case FarTime():
            return {"$far_time": int(value)}
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"$float": str(value)}
        case Deep():
            return {"$deep": base64.b64encode(value).decode()}
        case bytes():
            return {"$bytes": base64.b64encode(value).decode()}
        case bytearray():
            return {"$bytearray": base64.b64encode(value).decode()}
        case datetime():
            return {"$time": value.astimezone(UTC).isoformat().replace("+00:00", "Z")}
        case Decimal():
            return {"$decimal": str(value)}
        case Mapping():
            plain = {str(key): _plain(item) for key, item in value.items()}
            return {"$object": plain} if any(key.startswith("$") for key in plain) else plain
        case list() | tuple():
            return [_plain(item) for item in value]
    return {"$text": str(value)}


def _restored(value: Any) -> Any:
    match value:
        case {"$float": str(text)}:
            return float(text)
        case {"$bytes": str(text)}:
            return base64.b64decode(text)
        case {"$bytearray": str(text)}:
            return bytearray(base64.b64decode(text))
        case {"$deep": str(text)}:
            return Deep(base64.b64decode(text))
        case {"$time": str(text)}:
            return datetime.fromisoformat(text)
        case {"$far_time": int(number)}:
            return FarTime(number)
        case {"$decimal": str(text)}:
            return Decimal(text)
        case {"$text": str(text)}:
            return text
        case {"$object": dict(inner)}:
            return {key: _restored(item) for key, item in inner.items()}
        case dict():
            return {key: _restored(item) for key, item in value.items()}
        case list():
            return [_restored(item) for item in value]
    return value
