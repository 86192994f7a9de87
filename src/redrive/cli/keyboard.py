"""Single keys at a terminal, while a command runs. Does nothing where stdin is none, or belongs to another job."""

import asyncio
import contextlib
import os
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Mapping

LOOK_AGAIN_S = 1.0  # whether a command that was sent to the background is in front again


@contextlib.contextmanager
def keys(actions: Mapping[str, Callable[[], object]]) -> Iterator[bool]:
    """Call an action when its key is pressed. Yields whether anybody can press one."""
    if not sys.stdin.isatty() or not _is_in_front(sys.stdin.fileno()):
        yield False
        return
    keyboard = _Keyboard(sys.stdin.fileno(), actions)
    keyboard.open()
    try:
        yield True
    finally:
        keyboard.close()


class _Keyboard:
    def __init__(self, handle: int, actions: Mapping[str, Callable[[], object]]) -> None:
        self._handle = handle
        self._actions = actions
        self._before = termios.tcgetattr(handle)
        self._loop = asyncio.get_running_loop()
        self._later: asyncio.TimerHandle | None = None

    def open(self) -> None:
        tty.setcbreak(self._handle)  # keys come at once and are not shown; Ctrl-C stays a signal
        self._listen()

    def close(self) -> None:
        self._loop.remove_reader(self._handle)
        if self._later is not None:
            self._later.cancel()
        if _is_in_front(self._handle):
            with contextlib.suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(self._handle, termios.TCSADRAIN, self._before)

    def _listen(self) -> None:
        self._loop.add_reader(self._handle, self._pressed)

    def _pressed(self) -> None:
        if not _is_in_front(self._handle):  # what is typed is for another: whoever reads it is stopped
            self._loop.remove_reader(self._handle)
            self._later = self._loop.call_later(LOOK_AGAIN_S, self._listen)
            return
        try:
            typed = os.read(self._handle, 64)
        except OSError:
            typed = b""
        if not typed:  # the terminal is gone
            self._loop.remove_reader(self._handle)
        for key in typed.decode(errors="replace"):
            if key in self._actions:
                self._actions[key]()


def _is_in_front(handle: int) -> bool:
    """Whether this process may use the terminal: one in the background is stopped when it does (SIGTTIN, SIGTTOU)."""
    try:
        return os.tcgetpgrp(handle) == os.getpgrp()
    except OSError:  # not the terminal that controls this process: nobody is stopped for using it
        return True
