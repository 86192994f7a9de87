"""Staying connected to a broker: one connection after another, until it is to stop. Used by consumer and collector."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from aiormq.abc import AbstractChannel, AbstractConnection

from redrive.broker.link import LOST, BrokerDown, Patience, close, connect, said
from redrive.broker.topology import TopologyError, exists
from redrive.ending import end

WATCH_EVERY_S = 15.0
WATCH_TIMEOUT_S = 10.0

T = TypeVar("T")

# Uses a connection until it is to stop, or the connection is of no more use: why. It calls what it is given once it
# gets messages.
Session = Callable[[AbstractConnection, Callable[[], None]], Awaitable[str]]


class Stopped(Exception):
    """It was told to stop before it had begun."""


async def stay_connected(urls: Sequence[str], name: str, stop: asyncio.Event, session: Session, log: Any) -> None:
    """A topology that does not fit ends it as long as no session went well: whoever starts it is there to read why."""
    patience, went_well = Patience(), False

    def restore() -> None:
        nonlocal went_well
        went_well = True
        patience.restore()

    while not stop.is_set():
        try:
            connection = await unless(stop, connect(urls, name=name))
            try:
                why = await session(connection, restore)
            finally:
                await close(connection)
        except Stopped:
            return
        except TopologyError as problem:
            if not went_well:
                raise
            why = str(problem)
        except (BrokerDown, *LOST) as problem:
            why = str(problem) if isinstance(problem, BrokerDown) else said(problem)
        if stop.is_set():
            return
        wait_s = patience.next_s()
        log.warning("broker_disconnected", why=why, again_in_s=round(wait_s, 1))
        await first_of([asyncio.ensure_future(stop.wait())], within_s=wait_s)


async def unless(stop: asyncio.Event, begin: Coroutine[Any, Any, T]) -> T:
    """What comes of it. A broker that hangs keeps nobody from stopping: then it is given up, and Stopped raised."""
    beginning = asyncio.ensure_future(begin)
    if await first_of([beginning, asyncio.ensure_future(stop.wait())]) is beginning:
        return beginning.result()
    await end(beginning)
    raise Stopped


async def first_of(
    ends: Iterable["asyncio.Future[Any]"], *, within_s: float | None = None
) -> "asyncio.Future[Any] | None":
    """The first of them that is over, whatever came of it; the others are given up. None: the time was over first."""
    waited_for = list(ends)
    try:
        over, _ = await asyncio.wait(waited_for, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        return next((end for end in waited_for if end in over), None)
    finally:
        for end in waited_for:
            end.cancel()


async def watch(channel: AbstractChannel, queue: str) -> None:
    """Ends when the broker does not answer any more, or has no such queue: what hangs sends no end of a connection."""
    while True:
        await asyncio.sleep(WATCH_EVERY_S)
        try:
            async with asyncio.timeout(WATCH_TIMEOUT_S):
                if not await exists(channel.connection, queue):
                    return
        except LOST:
            return
