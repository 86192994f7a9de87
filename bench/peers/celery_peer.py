"""Celery, delivering webhooks from a RabbitMQ of the bench's own."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

from bench.broker import rabbitmq, require_rabbitmq
from bench.delivery import Delivery, Worker
from bench.model import Run
from bench.peers.base import WORKERS, Job, Peer, Setup, python_venv
from bench.processes import CACHE, command


@dataclass(slots=True)
class CeleryPeer(Peer):
    name: str = "celery"
    version: str = "5.7.0"
    settings: str = "RabbitMQ 3.10, threads × 20, prefetch 4, acks late, urllib3; retry countdown 0"
    _stack: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)
    _broker: str | None = None
    pins: tuple[str, ...] = ("celery==5.7.0", "urllib3==2.8.0")

    async def setup(self) -> None:
        require_rabbitmq()
        await python_venv(CACHE / self.name, self.pins)

    async def run(self, where: Setup, job: Job, n: int, processes: int) -> Run:
        await where.receiver.reset(flaky=job == "flaky")
        argv = [str(CACHE / self.name / "bin" / "python"), str(WORKERS / "celery_worker.py")]
        if self._broker is None:  # takes ten seconds to start, so one for all runs
            self._broker = await self._stack.enter_async_context(rabbitmq())
        env = {"BENCH_BROKER": self._broker, "BENCH_TARGET": where.receiver.url}
        await command([*argv, "enqueue", str(n)], env=env, timeout_s=60)
        worker = Worker([*argv, "work"], env, CACHE / self.name)
        return await Delivery(self.name, n, worker, where.receiver, processes).run()

    async def close(self) -> None:
        self._broker = None
        await self._stack.aclose()
