"""Reading events as producers send them: one JSON object, an array of them, or one per line. Pure.

The payload is never rebuilt: its bytes are stored as they came. Called by front_door and cloud_events.
"""

import json
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

import msgspec

from redrive.api.correlation import MAX_CORRELATION_CHARS
from redrive.api.json_rules import BadJson, decode_strictly, explain
from redrive.api.problems import FieldError, Place, Problem, invalid, payload_too_large
from redrive.observe.traces import Entry
from redrive.store.events import MAX_BATCH_EVENTS, MAX_PAYLOAD_BYTES, NewEvent
from redrive.store.keys import Caller

MAX_EVENT_TYPE_CHARS = 200
MAX_TEXT_CHARS = 200
MAX_POLICY_NAME_CHARS = 100
MAX_IDEMPOTENCY_KEY_CHARS = 255
ENVELOPE_BYTES = 16_384  # what may stand around a payload
MAX_EVENT_BYTES = MAX_PAYLOAD_BYTES + ENVELOPE_BYTES
MAX_BATCH_BYTES = 8 * 1024 * 1024
MAX_BLANK_LINES = MAX_BATCH_EVENTS
EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
LATEST = datetime(9999, 1, 1, tzinfo=UTC)  # the very last moment reads as infinity in the database

_EventType = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_EVENT_TYPE_CHARS)]
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TEXT_CHARS)]
_PolicyName = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_POLICY_NAME_CHARS)]
_Correlation = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_CORRELATION_CHARS)]
_Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class EventIn(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    event_type: _EventType
    payload: msgspec.Raw
    event_id: UUID | None = None
    timestamp: _Moment | None = None
    endpoint_id: UUID | None = None
    ordering_key: _Text | None = None
    policy: _PolicyName | None = None
    external_system: _Text | None = None
    correlation_id: _Correlation | None = None


_one = msgspec.json.Decoder(EventIn)
_many = msgspec.json.Decoder(list[EventIn])
# Numbers are only stepped over here: an integer of a million digits must not be converted.
_stepper = json.JSONDecoder(parse_int=len, parse_float=len)

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_KEY = re.compile(rb"[ -~]{1,255}")
_BLANK = re.compile(r"[ \t\r\n]*+")
_FIELD = re.compile(r"(Object (?:missing required|contains unknown) field) `(.*)`", re.DOTALL)
_PLACED = re.compile(r"(.*) - at `\$(.*)`", re.DOTALL)
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")


def idempotency_key_in(given: bytes | None) -> str | None:
    if given is None:
        return None
    if not _KEY.fullmatch(given):
        message = f"must be 1 to {MAX_IDEMPOTENCY_KEY_CHARS} printable ASCII characters"
        raise invalid(FieldError(("header", "Idempotency-Key"), message))
    return given.decode("ascii")


def read_event(body: bytes) -> EventIn:
    """One event, or Problem 422 with the place of what is wrong."""
    try:
        return _one.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise invalid(decoding_error(body, error, ("body",))) from None


def read_array(body: bytes) -> Iterator[EventIn | FieldError]:
    """The events of an array. An element that cannot be used is answered for itself; a broken array is a Problem."""
    try:
        events = _many.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _read_each(elements(body, error))
    if len(events) > MAX_BATCH_EVENTS:
        raise _too_many()
    return iter(events)


def read_lines(body: bytes) -> Iterator[EventIn | FieldError]:
    """The events of NDJSON; blank lines do not count."""
    lines = body.split(b"\n", MAX_BATCH_EVENTS + MAX_BLANK_LINES)
    if b"\n" in lines[-1]:
        raise _too_many()
    filled = [line for line in lines if line.strip()]
    if len(filled) > MAX_BATCH_EVENTS:
        raise _too_many()
    return _read_each(filled)


def new_event(
    given: EventIn, caller: Caller, event_id: UUID, correlation_id: str, place: Place, entry: Entry | None = None
) -> NewEvent:
    """The event as it is stored, or Problem 422."""
    body = bytes(given.payload)
    if len(body) > MAX_PAYLOAD_BYTES:
        raise payload_too_large(MAX_PAYLOAD_BYTES)
    try:
        decode_strictly(body)
    except BadJson as bad:
        raise invalid(FieldError((*place, "payload", *bad.place), bad.message)) from None
    for name in ("event_type", "ordering_key", "policy", "external_system", "correlation_id"):
        text: str | None = getattr(given, name)
        if text is not None and not text.isprintable() and _CONTROL.search(text):
            raise invalid(FieldError((*place, name), "must not hold control characters"))
    return NewEvent(
        caller.org_id,
        event_id,
        given.event_type,
        body,
        None if given.timestamp is None else moment(given.timestamp, (*place, "timestamp")),
        given.endpoint_id,
        None,
        given.policy,
        given.external_system,
        given.ordering_key,
        given.correlation_id or correlation_id,
        None,
        None if entry is None else entry.headers,
        caller.actor,
    )


def moment(given: datetime, place: Place) -> datetime:
    """A time in UTC, or Problem 422 where the database could not keep it."""
    if not EARLIEST.year < given.year < LATEST.year:  # a year from the ends, no offset leads out of range
        message = f"must lie between the years {EARLIEST.year} and {LATEST.year}"
        raise invalid(FieldError(place, message))
    return given.astimezone(UTC)


def _read_each(texts: Sequence[bytes]) -> Iterator[EventIn | FieldError]:
    for index, text in enumerate(texts):
        try:
            yield _one.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            yield decoding_error(text, error, ("body", index))


def elements(body: bytes, error: Exception) -> list[bytes]:
    """The elements of an array as texts. Stops at the limit: a hostile array has millions."""
    if body.lstrip(b" \t\r\n").startswith(b"{"):
        message = "must be an array. One event per line is read with Content-Type: application/x-ndjson"
        raise invalid(FieldError(("body",), message))
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise invalid(decoding_error(body, error, ("body",))) from None
    found: list[bytes] = []
    try:
        at = _past(text, 0, "[")
        while not text.startswith("]", at):
            if found:
                at = _past(text, at, ",")
            if len(found) == MAX_BATCH_EVENTS:
                raise _too_many()
            _, end = _stepper.raw_decode(text, at)
            found.append(text[at:end].encode())
            at = _skip_blanks(text, end)
        if _skip_blanks(text, at + 1) < len(text):
            raise ValueError("something follows the array")
    except (ValueError, RecursionError):
        raise invalid(decoding_error(body, error, ("body",))) from None
    return found


def _past(text: str, at: int, mark: str) -> int:
    """Behind this mark and the blanks around it."""
    at = _skip_blanks(text, at)
    if not text.startswith(mark, at):
        raise ValueError(f"no {mark} here")
    return _skip_blanks(text, at + 1)


def _skip_blanks(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    return blank.end() if blank else at


def _too_many() -> Problem:
    return Problem(413, f"A batch holds at most {MAX_BATCH_EVENTS} events.")


def decoding_error(body: bytes, error: Exception, place: Place) -> FieldError:
    if not isinstance(error, msgspec.ValidationError):
        bad = explain(body, error)
        return FieldError((*place, *bad.place), bad.message)
    message, path = str(error), ""
    if placed := _PLACED.fullmatch(message):
        message, path = placed.groups()
    steps: list[str | int] = [int(index) if index else name for name, index in _STEP.findall(path)]
    if field := _FIELD.fullmatch(message):
        message, name = field.groups()
        steps.append(name[:MAX_TEXT_CHARS])
    return FieldError((*place, *steps), message)
