"""Requests and responses as values, and the bytes of a request. No I/O.

`build_head` is called once per request by whoever knows its headers; `Client.send` does the rest.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from redrive.core.address import Target

MAX_REQUEST_HEAD_BYTES = 65536

# HEAD and CONNECT are missing on purpose: their answers end where the parser cannot see it.
METHODS = frozenset({"DELETE", "GET", "PATCH", "POST", "PUT"})

# These say where a message ends, where it goes or how it is coded; the client alone writes them.
CLIENT_HEADERS = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class BadHeader(ValueError):
    """A header that cannot be sent. The message names the header, never its value."""


class Request(NamedTuple):
    """One request. `head` holds every header line after Host, as `build_head` makes it."""

    target: Target
    head: bytes
    body: bytes
    method: str = "POST"
    ca_pem: str | None = None

    def __repr__(self) -> str:  # head and body may hold secrets
        return f"Request({self.method} {self.target!r})"


class Timings(NamedTuple):
    """`connect_ms` covers lookup, connect and TLS, and is None when a connection was reused."""

    connect_ms: float | None
    first_byte_ms: float


class Response(NamedTuple):
    """An answer with a status line. `body_error` says why the body is incomplete; the status still counts."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    truncated: bool
    body_error: str | None
    timings: Timings
    stack: str | None = None  # the phases with their times, unless the status is a success

    def __repr__(self) -> str:  # headers and body may hold secrets
        return f"Response({self.status}, truncated={self.truncated}, body_error={self.body_error!r})"

    def header(self, name: bytes) -> bytes | None:
        """The first value under this lowercase name, or None."""
        return next((value for key, value in self.headers if key.lower() == name), None)


def build_head(headers: Iterable[tuple[str, str]]) -> bytes:
    """Header lines ready to send. Raises BadHeader rather than let one header become two."""
    lines: list[str] = []
    for name, value in headers:
        if _TOKEN.fullmatch(name) is None:
            raise BadHeader(f"header name {name[:64]!r} has characters that are not allowed")
        if name.lower() in CLIENT_HEADERS:
            raise BadHeader(f"header {name!r} is written by the client itself")
        if _CONTROL.search(value) is not None:
            raise BadHeader(f"the value of header {name!r} has a line break, NUL or other control character")
        lines.append(f"{name}: {value}\r\n")
    try:
        head = "".join(lines).encode()
    except UnicodeEncodeError:
        raise BadHeader("a header value has a lone surrogate, which cannot be encoded") from None
    if len(head) > MAX_REQUEST_HEAD_BYTES:
        raise BadHeader(f"the headers exceed {MAX_REQUEST_HEAD_BYTES} bytes")
    return head


def request_bytes(request: Request) -> bytes:
    """The whole request as one piece, so that it leaves in one write."""
    method = request.method
    if method not in METHODS:
        raise ValueError(f"method {method!r} cannot be sent; use one of {', '.join(sorted(METHODS))}")
    target = request.target
    body = request.body
    start = (
        f"{method} {target.path_and_query} HTTP/1.1\r\nhost: {target.host_header}\r\n"
        f"accept-encoding: identity\r\ncontent-length: {len(body)}\r\n"
    )
    return b"%b%b\r\n%b" % (start.encode("ascii"), request.head, body)
