"""What an edge and its hubs say to each other: one JSON text per message, bodies in base64. Pure.

Written and read by destinations.relay and api.hub_door on the edge's side, by the hub on its own. Neither trusts the
other: what is too long, too large or of another shape is a BadMessage.
"""

import json
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import UUID

from redrive.core.outcome import Category

VERSION = 1
MAX_ANSWER_BYTES = 65_536  # of the local service's answer; the rest is not sent
MAX_ANSWER_HEADERS_BYTES = 131_072  # of its headers, as JSON
MAX_HUB_MESSAGE_BYTES = 262_144  # an answer with its headers
MAX_EDGE_MESSAGE_BYTES = 4 * 1024 * 1024  # a payload with its headers
MAX_TEXT_CHARS = 2_048
MAX_HEADERS = 200
MAX_HEADER_CHARS = 65_536
LOCAL_CATEGORIES = frozenset({Category.NETWORK, Category.TIMEOUT, Category.CONFIGURATION})

T = TypeVar("T")


class BadMessage(ValueError):
    """Not a message that can be used. Nothing of it is repeated."""


class Hello(NamedTuple):
    """A hub's first words: where it forwards to, for people to read."""

    forward: str


class Welcome(NamedTuple):
    """The edge's answer, and again when it changes: whether this hub is the one that delivers."""

    endpoint: str
    delivers: bool


class Delivery(NamedTuple):
    """One try. Headers are those to be sent, signature included."""

    id: UUID  # of the task
    fence: int
    event_id: UUID
    event_type: str
    attempt: int
    timeout_s: float
    headers: Mapping[str, str]
    content_type: str
    body: bytes

    def __repr__(self) -> str:  # headers and body may hold secrets
        return f"Delivery({self.id}, fence={self.fence})"


class Answered(NamedTuple):
    """The local service answered."""

    id: UUID
    fence: int
    status: int
    headers: Mapping[str, str]
    body: bytes
    truncated: bool

    def __repr__(self) -> str:
        return f"Answered({self.id}, fence={self.fence}, status={self.status})"


class Unanswered(NamedTuple):
    """It did not. `sent`: it may have seen the request all the same. Category configuration: it cannot be sent, now or
    later.
    """

    id: UUID
    fence: int
    error: str
    category: Category
    sent: bool


FromHub = Hello | Answered | Unanswered
FromEdge = Welcome | Delivery


def encode(message: FromHub | FromEdge) -> str:
    match message:
        case Hello(forward=forward):
            fields: dict[str, object] = {"type": "hello", "version": VERSION, "forward": forward}
        case Welcome(endpoint=endpoint, delivers=delivers):
            fields = {"type": "welcome", "endpoint": endpoint, "delivers": delivers}
        case Delivery():
            fields = {"type": "delivery", **message._asdict(), "headers": dict(message.headers)}
        case Answered():
            fields = {"type": "result", **message._asdict(), "headers": dict(message.headers)}
        case Unanswered():
            fields = {"type": "result", **message._asdict(), "category": message.category.value}
    return json.dumps({name: _plain(value) for name, value in fields.items()})


def from_hub(text: str) -> FromHub:
    """BadMessage where it is none."""
    fields = _fields(text, MAX_HUB_MESSAGE_BYTES)
    match fields.get("type"):
        case "hello":
            if fields.get("version") != VERSION:
                raise BadMessage(f"this edge speaks version {VERSION}")
            return Hello(_text(fields, "forward"))
        case "result" if "error" in fields:
            return Unanswered(
                _id(fields, "id"),
                _count(fields, "fence"),
                _text(fields, "error"),
                _category(fields),
                _of(fields, "sent", bool),
            )
        case "result":
            status = _count(fields, "status")
            if not 100 <= status <= 999:
                raise BadMessage("status is out of range")
            body = _body(fields)
            if len(body) > MAX_ANSWER_BYTES:
                raise BadMessage("body is too large")
            return Answered(
                _id(fields, "id"),
                _count(fields, "fence"),
                status,
                _headers(fields),
                body,
                _of(fields, "truncated", bool),
            )
    raise BadMessage("it has no type that is known")


def from_edge(text: str) -> FromEdge:
    """BadMessage where it is none."""
    fields = _fields(text, MAX_EDGE_MESSAGE_BYTES)
    match fields.get("type"):
        case "welcome":
            return Welcome(_text(fields, "endpoint"), _of(fields, "delivers", bool))
        case "delivery":
            timeout_s = fields.get("timeout_s")
            if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not 0 < timeout_s < 1e6:
                raise BadMessage("timeout_s is no time")
            return Delivery(
                _id(fields, "id"),
                _count(fields, "fence"),
                _id(fields, "event_id"),
                _text(fields, "event_type"),
                _count(fields, "attempt"),
                float(timeout_s),
                _headers(fields),
                _text(fields, "content_type"),
                _body(fields),
            )
    raise BadMessage("it has no type that is known")


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return str(value) if isinstance(value, UUID) else value


def _fields(text: str, limit_bytes: int) -> dict[str, Any]:
    if len(text) > limit_bytes:
        raise BadMessage("it is too large")
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        raise BadMessage("it is not JSON") from None
    if not isinstance(fields, dict):
        raise BadMessage("it is no object")
    return fields


def _of(fields: Mapping[str, Any], name: str, kind: type[T]) -> T:
    value = fields.get(name)
    if not isinstance(value, kind):
        raise BadMessage(f"{name} is no {kind.__name__}")
    return value


def _text(fields: Mapping[str, Any], name: str) -> str:
    text = _of(fields, name, str)
    if len(text) > MAX_TEXT_CHARS:
        raise BadMessage(f"{name} is too long")
    return text


def _count(fields: Mapping[str, Any], name: str) -> int:
    value = _of(fields, name, int)
    if isinstance(value, bool) or not 0 <= value < 2**31:
        raise BadMessage(f"{name} is no count")
    return value


def _id(fields: Mapping[str, Any], name: str) -> UUID:
    try:
        return UUID(_of(fields, name, str))
    except ValueError:
        raise BadMessage(f"{name} is no id") from None


def _category(fields: Mapping[str, Any]) -> Category:
    for category in LOCAL_CATEGORIES:
        if fields.get("category") == category.value:
            return category
    raise BadMessage("category is none that is known")


def _body(fields: Mapping[str, Any]) -> bytes:
    try:
        return b64decode(_of(fields, "body", str), validate=True)
    except (Base64Error, ValueError):
        raise BadMessage("body is no base64") from None


def _headers(fields: Mapping[str, Any]) -> dict[str, str]:
    headers = _of(fields, "headers", dict)
    if len(headers) > MAX_HEADERS or not all(
        isinstance(value, str) and len(value) <= MAX_HEADER_CHARS for value in headers.values()
    ):
        raise BadMessage("headers are too many, or no texts")
    return headers


# -- where hubs are let in ---------------------------------------------------------------------------------------------


class HubLink(Protocol):
    """A connection that a hub opened."""

    def post(self, text: str) -> None:
        """Send a message, soon and in order. Where the connection is gone, nothing happens."""

    def end(self) -> None:
        """Its hub is silent: let it go. It may connect again."""


class HubSeat(Protocol):
    """A hub's place among those of its endpoint."""

    def heard(self, result: Answered | Unanswered) -> None: ...

    def leave(self) -> None: ...


class Hubs(Protocol):
    """Where hubs are let in to deliver."""

    @property
    def is_closing(self) -> bool:
        """The process ends: nobody is let in any more."""

    def join(self, org_id: UUID, endpoint_id: UUID, endpoint: str, link: HubLink, forward: str) -> HubSeat | None:
        """`endpoint` is its name, `forward` where the hub delivers to. None: there is no room for another hub."""

    def count(self, endpoint_id: UUID) -> int:
        """How many are connected for an endpoint, to this process."""
