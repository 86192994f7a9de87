"""/metrics, /healthz and /readyz of a process that serves nothing else: workers, consumers, hubs.

On a port, or on a nameless socket of Linux's abstract namespace for the parent of a child (`redrive serve`). A request
is one line and its headers, and the answer ends the connection: no keep-alive, no body, few at a time.
"""

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import structlog

MAX_HEAD_BYTES = 16_384
MAX_CONNECTIONS = 32
REQUEST_WITHIN_S = 5.0
READY_WITHIN_S = 2.0
SOCKET_VARIABLE = "REDRIVE_METRICS_SOCKET"  # tells a child where its parent asks for its numbers
NAME_VARIABLE = "REDRIVE_PROCESS_NAME"  # and what it is called in them
CHILDREN_VARIABLE = "REDRIVE_METRICS_CHILDREN"  # tells the API whom to ask: name=socket, separated by commas
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
_PLAIN = "text/plain; charset=utf-8"

Write = Callable[[str], tuple[str, str]]  # what is accepted → the text and its content type
IsReady = Callable[[], Awaitable[str | None]]  # why not; None: it is

log = structlog.get_logger("redrive.metrics")


class Refused(Exception):
    """Nobody can listen there."""


async def always_ready() -> str | None:
    return None


@asynccontextmanager
async def serving_metrics(write: Write, is_ready: IsReady, *, host: str, port: int | None) -> AsyncIterator[str | None]:
    """Answer for as long as the block lasts: to our parent where it asks, else on the port; without one, nobody.

    Yields the address, where there is one to be told.
    """
    answers = _Answers(write, is_ready)
    name = os.environ.get(SOCKET_VARIABLE)
    url: str | None = None
    if name:
        server = await asyncio.start_unix_server(answers.to_parent, sock=_abstract(name), limit=MAX_HEAD_BYTES)
    elif port is not None:
        try:
            server = await asyncio.start_server(answers, host, port, limit=MAX_HEAD_BYTES)
        except OSError as problem:
            raise Refused(
                f"Metrics cannot be served on {host}, port {port}: {problem.strerror}. Choose another with "
                "--metrics-port (0 takes a free one)."
            ) from problem
        where = server.sockets[0].getsockname()
        shown = f"[{where[0]}]" if ":" in where[0] else where[0]
        url = f"http://{shown}:{where[1]}/metrics"
        log.info("metrics_at", url=url)
    else:
        yield None
        return
    try:
        yield url
    finally:
        server.close()
        answers.close()


def _abstract(name: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(b"\0" + bytes.fromhex(name))
    listener.listen()
    listener.setblocking(False)
    return listener


async def ask(name: str, accept: str, *, within_s: float, path: str = "/metrics") -> str:
    """What a child answers on its socket; OSError or TimeoutError where it does not."""
    async with asyncio.timeout(within_s):
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(link, b"\0" + bytes.fromhex(name))
        except BaseException:
            link.close()
            raise
        reader, writer = await asyncio.open_unix_connection(sock=link)
        try:
            writer.write(f"GET {path} HTTP/1.1\r\nhost: child\r\naccept: {accept}\r\n\r\n".encode("latin-1", "replace"))
            head, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
        finally:
            writer.close()
    if not head.startswith(b"HTTP/1.1 200"):
        raise ConnectionError("no answer, or not a good one")
    return body.decode()


class _Answers:
    def __init__(self, write: Write, is_ready: IsReady) -> None:
        self._write = write
        self._is_ready = is_ready
        self._open: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        for task in self._open:
            task.cancel()

    async def to_parent(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Anybody may connect to a name of the abstract namespace: only our own account is answered."""
        link = writer.get_extra_info("socket")
        _, uid, _ = _CREDENTIALS.unpack(link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        if uid not in (os.geteuid(), 0):
            writer.close()
            return
        await self(reader, writer)

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            if len(self._open) <= MAX_CONNECTIONS:
                async with asyncio.timeout(REQUEST_WITHIN_S):
                    await self._answer(reader, writer)
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as problem:
            log.debug("metrics_request_failed", error_type=type(problem).__name__)
        finally:
            self._open.discard(task)
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.split("\r\n")
        method, _, rest = first.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if method not in ("GET", "HEAD"):
            status, body, content_type = "405 Method Not Allowed", "Only GET.\n", _PLAIN
        else:
            status, body, content_type = await self._look(path, headers.get("accept", ""))
        payload = body.encode()
        writer.write(
            f"HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {len(payload)}\r\n"
            "connection: close\r\nx-content-type-options: nosniff\r\n\r\n".encode()
            + (payload if method == "GET" else b"")
        )
        await writer.drain()

    async def _look(self, path: str, accept: str) -> tuple[str, str, str]:
        match path:
            case "/metrics":
                body, content_type = self._write(accept)
                return "200 OK", body, content_type
            case "/healthz":
                return "200 OK", "ok\n", _PLAIN
            case "/readyz":
                why_not = await self._readiness()
                if why_not is None:
                    return "200 OK", "ready\n", _PLAIN
                return "503 Service Unavailable", f"{why_not}\n", _PLAIN
        return "404 Not Found", "There are /metrics, /healthz and /readyz.\n", _PLAIN

    async def _readiness(self) -> str | None:
        try:
            async with asyncio.timeout(READY_WITHIN_S):
                return await self._is_ready()
        except TimeoutError:
            return f"No answer within {READY_WITHIN_S:g} s."
