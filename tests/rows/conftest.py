"""An installation whose clock the test moves, and a receiver. Whatever a test does, the books are right afterwards."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest_asyncio

from support.engine import ManualClock, Shared, clock, empty_url, shared_database
from support.holding import HoldingReceiver, open_holding
from support.installation import Installation, installation
from support.oracle import assert_sound

__all__ = ["clock", "empty_url", "shared_database"]

Story = Callable[..., Awaitable[dict[str, Any]]]


@pytest_asyncio.fixture(loop_scope="session")
async def receiver() -> AsyncIterator[HoldingReceiver]:
    async with open_holding() as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="session")
async def redrive(
    empty_url: str, shared_database: Shared, clock: ManualClock, receiver: HoldingReceiver
) -> AsyncIterator[Installation]:
    async with installation(empty_url, clock=clock, stores=shared_database.ways.stores) as opened:
        yield opened
        await assert_sound(empty_url, received=receiver.ids, now=clock.now())


@pytest_asyncio.fixture(loop_scope="session")
async def failing(redrive: Installation, receiver: HoldingReceiver) -> Story:
    """An event that has failed once; its entry in the retry queue."""

    async def story(**fields: object) -> dict[str, Any]:
        endpoint = await redrive.api.endpoint(receiver.url, external_system="erp", **fields)
        receiver.usual = 503
        await redrive.api.event(endpoint["id"], {"order": 7})
        await redrive.work()
        return await redrive.api.entry(endpoint["id"])

    return story


@pytest_asyncio.fixture(loop_scope="session")
async def dead(redrive: Installation, clock: ManualClock, failing: Story) -> Story:
    """An event whose retries are used up; its dead letter."""

    async def story(**fields: object) -> dict[str, Any]:
        entry = await failing(**fields)
        for delay_s in (5, 30, 300):
            clock.advance(delay_s)
            await redrive.work()
        return await redrive.api.letter(entry["endpoint_id"])

    return story
