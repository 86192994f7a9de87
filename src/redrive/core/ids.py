"""Identifiers that sort by time. Pure: the caller brings the time and the random bytes.

Called by store and api wherever a row gets its id.
"""

import hashlib
from datetime import UTC, datetime
from typing import Literal
from uuid import UUID

KeyKind = Literal["event", "handler", "cloudevent", "run"]

RANDOM_BYTES = 10
_MAX_UNIX_MS = (1 << 48) - 1
_RAND_A_MASK = 0x0FFF
_RAND_B_MASK = (1 << 62) - 1


def uuid7(unix_ms: int, random_bits: bytes) -> UUID:
    """A UUID version 7 (RFC 9562): 48 bits of milliseconds, then 74 of the 80 random bits given."""
    if not 0 <= unix_ms <= _MAX_UNIX_MS:
        raise ValueError(f"unix_ms must fit in 48 bits, not {unix_ms}")
    if len(random_bits) != RANDOM_BYTES:
        raise ValueError(f"random_bits must be {RANDOM_BYTES} bytes, not {len(random_bits)}")
    chance = int.from_bytes(random_bits, "big")
    rand_a = (chance >> 64) & _RAND_A_MASK
    rand_b = chance & _RAND_B_MASK
    return UUID(int=unix_ms << 80 | 0x7 << 76 | rand_a << 64 | 0b10 << 62 | rand_b)


def time_of(id: UUID) -> datetime:
    """When a version 7 was made."""
    return datetime.fromtimestamp((id.int >> 80) / 1000, UTC)


def id_of_key(org_id: UUID, kind: KeyKind, key: str) -> UUID:
    """The id that an idempotency key stands for; the SQL function of that name says the same."""
    digest = bytearray(hashlib.sha256(org_id.bytes + f"{kind}:{key}".encode()).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x80
    digest[8] = digest[8] & 0x3F | 0x80
    return UUID(bytes=bytes(digest))
