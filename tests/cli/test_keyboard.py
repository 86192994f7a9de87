"""Keys at a terminal: taken where the command is in front, left alone where it is not."""

import asyncio
import os
import pty
import sys
import termios
from collections.abc import Iterator
from io import FileIO

import pytest

from redrive.cli.keyboard import keys
from support.processes import until


@pytest.fixture
def window(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileIO]:
    """Where a person types, and may close it. The other end is stdin."""
    typing, other_end = pty.openpty()
    with FileIO(typing, "r+") as opened, os.fdopen(other_end) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield opened


@pytest.fixture
def terminal(window: FileIO) -> int:
    return window.fileno()


async def test_a_key_that_is_pressed_calls_its_action_and_the_terminal_is_left_as_it_was(terminal: int) -> None:
    before = termios.tcgetattr(terminal)
    pressed: list[str] = []
    with keys({"r": lambda: pressed.append("r")}) as somebody:
        assert somebody
        os.write(terminal, b"xr")
        await until(lambda: pressed == ["r"])
    assert termios.tcgetattr(terminal) == before


async def test_in_the_background_nothing_is_taken_or_changed(terminal: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "tcgetpgrp", lambda _: os.getpgrp() + 1)
    before = termios.tcgetattr(terminal)
    with keys({}) as somebody:
        assert not somebody
        assert termios.tcgetattr(terminal) == before


async def test_what_is_typed_once_another_is_in_front_is_left_to_it(
    terminal: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    another = os.getpgrp() + 1
    groups = iter([os.getpgrp(), another, another])  # in front at the start, then not, then again
    monkeypatch.setattr(os, "tcgetpgrp", lambda _: next(groups, os.getpgrp()))
    monkeypatch.setattr("redrive.cli.keyboard.LOOK_AGAIN_S", 0.01)
    left_alone: list[bool] = []
    with keys({"r": lambda: left_alone.append(next(groups, None) is None)}):
        os.write(terminal, b"r")
        await until(lambda: left_alone == [True])


async def test_a_terminal_that_is_gone_is_not_read_again(window: FileIO, monkeypatch: pytest.MonkeyPatch) -> None:
    keyboard, read = sys.stdin.fileno(), 0
    real_read = os.read

    def counted(handle: int, most: int) -> bytes:
        nonlocal read
        read += handle == keyboard  # other threads read other things
        return real_read(handle, most)

    monkeypatch.setattr(os, "read", counted)
    with keys({}):
        window.close()
        await until(lambda: read > 0)
        for _ in range(20):
            await asyncio.sleep(0)  # the loop looks at its readers each time
    assert read == 1
