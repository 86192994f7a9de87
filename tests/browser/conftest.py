"""A real browser before a real installation, for the tests in this folder.

installation   API and pages over a database to itself, whose clock the test moves; `installation.work()`
live           the same by the database's clock, with a worker at work: for tests that click and wait
signed_in      `await signed_in("ADMIN")`: a page of somebody with that role; at another width, in the dark …
visit          the same for whoever is not signed in: `await visit.page()`

One browser for the session, a fresh context for each page. A test whose pages had faults fails at its end, see
support.chromium. Without chromium all of them are skipped.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from redrive.core.permissions import Role
from support.chromium import COMMAND, ENV, Visit, find_chromium, open_chromium, visiting
from support.engine import ManualClock, Shared, clock, empty_url, shared_database
from support.installation import Installation
from support.installation import installation as open_installation
from support.receiver import Receiver, open_receiver

__all__ = ["clock", "empty_url", "shared_database"]

NO_BROKER = "amqp://127.0.0.1:9"  # so that pages offer it; nothing is published
NO_MAIL = "smtp://127.0.0.1:9?starttls=none"

SignedIn = Callable[..., Awaitable[Page]]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium() -> AsyncIterator[Browser]:
    if find_chromium() is None:
        pytest.skip(f"{COMMAND} is not installed: as root, `make servers` does it; or name one in {ENV}")
    async with open_chromium() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="session")
async def receiver() -> AsyncIterator[Receiver]:
    async with open_receiver() as opened:
        yield opened


# The browser is asked for first: without one, nothing else is begun.
@pytest_asyncio.fixture(loop_scope="session")
async def installation(
    chromium: Browser, empty_url: str, shared_database: Shared, clock: ManualClock
) -> AsyncIterator[Installation]:
    stores = shared_database.ways.stores
    async with open_installation(
        empty_url, clock=clock, stores=stores, rabbitmq_url=NO_BROKER, smtp_url=NO_MAIL
    ) as redrive:
        yield redrive


@pytest_asyncio.fixture(loop_scope="session")
async def live(chromium: Browser, empty_url: str, shared_database: Shared) -> AsyncIterator[Installation]:
    async with open_installation(empty_url, stores=shared_database.ways.stores) as redrive, redrive.working():
        yield redrive


@pytest.fixture
def visited(request: pytest.FixtureRequest) -> Installation:
    """The live installation where the test asks for that one, else the other."""
    found: Installation = request.getfixturevalue("live" if "live" in request.fixturenames else "installation")
    return found


@pytest_asyncio.fixture(loop_scope="session")
async def visit(chromium: Browser, visited: Installation) -> AsyncIterator[Visit]:
    async with visiting(chromium, visited.base_url) as opened:
        yield opened


@pytest.fixture
def signed_in(visit: Visit, visited: Installation) -> SignedIn:
    async def sign_in(role: Role | str = Role.OWNER, **options: Any) -> Page:
        """Its clock says what the installation's says, and stands still if that one does."""
        token = await visited.session_token(Role(role))
        return await visit.page(token=token, at=visited.clock.now(), **options)

    return sign_in
