"""A real HTTP receiver for deliveries, on loopback: answers as scripted, remembers what came in.

    async with open_receiver() as receiver:
        receiver.script(503, Answer(429, headers={"retry-after": "2"}), HANG, RESET)   # one each, then `usual`
        receiver.script(410, path="/gone")                                             # for one path only
        ... deliver to receiver.url ...
        await receiver.wait_for(4)
        assert receiver.requests[0].headers["webhook-id"]

It runs in the loop of the test. Bodies must have a content-length; connections are kept alive.
"""

import asyncio
import contextlib
import socket
import struct
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from http import HTTPStatus

MAX_BODY_BYTES = 16 * 1024 * 1024
MAX_HEAD_BYTES = 64 * 1024
CLOSE_WITHIN_S = 2.0


class Misbehaviour(Enum):
    HANG = auto()  # take the request and say nothing until the receiver is closed
    RESET = auto()  # take the request and reset the connection


HANG = Misbehaviour.HANG
RESET = Misbehaviour.RESET


@dataclass(frozen=True, slots=True)
class Answer:
    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    after_s: float = 0.0

    def encoded(self) -> bytes:
        head = {"content-length": str(len(self.body)), **self.headers}
        known = self.status in {status.value for status in HTTPStatus}
        lines = [f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase if known else 'Unknown'}"]
        lines += [f"{name}: {value}" for name, value in head.items()]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + self.body


@dataclass(frozen=True, slots=True)
class Received:
    """One request. Header names are in lower case; `at` is time.time(), `at_s` a monotonic clock."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    at: float
    at_s: float


Step = int | Answer | Misbehaviour
Rule = Callable[[Received], Step]


class Receiver:
    """`usual` is the answer when a path's script is used up; a rule decides by the request instead."""

    def __init__(self) -> None:
        self.requests: list[Received] = []
        self.usual: Step | Rule = 200
        self.port = 0
        self.in_flight = 0
        self._scripts: dict[str | None, deque[Step]] = {}
        self._arrived = asyncio.Condition()
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def url_of(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def script(self, *steps: Step, path: str | None = None) -> None:
        """What to do with the next requests, one step each; those of a path come before those for any."""
        self._scripts.setdefault(path, deque()).extend(steps)

    def of_path(self, path: str) -> list[Received]:
        return [request for request in self.requests if request.path == path]

    async def wait_for(self, count: int, *, within_s: float = 10.0) -> list[Received]:
        """The requests so far, once there are that many."""
        async with asyncio.timeout(within_s), self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= count)
        return list(self.requests)

    async def close(self) -> None:
        for connection in self._connections:
            connection.cancel()
        if self._connections:
            await asyncio.wait(self._connections, timeout=CLOSE_WITHIN_S)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while (request := await _read(reader)) is not None:
                self.in_flight += 1
                try:
                    await self._note(request)
                    await self._take(self._step_for(request), writer)
                finally:
                    self.in_flight -= 1
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the other side went away, or the test is over
        finally:
            self._connections.discard(task)
            writer.close()

    async def _note(self, request: Received) -> None:
        async with self._arrived:
            self.requests.append(request)
            self._arrived.notify_all()

    def _step_for(self, request: Received) -> Step:
        for path in (request.path, None):
            if self._scripts.get(path):
                return self._scripts[path].popleft()
        return self.usual(request) if callable(self.usual) else self.usual

    async def _take(self, step: Step, writer: asyncio.StreamWriter) -> None:
        match step:
            case Misbehaviour.HANG:
                await asyncio.Event().wait()
            case Misbehaviour.RESET:
                # Without lingering a close is a reset, not a goodbye.
                socket_of(writer).setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
                raise ConnectionAbortedError
            case int():
                await self._take(Answer(step), writer)
            case Answer():
                if step.after_s:
                    await asyncio.sleep(step.after_s)
                writer.write(step.encoded())
                await writer.drain()


@asynccontextmanager
async def open_receiver(port: int = 0) -> AsyncIterator[Receiver]:
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", port, limit=MAX_HEAD_BYTES, backlog=1024)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        await receiver.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(server.wait_closed(), CLOSE_WITHIN_S)


def socket_of(writer: asyncio.StreamWriter) -> socket.socket:
    found: socket.socket = writer.get_extra_info("socket")
    return found


async def _read(reader: asyncio.StreamReader) -> Received | None:
    """The next request of a connection; None when the other side is done."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as ended:
        if ended.partial:
            raise
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ", 2)
    pairs = (line.split(":", 1) for line in lines if line)
    headers = {name.lower(): value.strip() for name, value in pairs}
    length = int(headers.get("content-length", "0"))
    assert length <= MAX_BODY_BYTES
    body = await reader.readexactly(length)
    return Received(method, path, headers, body, time.time(), time.monotonic())
