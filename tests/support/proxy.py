"""Wires that fail: a proxy between a client and a server that can swallow answers, go silent, or cut."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

CHUNK_BYTES = 65_536

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Dial = Callable[[], Awaitable[Streams]]


class Proxy:
    def __init__(self, dial: Dial) -> None:
        self._dial = dial
        self._swallow = 0
        self._refusing = False
        self._passing = asyncio.Event()
        self._passing.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.swallowed = 0
        self._answers_left: int | None = None
        self.is_silent = asyncio.Event()

    def swallow_answers(self, count: int = 1) -> None:
        """The next answers reach this side and go no further: the client's connection is closed instead."""
        self._swallow = count

    def go_silent(self) -> None:
        """Connections stay open, nothing passes."""
        self._passing.clear()

    def vanish(self) -> None:
        """Nobody new gets in, and whoever was in is cut off."""
        self._refusing = True
        self._cut()

    def fall_silent_behind(self, answers: int) -> None:
        """So many answers pass; on the connection that had the last of them no other comes, on others they do.

        Then `is_silent` is set.
        """
        self._answers_left = answers

    def heal(self) -> None:
        """What hung in the silence is cut; new connections work."""
        self._cut()
        self._passing.set()

    def _cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.close()
            return
        try:
            far_reader, far_writer = await self._dial()
        except OSError:
            writer.close()
            return
        self._writers |= {writer, far_writer}
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, far_writer, is_answer=False))
                group.create_task(self._pump(far_reader, writer, is_answer=True))
        except* (ConnectionError, asyncio.IncompleteReadError):
            pass  # one side went away; the other is closed below
        finally:
            for end in (writer, far_writer):
                self._writers.discard(end)
                end.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool) -> None:
        while data := await reader.read(CHUNK_BYTES):
            await self._passing.wait()
            if is_answer and self._swallow:
                self._swallow -= 1
                self.swallowed += 1
                raise ConnectionAbortedError
            writer.write(data)
            if is_answer and self._is_last():
                self.is_silent.set()
                await asyncio.get_running_loop().create_future()  # until the client gives up
            await writer.drain()
        raise ConnectionResetError

    def _is_last(self) -> bool:
        if self._answers_left is not None:
            self._answers_left -= 1
        return self._answers_left == 0

    async def close(self) -> None:
        self._cut()
        self._passing.set()
        await asyncio.sleep(0)


@asynccontextmanager
async def tcp_proxy(host: str, port: int) -> AsyncIterator[tuple[Proxy, int]]:
    """A proxy before an address, and the port it listens on."""
    proxy = Proxy(lambda: asyncio.open_connection(host, port))
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    async with _closing(server, proxy):
        yield proxy, server.sockets[0].getsockname()[1]


@asynccontextmanager
async def postgres_proxy(url: str, folder: Path) -> AsyncIterator[tuple[Proxy, str]]:
    """A proxy before a PostgreSQL that listens on a Unix socket, and the URL that leads through it."""
    before, _, rest = url.partition("?host=")
    socket_dir, _, port = rest.partition("&port=")
    proxy = Proxy(lambda: asyncio.open_unix_connection(f"{socket_dir}/.s.PGSQL.{port}"))
    server = await asyncio.start_unix_server(proxy.serve, folder / f".s.PGSQL.{port}")
    async with _closing(server, proxy):
        yield proxy, f"{before}?host={folder}&port={port}"


@asynccontextmanager
async def _closing(server: asyncio.Server, proxy: Proxy) -> AsyncIterator[None]:
    try:
        yield
    finally:
        server.close()
        await proxy.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(server.wait_closed(), 2)
