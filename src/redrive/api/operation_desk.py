"""Operations in the API's process: begun and moved on here, waited for, and watched by streams.

One per process. The streams share one look at the database for all operations that are being watched, whoever asks.
May read every org's operations: the routes let nobody watch what they may not see.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from typing import Annotated
from uuid import UUID

import structlog
from fastapi import Depends, Request

from redrive.api.context import ApiContext
from redrive.api.outage import OUTAGES
from redrive.api.problems import unavailable
from redrive.core.operations import OperationState
from redrive.store import operations
from redrive.store.db import Record
from redrive.store.operation_steps import BUSY_REST_S, OperationSteps

MAX_STREAMS = 200
MAX_STREAMS_OF_ORG = 50  # nobody takes all of them from the others
MAX_WAITING = 100
MAX_WAITING_OF_ORG = 25
WATCH_EVERY_S = 0.25
HEARTBEAT_S = 15.0
PREPARE_WITHIN_S = 5.0
WAIT_WITHIN_S = 30.0  # as long as a try may take

Key = tuple[UUID, UUID]  # org, operation

log = structlog.get_logger("redrive.api")


class _Watcher:
    """Somebody who looks at an operation. Who is slow misses what lies between, not the last."""

    __slots__ = ("news", "row")

    def __init__(self, row: Record) -> None:
        self.row = row
        self.news = asyncio.Event()


class OperationDesk:
    def __init__(self, context: ApiContext) -> None:
        self._engine = context.engine_db
        self._steps = OperationSteps(context.engine_db, context.clock)
        self._watchers: dict[Key, set[_Watcher]] = {}
        self._watching: asyncio.Task[None] | None = None
        self._waiting: Counter[UUID] = Counter()
        self._closing = asyncio.Event()

    def close(self) -> None:
        """The process ends: streams and those who wait are answered now."""
        self._closing.set()
        for watcher in [each for watchers in self._watchers.values() for each in watchers]:
            watcher.news.set()

    @property
    def streams(self) -> int:
        return sum(len(watchers) for watchers in self._watchers.values())

    # -- moving on -------------------------------------------------------------------------------------------------

    async def begun(self, row: Record) -> Record:
        """Take the first steps of a new operation: its items, and the first of its acts."""
        key = (row["org_id"], row["id"])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PREPARE_WITHIN_S):
                while row["state"] == OperationState.PREPARING and not self._closing.is_set():
                    row = await self._moved_or_rested(key, row)
                return await self._moved(key, row)
        return row

    async def ended(self, row: Record, request: Request) -> Record:
        """Wait for its end, within WAIT_WITHIN_S; how it stands then. Too many who wait are not kept waiting."""
        key = (row["org_id"], row["id"])
        if self._waiting.total() >= MAX_WAITING or self._waiting[key[0]] >= MAX_WAITING_OF_ORG:
            return row
        self._waiting[key[0]] += 1
        try:
            async with asyncio.timeout(WAIT_WITHIN_S):
                while row["finished_at"] is None and not self._closing.is_set():
                    row = await self._moved_or_rested(key, row)
                    if await request.is_disconnected():
                        break
        except TimeoutError:
            return row
        finally:
            self._waiting[key[0]] -= 1
            if not self._waiting[key[0]]:
                del self._waiting[key[0]]
        return row

    async def _moved(self, key: Key, row: Record) -> Record:
        """How it stands after a step, or after somebody else's. It is written down: an outage is no failure of it."""
        try:
            await self._steps.step_of(*key)
            (row,) = await operations.watch(self._engine, [key])
        except OUTAGES as error:
            log.warning("operation_step_failed", operation_id=str(key[1]), error_type=type(error).__name__)
        return row

    async def _moved_or_rested(self, key: Key, row: Record) -> Record:
        moved = await self._moved(key, row)
        if moved["updated_at"] == row["updated_at"]:
            await self._rest(BUSY_REST_S / 2)
        return moved

    async def _rest(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()

    # -- watching --------------------------------------------------------------------------------------------------

    def refuse_too_many(self, org_id: UUID) -> None:
        of_org = sum(len(watchers) for key, watchers in self._watchers.items() if key[0] == org_id)
        if self.streams >= MAX_STREAMS or of_org >= MAX_STREAMS_OF_ORG:
            raise unavailable("Too many operations are being watched here. Ask for the operation itself, or later.", 5)

    async def news(self, row: Record) -> AsyncGenerator[Record | None]:
        """How an operation stands at first and after each change, to its end. None: nothing new for a while."""
        with self._watched(row) as watcher:
            yield row
            while watcher.row["finished_at"] is None and not self._closing.is_set():
                try:
                    async with asyncio.timeout(HEARTBEAT_S):
                        await watcher.news.wait()
                except TimeoutError:
                    yield None
                    continue
                watcher.news.clear()
                if not self._closing.is_set():
                    yield watcher.row

    @contextlib.contextmanager
    def _watched(self, row: Record) -> Iterator[_Watcher]:
        key, watcher = (row["org_id"], row["id"]), _Watcher(row)
        self._watchers.setdefault(key, set()).add(watcher)
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())
        try:
            yield watcher
        finally:
            self._watchers[key].discard(watcher)
            if not self._watchers[key]:
                del self._watchers[key]

    async def _watch(self) -> None:
        """For as long as anybody looks."""
        while self._watchers and not self._closing.is_set():
            await self._rest(WATCH_EVERY_S)
            try:
                rows = await operations.watch(self._engine, list(self._watchers))
            except OUTAGES as error:
                log.warning("operation_watch_failed", error_type=type(error).__name__)
                continue
            for row in rows:
                for watcher in self._watchers.get((row["org_id"], row["id"]), ()):
                    if row["updated_at"] != watcher.row["updated_at"]:
                        watcher.row = row
                        watcher.news.set()


async def _desk(request: Request) -> OperationDesk:
    desk: OperationDesk = request.app.state.operations
    return desk


Desk = Annotated[OperationDesk, Depends(_desk)]
