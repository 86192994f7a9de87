"""Output that cannot be written ends a command, and is taken for nothing else; a reader that has seen enough ends it
in good order.
"""

import asyncio
import os
import pty
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from rich.text import Text

from redrive.cli import tail
from redrive.cli.output import console, emit, note, say
from redrive.cli.runner import LOST, ReaderGone, Unwritable
from redrive.core.watching import Wish
from redrive.hub.edge import AWAY
from redrive.store.pausing import PauseScope
from support.begun import begin

from .command import WITHIN_S, clean_env
from .world import SECRET_KEY, World

FULL, NOWHERE = Path("/dev/full"), Path(os.devnull)
SINKS = (lambda: emit({}), lambda: say("a"), lambda: console().print(Text("a")))


async def ended(words: Sequence[str], url: str, stdout: int, stderr: int | None = None) -> tuple[int, str]:
    """A command that writes there: its exit code, and what it says on stderr, or where that is to go."""
    reading, writing = os.pipe()
    with NOWHERE.open() as stdin, os.fdopen(reading) as said:
        env = clean_env(REDRIVE_DATABASE_URL=url, REDRIVE_SECRET_KEY=SECRET_KEY)
        running = await begin(words, [stdin.fileno(), stdout, writing if stderr is None else stderr], env=env, cwd="/")
        os.close(writing)
        try:
            code = await asyncio.wait_for(running.wait(), WITHIN_S)
        except TimeoutError:
            running.kill()
            raise
        return code, await asyncio.to_thread(said.read)


@pytest.mark.parametrize(
    "words",
    [
        ("events", "list", "--json"),
        ("orgs", "list"),
        ("doctor",),
        ("doctor", "--json"),
        ("top", "--json"),
        ("top",),
    ],
    ids=" ".join,
)
async def test_a_command_on_a_full_disk_says_so_and_ends(world: World, words: Sequence[str]) -> None:
    await world.accept()
    with FULL.open("wb") as full:
        code, said = await ended(words, world.url, full.fileno())
        assert code == 4
        assert said == (
            "What is to be printed cannot be written: No space left on device. What was done before stays done;"
            " make room there, or let it be written elsewhere.\n"
        )
        assert (await ended(words, world.url, full.fileno(), full.fileno()))[0] == 4


async def test_a_payload_on_a_full_disk_too(world: World) -> None:
    event_id = await world.accept()
    with FULL.open("wb") as full:
        code, said = await ended(("events", "show", str(event_id), "--payload"), world.url, full.fileno())
    assert (code, "No space left" in said) == (4, True)


@pytest.mark.parametrize(
    "words", [("events", "list", "--json"), ("doctor",), ("top", "--json"), ("top",)], ids=" ".join
)
async def test_a_reader_that_is_gone_is_no_failure(world: World, words: Sequence[str]) -> None:
    await world.accept()
    reading, writing = os.pipe()
    os.close(reading)
    assert await ended(words, world.url, writing) == (0, "")
    os.close(writing)


async def test_a_terminal_that_is_gone_ends_what_is_drawn_on_it(world: World) -> None:
    terminal, other_end = pty.openpty()
    drawing = asyncio.create_task(ended(("top", "--every", "0.5"), world.url, other_end))
    await asyncio.to_thread(os.read, terminal, 1)
    os.close(terminal)
    code, said = await drawing
    os.close(other_end)
    assert (code, "Input/output error" in said) == (4, True)


@asynccontextmanager
async def something_happens(world: World) -> AsyncIterator[None]:
    """Again and again, seen by whoever watches: people do it."""

    async def act() -> None:
        while True:
            for paused in (True, False):
                await world.set_paused(PauseScope.ORG, paused)
                await asyncio.sleep(0.05)

    acting = asyncio.create_task(act())
    try:
        yield
    finally:
        acting.cancel()
        await asyncio.gather(acting, return_exceptions=True)


@pytest.mark.parametrize("as_json", [True, False])
async def test_whoever_watches_is_told_of_a_full_disk_and_of_no_lost_database(world: World, as_json: bool) -> None:
    words = ("tail", "--json") if as_json else ("tail",)
    with FULL.open("wb") as full:
        async with something_happens(world):
            code, said = await ended(words, world.url, full.fileno())
    assert code == 4
    assert "No space left on device" in said
    assert "was lost" not in said


@pytest.mark.parametrize("as_json", [True, False])
async def test_watching_ends_quietly_when_its_reader_is_gone(
    world: World, as_json: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stdout:
        monkeypatch.setattr("sys.stdout", stdout)
        async with something_happens(world), asyncio.timeout(WITHIN_S):
            with pytest.raises(ReaderGone):
                await tail._keep_following(world.url, Wish(), as_json=as_json, names_org=True)
        monkeypatch.undo()
        with NOWHERE.open("w") as nowhere:  # what it could not take is not tried again
            os.dup2(nowhere.fileno(), writing)
    assert "was lost" not in capsys.readouterr().err


@pytest.mark.parametrize("sink", SINKS)
def test_what_cannot_be_written_is_taken_for_no_database_and_no_edge_that_is_away(
    sink: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not any(issubclass(problem, (*LOST, *AWAY)) for problem in (Unwritable, ReaderGone))
    with FULL.open("w") as full:
        monkeypatch.setattr("sys.stdout", full)
        with pytest.raises(Unwritable, match="No space left on device"):
            sink()
        monkeypatch.undo()
        with NOWHERE.open("w") as nowhere:
            os.dup2(nowhere.fileno(), full.fileno())


def test_a_remark_that_nobody_can_read_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    for stderr in (FULL.open("w"), os.fdopen(writing, "w")):
        with stderr:
            monkeypatch.setattr("sys.stderr", stderr)
            for _ in range(2):
                note("a remark")
            monkeypatch.undo()


def test_a_console_without_a_stdout_writes_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a supervisor closed it."""
    monkeypatch.setattr("sys.stdout", None)
    console().print("nobody reads this")
