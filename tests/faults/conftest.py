"""Fixtures of the fault tests: a receiver, and a data folder for those who need a PostgreSQL that is really durable."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from conftest import _short_folder
from support.holding import HoldingReceiver, open_holding


@pytest_asyncio.fixture(loop_scope="session")
async def receiver() -> AsyncIterator[HoldingReceiver]:
    async with open_holding() as opened:
        yield opened


@pytest.fixture(scope="module")
def durable_dir() -> Iterator[Path]:
    """The data folder of one installation that a module's tests run, break and run again."""
    yield from _short_folder()
