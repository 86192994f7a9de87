"""Standard Webhooks signatures. Pure: the caller brings the time and the random bytes.

Used by destinations.http for every try (so it is kept cheap), and by receivers that verify.
"""

import hashlib
import hmac
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections.abc import Sequence

SECRET_PREFIX = "whsec_"  # noqa: S105 (a prefix, not a secret)
MIN_SECRET_BYTES = 24
MAX_SECRET_BYTES = 64
TOLERANCE_S = 300
MAX_SIGNATURES = 16
_MAX_SECRET_CHARS = 100
_BLOCK_BYTES = 64  # of SHA-256
_INNER = bytes(byte ^ 0x36 for byte in range(256))
_OUTER = bytes(byte ^ 0x5C for byte in range(256))


def new_secret(random: bytes) -> str:
    """An endpoint's secret as shown to its owner, from 24 to 64 random bytes."""
    _refuse_length(random)
    return SECRET_PREFIX + _base64(random)


def decode_secret(s: str) -> bytes:
    """The key in a `whsec_…` secret. Errors never repeat what was given."""
    if len(s) > _MAX_SECRET_CHARS or not s.isascii():
        raise ValueError("a signing secret is whsec_ and base64")
    try:
        key = a2b_base64(s.removeprefix(SECRET_PREFIX).encode(), strict_mode=True)
    except Base64Error:
        raise ValueError("a signing secret is whsec_ and base64") from None
    _refuse_length(key)
    return key


class Signer:
    """Signs with the same secrets again and again. Secrets inside: no repr.

    HMAC hashes the key before the message, on the inside and on the outside (RFC 2104). Those two states are made
    once and copied for each message, which takes half the time of `hmac.digest`.
    """

    __slots__ = ("_states",)

    def __init__(self, secrets: Sequence[bytes]) -> None:
        self._states = [(_keyed(secret, _INNER), _keyed(secret, _OUTER)) for secret in secrets]

    def sign(self, message_id: str, timestamp: int, body: bytes) -> str:
        """The webhook-signature header: one signature per secret, separated by spaces."""
        signed = f"{message_id}.{timestamp}.".encode() + body
        signatures = ""
        for inner, outer in self._states:
            inside = inner.copy()
            inside.update(signed)
            outside = outer.copy()
            outside.update(inside.digest())
            signatures += " v1," + _base64(outside.digest())
        return signatures[1:]


def sign(secrets: Sequence[bytes], message_id: str, timestamp: int, body: bytes) -> str:
    """The webhook-signature header of one message."""
    return Signer(secrets).sign(message_id, timestamp, body)


def verify(
    secrets: Sequence[bytes],
    message_id: str,
    timestamp: int,
    body: bytes,
    signatures: str,
    *,
    now: int,
    tolerance_s: int = TOLERANCE_S,
) -> bool:
    """Whether a header holds a signature by one of the secrets, made within the tolerance of `now`."""
    if abs(now - timestamp) > tolerance_s:
        return False
    expected = [one.encode() for one in sign(secrets, message_id, timestamp, body).split()]
    given = [one.encode(errors="replace") for one in signatures.split()[:MAX_SIGNATURES]]
    # Every pair is compared, so that the time taken does not tell which secret came close.
    matches = [hmac.compare_digest(ours, theirs) for ours in expected for theirs in given]
    return any(matches)


def _keyed(secret: bytes, pad: bytes) -> "hashlib._Hash":
    if len(secret) > _BLOCK_BYTES:
        secret = hashlib.sha256(secret).digest()
    return hashlib.sha256(secret.ljust(_BLOCK_BYTES, b"\0").translate(pad))


def _refuse_length(key: bytes) -> None:
    if not MIN_SECRET_BYTES <= len(key) <= MAX_SECRET_BYTES:
        raise ValueError(f"a signing secret holds {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} bytes, not {len(key)}")


def _base64(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode()
