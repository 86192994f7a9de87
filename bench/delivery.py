"""Time how long worker processes take to deliver a queue that is already filled.

The clock runs from the first request at the receiver (a worker's start-up is not its speed) until the database
says that all is settled. Used by the ceilings and the peers; Redrive's own side may use it too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg

from bench.model import Run
from bench.postgres import cost
from bench.processes import ROOT, Child, ProcessError, children
from bench.receiver import Receiver

SETTLE_TIMEOUT_S = 30.0
SETTLE_POLL_S = 0.005
STOP_GRACE_S = 1.5
"""All is settled when workers are stopped: nothing to wait long for."""


@dataclass(frozen=True, slots=True)
class Worker:
    """How a worker process is started."""

    argv: Sequence[str | Path]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path = ROOT


@dataclass(frozen=True, slots=True)
class Delivery:
    """A filled queue and what delivers it. `unsettled` is a query that counts what is not settled yet."""

    name: str
    n: int
    worker: Worker
    receiver: Receiver
    processes: int = 1
    url: str | None = None
    unsettled: str | None = None
    timeout_s: float = 90.0

    async def run(self) -> Run:
        before = await cost(self.url) if self.url else None
        async with children(STOP_GRACE_S) as started:
            for index in range(self.processes):
                worker = self.worker
                child = await Child.start(f"{self.name} {index}", worker.argv, env=worker.env, cwd=worker.cwd)
                started.append(child)
            counts = await self.receiver.wait_for(self.n, timeout_s=self.timeout_s, workers=started)
            end = await self._settled() if self.unsettled else counts["last_at"]
        extra = {"duplicates": counts["duplicates"], "settled_after_last_ms": (end - counts["last_at"]) * 1000}
        if self.url and before is not None:
            extra |= (await cost(self.url)).since(before, self.n)
        return Run.timed(self.name, self.n, end - counts["first_at"], extra)

    async def _settled(self) -> float:
        assert self.url is not None
        assert self.unsettled is not None
        connection = await asyncpg.connect(self.url)
        try:
            deadline = time.monotonic() + SETTLE_TIMEOUT_S
            while left := await connection.fetchval(self.unsettled):
                if time.monotonic() > deadline:
                    raise ProcessError(f"{self.name}: {left} jobs delivered but never settled")
                await asyncio.sleep(SETTLE_POLL_S)
            return time.monotonic()
        finally:
            await connection.close()
