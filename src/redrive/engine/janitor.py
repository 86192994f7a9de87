"""Lets die what waited too long, and removes what the policies no longer keep: a pass over all orgs now and then, in
small batches, with rests between.

Runs in every worker's process, put together by app; orgs that another worker's janitor has begun with are left to it.
Meets the store through core.sweep only.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TypeVar

import structlog

from redrive.core.brief import brief
from redrive.core.jobs import JANITOR, JobRecord
from redrive.core.ports import Floor
from redrive.core.sweep import Batch, Expiries, Sweeper, Swept, SweptOrg
from redrive.engine.jobs import unreported
from redrive.engine.transitions import tell_expired

FIRST_PASS_S = 60.0  # after the start: what waited meanwhile is more urgent
JITTER = 0.1  # so that workers that were started together do not sweep together
REST = 9  # for each second of work: a tenth of the time at most
MAX_REST_S = 30.0
BUSY_PAUSE_S = 1.0
MAX_BUSY_PAUSES = 60

log = structlog.get_logger("redrive.janitor")

B = TypeVar("B", Batch, Expiries)


class ExpiryFailed(Exception):
    """What became of a pass in which tasks of some orgs could not be looked through. `done`: what went all the same."""

    def __init__(self, orgs: Sequence[str], done: dict[str, Swept]) -> None:
        super().__init__(f"What waited too long could not be let go in {', '.join(orgs)}: the log says why.")
        self.done = done


class Janitor:
    """`open_sweeper` opens a connection for the length of a pass."""

    def __init__(
        self,
        open_sweeper: Callable[[], AbstractAsyncContextManager[Sweeper]],
        *,
        every_s: float,
        dice: Callable[[], float],
        rest: float = REST,
        job: JobRecord | None = None,
    ) -> None:
        self._open_sweeper = open_sweeper
        self._every_s = every_s
        self._dice = dice
        self._rest = rest
        self._job = job or unreported(JANITOR)

    async def run(self) -> None:
        """For ever, until it is cancelled: what a batch has not committed by then stays."""
        await asyncio.sleep(FIRST_PASS_S)
        while True:
            try:
                with self._job.run():
                    await self.sweep(rested_s=self._every_s / 2)
            except Exception as error:  # noqa: BLE001 - the database or the archive may be away: the next pass tries again
                log.warning("retention_failed", error=brief(error))
            await asyncio.sleep(self._every_s * (1 + JITTER * (2 * self._dice() - 1)))

    async def sweep(self, *, rested_s: float) -> dict[str, Swept]:
        """One pass over the orgs that nobody has begun with for `rested_s`. Answers what went, by org.

        An org whose tasks cannot be let die keeps nobody else's from it; at the end ExpiryFailed says so.
        """
        done: dict[str, Swept] = {}
        failed: list[str] = []
        async with self._open_sweeper() as sweeper:
            await sweeper.forget_workers()
            await sweeper.forget_jobs()
            await sweeper.forget_history()
            await sweeper.forget_lanes()
            for org in await sweeper.orgs(rested_s):
                if await sweeper.begin(org, rested_s):
                    expired, is_whole = await self._expire_org(sweeper, org)
                    if not is_whole:
                        failed.append(org.name)
                    done[org.name] = (await self._sweep_org(sweeper, org)).plus(Swept(expired=expired))
        if failed:
            raise ExpiryFailed(failed, done)
        return done

    async def _expire_org(self, sweeper: Sweeper, org: SweptOrg) -> tuple[int, bool]:
        """How many died, and whether all were looked at."""
        expired, is_whole = 0, True
        try:
            async for batch in self._batches(partial(sweeper.expire, org)):
                expired += batch.expired
                tell_expired(batch.tasks)
        except Exception as error:  # noqa: BLE001 - if the database is away, what follows will say so
            log.error("expiry_failed", org_id=str(org.org_id), org=org.name, error=brief(error))
            is_whole = False
        if expired:
            log.info("tasks_expired", org_id=str(org.org_id), tasks=expired)
        return expired, is_whole

    async def _sweep_org(self, sweeper: Sweeper, org: SweptOrg) -> Swept:
        swept = Swept()
        try:
            async for batch in self._batches(partial(sweeper.batch, org)):
                swept = swept.plus(batch.swept)
        finally:
            # Also when a batch failed or the worker stops: the batches before it are committed.
            if any(swept):
                await sweeper.conclude(org, swept)
                log.info("retention_swept", org_id=str(org.org_id), **swept.removed())
        return swept

    async def _batches(self, step: Callable[[Floor | None], Awaitable[B | None]]) -> AsyncIterator[B]:
        """One after the other, each from where the one before ended, with rests between.

        A step that answers None found somebody else at work.
        """
        place: Floor | None = None
        busy = 0
        while busy < MAX_BUSY_PAUSES:
            began = time.monotonic()
            batch = await step(place)
            if batch is None:
                busy += 1
                await asyncio.sleep(BUSY_PAUSE_S)
                continue
            yield batch
            place = batch.place
            if place is None:
                return
            await asyncio.sleep(min(self._rest * (time.monotonic() - began), MAX_REST_S))
