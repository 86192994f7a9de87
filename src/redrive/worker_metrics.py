"""What a worker's process tells of itself: on a port of its own, or to the `redrive serve` that started it.

Put together here for app and api_process, which run workers. See docs/metrics.md.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from redrive.engine.worker import Worker
from redrive.observe import process_metrics as numbers
from redrive.observe.exposition import ProcessNumbers, write
from redrive.observe.metrics_server import NAME_VARIABLE, serving_metrics
from redrive.settings import Settings
from redrive.store.db import Database
from redrive.store.health import why_not_writable
from redrive.version import __version__


@asynccontextmanager
async def serving_worker_metrics(settings: Settings, engine: Database, worker: Worker) -> AsyncIterator[None]:
    """The worker's numbers, and whether it is ready: its claims reach the database, which takes writes."""

    async def why_not_ready() -> str | None:
        why_not = await why_not_writable(engine)  # first: it says more than that claims fail, which follows
        if why_not is None and not worker.reaches_store:
            return "The last claim did not reach the database."
        return why_not

    show_workers(worker)
    own = ProcessNumbers(os.environ.get(NAME_VARIABLE) or "worker", numbers.OF_WORKERS)
    async with serving_metrics(
        lambda accept: write([own], accept), why_not_ready, host=settings.metrics_host, port=settings.metrics_port
    ):
        yield


def show_workers(*workers: Worker) -> None:
    """What metrics tell of the workers of this process from now on: of all together."""
    numbers.IN_FLIGHT.ask(lambda: sum(worker.in_flight for worker in workers))
    numbers.LEASES_HELD.ask(lambda: sum(worker.unsettled for worker in workers))
    numbers.CONCURRENCY.ask(lambda: sum(worker.concurrency for worker in workers))
    numbers.BUILD.ask(lambda: 1, (__version__,))
