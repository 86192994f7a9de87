"""One connection: writes a request, parses the answer, says what became of it. Owns its transport.

Opened by the dialer, kept by the pool, used for one `Call` at a time.

When a request may go out again: never from here. A connection that the destination closed is noticed before
anything is written, and another one is used: the event loop has seen the end of the stream, or, where the
connection rested for a while, the pool asks the kernel (`is_quiet`). Once bytes were handed to the transport
nothing proves that they were not processed (even a reset without an acknowledgement can follow a finished
request), so every later failure is reported with `sent=True` and counts as a try.
"""

import asyncio
import re
import socket
from time import monotonic
from typing import TYPE_CHECKING, Protocol, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from .errors import FailureKind, TransferError
from .messages import Response, Timings
from .phases import Opening, chain_of, exchange_lines, stack_of

if TYPE_CHECKING:
    from .call import Call
    from .pool import Origin

MAX_HEAD_BYTES = 65536
MAX_INTERIM_ANSWERS = 8
MIN_STATUS = 100
SWITCHING_PROTOCOLS = 101
FIRST_FINAL_STATUS = 200
# A chunk of one byte takes six on the wire: honest chunking reaches the body's cap before this one, while
# endless trailers and chunk extensions, which never reach the body, do not go on for ever.
WIRE_BYTES_PER_BODY_BYTE = 8
VERSION_PREFIX = b"HTTP/1."  # the parser would take RTSP/, ICE/ and HTTP/2.0 as well
PEEK = int(socket.MSG_PEEK | socket.MSG_DONTWAIT)  # made once: an enum's | costs as much as the system call
NEVER = float("inf")

_KEEP_ALIVE_TIMEOUT = re.compile(rb"\btimeout\s*=\s*([0-9]{1,6})\b", re.IGNORECASE)


class Owner(Protocol):
    """Who keeps a connection: hears when it is free again and when it is gone."""

    def released(self, connection: "Connection") -> None: ...

    def lost(self, connection: "Connection") -> None: ...


class Connection(asyncio.Protocol):
    """An HTTP/1.1 connection and the state of the one exchange on it."""

    __slots__ = (
        "_body",
        "_call",
        "_cap_bytes",
        "_complete",
        "_fault",
        "_first_byte_at",
        "_headers",
        "_interim",
        "_is_http",
        "_keep",
        "_max_wire_bytes",
        "_opening",
        "_owner",
        "_parser",
        "_prefix",
        "_sent_at",
        "_sock",
        "_status",
        "_transport",
        "_truncated",
        "_wire_bytes",
        "_written_at",
        "closed",
        "deadline",
        "idle_since",
        "keep_alive_s",
        "label",
        "opened_at",
        "parked",
        "place",
    )

    _transport: asyncio.Transport

    def __init__(self, owner: Owner, place: "Origin", *, sock: socket.socket, opening: Opening, cap_bytes: int) -> None:
        self._owner = owner
        self._sock = sock
        self._parser = HttpResponseParser(self)
        self._call: Call | None = None
        self._cap_bytes = cap_bytes
        self._max_wire_bytes = MAX_HEAD_BYTES + WIRE_BYTES_PER_BODY_BYTE * cap_bytes
        self._begin(0.0)
        self.place = place
        self.label = opening.label
        self._opening = opening
        self.closed = False
        self.parked = False
        self.deadline = NEVER
        self.opened_at = self.idle_since = monotonic()
        self.keep_alive_s: float | None = None

    def _begin(self, now: float) -> None:
        self._status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: bytes | bytearray = b""
        self._interim = 0
        self._wire_bytes = 0
        self._prefix = b""
        self._is_http = False
        self._complete = False
        self._truncated = False
        self._keep = True
        self._fault: str | None = None
        self._written_at = self._sent_at = self._first_byte_at = now

    def start(self, call: "Call", now: float) -> None:
        """Write the request. The call gets a Response or a TransferError, by its deadline at the latest."""
        assert self._call is None, "one request at a time"
        self._begin(now)
        self._call = call
        call.connection = self
        self.deadline = call.deadline
        self._transport.write(call.data)
        self._sent_at = monotonic()

    def is_quiet(self) -> bool:
        """Whether the kernel holds neither bytes nor an end of stream that the event loop has yet to see."""
        try:
            self._sock.recv(1, PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def drop(self) -> None:
        """Close at once. Aborting skips the TLS farewell, for which a silent peer could make us wait."""
        if not self.closed:
            self.closed = True
            self._transport.abort()
            self._owner.lost(self)

    def abandon(self, call: "Call") -> None:
        """The call was cancelled: its answer must not meet the next request."""
        if self._call is not call:
            return  # the answer came before the cancellation, and the connection moved on
        self._call = None
        self.deadline = NEVER
        self.drop()

    def expire(self) -> None:
        """The deadline passed. With a status line in hand that is an answer, else a failure."""
        if self._status:
            self._answer("the deadline passed while the body was read")
        else:
            self._fail(FailureKind.TIMEOUT, f"{self.label} did not answer before the deadline")

    def fail_closed(self) -> None:
        """The client is closing."""
        if self._call is not None:
            self._fail(FailureKind.CLOSED, f"the client was closed while {self.label} had yet to answer")
        self.drop()

    # asyncio's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._call is None:
            self.drop()  # nobody asked: whatever this is, the next request must not take it for its answer
            return
        if not self._wire_bytes:
            self._first_byte_at = monotonic()
        if not self._is_http and not self._looks_like_http(data):
            self._fault = "the answer is not HTTP/1"
        else:
            self._wire_bytes += len(data)
            self._feed(data)
        if self._complete:
            self._answer(None)
        elif self._fault is not None:
            self._give_up(self._fault)
        elif self._wire_bytes > self._max_wire_bytes:
            self._truncated = True
            self._give_up("the answer's framing exceeds its limit")
        elif not self._status and self._wire_bytes > MAX_HEAD_BYTES:
            self._give_up(f"the headers exceed {MAX_HEAD_BYTES} bytes")

    def eof_received(self) -> None:
        # Not left to connection_lost: that one waits for unsent bytes, and a peer that ended its side
        # of the stream will never answer.
        self._ended(None)
        self.drop()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended(exc)
        if not self.closed:
            self.closed = True
            self._owner.lost(self)
        del self._parser  # it holds our bound methods: without this every connection is a reference cycle

    # httptools' callbacks

    def on_message_begin(self) -> None:
        if self._complete:
            self._keep = False  # a second answer to one request

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._status:  # trailers, and headers of a second answer, are not kept
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._complete or self._fault is not None:
            return
        status: int = self._parser.get_status_code()
        if status < MIN_STATUS:
            self._fault = "the status code is not a number from 100 to 999"
        elif status == SWITCHING_PROTOCOLS:
            self._fault = "the answer switches protocols, which was not asked for"
        elif self._wire_bytes > MAX_HEAD_BYTES and self._head_bytes() > MAX_HEAD_BYTES:
            self._fault = f"the headers exceed {MAX_HEAD_BYTES} bytes"
        elif status >= FIRST_FINAL_STATUS:
            self._status = status

    def on_body(self, data: bytes) -> None:
        if self._complete or not self._status:
            return
        body = self._body
        room = self._cap_bytes - len(body)
        if len(data) > room:
            data = data[:room]
            self._truncated = self._complete = True
            self._keep = False
        if not body:
            self._body = data
        elif isinstance(body, bytearray):
            body += data
        else:
            self._body = bytearray(body) + data

    def on_message_complete(self) -> None:
        if self._complete or self._fault is not None:
            return
        if self._status:
            self._complete = True
            self._keep = self._parser.should_keep_alive()
            return
        self._interim += 1
        self._headers.clear()
        if self._interim > MAX_INTERIM_ANSWERS:
            self._fault = f"more than {MAX_INTERIM_ANSWERS} interim (1xx) answers"

    # The exchange's end

    def _looks_like_http(self, data: bytes) -> bool:
        """Whether the first bytes are HTTP's so far; they may come one by one, or after a blank line."""
        if data.startswith(VERSION_PREFIX):
            self._is_http = True
            return True
        prefix = (self._prefix + data).lstrip(b"\r\n")[: len(VERSION_PREFIX)]
        self._prefix = prefix
        self._is_http = prefix == VERSION_PREFIX
        return VERSION_PREFIX.startswith(prefix)

    def _head_bytes(self) -> int:
        return sum(len(name) + len(value) + 4 for name, value in self._headers)

    def _feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._keep = False
            if self._fault is None and not self._complete:
                self._fault = f"the answer is malformed: {error}"

    def _ended(self, exc: Exception | None) -> None:
        if self._call is None:
            return
        if self._status:
            lengthless = exc is None and not self._is_framed()
            self._answer(None if lengthless else "the connection ended in the middle of the body")
        else:
            how = "closed" if exc is None else "reset"
            self._fail(FailureKind.RESET, f"{self.label} {how} the connection before it answered", exc)

    def _is_framed(self) -> bool:
        """Whether the headers said how long the body is; if not, the end of the stream ends it."""
        for name, value in self._headers:
            lower = name.lower()
            if lower == b"content-length":
                return True
            if lower == b"transfer-encoding":
                return value.lower().rstrip().endswith(b"chunked")
        return False

    def _promised_keep_alive_s(self) -> float | None:
        for name, value in self._headers:
            if name.lower() == b"keep-alive" and (found := _KEEP_ALIVE_TIMEOUT.search(value)):
                return float(found[1])
        return None

    def _give_up(self, why: str) -> None:
        if self._status:
            self._answer(None if self._truncated else why)
        else:
            self._fail(FailureKind.MALFORMED, f"{self.label}: {why}")

    def _answer(self, body_error: str | None) -> None:
        call = self._take_call()
        if call.connect_ms is not None:
            self.keep_alive_s = self._promised_keep_alive_s()
        timings = Timings(call.connect_ms, (self._first_byte_at - self._written_at) * 1000)
        status = self._status
        stack = None if 200 <= status < 300 else self._stack(call, f"answered {status}")
        headers = tuple(self._headers)
        call.end(Response(status, headers, bytes(self._body), self._truncated, body_error, timings, stack))
        self._headers = []  # an idle connection holds no answer: a thousand of them would be much memory
        self._body = b""
        # Unsent bytes of an answered request would run into the next one.
        if self._complete and self._keep and not self.closed and not self._transport.get_write_buffer_size():
            self._owner.released(self)
        else:
            self.drop()

    def _fail(self, kind: FailureKind, message: str, cause: Exception | None = None) -> None:
        call = self._take_call()
        error = TransferError(kind, message, sent=True)
        error.__cause__ = cause
        error.stack = self._stack(call, chain_of(error))
        call.end(error)
        self.drop()

    def _stack(self, call: "Call", end: str) -> str:
        """The phases of the exchange with their times."""
        has_begun = self._wire_bytes > 0
        lines = exchange_lines(
            self._opening,
            None if call.connect_ms is not None else self._written_at - self.opened_at,
            send_s=self._sent_at - self._written_at,
            first_byte_s=self._first_byte_at - self._sent_at if has_begun else None,
            rest_s=monotonic() - (self._first_byte_at if has_begun else self._sent_at),
            wire_bytes=self._wire_bytes,
        )
        return stack_of(self.label, lines, end)

    def _take_call(self) -> "Call":
        call = self._call
        assert call is not None, "an exchange ends once"
        self._call = None
        self.deadline = NEVER
        return call
