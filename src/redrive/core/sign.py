"""Standard Webhooks signatures. Pure: the caller brings the time and the random bytes.

Called by destinations.http for every try (so it is kept cheap), and by receivers that verify.
"""

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


def sign(secrets: Sequence[bytes], message_id: str, timestamp: int, body: bytes) -> str:
    """The webhook-signature header: one signature per valid secret, separated by spaces."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    if len(secrets) == 1:
        return "v1," + _base64(hmac.digest(secrets[0], signed, "sha256"))
    return " ".join("v1," + _base64(hmac.digest(secret, signed, "sha256")) for secret in secrets)


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


def _refuse_length(key: bytes) -> None:
    if not MIN_SECRET_BYTES <= len(key) <= MAX_SECRET_BYTES:
        raise ValueError(f"a signing secret holds {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} bytes, not {len(key)}")


def _base64(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode()
