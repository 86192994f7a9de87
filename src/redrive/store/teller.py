"""Who tells the numbers of the installation: one API server at a time, by a lease in the database.

The lease ends here no later than there: it is counted from before it was asked for. So of two servers never both tell,
however long one of them was stopped or cut off. Run by the API's process; asked when somebody scrapes.
"""

import asyncio
import os
import socket
import time
from collections.abc import Callable
from uuid import UUID

import structlog

from redrive.store.clock import Clock
from redrive.store.db import LOST, Database

LEASE_S = 15.0
RENEW_EVERY_S = 5.0
WITHIN_S = 4.0  # a database that does not answer must not keep the next renewal waiting
LET_GO_WITHIN_S = 1.0

log = structlog.get_logger("redrive.metrics")


class Teller:
    def __init__(self, engine: Database, clock: Clock, server: UUID, now: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._clock = clock
        self._server = server
        self._now = now
        self._name = f"{socket.gethostname()}:{os.getpid()}"
        self._until = 0.0  # on the monotonic clock
        self._closed = False
        self._turn = asyncio.Lock()  # to write the lease: whoever lets go of it comes after who renews it
        self.other: str | None = None  # who tells instead; not known yet of one that began at the same moment

    @property
    def tells(self) -> bool:
        return self._now() < self._until

    async def renew(self) -> bool:
        """Whether we tell from now on."""
        async with self._turn:
            if self._closed:
                return False
            began = self._now()
            async with asyncio.timeout(WITHIN_S):
                row = await self._engine.fetchrow("take_telling", self._clock.now(), self._server, self._name, LEASE_S)
            assert row is not None
            is_ours = bool(row["ours"])
            if is_ours and not self.tells:
                log.info("telling_began", server=str(self._server))
            self._until = began + LEASE_S if is_ours else 0.0
            self.other = None if is_ours else row["name"]
            return is_ours

    async def run(self) -> None:
        """Until cancelled."""
        is_heard = True
        while True:
            try:
                await self.renew()
            except LOST as error:
                if is_heard:
                    log.warning("telling_not_renewed", error_type=type(error).__name__, again_in_s=RENEW_EVERY_S)
                is_heard = False
            else:
                is_heard = True
            await asyncio.sleep(RENEW_EVERY_S)

    async def let_go(self) -> None:
        """The process ends: another may tell at once."""
        self._closed = True
        try:
            async with asyncio.timeout(LET_GO_WITHIN_S), self._turn:
                if self.tells:
                    self._until = 0.0
                    await self._engine.execute("end_telling", self._server)
        except LOST as error:
            log.warning("telling_not_let_go", error_type=type(error).__name__)
