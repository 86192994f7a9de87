"""CloudEvents 1.0 as producers send them over HTTP: structured, binary, or a batch. Pure.

The data is stored byte for byte with its content type. The attributes go out again with every delivery, as the headers
of the binary mode. Called by front_door.
"""

import binascii
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from enum import Enum, auto
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote, unquote_to_bytes
from uuid import UUID

import msgspec

from redrive.api.correlation import MAX_CORRELATION_CHARS
from redrive.api.event_input import (
    ENVELOPE_BYTES,
    MAX_EVENT_TYPE_CHARS,
    MAX_POLICY_NAME_CHARS,
    MAX_TEXT_CHARS,
    decoding_error,
    elements,
    moment,
)
from redrive.api.json_rules import BadJson, decode_strictly
from redrive.api.problems import FieldError, Place, Problem, invalid, payload_too_large
from redrive.core.ids import id_of_key
from redrive.core.trace import as_text, with_context
from redrive.observe.traces import Entry
from redrive.store.events import JSON_TYPE, MAX_PAYLOAD_BYTES, NewEvent
from redrive.store.keys import Caller

STRUCTURED_TYPE = "application/cloudevents+json"
BATCH_TYPE = "application/cloudevents-batch+json"
SPEC_VERSION = "1.0"
MAX_STRUCTURED_BYTES = -(-MAX_PAYLOAD_BYTES // 3) * 4 + ENVELOPE_BYTES  # the data may be base64
MAX_ATTRIBUTES = 64
MAX_NAME_CHARS = 64
MAX_ATTRIBUTES_BYTES = 8_192  # as headers, all together
MAX_CONTENT_TYPE_CHARS = 200
OCTETS_TYPE = "application/octet-stream"

# What Redrive is told by extension attributes. All but the last are meant for Redrive alone, and end here.
ENDPOINT, POLICY, ORDERING, CORRELATION = "redriveendpoint", "redrivepolicy", "redriveordering", "correlationid"
_TERMS = (ENDPOINT, POLICY, ORDERING)
_MOST_CHARS = {
    "type": MAX_EVENT_TYPE_CHARS,
    POLICY: MAX_POLICY_NAME_CHARS,
    ORDERING: MAX_TEXT_CHARS,
    CORRELATION: MAX_CORRELATION_CHARS,
}
_REQUIRED = ("id", "source", "specversion", "type")
_TEXTS = frozenset(
    {*_REQUIRED, "datacontenttype", "dataschema", "subject", "time"}
)  # not numbers, by the specification
_NEVER_EMPTY = frozenset({*_REQUIRED, *_MOST_CHARS, ENDPOINT, "dataschema", "subject", "time"})
_INTEGERS = range(-(2**31), 2**31)
_KINDS = b"application/cloudevents"

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_Moment = Annotated[datetime, msgspec.Meta(tz=True)]
_NAME = re.compile(r"[a-z0-9]{1,64}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_MEDIA_TYPE = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+/[!#$%&'*+.^_`|~0-9A-Za-z-]+)[ \t]*(?:;[ -~\t]*)?")
_JSON_MEDIA_TYPE = re.compile(r"(?:application|text)/json|[^/]+/[^/]+\+json", re.IGNORECASE)
_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_QUOTED = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_UNESCAPED = re.compile(rb"\\(.)", re.DOTALL)
_AS_IT_IS = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')

_NAMES = {"event_id": "id", "endpoint_id": ENDPOINT, "policy": POLICY}


class Mode(Enum):
    STRUCTURED = auto()
    BATCH = auto()
    BINARY = auto()


class CloudEvent(NamedTuple):
    """An event, read but not yet judged as a whole. Attributes are texts, without datacontenttype."""

    attributes: dict[str, str]
    content_type: str | None
    data: bytes
    in_headers: bool
    place: Place

    def where(self, *steps: str | int) -> Place:
        """Where the producer has put what we call by this name."""
        if not steps or steps[0] in ("data", "data_base64"):
            return (*self.place, *(steps[1:] if self.in_headers else steps))
        name = _NAMES.get(str(steps[0]), str(steps[0]))
        return ("header", f"ce-{name}") if self.in_headers else (*self.place, name)


def mode_of(headers: Mapping[bytes, bytes]) -> Mode | None:
    """How a request carries CloudEvents. None where it does not: its body is plain JSON, however it is labelled."""
    kind = headers.get(b"content-type")
    if kind is not None and kind[:23].lower() == _KINDS:
        media_type = kind.partition(b";")[0].strip().lower().decode("latin-1")
        if media_type not in (STRUCTURED_TYPE, BATCH_TYPE):
            raise Problem(415, f"CloudEvents are read as {STRUCTURED_TYPE}, {BATCH_TYPE}, or in binary mode (ce-*).")
        return Mode.STRUCTURED if media_type == STRUCTURED_TYPE else Mode.BATCH
    return Mode.BINARY if b"ce-specversion" in headers else None


def read_structured(body: bytes, place: Place = ("body",)) -> CloudEvent:
    try:
        members = _members.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise invalid(decoding_error(body, error, place)) from None
    if len(members) > MAX_ATTRIBUTES + 2:
        raise invalid(FieldError(place, f"has more than {MAX_ATTRIBUTES} attributes"))
    data, encoded = members.pop("data", None), members.pop("data_base64", None)
    attributes: dict[str, str] = {}
    errors: list[FieldError] = []
    for name, raw in members.items():
        try:
            text = _text_of(name, decode_strictly(raw))
        except BadJson as bad:
            errors.append(FieldError((*place, name[:MAX_NAME_CHARS]), bad.message))
            continue
        if text is not None:
            attributes[name] = text
    if errors:
        raise invalid(*errors)
    content_type = attributes.pop("datacontenttype", None)
    given = _data_of(data, encoded, content_type, place)
    if data is not None and content_type is None:
        content_type = JSON_TYPE
    return CloudEvent(attributes, content_type, given, False, place)


def read_batch(body: bytes) -> Iterator[CloudEvent | Problem]:
    """The events of a batch. One that cannot be used is answered for itself; a broken array is a Problem."""
    is_array = body.lstrip(b" \t\r\n").startswith(b"[")
    wrong = msgspec.DecodeError("JSON is malformed") if is_array else msgspec.ValidationError("Expected `array`")
    for index, text in enumerate(elements(body, wrong)):
        try:
            yield read_structured(text, ("body", index))
        except Problem as problem:
            yield problem


def read_binary(headers: Iterable[tuple[bytes, bytes]], body: bytes) -> CloudEvent:
    """Attributes from `ce-*` headers; the body is the data."""
    attributes: dict[str, str] = {}
    content_type: str | None = None
    errors: list[FieldError] = []
    for header, value in headers:
        if header == b"content-type":
            content_type = value.decode("latin-1").strip() or None
        if not header.startswith(b"ce-"):
            continue
        name = header[3:].decode("latin-1")
        try:
            if name in attributes:
                raise ValueError("is given twice")
            if name == "datacontenttype":
                raise ValueError("is told by the header Content-Type in binary mode; leave it out")
            attributes[name] = _header_text(value)
        except ValueError as error:
            errors.append(FieldError(("header", f"ce-{name[:MAX_NAME_CHARS]}"), str(error)))
    if errors:
        raise invalid(*errors)
    return CloudEvent(attributes, content_type, body, True, ("body",))


def new_event(given: CloudEvent, caller: Caller, correlation_id: str, entry: Entry | None = None) -> NewEvent:
    """The event as it is stored, or Problem 422."""
    attributes = given.attributes
    errors = [FieldError(given.where(name), "is needed") for name in _REQUIRED if name not in attributes]
    errors += [
        FieldError(given.where(name[:MAX_NAME_CHARS]), wrong)
        for name, text in attributes.items()
        if (wrong := _wrong_with(name, text)) is not None
    ]
    if len(attributes) > MAX_ATTRIBUTES:
        errors.append(FieldError(given.place, f"has more than {MAX_ATTRIBUTES} attributes"))
    if errors:
        raise invalid(*errors)
    if len(given.data) > MAX_PAYLOAD_BYTES:
        raise payload_too_large(MAX_PAYLOAD_BYTES)
    content_type = _content_type(given)
    endpoint, when = attributes.get(ENDPOINT), attributes.get("time")
    return NewEvent(
        caller.org_id,
        # The same source and id are the same event, whoever sends it again. Neither holds a line break.
        id_of_key(caller.org_id, "cloudevent", f"{attributes['source']}\n{attributes['id']}"),
        attributes["type"],
        given.data,
        None if when is None else moment(msgspec.convert(when, _Moment), given.where("time")),
        None if endpoint is None else UUID(endpoint),
        None,
        attributes.get(POLICY),
        None,
        attributes.get(ORDERING),
        attributes.get(CORRELATION) or correlation_id,
        None if content_type == JSON_TYPE else content_type,
        _headers(given, entry),
        caller.actor,
    )


def _text_of(name: str, value: object) -> str | None:
    """An attribute's value in its one text form; None for one that is not set."""
    match value:
        case None | str():
            return value
        case _ if name in _TEXTS:
            raise BadJson((), "must be a text")
        case bool():
            return "true" if value else "false"
        case int() if value in _INTEGERS:
            return str(value)
        case int():
            raise BadJson((), "is an integer out of range: CloudEvents have 32 bits for it")
    raise BadJson((), "must be a text, a whole number or a boolean")


def _data_of(data: msgspec.Raw | None, encoded: msgspec.Raw | None, content_type: str | None, place: Place) -> bytes:
    if encoded is not None and bytes(encoded) != b"null":
        if data is not None:
            raise invalid(FieldError((*place, "data_base64"), "cannot be given together with data; send one of them"))
        try:
            return b64decode(msgspec.json.decode(encoded, type=str), validate=True)
        except (msgspec.DecodeError, UnicodeDecodeError, binascii.Error, ValueError):
            raise invalid(FieldError((*place, "data_base64"), "is not a text in base64")) from None
    if data is None:
        return b""
    body = bytes(data)
    if content_type is not None and not _is_json(content_type) and body[:1] == b'"':
        try:
            text: Any = decode_strictly(body)
        except BadJson as bad:
            raise invalid(FieldError((*place, "data", *bad.place), bad.message)) from None
        return str(text).encode()
    return body


def _header_text(value: bytes) -> str:
    """A header's value as the attribute that it stands for: unquoted, then decoded once."""
    if quoted := _QUOTED.fullmatch(value.strip()):
        value = _UNESCAPED.sub(rb"\1", quoted.group(1))
    if _BAD_ESCAPE.search(value):
        raise ValueError("has a % that no two hexadecimal digits follow; write %25 for the sign itself")
    try:
        return unquote_to_bytes(value).decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("is not valid UTF-8, percent-encoded") from None


def _wrong_with(name: str, text: str) -> str | None:
    if not _NAME.fullmatch(name):
        return f"is no name of an attribute: 1 to {MAX_NAME_CHARS} lower-case letters and digits"
    if name == "data":
        return "is no attribute: it is the body in binary mode"
    if not text and name in _NEVER_EMPTY:
        return "must not be empty"
    if not text.isprintable() and _CONTROL.search(text):
        return "must not hold control characters"
    if len(text) > _MOST_CHARS.get(name, MAX_ATTRIBUTES_BYTES):
        return f"must have at most {_MOST_CHARS.get(name, MAX_ATTRIBUTES_BYTES)} characters"
    if name == "specversion" and text != SPEC_VERSION:
        return f"must be {SPEC_VERSION}"
    if name == "time":
        return _wrong_with_time(text)
    if name == ENDPOINT:
        try:
            UUID(text)
        except ValueError:
            return "must be the id of an endpoint, a UUID"
    return None


def _wrong_with_time(text: str) -> str | None:
    try:
        msgspec.convert(text, _Moment)
    except msgspec.ValidationError:
        return "must be a time with a zone, as in 2026-01-31T09:00:00Z"
    return None


def _content_type(given: CloudEvent) -> str:
    """The data's type. JSON where none is named and the data is JSON; what is named JSON must be."""
    named = given.content_type
    if named is not None and (len(named) > MAX_CONTENT_TYPE_CHARS or not _MEDIA_TYPE.fullmatch(named)):
        place = ("header", "content-type") if given.in_headers else (*given.place, "datacontenttype")
        message = f"must be a media type of at most {MAX_CONTENT_TYPE_CHARS} characters, as in {JSON_TYPE}"
        raise invalid(FieldError(place, message))
    if not given.data or (named is not None and not _is_json(named)):
        return named or JSON_TYPE
    try:
        decode_strictly(given.data)
    except BadJson as bad:
        if named is None:
            return OCTETS_TYPE
        raise invalid(FieldError(given.where("data", *bad.place), bad.message)) from None
    return named or JSON_TYPE


def _is_json(content_type: str) -> bool:
    return _JSON_MEDIA_TYPE.fullmatch(content_type.partition(";")[0].strip()) is not None


def _headers(given: CloudEvent, entry: Entry | None) -> str:
    """The attributes as they are sent, in one order: the same event reads the same, whatever its producer's order."""
    sent = {
        f"ce-{name}": quote(text, safe=_AS_IT_IS)
        for name, text in sorted(given.attributes.items())
        if name not in _TERMS
    }
    if sum(len(name) + len(value) + 4 for name, value in sent.items()) > MAX_ATTRIBUTES_BYTES:
        raise invalid(
            FieldError(given.place, f"its attributes are larger than {MAX_ATTRIBUTES_BYTES} bytes as headers")
        )
    return as_text(sent if entry is None else with_context(sent, entry.traceparent, entry.tracestate))
