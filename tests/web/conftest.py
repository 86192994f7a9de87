"""The pages over a running API: orgs of each test's own on a server that all share. See tests/api/conftest.py."""

from collections.abc import AsyncIterator

import pytest_asyncio

from api.conftest import Api, Server, broker_api, database_named, own_api, populated, running_server
from redrive.store.embedded import EmbeddedPostgres

__all__ = ["broker_api", "own_api"]

SHARED_DATABASE = "redrive_web_shared"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server(postgres: EmbeddedPostgres, template_database: str) -> AsyncIterator[Server]:
    async with (
        database_named(postgres, template_database, SHARED_DATABASE) as url,
        running_server(url) as running,
    ):
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def api(server: Server) -> AsyncIterator[Api]:
    async with populated(server) as running:
        yield running
