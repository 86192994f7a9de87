"""The barest HTTP/1.1 client: keep-alive connections over httptools, one request in flight on each.

No time-outs, no TLS, no limits: what a delivery would cost if nothing could go wrong. Used by the ceilings and
the load generator; never by Redrive itself. Touches loopback sockets.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from urllib.parse import urlsplit

import httptools

Done = Callable[[int, int], None]
"""Called with the job's index and the answer's status; 0 when the connection was lost."""


def request_head(url: str, headers: Mapping[str, str], body_bytes: int, method: str = "POST") -> bytes:
    """Everything before the body but the last blank line, so that a caller can add lines of its own."""
    parts = urlsplit(url)
    lines = [f"{method} {parts.path or '/'} HTTP/1.1", f"host: {parts.netloc}", f"content-length: {body_bytes}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n"


def host_and_port(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "127.0.0.1", parts.port or 80


class Connection(asyncio.Protocol):
    """Sends one request at a time and tells `done` the status; then `free` may hand it the next."""

    __slots__ = ("_done", "_free", "_index", "_parser", "transport")

    def __init__(self, free: Callable[[Connection], None]) -> None:
        self._free = free
        self._done: Done | None = None
        self._index = 0
        self._parser = httptools.HttpResponseParser(self)
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def send(self, request: bytes, index: int, done: Done) -> None:
        self._index, self._done = index, done
        self.transport.write(request)  # type: ignore[union-attr]

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(self._index, self._parser.get_status_code())
            self._free(self)

    def connection_lost(self, exc: Exception | None) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(self._index, 0)


class Pool:
    """A fixed number of connections to one origin, fed from one queue."""

    def __init__(self) -> None:
        self._idle: list[Connection] = []
        self._all: list[Connection] = []
        self._queue: deque[tuple[bytes, int, Done]] = deque()

    @classmethod
    async def open(cls, url: str, connections: int) -> Pool:
        pool = cls()
        loop = asyncio.get_running_loop()
        host, port = host_and_port(url)
        for _ in range(connections):
            _, connection = await loop.create_connection(lambda: Connection(pool._free), host, port)
            pool._all.append(connection)
        pool._idle.extend(pool._all)
        return pool

    def _free(self, connection: Connection) -> None:
        if self._queue:
            connection.send(*self._queue.popleft())
        else:
            self._idle.append(connection)

    def submit(self, request: bytes, index: int, done: Done) -> None:
        if self._idle:
            self._idle.pop().send(request, index, done)
        else:
            self._queue.append((request, index, done))

    async def send_all(self, requests: Iterable[bytes]) -> list[int]:
        """The statuses, in the order of the requests."""
        batch = list(requests)
        statuses = [0] * len(batch)
        left = len(batch)
        finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(index: int, status: int) -> None:
            nonlocal left
            statuses[index] = status
            left -= 1
            if left == 0 and not finished.done():
                finished.set_result(None)

        for index, request in enumerate(batch):
            self.submit(request, index, done)
        if batch:
            await finished
        return statuses

    def close(self) -> None:
        for connection in self._all:
            if connection.transport is not None:
                connection.transport.close()
