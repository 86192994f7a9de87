"""One `redrive serve` for all tests here, as shipped: its own PostgreSQL, one worker. Endpoints keep tests apart."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from conftest import _short_folder
from redrive.store.embedded import running_url
from support.holding import HoldingReceiver, open_holding
from support.oracle import assert_check_passes
from support.processes import ADMIN_KEY, Served, serve
from support.remote import Remote


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def served() -> AsyncIterator[Served]:
    """After the last test the books must be in order."""
    for folder in _short_folder():
        async with serve(data_dir=folder) as running:
            yield running
            await assert_check_passes(REDRIVE_DATA_DIR=str(folder))
            assert await running.program.terminated() < 10


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def served_url(served: Served) -> str:
    """The URL of its database."""
    assert isinstance(served.data_dir, Path)
    url = running_url(served.data_dir)
    assert url is not None
    return url


@pytest_asyncio.fixture(loop_scope="session")
async def api(served: Served) -> AsyncIterator[Remote]:
    remote = Remote(served.host, served.port, ADMIN_KEY)
    yield remote
    remote.close()


@pytest_asyncio.fixture(loop_scope="session")
async def receiver() -> AsyncIterator[HoldingReceiver]:
    async with open_holding() as opened:
        yield opened
