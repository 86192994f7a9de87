"""Receivers that do what ordinary ones don't: hold a request until the test lets it go, drip, break off."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from support.receiver import CLOSE_WITHIN_S, MAX_HEAD_BYTES, Received, Receiver

Choice = Callable[[Received], bool]
Talk = Callable[[asyncio.StreamWriter], Awaitable[None]]


def any_request(request: Received) -> bool:
    return True


class HoldingReceiver(Receiver):
    """Keeps chosen requests waiting for their answer."""

    def __init__(self) -> None:
        super().__init__()
        self.held = 0
        self._choice: Choice | None = None
        self._let_go = asyncio.Event()

    def hold(self, choice: Choice = any_request) -> None:
        self._choice = choice
        self._let_go = asyncio.Event()

    def release(self) -> None:
        """Those that are held get their answers; new ones are not held."""
        self._choice = None
        self._let_go.set()

    @property
    def ids(self) -> list[str]:
        """The message ids, or the keys of steps, in the order they came, repeated ones included."""
        named = (
            request.headers.get("webhook-id") or request.headers.get("idempotency-key") for request in self.requests
        )
        return [name for name in named if name is not None]

    async def _note(self, request: Received) -> None:
        await super()._note(request)
        if self._choice is not None and self._choice(request):
            self.held += 1
            try:
                await self._let_go.wait()
            finally:
                self.held -= 1


@asynccontextmanager
async def open_holding(host: str = "127.0.0.1") -> AsyncIterator[HoldingReceiver]:
    receiver = HoldingReceiver()
    server = await asyncio.start_server(receiver.serve, host, 0, limit=MAX_HEAD_BYTES, backlog=1024)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        await receiver.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(server.wait_closed(), CLOSE_WITHIN_S)


@asynccontextmanager
async def open_talking(talk: Talk) -> AsyncIterator[str]:
    """The URL of a server that reads a request to its end, says what `talk` writes, and closes."""
    tasks: set[asyncio.Task[None]] = set()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            await talk(writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the other side had enough, or the test is over
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_WITHIN_S)
