"""What a webhook from outside says of itself: whether its signature holds, its id, its type, what is passed on. Pure.

Called by api.hook_door with headers whose names are in lower case. What is said of a signature that does not hold names
headers, never their values.
"""

import hmac
import json
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum

from redrive.core.sign import decode_secret, verify

TOLERANCE_S = 300  # how far a signature's time may be from ours
MAX_SECRET_CHARS = 500
MAX_SIGNATURES = 16
MAX_KEPT_HEADERS = 100
MAX_KEPT_HEADERS_BYTES = 16_384
MAX_SENDER_ID_CHARS = 1_000
MAX_CONTENT_TYPE_CHARS = 200
UNKNOWN_TYPE = "application/octet-stream"
MAX_CHALLENGE_BYTES = 16_384
MAX_CHALLENGE_CHARS = 1_000
USUAL_TYPE = "webhook"
ORIGINAL_PREFIX = "original-"  # before headers whose names are ours in a delivery

# Between two hops, or a credential for us: not for the local service.
_LEFT_OUT = frozenset(
    {
        "accept-encoding",
        "authorization",
        "connection",
        "content-length",
        "content-type",  # kept beside the body
        "cookie",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "x-api-key",
    }
)
_LEFT_OUT_PREFIXES = ("proxy-",)
_OURS_PREFIXES = ("webhook-", "redrive-")
_SENDER_IDS = ("webhook-id", "x-github-delivery", "idempotency-key")

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]{1,200}")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_TIME = re.compile(r"[0-9]{1,12}")
_GITHUB_EVENT = re.compile(r"[A-Za-z0-9_.-]{1,100}")


class Scheme(StrEnum):
    """Whose way of signing a webhook has."""

    STANDARD = "standard"
    GITHUB = "github"
    STRIPE = "stripe"
    SLACK = "slack"


class BadHeaders(ValueError):
    """Headers that cannot be kept. The message names one, never its value."""


# -- signatures --------------------------------------------------------------------------------------------------------


def secret_problem(scheme: Scheme, secret: str) -> str | None:
    """Why nothing can be verified with this secret; None: it can be used."""
    if not 1 <= len(secret) <= MAX_SECRET_CHARS or not secret.isprintable():
        return f"must be 1 to {MAX_SECRET_CHARS} printable characters"
    if scheme is Scheme.STANDARD:
        try:
            decode_secret(secret)
        except ValueError as problem:
            return str(problem)
    return None


def refusal(scheme: Scheme, secret: str, headers: Mapping[str, str], body: bytes, *, now: int) -> str | None:
    """Why a webhook is not its sender's, as far as can be told; None: its signature holds."""
    match scheme:
        case Scheme.STANDARD:
            return _standard(secret, headers, body, now)
        case Scheme.GITHUB:
            return _github(secret, headers, body)
        case Scheme.STRIPE:
            return _stripe(secret, headers, body, now)
        case Scheme.SLACK:
            return _slack(secret, headers, body, now)


def _standard(secret: str, headers: Mapping[str, str], body: bytes, now: int) -> str | None:
    missing = _missing(headers, "webhook-id", "webhook-timestamp", "webhook-signature")
    if missing is not None:
        return missing
    at = _time(headers["webhook-timestamp"], now)
    if at is None:
        return _no_time("webhook-timestamp")
    key = decode_secret(secret)
    holds = verify([key], headers["webhook-id"], at, body, headers["webhook-signature"], now=now)
    return None if holds else _wrong("webhook-signature")


def _github(secret: str, headers: Mapping[str, str], body: bytes) -> str | None:
    name = "x-hub-signature-256"
    missing = _missing(headers, name)
    if missing is not None:
        return missing
    return None if _same(f"sha256={_hex(secret, body)}", [headers[name]]) else _wrong(name)


def _stripe(secret: str, headers: Mapping[str, str], body: bytes, now: int) -> str | None:
    name = "stripe-signature"
    missing = _missing(headers, name)
    if missing is not None:
        return missing
    parts = [part.strip().partition("=") for part in headers[name].split(",")[: MAX_SIGNATURES + 1]]
    at = next((value for key, _, value in parts if key == "t"), "")
    if _time(at, now) is None:
        return _no_time(f"{name} (its t=)")
    given = [value for key, _, value in parts if key == "v1"]
    return None if _same(_hex(secret, f"{at}.".encode() + body), given) else _wrong(name)


def _slack(secret: str, headers: Mapping[str, str], body: bytes, now: int) -> str | None:
    time_name, name = "x-slack-request-timestamp", "x-slack-signature"
    missing = _missing(headers, time_name, name)
    if missing is not None:
        return missing
    at = headers[time_name]
    if _time(at, now) is None:
        return _no_time(time_name)
    return None if _same(f"v0={_hex(secret, f'v0:{at}:'.encode() + body)}", [headers[name]]) else _wrong(name)


def _missing(headers: Mapping[str, str], *names: str) -> str | None:
    lacking = [name for name in names if not headers.get(name)]
    return f"The header {lacking[0]} is missing: this address takes signed webhooks only." if lacking else None


def _time(text: str, now: int) -> int | None:
    """A signature's time, where it is one and near enough."""
    at = int(text) if _TIME.fullmatch(text) else None
    return at if at is not None and abs(now - at) <= TOLERANCE_S else None


def _no_time(name: str) -> str:
    return f"The time in {name} is missing, or more than {TOLERANCE_S} s from ours."


def _wrong(name: str) -> str:
    return f"The signature in {name} does not hold for this body and the secret that was set."


def _hex(secret: str, signed: bytes) -> str:
    return hmac.digest(secret.encode(), signed, "sha256").hex()


def _same(expected: str, given: Iterable[str]) -> bool:
    """Every one is compared, so that the time taken tells nothing."""
    ours = expected.encode()
    matches = [hmac.compare_digest(ours, one.encode(errors="replace")) for one in given]
    return any(matches)


# -- what else it says -------------------------------------------------------------------------------------------------


def slack_challenge(body: bytes) -> str | None:
    """What Slack wants to hear back when an address is made known to it; None for any other request."""
    if len(body) > MAX_CHALLENGE_BYTES:
        return None
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or said.get("type") != "url_verification":
        return None
    challenge = said.get("challenge")
    return challenge[:MAX_CHALLENGE_CHARS] if isinstance(challenge, str) else None


def event_type_of(headers: Mapping[str, str]) -> str:
    """By a header that is known to tell it. The body is nobody's business here."""
    github = headers.get("x-github-event", "")
    return f"github.{github}" if _GITHUB_EVENT.fullmatch(github) else USUAL_TYPE


def sender_id_of(headers: Mapping[str, str]) -> str | None:
    """By what the sender itself tells a webhook from another; a repetition has the same."""
    for name in _SENDER_IDS:
        value = headers.get(name, "")
        if 1 <= len(value) <= MAX_SENDER_ID_CHARS:
            return f"{name}:{value}"
    return None


def content_type_of(headers: Mapping[str, str]) -> str:
    """Of the body. BadHeaders where it cannot be kept."""
    content_type = headers.get("content-type") or UNKNOWN_TYPE
    if len(content_type) > MAX_CONTENT_TYPE_CHARS or _CONTROL.search(content_type):
        raise BadHeaders(f"The content type must be at most {MAX_CONTENT_TYPE_CHARS} printable characters.")
    return content_type


def readable(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers as texts, by names in lower case; of one that was given several times all values, in one line."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in raw:
        name, value = raw_name.decode("latin-1").lower(), _text(raw_value)
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def kept_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """What is passed on to the local service. BadHeaders where that is too much, or could not be sent."""
    hops = {name.strip().lower() for name in headers.get("connection", "").split(",")}
    kept: dict[str, str] = {}
    for name, value in headers.items():
        if name in _LEFT_OUT or name in hops or name.startswith(_LEFT_OUT_PREFIXES):
            continue
        if not _NAME.fullmatch(name):
            raise BadHeaders("A header's name has characters that are not allowed.")
        if _CONTROL.search(value):
            raise BadHeaders(f"The value of the header {name} has control characters.")
        kept[f"{ORIGINAL_PREFIX}{name}" if name.startswith(_OURS_PREFIXES) else name] = value
    if len(kept) > MAX_KEPT_HEADERS or sum(len(name) + len(value.encode()) for name, value in kept.items()) > (
        MAX_KEPT_HEADERS_BYTES
    ):
        raise BadHeaders(
            f"The headers are more than {MAX_KEPT_HEADERS}, or larger than {MAX_KEPT_HEADERS_BYTES} bytes together."
        )
    return kept


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
