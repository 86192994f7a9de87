"""Cursors: where a list goes on, opaque to clients and signed. Pure.

The signature also covers the list's name, the org and the filters: a cursor is good for exactly the list it came from.
"""

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import msgspec

from redrive.api.problems import FieldError, Problem, bad_query

MAX_CURSOR_CHARS = 1_024
_MAC_BYTES = 16
_TIME, _ID, _NUMBER, _TEXT = "t", "i", "n", "s"


@dataclass(frozen=True, slots=True)
class ListPlace:
    """Which list a cursor belongs to. `filters` are those in force, without limit and cursor."""

    name: str
    org_id: UUID
    filters: Mapping[str, object]

    def digest(self) -> bytes:
        filters = sorted((name, str(value)) for name, value in self.filters.items() if value is not None)
        return hashlib.sha256(msgspec.json.encode([self.name, self.org_id.hex, filters])).digest()


class Cursors:
    def __init__(self, key: bytes) -> None:
        self._key = key

    def write(self, place: ListPlace, row_key: tuple[object, ...]) -> str:
        """`row_key`: the times, ids, numbers and texts that the last row shown is sorted by."""
        parts = msgspec.json.encode([_tagged(part) for part in row_key])
        return _text_of(self._mac(place, parts) + parts)

    def read(self, place: ListPlace, cursor: str | None) -> tuple[object, ...] | None:
        if cursor is None:
            return None
        try:
            signed = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        except (Base64Error, ValueError):
            raise _bad_cursor() from None
        mac, parts = signed[:_MAC_BYTES], signed[_MAC_BYTES:]
        if len(cursor) > MAX_CURSOR_CHARS or not hmac.compare_digest(mac, self._mac(place, parts)):
            raise _bad_cursor()
        if _text_of(signed) != cursor:  # decoding passes over what is no base64
            raise _bad_cursor()
        return tuple(_untagged(kind, text) for kind, text in msgspec.json.decode(parts, type=list[tuple[str, str]]))

    def _mac(self, place: ListPlace, parts: bytes) -> bytes:
        return hmac.digest(self._key, place.digest() + parts, "sha256")[:_MAC_BYTES]


def _text_of(signed: bytes) -> str:
    return urlsafe_b64encode(signed).rstrip(b"=").decode()


def _tagged(part: object) -> tuple[str, str]:
    if isinstance(part, datetime):
        return _TIME, part.isoformat()
    if isinstance(part, int):
        return _NUMBER, str(part)
    if isinstance(part, str):
        return _TEXT, part
    assert isinstance(part, UUID), "lists are sorted by times, ids, numbers and texts"
    return _ID, part.hex


def _untagged(kind: str, text: str) -> datetime | UUID | int | str:
    if kind == _NUMBER:
        return int(text)
    if kind == _TEXT:
        return text
    return datetime.fromisoformat(text) if kind == _TIME else UUID(hex=text)


def _bad_cursor() -> Problem:
    message = "is not a cursor of this list with these filters; begin again without one"
    return bad_query(FieldError(("query", "cursor"), message))
