"""Systems that consume queues of RabbitMQ, each with the best of the settings that were tried, pinned.

Run by bench.rabbitmq, shown by bench.report.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bench.peers.base import WORKERS
from bench.processes import CACHE, module
from bench.scenarios import OURS

JOBS: Mapping[str, bool] = {"no-op": False, "one in ten fails once": True}
"""Whether it is flaky, by the name of the job."""
Kind = Literal["quorum", "classic"]


@dataclass(frozen=True, slots=True)
class Consumer:
    """A system: how it is installed, how its queue is filled, how it is run."""

    name: str
    settings: str
    messages: int
    work: Sequence[str | Path]
    enqueue: Sequence[str | Path] | None = None  # None: plain messages of JSON
    kinds: Sequence[Kind] = ("quorum", "classic")  # of queues
    pins: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def venv(self) -> Path:
        return _venv(self.name)

    def labelled(self, kind: Kind) -> str:
        return self.name if kind == "quorum" else f"{self.name}, {kind}"


def _venv(name: str) -> Path:
    return CACHE / f"rabbitmq-{name}"


CELERY = [_venv("celery") / "bin" / "python", WORKERS / "celery_consumer.py"]
CONSUMERS = (
    Consumer(
        name="aio-pika",
        settings="the least that one can write: prefetch 100, uvloop; what fails is given back to the queue at once",
        messages=30_000,
        work=[sys.executable, WORKERS / "aio_pika_worker.py"],
    ),
    Consumer(
        name=OURS,
        settings="as shipped: 50 at once, prefetch 100, uvloop; what fails waits 1 ms in a delay queue of the broker",
        messages=30_000,
        work=module("redrive.cli.main", "consume", "--app", "bench.rabbitmq_app:app", "--log-level", "error"),
    ),
    Consumer(
        name="celery",
        settings="5.7.0; pool solo, prefetch 100, acks late; retry countdown 0, confirmed",
        messages=10_000,
        work=[*CELERY, "work"],
        enqueue=[*CELERY, "enqueue"],
        pins=("celery==5.7.0",),
    ),
    Consumer(
        name="dramatiq",
        settings="2.2.1; 2 threads, prefetch 100; backoff 1 ms, waited for in memory, confirmed; makes classic queues",
        messages=20_000,
        work=[
            _venv("dramatiq") / "bin" / "dramatiq", "dramatiq_consumer", "--path", WORKERS,
            "--processes", "1", "--threads", "2", "--skip-logging",
        ],
        enqueue=[_venv("dramatiq") / "bin" / "python", WORKERS / "dramatiq_consumer.py", "enqueue"],
        kinds=("classic",),
        pins=("dramatiq[rabbitmq]==2.2.1",),
        env={"dramatiq_queue_prefetch": "100"},
    ),
)  # fmt: skip
