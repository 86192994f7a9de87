"""Watching what happens: who is let see it, and that whoever watches is never left in silence."""

import asyncio
import json
from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio

from redrive.core.watching import TAIL_PREFIX, WATCH_CHANNEL, Wish
from redrive.observe import watch
from redrive.observe.watch import Gallery
from redrive.store import listen as listening
from redrive.store.listen import listen
from redrive.store.tail import Line, Tail, open_tail
from support.engine import Engine

WITHIN_S = 10


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is gathered for long."""
    monkeypatch.setattr("redrive.store.tail.GATHER_S", 0.0)
    monkeypatch.setattr(listening, "FLUSH_S", 0.01)


@pytest.fixture
def gallery(monkeypatch: pytest.MonkeyPatch) -> Gallery:
    """That of a process of its own."""
    own = Gallery()
    for module in (watch, listening):
        monkeypatch.setattr(module, "gallery", own)
    return own


@pytest_asyncio.fixture(loop_scope="session")
async def process(live: Engine, gallery: Gallery) -> AsyncIterator[Gallery]:
    """A process that is watched."""
    task = asyncio.create_task(listen(live.url, lambda _: None))
    yield gallery
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def first(tail: Tail) -> Line:
    async with asyncio.timeout(WITHIN_S):
        async for line in tail.lines():
            return line
    raise AssertionError("it ended")


async def until_watched(tail: Tail, gallery: Gallery) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not (gallery.is_open and tail.processes):
            await tail._call()  # the process may have begun to listen later
            await asyncio.sleep(0.02)


async def test_who_may_not_read_the_installation_s_secret_sees_nothing(live: Engine, process: Gallery) -> None:
    """Every login of a database can call itself a watcher and listen to any channel that it can name."""
    heard: list[object] = []
    stranger = await asyncpg.connect(live.url)
    calls: list[str] = []
    await stranger.add_listener(WATCH_CHANNEL, lambda *given: calls.append(json.loads(str(given[-1]))["id"]))
    own = "f" * 32
    await stranger.add_listener(TAIL_PREFIX + own, lambda *given: heard.append(given))
    async with open_tail(live.url, Wish()) as tail:
        await until_watched(tail, process)
        await stranger.execute("SELECT pg_notify($1, $2)", WATCH_CHANNEL, json.dumps({"id": own, "wish": {}}))
        await stranger.add_listener(TAIL_PREFIX + calls[0], lambda *given: heard.append(given))
        process.show("event_failed", {"org_id": str(live.org_id), "reason": "expired"})
        assert (await first(tail))["what"] == "dead"
    await stranger.execute("SELECT 1")  # whatever was for it has come by now
    await stranger.close()
    assert heard == []


async def test_a_watcher_that_can_no_longer_ask_ends_instead_of_seeing_nothing(live: Engine) -> None:
    async with open_tail(live.url, Wish(org_id="no id")) as tail:
        with pytest.raises(ValueError, match="hexadecimal"):
            await first(tail)


async def test_a_watcher_whose_connection_is_gone_is_told_and_leaves_at_once(live: Engine) -> None:
    async with asyncio.timeout(WITHIN_S):
        async with open_tail(live.url, Wish()) as tail:
            tail._connection.terminate()
            with pytest.raises((ConnectionError, asyncpg.PostgresError, asyncpg.InterfaceError)):
                await first(tail)
