"""What a dead letter was in its broker, as its page tells it, and where a retry brings it. Pure.

Made by detail, shown by templates/task_parts.html.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from redrive.api import broker_shapes
from redrive.api.context import BrokerTerms
from redrive.api.shapes import Row, Shape
from redrive.web import bodies
from redrive.web.bodies import Body

MAX_DEATHS_SHOWN = 20
MAX_VALUE_CHARS = 1_000  # of a header
DEFAULT_EXCHANGE = "the default exchange"


@dataclass(frozen=True, slots=True)
class Death:
    """A line of x-death. Whatever is missing there is a dash."""

    queue: str
    reason: str
    count: str
    at: str
    exchange: str
    routing_keys: str


@dataclass(frozen=True, slots=True)
class BrokerView:
    """`way_back`: in words, behind "It goes back". `is_connected`: somebody may publish it there."""

    shape: Shape
    retries: int  # that were made there
    properties: Mapping[str, str]
    headers: Mapping[str, str]
    deaths: tuple[Death, ...]
    more_deaths: int
    details: Body | None
    way_back: str
    is_connected: bool

    @property
    def exchange(self) -> str:
        return str(self.shape["exchange"]) or DEFAULT_EXCHANGE


def broker_view(row: Row | None, terms: BrokerTerms | None) -> BrokerView | None:
    shape = broker_shapes.message(row)
    if row is None or shape is None:
        return None
    properties, deaths = shape["properties"], shape["deaths"]
    assert isinstance(properties, dict)
    assert isinstance(deaths, list)
    headers = properties.get("headers")
    details = shape["details"]
    return BrokerView(
        shape=shape,
        retries=row["retries"],
        properties={str(name): _text(value) for name, value in properties.items() if name != "headers"},
        headers={str(name): _text(value) for name, value in headers.items()} if isinstance(headers, dict) else {},
        deaths=tuple(_death(death) for death in deaths[:MAX_DEATHS_SHOWN]),
        more_deaths=max(len(deaths) - MAX_DEATHS_SHOWN, 0),
        details=None if details is None else bodies.bounded(Body(msgspec.json.encode(details).decode())),
        way_back=_way_back(shape, terms),
        is_connected=terms is not None,
    )


def _way_back(shape: Shape, terms: BrokerTerms | None) -> str:
    if terms is not None and terms.redrive_to == "queue":
        return f"straight to the queue “{shape['queue']}”"
    exchange = f"exchange “{shape['exchange']}”" if shape["exchange"] else DEFAULT_EXCHANGE
    return f"to {exchange} with the routing key “{shape['routing_key']}”"


def _death(told: object) -> Death:
    line = told if isinstance(told, dict) else {"queue": told}
    keys = line.get("routing-keys")
    return Death(
        queue=_text(line.get("queue")),
        reason=_text(line.get("reason")),
        count=_text(line.get("count")),
        at=_text(line.get("time")),
        exchange=_text(line.get("exchange")),
        routing_keys=", ".join(_text(key) for key in keys) if isinstance(keys, list) else _text(keys),
    )


def _text(value: object) -> str:
    """A value of a header on one line."""
    if value is None:
        return "–"
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= MAX_VALUE_CHARS else text[:MAX_VALUE_CHARS] + "…"
