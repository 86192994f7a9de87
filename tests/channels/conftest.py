"""Fixtures for the tests in this folder: a mail server, an installation beside it whose clock the test moves."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from support.engine import ManualClock, Shared, clock, empty_url, shared_database
from support.holding import HoldingReceiver, open_holding
from support.installation import Installation, installation
from support.mail import MailServer, mail_server
from support.oracle import assert_sound

__all__ = ["clock", "empty_url", "shared_database"]

PUBLIC_URL = "https://redrive.example.com"


@pytest.fixture
def mail() -> Iterator[MailServer]:
    with mail_server() as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="session")
async def receiver() -> AsyncIterator[HoldingReceiver]:
    async with open_holding() as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="session")
async def redrive(
    empty_url: str, shared_database: Shared, clock: ManualClock, mail: MailServer, receiver: HoldingReceiver
) -> AsyncIterator[Installation]:
    stores = shared_database.ways.stores
    async with installation(empty_url, clock=clock, stores=stores, smtp_url=mail.url, public_url=PUBLIC_URL) as opened:
        yield opened
        await assert_sound(empty_url, received=receiver.ids, now=clock.now())
