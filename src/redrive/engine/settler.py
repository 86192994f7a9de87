"""Settles what was tried, in batches that make themselves: while one is written, the next one gathers. No timer.

Fed by engine.worker. A settlement is never given up while the process lives: if the database is away, the batch
waits for it, its slots stay taken, and so the worker stops claiming.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from uuid import UUID

import structlog

from redrive.core.brief import brief
from redrive.core.meter import WorkerMeter
from redrive.core.ports import Settled, Settlement, TaskStore
from redrive.ending import end

MAX_BATCH = 500
WRITERS = 2  # one batch is on its way to disk while the next one is made
RETRY_FIRST_S = 0.1
RETRY_MOST_S = 2.0

log = structlog.get_logger("redrive.settler")


class Settler:
    def __init__(
        self,
        store: TaskStore,
        worker_id: UUID,
        on_settled: Callable[[list[Settled]], None],
        meter: WorkerMeter | None = None,
    ) -> None:
        self._store = store
        self._worker_id = worker_id
        self._on_settled = on_settled
        self._meter = meter
        self._waiting: deque[Settlement] = deque()
        self._filled = asyncio.Event()
        self._writers: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._writers = [asyncio.create_task(self._write(), name=f"settler-{n}") for n in range(WRITERS)]

    def put(self, settlement: Settlement) -> None:
        self._waiting.append(settlement)
        self._filled.set()

    @property
    def writers(self) -> Sequence[asyncio.Task[None]]:
        """Tasks that run as long as the settler does: one that ends is a bug, and results would pile up behind it."""
        return self._writers

    async def close(self) -> None:
        await end(*self._writers)

    async def _write(self) -> None:
        while True:
            await self._filled.wait()
            batch = self._take()
            if not batch:
                continue
            began = time.monotonic()
            settled = await self._settle(batch)
            if self._meter is not None:
                self._meter.settled(settled, time.monotonic() - began)
            self._on_settled(settled)

    def _take(self) -> list[Settlement]:
        waiting = self._waiting
        batch = [waiting.popleft() for _ in range(min(len(waiting), MAX_BATCH))]
        if not waiting:
            self._filled.clear()
        return batch

    async def _settle(self, batch: list[Settlement]) -> list[Settled]:
        pause_s = RETRY_FIRST_S
        while True:
            try:
                return await self._store.settle(batch, self._worker_id)
            except Exception as error:  # noqa: BLE001 - whatever it is, the results must not be dropped
                log.warning("settle_failed", error=brief(error), tasks=len(batch), again_in_s=pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, RETRY_MOST_S)
