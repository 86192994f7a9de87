"""Turns at the database, shared among orgs: one whose lists are slow must not hold every connection.

Taken by ApiContext.tenant, for each transaction of a request.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

MAX_TURNS_PER_ORG = 7  # of app.APP_CONNECTIONS


class _Queue:
    __slots__ = ("semaphore", "users")

    def __init__(self, turns: int) -> None:
        self.semaphore = asyncio.Semaphore(turns)
        self.users = 0


class Turns:
    """As many at once for each org; those beyond wait, in the order they came."""

    def __init__(self, per_org: int = MAX_TURNS_PER_ORG) -> None:
        self._per_org = per_org
        self._queues: dict[UUID, _Queue] = {}

    @asynccontextmanager
    async def of(self, org_id: UUID) -> AsyncIterator[None]:
        queue = self._queues.get(org_id)
        if queue is None:
            queue = self._queues[org_id] = _Queue(self._per_org)
        queue.users += 1
        try:
            async with queue.semaphore:
                yield
        finally:
            queue.users -= 1
            if not queue.users:
                del self._queues[org_id]
