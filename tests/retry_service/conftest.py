"""A service with a handler that fails as often as a test says, under a clock that only the test moves."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import Any
from uuid import UUID

import pytest_asyncio

from redrive import Redrive, RetryService, Task
from redrive.api import shapes
from redrive.settings import Settings, load_settings
from redrive.store import logs
from redrive.store.check import check
from redrive.store.seal import Sealer
from support.engine import Engine, ManualClock, Shared, clock, empty_url, engine_by, shared_database

__all__ = ["clock", "empty_url", "shared_database"]

SECRET_KEY = "a secret key of the tests"


@dataclass(slots=True)
class Erp:
    """Another system, down for as many calls as a test says."""

    down_for: int = 0
    answer: object = None
    calls: list[Any] = field(default_factory=list)

    async def take(self, task: Task) -> object:
        self.calls.append(task.payload)
        if self.down_for:
            self.down_for -= 1
            raise ConnectionError(f"the ERP is down (call {len(self.calls)})")
        return self.answer


@dataclass(slots=True)
class Office:
    """All that a test needs: the service, the system behind its handlers, the clock, and a look at the books."""

    service: RetryService
    erp: Erp
    clock: ManualClock
    engine: Engine

    async def add(self, error: BaseException | str | None = None, **terms: Any) -> UUID:
        given = ConnectionError("the ERP is down") if error is None else error
        return await self.service.report_failure("edi.orders", {"order": 7}, given, **terms)

    async def entry(self, task_id: UUID) -> dict[str, Any]:
        """The one entry of that id in the retry queue."""
        rows = await self.service.get_retry_queue()
        (found,) = [row for row in rows if row["id"] == task_id]
        return dict(found)

    async def letter(self, task_id: UUID, **filters: Any) -> dict[str, Any]:
        rows = await self.service.get_dlq(**filters)
        (found,) = [row for row in rows if row["id"] == task_id]
        return dict(found)

    async def queued(self) -> list[UUID]:
        return [row["id"] for row in await self.service.get_retry_queue()]

    async def dead(self) -> list[UUID]:
        return [row["id"] for row in await self.service.get_dlq()]

    async def log(self, task_id: UUID) -> dict[str, Any]:
        async with self.engine.app.tenant(self.engine.org_id) as session:
            row = await logs.get_log(session, task_id)
            attempts = await logs.list_task_attempts(session, task_id)
        assert row is not None
        return shapes.log(row, attempts)

    async def audit(self, task_id: UUID) -> list[tuple[str, str, str | None]]:
        sql = "SELECT action, actor, because FROM redrive.audit WHERE subject_id = $1 ORDER BY id"
        return [tuple(row) for row in await self.engine.sql.fetch(sql, task_id)]

    async def process(self, after_s: float = 0.0) -> dict[str, int]:
        self.clock.advance(after_s)
        return await self.service.process_retry_queue()

    def in_s(self, seconds: float) -> object:
        return self.clock.now() + timedelta(seconds=seconds)


@pytest_asyncio.fixture(loop_scope="session")
async def engine(empty_url: str, shared_database: Shared, clock: ManualClock) -> Engine:
    """With the key of the service's secrets, which the database will remember."""
    engine = await engine_by(shared_database.ways, clock)
    engine.sealer = Sealer.from_passphrase(SECRET_KEY)
    return engine


@cache
def _settings(url: str) -> Settings:
    return load_settings(database_url=url, secret_key=SECRET_KEY, allow_networks="127.0.0.0/8")


@pytest_asyncio.fixture(loop_scope="session")
async def office(engine: Engine, clock: ManualClock) -> AsyncIterator[Office]:
    erp = Erp()
    app = Redrive(engine.url)
    app.handler("edi.orders")(erp.take)
    app.handler("erp.sync", policy="immediate")(erp.take)
    settings = _settings(engine.url)
    async with RetryService(app, clock=clock, dice=lambda: 0.5, settings=settings, actor="the tests") as service:
        yield Office(service, erp, clock, engine)
    report = await check(engine.url, now=clock.now())
    assert report.clean, report.violations
