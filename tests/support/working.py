"""A real worker on the database of an API under test: delivers to loopback."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from redrive.core.address import AddressRules
from redrive.destinations.client import Client
from redrive.destinations.http import HttpDestination
from redrive.engine.worker import Worker
from redrive.store.clock import Clock
from redrive.store.db import Database
from redrive.store.endpoints import EndpointTermsBook
from redrive.store.orgs import new_id
from redrive.store.seal import Sealer
from redrive.store.tasks import Tasks

LOOPBACK = AddressRules.parse("127.0.0.0/8")


@asynccontextmanager
async def open_worker(db: Database, sealer: Sealer, clock: Clock) -> AsyncIterator[Worker]:
    http = HttpDestination(Client(rules=LOOPBACK), EndpointTermsBook(db, sealer), version="test")
    try:
        yield Worker(Tasks(db, clock), [http], worker_id=new_id())
    finally:
        await http.aclose()


@asynccontextmanager
async def running_worker(db: Database, sealer: Sealer, clock: Clock) -> AsyncIterator[None]:
    """At work in the background."""
    async with open_worker(db, sealer, clock) as worker:
        stop = asyncio.Event()
        running = asyncio.create_task(worker.run(stop))
        try:
            yield
        finally:
            stop.set()
            async with asyncio.timeout(15):
                await running
