"""POST /v1/events without ASGI, where nothing is out of the ordinary: uvicorn's protocol with a short way in it.

A single event that arrives at once, from a caller we remember, goes from the parser to the committer and its answer
back to the socket in one piece: no task, no scope, no future. Any other request, and any doubt, is uvicorn's own
way, which ends in front_door or guard and has all the rest: slow bodies, large ones, `Expect`, HTTP/1.0, refusals.
docs/decisions/0007 has the reasons. Set up by api_process.
"""

import asyncio
from functools import partial
from time import perf_counter
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from redrive.api.answers import JSON_TYPE, whole_answer
from redrive.api.correlation import correlation_id_of
from redrive.api.failures import problem_of
from redrive.api.front_door import EVENTS_PATH, FrontDoor, OneEvent, read_headers
from redrive.api.problems import PROBLEM_TYPE
from redrive.api.route_classes import EVENTS
from redrive.observe.process_metrics import REQUEST_SECONDS, note_request
from redrive.store.events import Receipt

# A larger body, or one that does not follow its head at once, is not what this way is for.
MAX_SHORT_BYTES = 65_536
PATIENCE_S = 0.2

_ANY_LENGTH = MAX_SHORT_BYTES + 1  # of a chunked body
_TARGET = EVENTS_PATH.encode()
_SECONDS = REQUEST_SECONDS.of(("POST", EVENTS_PATH))


def with_short_way(front_door: FrontDoor) -> type[asyncio.Protocol]:
    """What uvicorn.Config takes as `http`."""
    return cast("type[asyncio.Protocol]", partial(_Connection, front_door))


class _Connection(HttpToolsProtocol):
    def __init__(self, front_door: FrontDoor, **given: Any) -> None:
        super().__init__(**given)
        self._front_door = front_door
        # Of a request that may yet go the short way: its headers, what of its body is here, the end of our patience.
        self._read: dict[bytes, bytes] = {}
        self._parts: list[bytes] | None = None
        self._patience: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._parts is not None and self._patience is None:
            self._patience = self.loop.call_later(PATIENCE_S, self._go_the_long_way)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_gathering()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        if self._parts is not None:
            self._go_the_long_way()  # uvicorn knows what to do with a request that has begun
        super().shutdown()

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

    def on_headers_complete(self) -> None:
        self._parts = []
        if self._may_go_the_short_way():
            self._read = read_headers(self.headers)
            if int(self._read.get(b"content-length", _ANY_LENGTH)) <= MAX_SHORT_BYTES:
                return
        self._go_the_long_way()

    def on_body(self, body: bytes) -> None:
        if self._parts is None:
            super().on_body(body)
        else:
            self._parts.append(body)

    def on_message_complete(self) -> None:
        if self._parts is not None:
            if self._take(b"".join(self._parts)):
                self._stop_gathering()
                return
            self._go_the_long_way()
        super().on_message_complete()

    def _may_go_the_short_way(self) -> bool:
        return (
            self.url == _TARGET
            and self.parser.get_method() == b"POST"
            and self.parser.get_http_version() == "1.1"
            and self.parser.should_keep_alive()
            and not self.parser.should_upgrade()
            and not self.expect_100_continue
            # An earlier request that is still under way is answered first, and one who does not read waits: uvicorn's
            # business both.
            and (self.cycle is None or self.cycle.response_complete)  # type: ignore[redundant-expr]
            and not self.flow.write_paused
        )

    def _go_the_long_way(self) -> None:
        """As if this request had been uvicorn's from its first byte."""
        parts = self._stop_gathering()
        url, headers, expect_100_continue = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()  # makes the scope, which the short way has no use for
        self.headers += headers
        self.url, self.expect_100_continue = url, expect_100_continue
        super().on_headers_complete()
        for part in parts:
            super().on_body(part)

    def _stop_gathering(self) -> list[bytes]:
        if self._patience is not None:
            self._patience.cancel()
        parts, self._parts, self._patience = self._parts, None, None
        return parts or []

    def _take(self, body: bytes) -> bool:
        correlation_id = correlation_id_of(self._read.get(b"x-correlation-id"))
        one = self._front_door.at_hand(self._read, body, correlation_id)
        if one is None:
            return False
        under_way = _UnderWay(self, one, correlation_id)
        self.cycle = cast(RequestResponseCycle, under_way)
        self._front_door.hand_in(one, under_way.tell)
        return True


class _UnderWay:
    """An event that waits for its commit; stands where uvicorn looks for its own request under way."""

    __slots__ = (
        "_began_s",
        "_connection",
        "_correlation_id",
        "_one",
        "disconnected",
        "keep_alive",
        "response_complete",
    )

    message_event = asyncio.Event()  # set by uvicorn when the connection is lost; nobody waits for it here

    def __init__(self, connection: _Connection, one: OneEvent, correlation_id: str) -> None:
        self._connection = connection
        self._one = one
        self._correlation_id = correlation_id
        self._began_s = perf_counter()
        self.disconnected = False  # set by uvicorn, as are the others
        self.keep_alive = True
        self.response_complete = False

    def tell(self, result: list[Receipt] | Exception) -> None:
        """Answer. Called by the committer, after the commit."""
        self.response_complete = True
        transport = self._connection.transport
        if self.disconnected or transport.is_closing():
            del self._one
            return
        try:
            answer = self._answer(result)
        except Exception as error:  # noqa: BLE001 (a bug: the client is told so, as on the long way)
            answer = self._answer(error)
        del self._one  # an idle connection holds no event: a thousand of them would be much memory
        _SECONDS.note(perf_counter() - self._began_s)
        transport.write(answer)
        if not self.keep_alive:
            transport.close()
        self._connection.on_response_complete()

    def _answer(self, result: list[Receipt] | Exception) -> bytes:
        correlation_id = self._correlation_id
        answer = result if isinstance(result, Exception) else self._one.answer(result[0])
        extra = [] if self.keep_alive else [(b"connection", b"close")]
        first = self._connection.server_state.default_headers
        if isinstance(answer, bytes):
            note_request(EVENTS, 202)
            return whole_answer(STATUS_LINE[202], JSON_TYPE, answer, correlation_id, first=first, extra=extra)
        problem = problem_of(answer, correlation_id)
        note_request(EVENTS, problem.status)
        named = [(name.encode(), value.encode()) for name, value in problem.headers]
        body = problem.body(correlation_id)
        status_line = STATUS_LINE[problem.status]
        return whole_answer(
            status_line, PROBLEM_TYPE.encode(), body, correlation_id, first=first, extra=[*named, *extra]
        )
