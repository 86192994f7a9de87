"""Wake-ups: a connection of its own that listens for NOTIFY. When it is lost, polling still delivers.

It must lead to the server itself: a pooler in transaction mode does not hand notifications on. The same connection
hears who watches (`redrive tail`), and sends them what observe.watch has gathered for them.

Started by app.py beside each worker.
"""

import asyncio
from collections.abc import Callable

import asyncpg
import structlog

from redrive.core.brief import brief
from redrive.core.watching import WATCH_CHANNEL, channel_of
from redrive.observe.process_metrics import LISTENING
from redrive.observe.watch import FLUSH_S, gallery
from redrive.store.db import LOST, Connection, query

CHANNEL = "redrive_due"
RECONNECT_FIRST_S = 0.2
RECONNECT_MOST_S = 5.0
PROBE_EVERY_S = 30.0  # a connection that died silently is noticed by asking

log = structlog.get_logger("redrive.listen")


async def listen(url: str, wake: Callable[[str], None]) -> None:
    """Call `wake` with what every notification says, until cancelled."""
    pause_s = RECONNECT_FIRST_S
    link = _Link()
    LISTENING.ask(link.is_up)
    while True:
        try:
            await _listen_once(url, wake, link)
            pause_s = RECONNECT_FIRST_S
            log.warning("listen_ended")
        except LOST as error:
            log.warning("listen_lost", error=brief(error), again_in_s=pause_s)
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, RECONNECT_MOST_S)


class _Link:
    """Whether wake-ups come in, as metrics tell it."""

    def __init__(self) -> None:
        self.up = False

    def is_up(self) -> float:
        return float(self.up)


async def _listen_once(url: str, wake: Callable[[str], None], link: _Link) -> None:
    """Listen until the connection ends."""
    connection = await asyncpg.connect(url, timeout=10, server_settings={"application_name": "redrive-listen"})
    stirred = asyncio.Event()
    connection.add_termination_listener(lambda _connection: stirred.set())

    def watched(*given: object) -> None:
        gallery.hear(str(given[-1]))
        stirred.set()

    try:
        await connection.add_listener(CHANNEL, lambda *given: wake(str(given[-1])))
        await connection.add_listener(WATCH_CHANNEL, watched)
        link.up = True
        wake("")  # what was missed while nobody listened
        secret: bytes | None = None
        while not connection.is_closed():
            await _stirred(stirred, FLUSH_S if gallery.is_open else PROBE_EVERY_S)
            secret = secret if gallery.is_open else None
            if gallery.is_open:
                secret = secret or await tail_secret(connection)
                await _hand_over(connection, secret)
            elif not stirred.is_set() and not connection.is_closed():
                await connection.execute("SELECT", timeout=5)
            stirred.clear()
    finally:
        link.up = False
        connection.terminate()


async def _stirred(stirred: asyncio.Event, within_s: float) -> None:
    """Wait until something happens, or for so long."""
    try:
        async with asyncio.timeout(within_s):
            await stirred.wait()
    except TimeoutError:
        return


async def tail_secret(connection: Connection) -> bytes:
    async with connection.transaction(readonly=True):
        await connection.execute("SET LOCAL ROLE redrive_engine")
        secret: bytes = await connection.fetchval(query("tail_secret"), timeout=5)
        return secret


async def _hand_over(connection: Connection, secret: bytes) -> None:
    """To those who watch, what they are to see. A batch is a transaction: notifications go out with its commit."""
    for watcher, text in gallery.batches():
        await connection.execute(query("notify"), channel_of(watcher, secret), text, timeout=5)
