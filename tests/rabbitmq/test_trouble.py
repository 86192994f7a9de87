"""A broker in trouble: it hangs, takes no more messages for a while, or never takes this one."""

import asyncio
from collections.abc import AsyncIterator, Callable
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
import structlog
from aiormq.abc import AbstractConnection
from aiormq.connection import Connection

from redrive.broker.topology import exists
from redrive.sources.staying import stay_connected
from support.broker import Broker, connected
from support.proxy import tcp_proxy

pytestmark = pytest.mark.filterwarnings("error")


@pytest_asyncio.fixture(loop_scope="session")
async def broker(vhost_url: str) -> AsyncIterator[Broker]:
    async with connected(vhost_url) as opened:
        yield opened


async def test_after_a_connection_that_hangs_comes_another(vhost_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library then cancels what waits for an answer, as if whoever asked were to end."""
    monkeypatch.setattr(Connection, "HEARTBEAT_GRACE_MULTIPLIER", 0.5)
    parts = urlsplit(vhost_url)
    assert parts.port is not None
    sessions, stop = 0, asyncio.Event()
    async with tcp_proxy("127.0.0.1", parts.port) as (proxy, port):

        async def session(connection: AbstractConnection, began: Callable[[], None]) -> str:
            nonlocal sessions
            sessions += 1
            if sessions == 2:
                stop.set()
                return "it works again"
            proxy.go_silent()
            try:
                await exists(connection, "orders")
            finally:
                proxy.heal()
            return "it answered"

        url = vhost_url.replace(f":{parts.port}", f":{port}") + "?heartbeat=1"
        async with asyncio.timeout(20):
            await stay_connected([url], "one that hangs", stop, session, structlog.get_logger())
    assert sessions == 2
