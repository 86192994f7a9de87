"""Messages and queues of a broker as the JSON that clients see, what looks secret hidden. Pure.

Called by the routes of dead letters, logs and the broker, by the pages and by the command line.
"""

from redrive.api.shapes import Row, Shape
from redrive.core.redact import redact_json
from redrive.store.dead_messages import MAX_OPEN_COUNTED

# What JSON has no value for is stored as an object with one such key (see broker.properties).
_TAGS = frozenset({"$time", "$far_time", "$decimal", "$float", "$text", "$object"})
_BYTES = "$bytes"


def message(row: Row | None) -> Shape | None:
    """What a dead letter was in its broker; None: it never was in one."""
    if row is None:
        return None
    properties, deaths = _read(row["properties"]), _read(row["deaths"])
    return {
        "source": row["source"],
        "queue": row["queue"],
        "exchange": row["exchange"],
        "routing_key": row["routing_key"],
        "message_id": row["message_id"],
        "service": row["service"],
        # What is too long to be read whole is a text that was cut.
        "properties": properties if isinstance(properties, dict) else {"text": properties},
        "deaths": deaths if isinstance(deaths, list) else [] if deaths is None else [{"text": deaths}],
        "details": _read(row["details"]),
        "redriven_from": row["redriven_from"],
        "collected_at": row["collected_at"],
    }


def queue(row: Row) -> Shape:
    return {
        "queue": row["queue"],
        "is_source": row["is_source"],
        "problem": row["problem"],
        "messages": row["messages"],
        "consumers": row["consumers"],
        "collected": row["collected"],
        "duplicates": row["duplicates"],
        "seen_at": row["seen_at"],
        "collected_at": row["collected_at"],
        "open_letters": min(row["open_letters"], MAX_OPEN_COUNTED),
        "is_whole": row["open_letters"] <= MAX_OPEN_COUNTED,
    }


def _read(stored: str | None) -> object:
    return None if stored is None else _plain(redact_json(stored))


def _plain(value: object) -> object:
    """Times, decimals and bytes as texts and numbers."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((key, inner),) = value.items()
        if key in _TAGS:
            return _plain(inner)
        if key == _BYTES:
            return f"base64:{inner}"
    return {key: _plain(item) for key, item in value.items()}
