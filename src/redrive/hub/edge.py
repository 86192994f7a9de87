"""The way to an edge: its address as a WebSocket's, what its refusals mean, and when to try again."""

import json
from http import HTTPStatus
from urllib.parse import urlsplit
from uuid import UUID

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidProxy, InvalidStatus, InvalidURI
from websockets.http11 import Response

from redrive.core.redact import redact_url
from redrive.core.relay import MAX_EDGE_MESSAGE_BYTES
from redrive.version import __version__

OPEN_WITHIN_S = 10.0
CLOSE_WITHIN_S = 2.0
PING_S = 20.0
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
MAX_SAID_CHARS = 300
FINAL_CLOSES = range(4400, 4500)
PASSING_CLOSES = frozenset({4408, 4409, 4410})  # of those: too slow, no room, no hello in time
PROBLEM_TYPE = "application/problem+json"  # of an edge's own answers; what stands before it has others

# What connecting and talking to an edge may end in, besides a refusal: it is away, or its network is.
AWAY = (OSError, TimeoutError, InvalidHandshake, ConnectionClosed)


class Refused(Exception):
    """The edge does not want this hub, and will not a minute later. The text says why, and what to do."""


def address_of(edge: str, endpoint_id: UUID) -> str:
    """Where to connect; ValueError where the edge's URL is none."""
    parts = urlsplit(edge)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise ValueError("the edge is a URL like https://edge.example.com")
    try:
        parts.port  # noqa: B018 - it is read as it is asked for
    except ValueError:
        raise ValueError("its port is no number up to 65535") from None
    scheme = "wss" if parts.scheme == "https" else "ws"
    return f"{scheme}://{parts.netloc}{parts.path.rstrip('/')}/v1/endpoints/{endpoint_id}/hub"


class _Connect(connect):
    """Without redirects: another address is not to be told the key."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


async def connected(address: str, key: str, *, is_known: bool = False) -> ClientConnection:
    """A connection that the edge has accepted. Refused, or one of AWAY.

    `is_known`: an edge has welcomed this hub at this address. Whatever else answers there now is passing.
    """
    try:
        return await _Connect(
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
    except InvalidProxy as error:
        raise Refused(f"The proxy that the environment names cannot be used: {_plain(error.msg)}.") from None
    except ImportError:
        raise Refused(
            "The environment names a SOCKS proxy, which a hub cannot use. Name the edge in no_proxy."
        ) from None
    except InvalidStatus as error:
        if _is_passing(error.response, is_known):
            raise
        raise Refused(_refusal(error.response)) from None


def _is_passing(response: Response, is_known: bool) -> bool:
    status = response.status_code
    if status == HTTPStatus.TOO_MANY_REQUESTS or status >= 500:
        return True
    return is_known and response.headers.get("content-type") != PROBLEM_TYPE


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
            return f"it answered {error.response.status_code}: {_said(error.response)}"
        case ConnectionClosed():
            said = error.rcvd.reason if error.rcvd is not None else ""
            return _plain(said) or "the connection broke"
        case OSError():
            return _plain(error.strerror or str(error) or type(error).__name__)
    return _plain(str(error)) or type(error).__name__


def _refusal(response: Response) -> str:
    said = _said(response)
    match response.status_code:
        case HTTPStatus.UNAUTHORIZED:
            return "The edge does not know this key. Give another with --key or REDRIVE_KEY."
        case HTTPStatus.FORBIDDEN:
            return f"The edge does not let this key in: {said}"
        case HTTPStatus.NOT_FOUND:
            return "The edge has no such endpoint for this key. `redrive endpoints list` shows those that an edge has."
        case HTTPStatus.CONFLICT:
            return f"The edge refuses: {said} Make one with kind relay."
        case moved if 300 <= moved < 400:
            return f"The edge answered {moved} ({said}). A hub does not follow: give its new address with --edge."
        case other:
            return f"The edge answered {other} ({said}). Is --edge the address of a Redrive, and of nothing in between?"


def _said(response: Response) -> str:
    moved_to = response.headers.get("location")
    if moved_to is not None:
        return f"it is now at {redact_url(_plain(moved_to))}"
    try:
        said = json.loads(response.body)["detail"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "without saying why"
    return _plain(str(said))


def _plain(text: str) -> str:
    """Text of the other side's, safe to print."""
    return "".join(c if c.isprintable() else "?" for c in text[:MAX_SAID_CHARS])
