"""Fixtures of the command line's tests."""

import pytest_asyncio

from support.engine import Shared, empty_url, shared_database

from .world import World, world_on

__all__ = ["empty_url", "shared_database"]


@pytest_asyncio.fixture(loop_scope="session")
async def world(empty_url: str, shared_database: Shared) -> World:
    return await world_on(shared_database.ways)
