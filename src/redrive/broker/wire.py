"""What passes through must come out as it went in: where the library beneath cannot read or write it, this does.

pamqp ends the connection over a property that is not UTF-8 or a time beyond the year 9999. Such a message would be
given out again and again, and take the consumer with it each time. And it writes floats with half their digits.
Takes effect for the process when it is imported.
"""

import struct
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pamqp import decode, encode
from pamqp.commands import Basic

_LENGTH = struct.Struct(">I")
_DOUBLE = struct.Struct(">d")
_TIME = struct.Struct(">Q")
MAX_SHORT_BYTES = 255


class FarTime(int):
    """A time that datetime does not know: the number as it was sent."""


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
        case float():
            return b"d" + _DOUBLE.pack(value)
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
    try:
        return decode.timestamp(value)
    except (ValueError, OverflowError, OSError):
        return 8, FarTime(_TIME.unpack_from(value)[0])


def _read_table(value: bytes) -> tuple[int, dict[str, Any]]:
    (length,) = _LENGTH.unpack_from(value)
    offset, end = _LENGTH.size, _LENGTH.size + length
    table: dict[str, Any] = {}
    while offset < end:
        consumed, name = _read_short(value[offset:])
        offset += consumed
        consumed, table[name] = decode.embedded_value(value[offset:])
        offset += consumed
    return end, table


decode.METHODS |= {"table": _read_table, "shortstr": _read_short, "timestamp": _read_time}
decode.TABLE_MAPPING |= {b"F": _read_table, b"T": _read_time}
