"""Single keys at a terminal, while a command runs. Does nothing where stdin is none."""

import asyncio
import contextlib
import os
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Mapping


@contextlib.contextmanager
def keys(actions: Mapping[str, Callable[[], object]]) -> Iterator[bool]:
    """Call an action when its key is pressed. Yields whether anybody can press one."""
    if not sys.stdin.isatty():
        yield False
        return
    handle = sys.stdin.fileno()
    before = termios.tcgetattr(handle)
    loop = asyncio.get_running_loop()

    def pressed() -> None:
        for key in os.read(handle, 64).decode(errors="replace"):
            if key in actions:
                actions[key]()

    tty.setcbreak(handle)  # keys come at once and are not shown; Ctrl-C stays a signal
    loop.add_reader(handle, pressed)
    try:
        yield True
    finally:
        loop.remove_reader(handle)
        termios.tcsetattr(handle, termios.TCSADRAIN, before)
