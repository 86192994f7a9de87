"""`redrive tail` itself, without the processes that it watches: a database that goes away, and a slow terminal."""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from redrive.cli import tail
from redrive.core.watching import WATCH_CHANNEL, Wish
from redrive.store.tail import Tail, open_tail

from .command import redrive
from .world import World

WITHIN_S = 10


async def test_a_database_that_went_away_is_looked_for_again(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tail, "AGAIN_S", 0.01)
    calls: asyncio.Queue[int] = asyncio.Queue()
    sql = await asyncpg.connect(world.url)
    await sql.add_listener(WATCH_CHANNEL, lambda *given: calls.put_nowait(int(given[1])))
    following = asyncio.create_task(tail._keep_following(world.url, Wish(), as_json=False, names_org=True))
    try:
        async with asyncio.timeout(WITHIN_S):
            first = await calls.get()
            await sql.execute("SELECT pg_terminate_backend($1)", first)
            while await calls.get() == first:
                continue
            said = ""
            while "there again" not in said:
                await asyncio.sleep(0)
                said += capsys.readouterr().err
        assert said.count("was lost") == 1
        assert not following.done()
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await sql.close()


async def test_who_comes_back_late_after_a_loss_is_waited_for_and_told_and_who_joins_later(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Processes look for the database as the one who watches does, and may find it later."""
    monkeypatch.setattr(tail, "AGAIN_S", 0.01)
    monkeypatch.setattr(tail, "ANSWER_WITHIN_S", 0.1)
    monkeypatch.setattr(tail, "OTHERS_WITHIN_S", 0.01)
    opened: list[Tail] = []

    @asynccontextmanager
    async def open_one(url: str, wish: Wish) -> AsyncIterator[Tail]:
        async with open_tail(url, wish) as watching:
            opened.append(watching)
            yield watching

    async def told(what: str) -> str:
        said = ""
        while what not in said:
            await asyncio.sleep(0.01)
            said += capsys.readouterr().err
        return said

    monkeypatch.setattr(tail, "open_tail", open_one)
    following = asyncio.create_task(tail._keep_following(world.url, Wish(), as_json=False, names_org=True))
    try:
        async with asyncio.timeout(WITHIN_S):
            await told("No worker and no API answers")
            opened[0].processes.add("worker@a:1")
            await told("Watching 1 process: worker@a:1.")
            opened[0]._lines.put_nowait(None)
            lost = await told("there again")
            await asyncio.sleep(0.3)  # longer than one waits who begins
            opened[1].processes.add("worker@a:1")
            found = await told("Watching 1 process: worker@a:1.")
            opened[1].processes |= {"api@a:2", "worker@b:3"}
            assert "Watching also 2 processes: api@a:2, worker@b:3." in await told("also")
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    assert "was lost: The database ended the connection. It is looked for again." in lost
    assert "No worker" not in lost + found


def test_a_loss_is_told_with_a_reason_also_where_the_error_has_none() -> None:
    assert tail._sentence(TimeoutError()) == "no answer in time (TimeoutError)."
    assert tail._sentence(ConnectionError("It is gone.")) == "It is gone."


async def test_one_that_was_never_there_is_told(world: World) -> None:
    with pytest.raises(ConnectionRefusedError):
        await tail._keep_following("postgresql://nobody@127.0.0.1:9/nothing", Wish(), as_json=True, names_org=True)


async def test_a_terminal_that_takes_nothing_is_waited_for_without_stopping_everything(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    read, write = os.pipe()
    full = b"x" * fcntl.fcntl(write, fcntl.F_GETPIPE_SZ)
    os.write(write, full)
    with os.fdopen(write, "w") as stdout, os.fdopen(read, "rb") as reader:
        monkeypatch.setattr("sys.stdout", stdout)
        waiting = asyncio.create_task(tail._room())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waiting.done()
        reader.read(len(full))
        await asyncio.wait_for(waiting, WITHIN_S)
        monkeypatch.undo()
    with (tmp_path / "file").open("w") as file:
        monkeypatch.setattr("sys.stdout", file)
        await asyncio.wait_for(tail._room(), WITHIN_S)
        monkeypatch.undo()


@pytest.mark.parametrize(
    ("word", "code"),
    [
        (("--status", "unheard"), 2),
        (("--event-type", "x" * 300), 2),
        (("--org", "nobody"), 1),
        (("--endpoint", "x"), 1),
    ],
)
async def test_tail_refuses_what_cannot_be(world: World, word: tuple[str, ...], code: int) -> None:
    assert (await redrive("tail", *word, url=world.url)).code == code
