"""What passes through must come out as it went in: where the library beneath cannot read or write it, this does.

pamqp ends the connection over a property that is not UTF-8, a time beyond the year 9999 or tables within tables a few
hundred deep. Such a message would be given out again and again, and take the consumer with it each time. It takes late
times for milliseconds, negative decimals for large ones and writes floats with half their digits; and of the names that
RabbitMQ allows it knows a few only. Takes effect for the process when it is imported.
"""

import struct
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from pamqp import decode, encode
from pamqp.commands import Basic, Queue

_LENGTH = struct.Struct(">I")
_DOUBLE = struct.Struct(">d")
_TIME = struct.Struct(">Q")
_DECIMAL = struct.Struct(">Bi")
_INT = struct.Struct(">i")
MAX_SHORT_BYTES = 255
MAX_DEPTH = 32  # of tables and lists within each other that are looked into
MAX_INT = 2**31 - 1
_LAST_SECOND = 2**32 - 1  # what is beyond is probably in milliseconds
_LONGEST_NUMBER = 8


class FarTime(int):
    """A time after the year 2106, in whatever unit its sender meant: the number as it was sent."""

    @property
    def moment(self) -> datetime | None:
        """In milliseconds, where that makes sense."""
        try:
            return datetime.fromtimestamp(self / 1000, UTC)
        except (ValueError, OverflowError, OSError):
            return None


class Deep(bytes):
    """A table or a list beyond MAX_DEPTH: as it was sent."""


class Properties(Basic.Properties):
    """Written as they were read."""

    def encode_property(self, name: str, value: Any) -> bytes:
        if isinstance(value, FarTime):
            return _TIME.pack(value)
        if isinstance(value, Mapping):
            return _table(value)
        return _short(value) if isinstance(value, str) else super().encode_property(name, value)


def _short(text: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape")
    if len(data) > MAX_SHORT_BYTES:
        raise ValueError(f"a property has at most {MAX_SHORT_BYTES} bytes")
    return bytes([len(data)]) + data


def _table(table: Mapping[str, object]) -> bytes:
    data = b"".join(_short(str(name)) + _value(value) for name, value in table.items())
    return _LENGTH.pack(len(data)) + data


def _value(value: Any) -> bytes:
    match value:
        case FarTime():
            return b"T" + _TIME.pack(value)
        case Deep():
            return bytes(value)
        case bool():
            return encode.encode_table_value(value)
        case int() if -MAX_INT - 1 <= value <= MAX_INT:
            return b"I" + _INT.pack(value)  # what typed languages send: one that expects it takes no shorter one
        case int():
            return b"l" + encode.long_long_int(value)
        case float():
            return b"d" + _DOUBLE.pack(value)
        case Decimal():
            return b"D" + encode.decimal(value)
        case str():
            return _long(value.encode("utf-8", "surrogateescape"))
        case bytes():
            return _long(value)
        case Mapping():
            return b"F" + _table(value)
        case list():
            data = b"".join(_value(item) for item in value)
            return b"A" + _LENGTH.pack(len(data)) + data
    return encode.encode_table_value(value)


def _long(data: bytes) -> bytes:
    return b"S" + _LENGTH.pack(len(data)) + data


def _read_short(value: bytes) -> tuple[int, str]:
    length = value[0]
    return length + 1, value[1 : length + 1].decode("utf-8", "surrogateescape")


def _read_time(value: bytes) -> tuple[int, datetime | FarTime]:
    (number,) = _TIME.unpack_from(value)
    return _TIME.size, datetime.fromtimestamp(number, UTC) if number <= _LAST_SECOND else FarTime(number)


def _read_decimal(value: bytes) -> tuple[int, Decimal]:
    scale, digits = _DECIMAL.unpack_from(value)
    return _DECIMAL.size, Decimal(digits).scaleb(-scale)


def _read_table(value: bytes) -> tuple[int, dict[str, Any]]:
    (length,) = _LENGTH.unpack_from(value)
    end = _LENGTH.size + length
    return end, _entries(value, _LENGTH.size, end, 1)


def _entries(data: bytes, at: int, end: int, depth: int) -> dict[str, Any]:
    table: dict[str, Any] = {}
    while at < end:
        consumed, name = _read_short(data[at : at + 1 + MAX_SHORT_BYTES])
        at, table[name] = _read_value(data, at + consumed, depth)
    return table


def _items(data: bytes, at: int, end: int, depth: int) -> list[Any]:
    items: list[Any] = []
    while at < end:
        at, item = _read_value(data, at, depth)
        items.append(item)
    return items


def _read_value(data: bytes, at: int, depth: int) -> tuple[int, Any]:
    """Where it ends, and what it is."""
    kind = data[at : at + 1]
    if kind not in _WITH_LENGTH:
        consumed, value = decode.embedded_value(data[at : at + 1 + _LONGEST_NUMBER])
        return at + consumed, value
    (length,) = _LENGTH.unpack_from(data, at + 1)
    begin = at + 1 + _LENGTH.size
    end = begin + length
    if end > len(data):
        raise ValueError("a value is longer than what holds it")
    if kind not in _NESTED:
        return end, decode.embedded_value(data[at:end])[1]
    if depth == MAX_DEPTH:
        return end, Deep(data[at:end])
    return end, (_entries if kind == _TABLE else _items)(data, begin, end, depth + 1)


_TABLE = b"F"
_NESTED = (_TABLE, b"A")
_WITH_LENGTH = (*_NESTED, b"S", b"x")


def _leave_to_broker(_: object) -> None:
    """Which names there may be."""


decode.METHODS |= {"table": _read_table, "shortstr": _read_short, "timestamp": _read_time}
decode.TABLE_MAPPING |= {b"F": _read_table, b"T": _read_time, b"D": _read_decimal}
for command in (Basic.Consume, Basic.Publish, Queue.Declare):
    setattr(command, "validate", _leave_to_broker)  # noqa: B010 - a method of theirs
