"""What a message carries besides its body comes out as it went in: on the wire, and as text."""

import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import frame
from pamqp.commands import Basic, Queue
from pamqp.header import ContentHeader

from redrive.broker.properties import PERSISTENT, from_json, headers_of, to_json
from redrive.broker.wire import MAX_DEPTH, FarTime, Properties

raw_names = st.binary(max_size=60).map(lambda data: data.decode("utf-8", "surrogateescape"))
times = st.datetimes(datetime(1970, 1, 1), datetime(2106, 1, 1), timezones=st.just(UTC)).map(
    lambda moment: moment.replace(microsecond=0)
)
far_times: st.SearchStrategy[Any] = st.integers(2**32, 2**64 - 1).map(FarTime)
decimals = st.builds(
    lambda digits, scale: Decimal(digits).scaleb(-scale), st.integers(-(2**31), 2**31 - 1), st.integers(0, 255)
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    decimals,
    times,
    far_times,
    st.text(max_size=20).map(lambda text: text.encode("utf-8", "replace").decode()),
    st.binary(max_size=20).filter(lambda data: not _is_text(data)),
    st.binary(max_size=20).map(bytearray),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.just("$time") | raw_names, inner, max_size=4),
    max_leaves=12,
)
tables = st.dictionaries(raw_names, values, max_size=6)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@st.composite
def properties(draw: st.DrawFn) -> Properties:
    short: Any = st.none() | raw_names.filter(bool)
    return Properties(
        content_type=draw(short),
        content_encoding=draw(short),
        headers=draw(tables.filter(bool) | st.none()),
        priority=draw(st.none() | st.integers(0, 255)),
        correlation_id=draw(short),
        reply_to=draw(short),
        message_id=draw(short),
        timestamp=draw(st.none() | times | far_times),
        message_type=draw(short),
        app_id=draw(short),
        delivery_mode=PERSISTENT,
    )


def sent(given: Properties) -> Basic.Properties:
    """What the other side reads."""
    _, _, read = frame.unmarshal(frame.marshal(ContentHeader(properties=given), 1))
    assert isinstance(read, ContentHeader)
    return read.properties


def typed(value: object) -> object:
    """Told apart where they are equal, too: 1 and True, bytes and bytearray."""
    if isinstance(value, dict):
        return {name: typed(item) for name, item in value.items()}
    return [typed(item) for item in value] if isinstance(value, list) else (type(value), value)


@given(properties())
def test_properties_are_read_as_they_were_written(given: Properties) -> None:
    read = sent(given)
    assert read == given
    assert typed(read.headers) == typed(given.headers)


@given(properties())
def test_properties_come_back_from_their_text(given: Properties) -> None:
    back = from_json(to_json(given))
    assert typed(back.headers or {}) == typed(headers_of(given))
    given.headers = back.headers = None
    assert back == given


def nested(depth: int, kind: bytes) -> bytes:
    value = b"V"
    for _ in range(depth):
        inner = b"\x01a" + value if kind == b"F" else value
        value = kind + struct.pack(">I", len(inner)) + inner
    return value


@pytest.mark.parametrize("kind", [b"F", b"A"])
@pytest.mark.parametrize("depth", [MAX_DEPTH - 1, MAX_DEPTH, 10_000])
def test_headers_of_any_depth_are_read_and_written_as_they_were(kind: bytes, depth: int) -> None:
    """One that costs the connection would be given out again, and again."""
    entry = b"\x01a" + nested(depth, kind)
    table = struct.pack(">I", len(entry)) + entry
    flags = struct.pack(">H", Properties.flags["headers"])
    raw = struct.pack(">HHQ", 60, 0, 0) + flags + table
    _, _, read = frame.unmarshal(struct.pack(">BHI", 2, 1, len(raw)) + raw + b"\xce")
    assert isinstance(read, ContentHeader)
    back = from_json(to_json(read.properties))
    back.delivery_mode = None
    assert back.marshal() == flags + table


@pytest.mark.parametrize(
    ("number", "moment"),
    [(1_700_000_000_000, datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)), (2**63, None)],
)
def test_a_time_in_milliseconds_stays_the_number_that_it_was(number: int, moment: datetime | None) -> None:
    read: Any = sent(Properties(timestamp=FarTime(number))).timestamp  # type: ignore[arg-type]
    assert (read, read.moment) == (number, moment)


def test_numbers_are_written_as_typed_languages_expect_them() -> None:
    assert (
        Properties(headers={"n": 1, "m": 2**31})
        .marshal()
        .endswith(b"\x01nI\x00\x00\x00\x01\x01ml" + b"\0" * 4 + b"\x80\0\0\0")
    )


@pytest.mark.parametrize("name", ["bestellungen-ü", "orders|new", "x" * 200])
def test_queues_and_exchanges_may_have_any_name_that_the_broker_takes(name: str) -> None:
    for command in (Queue.Declare(queue=name), Basic.Consume(queue=name), Basic.Publish(exchange=name)):
        assert name.encode() in command.marshal()
