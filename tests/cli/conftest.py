"""Fixtures of the command line's tests."""

from collections.abc import AsyncIterator

import pytest_asyncio

from .world import World, open_world


@pytest_asyncio.fixture(loop_scope="session")
async def world(database_url: str) -> AsyncIterator[World]:
    async with open_world(database_url) as opened:
        yield opened
