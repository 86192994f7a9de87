"""The way to an edge: its address as a WebSocket's, what its refusals mean, and when to try again."""

import json
from http import HTTPStatus
from urllib.parse import urlsplit
from uuid import UUID

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from redrive.core.relay import MAX_EDGE_MESSAGE_BYTES
from redrive.version import __version__

OPEN_WITHIN_S = 10.0
CLOSE_WITHIN_S = 2.0
PING_S = 20.0
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
MAX_SAID_CHARS = 300
FINAL_CLOSES = range(4400, 4500)
PASSING_CLOSES = frozenset({4408, 4410})  # of those: too slow, no hello in time

# What connecting and talking to an edge may end in, besides a refusal: it is away, or its network is.
AWAY = (OSError, TimeoutError, InvalidHandshake, ConnectionClosed)


class Refused(Exception):
    """The edge does not want this hub, and will not a minute later. The text says why, and what to do."""


def address_of(edge: str, endpoint_id: UUID) -> str:
    """Where to connect; ValueError where the edge's URL is none."""
    parts = urlsplit(edge)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise ValueError("the edge is a URL like https://edge.example.com")
    scheme = "wss" if parts.scheme == "https" else "ws"
    return f"{scheme}://{parts.netloc}{parts.path.rstrip('/')}/v1/endpoints/{endpoint_id}/hub"


async def connected(address: str, key: str) -> ClientConnection:
    """A connection that the edge has accepted. Refused, or one of AWAY."""
    try:
        return await connect(
            address,
            additional_headers={"X-API-Key": key},
            user_agent_header=f"Redrive-Hub/{__version__}",
            max_size=MAX_EDGE_MESSAGE_BYTES,
            compression=None,
            open_timeout=OPEN_WITHIN_S,
            close_timeout=CLOSE_WITHIN_S,
            ping_interval=PING_S,
            ping_timeout=PING_S,
        )
    except InvalidURI as error:
        raise Refused(f"The edge's address cannot be used: {error.msg}.") from None
    except InvalidStatus as error:
        status = error.response.status_code
        if status == HTTPStatus.TOO_MANY_REQUESTS or status >= 500:
            raise
        raise Refused(_refusal(status, error.response.body)) from None


def refusal_of(closed: ConnectionClosed) -> str | None:
    """Why the edge closed for good; None where one may connect again."""
    if closed.rcvd is None or closed.rcvd.code not in FINAL_CLOSES or closed.rcvd.code in PASSING_CLOSES:
        return None
    return f"The edge sent this hub away: {_plain(closed.rcvd.reason)}."


def pause_s(failures: int, roll: float) -> float:
    """How long to wait after so many failures in a row, the first being 0. `roll` from 0 to 1."""
    full = min(FIRST_PAUSE_S * 2.0 ** min(failures, 16), LONGEST_PAUSE_S)
    return max(FIRST_PAUSE_S, full * (0.5 + roll / 2))


def why_away(error: BaseException) -> str:
    """For people."""
    match error:
        case TimeoutError():
            return f"it did not answer within {OPEN_WITHIN_S:g} s"
        case InvalidStatus():
            return f"it answered {error.response.status_code}: {_detail(error.response.body)}"
        case ConnectionClosed():
            said = error.rcvd.reason if error.rcvd is not None else ""
            return _plain(said) or "the connection broke"
        case OSError():
            return _plain(error.strerror or str(error) or type(error).__name__)
    return _plain(str(error)) or type(error).__name__


def _refusal(status: int, body: bytes | bytearray) -> str:
    said = _detail(body)
    match status:
        case HTTPStatus.UNAUTHORIZED:
            return "The edge does not know this key. Give another with --key or REDRIVE_KEY."
        case HTTPStatus.FORBIDDEN:
            return f"The edge does not let this key in: {said}"
        case HTTPStatus.NOT_FOUND:
            return "The edge has no such endpoint for this key. `redrive endpoints list` shows those that an edge has."
        case HTTPStatus.CONFLICT:
            return f"The edge refuses: {said} Make one with kind relay."
    return f"The edge answered {status} ({said}). Is --edge the address of a Redrive, and of nothing in between?"


def _detail(body: bytes | bytearray) -> str:
    try:
        said = json.loads(body)["detail"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "without saying why"
    return _plain(str(said))


def _plain(text: str) -> str:
    """Text of the other side's, safe to print."""
    return "".join(c if c.isprintable() else "?" for c in text[:MAX_SAID_CHARS])
