"""Fixtures for the tests in this folder: a broker, a virtual host in it for each test, an installation beside it."""

from collections.abc import AsyncIterator

import pytest_asyncio

from support.broker import Broker, connected
from support.engine import ManualClock, Shared, clock, empty_url, shared_database
from support.installation import Installation, installation
from support.oracle import assert_sound

__all__ = ["clock", "empty_url", "shared_database"]


@pytest_asyncio.fixture(loop_scope="session")
async def broker(vhost_url: str) -> AsyncIterator[Broker]:
    async with connected(vhost_url) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="session")
async def redrive(
    vhost_url: str, empty_url: str, shared_database: Shared, clock: ManualClock
) -> AsyncIterator[Installation]:
    stores = shared_database.ways.stores
    async with installation(empty_url, clock=clock, stores=stores, rabbitmq_url=vhost_url) as opened:
        yield opened
        await assert_sound(empty_url, now=clock.now())
