"""`redrive tail` itself, without the processes that it watches: a database that goes away, and a slow terminal."""

import asyncio
import fcntl
import os
from pathlib import Path

import asyncpg
import pytest

from redrive.cli import tail
from redrive.core.watching import WATCH_CHANNEL, Wish

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
