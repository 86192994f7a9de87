"""Blocking calls in daemon threads, a bounded number at once. May start threads; knows nothing of what they do.

Called by destinations.python (plain handlers) and destinations.client.resolve (lookups). Not a ThreadPoolExecutor:
that one is joined when the interpreter exits, so that one call that hangs would keep the process alive.
"""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Raised:
    """What a call raised, as a value: a future refuses StopIteration, and takes CancelledError for its own."""

    error: BaseException


class DaemonThreads:
    """Take a slot, then run a call in it. A thread cannot be stopped: it keeps its slot until the call really ends."""

    def __init__(self, most: int, *, name: str) -> None:
        self._slots = asyncio.Semaphore(most)
        self._name = name

    async def take(self, within_s: float | None = None) -> bool:
        """Wait for a slot; False where none came free in time. One that was taken is for the next `run`."""
        try:
            async with asyncio.timeout(within_s):
                return await self._slots.acquire()
        except TimeoutError:
            return False

    async def run(self, call: Callable[[], T], ended: Callable[[], None] | None = None) -> T:
        """Make the call in the slot taken. Who stops waiting for it leaves it running. `ended` is called after it."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T | _Raised] = loop.create_future()
        thread = threading.Thread(target=self._call, args=(loop, answer, call, ended), name=self._name, daemon=True)
        try:
            thread.start()
        except BaseException:  # the system has no thread to give
            self._free(ended)
            raise
        made = await answer
        if isinstance(made, _Raised):
            raise made.error
        return made

    def _call(
        self,
        loop: asyncio.AbstractEventLoop,
        answer: "asyncio.Future[T | _Raised]",
        call: Callable[[], T],
        ended: Callable[[], None] | None,
    ) -> None:
        made: T | _Raised
        try:
            made = call()
        except BaseException as error:  # noqa: BLE001 - SystemExit too: the caller judges it
            made = _Raised(error)
        try:
            loop.call_soon_threadsafe(self._end, answer, made, ended)
        except RuntimeError:
            return  # the loop was closed while the call ran; nobody waits for the answer any more

    def _end(self, answer: "asyncio.Future[T | _Raised]", made: T | _Raised, ended: Callable[[], None] | None) -> None:
        self._free(ended)
        if not answer.done():
            answer.set_result(made)

    def _free(self, ended: Callable[[], None] | None) -> None:
        self._slots.release()
        if ended is not None:
            ended()
