"""The hub's loop: connect to the edge, forward what it delivers, answer; when the connection breaks, connect again.

Run by the command line. Deliveries are forwarded one at a time, in the order in which they come.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Protocol

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from redrive.core.relay import MAX_TEXT_CHARS, BadMessage, Delivery, Hello, Welcome, encode, from_edge
from redrive.hub.edge import AWAY, Refused, connected, pause_s, refusal_of, why_away
from redrive.hub.forwarder import Forwarded, Forwarder


class Watcher(Protocol):
    """Who is told what the hub does."""

    def connected(self, welcome: Welcome) -> None: ...

    def away(self, why: str, again_in_s: float) -> None: ...

    def forwarded(self, done: Forwarded, *, acknowledged: bool) -> None: ...


class Hub:
    def __init__(
        self,
        address: str,
        key: str,
        forwarder: Forwarder,
        watcher: Watcher,
        *,
        shown_forward: str,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self._address = address
        self._key = key
        self._forwarder = forwarder
        self._watcher = watcher
        self._shown_forward = shown_forward
        self._dice = dice
        self._failures = 0
        self._is_known = False  # to the edge: it has welcomed this hub
        self._last: Delivery | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`; what is under way then is forwarded and answered. Refused where the edge does not want it."""
        while not stop.is_set():
            try:
                await self._visit(stop)
            except AWAY as error:
                await self._rest(error, stop)

    async def resend(self) -> bool:
        """Forward the last one once more, without a word to the edge; False: there was none."""
        if self._last is None:
            return False
        done = await self._forwarder.forward(self._last, resent=True)
        self._watcher.forwarded(done, acknowledged=False)
        return True

    async def _rest(self, error: BaseException, stop: asyncio.Event) -> None:
        refusal = refusal_of(error) if isinstance(error, ConnectionClosed) else None
        if refusal is not None:
            raise Refused(refusal) from None
        wait_s = pause_s(self._failures, self._dice())
        self._failures += 1
        self._watcher.away(why_away(error), wait_s)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await stop.wait()

    async def _visit(self, stop: asyncio.Event) -> None:
        opening = asyncio.create_task(connected(self._address, self._key, is_known=self._is_known))
        with _told(stop, opening.cancel):
            try:
                link = await opening
            except asyncio.CancelledError:
                if stop.is_set():
                    return
                raise
        try:
            await link.send(encode(Hello(self._shown_forward[:MAX_TEXT_CHARS])))
            await self._serve(link, stop)
        finally:
            await link.close()

    async def _serve(self, link: ClientConnection, stop: asyncio.Event) -> None:
        stopping = asyncio.create_task(stop.wait())
        try:
            while not stop.is_set():
                receiving = asyncio.create_task(link.recv())
                await asyncio.wait({receiving, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if not receiving.done():
                    receiving.cancel()
                    await asyncio.gather(receiving, return_exceptions=True)
                    return
                await self._take(link, receiving.result())
        finally:
            stopping.cancel()

    async def _take(self, link: ClientConnection, text: str | bytes) -> None:
        try:
            message = from_edge(text if isinstance(text, str) else "")
        except BadMessage as bad:
            raise Refused(f"The edge says what this hub cannot read: {bad}. Are both of the same version?") from None
        if isinstance(message, Welcome):
            self._failures = 0
            self._is_known = True
            self._watcher.connected(message)
            return
        self._last = message
        done = await self._forwarder.forward(message)
        try:
            await link.send(encode(done.result))
        except ConnectionClosed:
            self._watcher.forwarded(done, acknowledged=False)
            raise
        self._watcher.forwarded(done, acknowledged=True)


@contextlib.contextmanager
def _told(stop: asyncio.Event, call: Callable[[], object]) -> Iterator[None]:
    """`call` is called when `stop` is set meanwhile."""
    waiting = asyncio.create_task(stop.wait())
    waiting.add_done_callback(lambda task: None if task.cancelled() else call())
    try:
        yield
    finally:
        waiting.cancel()
