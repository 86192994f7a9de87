"""Log lines for a person at a terminal: the time of day, how bad it is, what happened, then the facts in one order.

    14:02:07.381 warn  delivery_failure     attempt=1 error="HTTP 503 Service Unavailable" event=…7a3cd91f

Ids are shortened to their end, where they differ; times of the same day to the time. Whoever needs all of it asks for
JSON. Used by observe.logs; pure but for the colours it is told to use.
"""

import re
from collections.abc import Iterator, MutableMapping
from typing import Any

EVENT_CHARS = 20
SHOWN_ID_CHARS = 8
MAX_VALUE_CHARS = 300

_LEVELS = {"debug": "debug", "info": "info", "warning": "warn", "error": "ERROR", "critical": "FATAL"}
_COLOURS = {"debug": 90, "info": 36, "warning": 33, "error": 31, "critical": 35}
_DIM, _BOLD = 90, 1
# What a person looks for first, before anything else; and behind it, what only leads elsewhere.
_FIRST = ("old_status", "new_status", "attempt", "retry_attempts", "error", "error_type", "why", "reason")
_WHERE = ("event_id", "task", "run_id", "step_index", "endpoint_id", "org_id")
_LAST = (*_WHERE, "actor", "user_id", "key_id", "correlation_id")
_LEFT_OUT = frozenset({"event", "level", "@timestamp", "service"})
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT(\d\d:\d\d:\d\d)(\.\d{1,3})?\d*(Z|\+00:00)?")
_PLAIN = re.compile(r"[^\s\"=]+")
# What would move the cursor, break the line or turn its direction. A stack has lines of its own.
_BREAKS = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_BREAKS_IN_LINES = re.compile(rf"(?![\n\t]){_BREAKS.pattern}")


class Console:
    """The last of structlog's processors."""

    def __init__(self, *, colours: bool) -> None:
        self._colours = colours

    def __call__(self, logger: object, method: str, facts: MutableMapping[str, Any]) -> str:
        level = str(facts.get("level", method))
        at, day = _time_of(str(facts.get("@timestamp", "")))
        name = _BREAKS.sub(" ", str(facts.get("event", "")))
        stack = [_BREAKS_IN_LINES.sub(" ", str(facts.pop(key))) for key in ("exception", "stack") if facts.get(key)]
        parts = [
            self._in(_DIM, at.ljust(12)),
            self._in(_COLOURS.get(level, 0), _LEVELS.get(level, level).ljust(5)),
            self._in(_BOLD, name.ljust(EVENT_CHARS)),
            *(f"{self._in(_DIM, key + '=')}{value}" for key, value in _facts(facts, day)),
        ]
        return "\n".join([" ".join(parts).rstrip(), *stack])

    def _in(self, colour: int, text: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._colours and colour else text


def _facts(facts: MutableMapping[str, Any], day: str) -> Iterator[tuple[str, str]]:
    moved = facts.get("old_status"), facts.get("new_status")
    keys = [key for key in facts if key not in _LEFT_OUT]
    order = {key: n for n, key in enumerate((*_FIRST, *(k for k in keys if k not in _FIRST + _LAST), *_LAST))}
    for key in sorted(keys, key=order.__getitem__):
        if facts[key] is None:
            continue
        if key == "old_status" and moved[1] is not None:
            continue
        value = f"{moved[0]}→{moved[1]}" if key == "new_status" and moved[0] else _shown(facts[key], day)
        yield {"new_status": "status", "event_id": "event"}.get(key, key.removesuffix("_id")), value


def _shown(value: object, day: str) -> str:
    text = str(value)
    if _ID.fullmatch(text):
        return f"…{text[-SHOWN_ID_CHARS:]}"
    if (time := _TIME.fullmatch(text)) and text.startswith(day):
        return time[1]
    text = _BREAKS.sub(" ", text)
    if len(text) > MAX_VALUE_CHARS:
        text = f"{text[:MAX_VALUE_CHARS]}…"
    return text if _PLAIN.fullmatch(text) else f'"{text}"'


def _time_of(stamp: str) -> tuple[str, str]:
    """The time of day, to the millisecond; and the day."""
    found = _TIME.fullmatch(stamp)
    return (f"{found[1]}{(found[2] or '.000').ljust(4, '0')}", stamp[:10]) if found else (stamp, "-")
