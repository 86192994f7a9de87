"""Dead-letter messages: what was written is read again byte for byte, and whatever lies in such a queue can be read."""

import json
from typing import Any

import pytest
from aiormq.abc import DeliveredMessage
from hypothesis import given
from hypothesis import strategies as st
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from redrive.broker import dead_letters, traces
from redrive.broker.dead_letters import ErrorDetails, Metadata
from redrive.broker.properties import headers_of
from redrive.broker.wire import Properties
from redrive.core.broker import ConsumerSpec, Origin
from redrive.sources.delivery import Delivery
from redrive.sources.reading import read_dead_message

from .test_broker_properties import properties, tables, typed, values

DETAILS = ErrorDetails(
    error_type="ConnectionError",
    error_message="the hub is down",
    stack_trace=None,
    retry_count=3,
    first_attempt_timestamp=1_800_000_000,
    last_attempt_timestamp=1_800_000_014,
)
METADATA = Metadata(tenant_id=7, internal_id=None, dlq_timestamp=1_800_000_014, service="shop", service_version="1.0.0")
SPACE = st.text(" \t\r\n", max_size=3).map(str.encode)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
json_bodies = st.builds(
    lambda before, value, indent, behind: before + json.dumps(value, indent=indent).encode() + behind,
    SPACE,
    json_values.filter(lambda value: "\\ud" not in json.dumps(value)),
    st.none() | st.integers(0, 3),
    SPACE,
)
OURS = sorted(traces.OF_DEATH)
NAMED = ("x-death", "x-first-death-queue", "x-redrive-letter", "x-redrive-replays", "x-redrive-exchange")


def delivered(body: bytes, given: Properties, **frame: Any) -> DeliveredMessage:
    terms: dict[str, Any] = {"consumer_tag": "c", "delivery_tag": 1, "routing_key": "orders-dlq"} | frame
    deliver = Basic.Deliver(**terms)
    return DeliveredMessage(deliver, ContentHeader(0, len(body), given), body, channel=None)  # type: ignore[arg-type]


@given(
    body=json_bodies.map(lambda body: (body, True)) | st.binary().map(lambda body: (body, False)),
    given_properties=properties(),
    faked=st.dictionaries(st.sampled_from(OURS), values | st.sampled_from(["base64", ["x", "y"]]), max_size=7),
)
def test_a_message_comes_back_from_its_dead_letter_as_it_was(
    body: tuple[bytes, bool], given_properties: Properties, faked: dict[str, Any]
) -> None:
    """Whatever its own headers claim of a death."""
    raw, is_json = body
    own = headers_of(given_properties)
    given_properties.headers = own | faked
    told = {traces.REASON: "exhausted", traces.QUEUE: "orders"}
    dead = dead_letters.write(
        raw, given_properties, is_json=is_json, details=DETAILS, metadata=METADATA, headers=dict(told)
    )
    original = dead_letters.read(*dead)
    assert original is not None
    assert original.body == raw
    assert typed(original.properties.headers or {}) == typed(own)
    original.properties.headers = given_properties.headers = None
    assert original.properties == given_properties


bodies = st.one_of(
    st.binary(),
    json_bodies,
    st.fixed_dictionaries(
        {"original_message": json_values, "error_details": st.dictionaries(st.text(), json_values, max_size=3)},
        optional={"metadata": json_values},
    ).map(lambda form: json.dumps(form).encode()),
)
odd_headers = st.builds(
    lambda own, ours: own | ours,
    tables,
    st.dictionaries(
        st.sampled_from([*OURS, *NAMED]), values | st.sampled_from(["base64", "", "permanent"]), max_size=4
    ),
)


@given(bodies, odd_headers, properties())
def test_whatever_lies_in_a_dead_letter_queue_can_be_read(
    body: bytes, headers: dict[str, Any], given_properties: Properties
) -> None:
    given_properties.headers = headers
    read = read_dead_message("orders-dlq", delivered(body, given_properties))
    assert read.origin.queue


@pytest.mark.parametrize("depth", [490, 900, 100_000])
def test_what_is_nested_deep_can_be_read(depth: int) -> None:
    """Else its queue would be stuck behind it."""
    nested = b"[" * depth + b"]" * depth
    for body in (nested, b'{"original_message": 1, "error_details": {"a": ' + nested + b"}}"):
        assert read_dead_message("orders-dlq", delivered(body, Properties())).source == "orders-dlq"
    coded = Properties(headers={traces.ENCODING: "base64"})
    form = b'{"original_message": ' + nested + b', "error_details": {}}'
    assert read_dead_message("orders-dlq", delivered(form, coded)).body == form


def dead(exchange: str | None, routing_key: str | None) -> DeliveredMessage:
    headers = {traces.EXCHANGE: exchange, traces.ROUTING_KEY: routing_key, traces.QUEUE: "orders"}
    body, written = dead_letters.write(
        b"1", Properties(), is_json=True, details=DETAILS, metadata=METADATA, headers=dict(headers)
    )
    return delivered(body, written)


@pytest.mark.parametrize(
    ("exchange", "routing_key", "origin"),
    [
        ("shop", "order.new", Origin("shop", "order.new", "orders")),
        ("fan", "", Origin("fan", "", "orders")),
        ("", "orders", Origin("", "orders", "orders")),
        (None, None, Origin("", "orders", "orders")),
    ],
)
def test_a_message_goes_back_to_the_exchange_and_the_key_that_it_came_by(
    exchange: str | None, routing_key: str | None, origin: Origin
) -> None:
    assert read_dead_message("orders-dlq", dead(exchange, routing_key)).origin == origin


HANDED_ON: dict[str, Any] = {
    "x-redrive-exchange": "elsewhere",
    "x-redrive-routing-key": "far",
    "x-delivery-count": 12,
}
SPEC = ConsumerSpec("orders", lambda _: None, "transformer", "orders", 1, 1)


def test_headers_that_others_hand_on_from_another_message_say_nothing_of_this_one() -> None:
    message = delivered(b"1", Properties(headers=dict(HANDED_ON)), exchange="shop", routing_key="order.new")
    delivery = Delivery.of(message, SPEC, 3, suspect=False)
    assert (delivery.exchange, delivery.routing_key, delivery.losses) == ("shop", "order.new", 0)
    assert delivery.headers == {}
    back = delivered(b"1", Properties(headers=dict(HANDED_ON)), exchange="", routing_key="orders", redelivered=True)
    ours = Delivery.of(back, SPEC, 3, suspect=False)
    assert (ours.exchange, ours.routing_key, ours.losses, ours.redelivered) == ("elsewhere", "far", 0, True)


def test_a_suspect_was_lost_once_before_its_queue_counts() -> None:
    terms: dict[str, Any] = {"exchange": "", "routing_key": "orders-suspects"}
    first = Delivery.of(delivered(b"1", Properties(headers=dict(HANDED_ON)), **terms), SPEC, 3, suspect=True)
    assert (first.exchange, first.routing_key, first.losses, first.redelivered) == ("elsewhere", "far", 1, True)
    again = delivered(b"1", Properties(headers={"x-delivery-count": 4}), redelivered=True, **terms)
    later = Delivery.of(again, SPEC, 3, suspect=True)
    assert (later.exchange, later.routing_key, later.losses) == ("", "orders", 5)
