"""A process that has loaded the command line and begins each command as a copy of itself: loading it anew takes most
of the time of a command, and tests run hundreds.

Run by begun.py as a script, with one end of a socket pair as its only argument. It ends when the other end closes.
"""

import atexit
import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from importlib import import_module
from typing import NoReturn

from typer.main import get_command

MAX_REQUEST_BYTES = 256 * 1024
STREAMS = 3  # what a request brings: stdin, stdout, stderr; then where to say how it ended


_codes: list[int] = []  # how the command of this process ended, once it has


def main(door: socket.socket) -> None:
    atexit.register(_leave)  # before anybody else, so it is called after all others
    from redrive.cli.main import app

    redrive = get_command(app)  # all commands, put together once
    for part in ("redrive.app", "redrive.consume_process", "redrive.hub"):
        import_module(part)

    gc.freeze()  # what is loaded stays: the copies need not look through it
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how its children ended: each has a guard for that
    while (asked := socket.recv_fds(door, MAX_REQUEST_BYTES, STREAMS + 1))[0]:
        message, fds, _, _ = asked
        if os.fork() == 0:
            door.close()
            _become(fds, **json.loads(message))
            _run_to_its_end(redrive)
        for fd in fds:
            os.close(fd)


def _become(fds: list[int], words: list[str], env: dict[str, str], cwd: str) -> None:
    """Come back as the command that was asked for. The process that was forked stays behind as its guard."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where whoever runs the tests ignores it
    report = socket.socket(fileno=fds.pop())
    if (pid := os.fork()) != 0:
        _guard(pid, report)
    report.close()
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.path.insert(0, cwd)  # as of `python -m`
    sys.argv = ["redrive", *words]


def _run_to_its_end(command: Callable[[], object]) -> NoReturn:
    try:
        command()
    except SystemExit as end:
        if isinstance(end.code or 0, int):
            _codes.append(int(end.code or 0))
        raise
    raise AssertionError("a command ends its process")


def _leave() -> None:
    """At the end of a command, when Python would put away all that was loaded: that takes longer than most commands."""
    if _codes:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_codes[0])


def _guard(pid: int, report: socket.socket) -> NoReturn:
    report.send(str(pid).encode())
    _, status = os.waitpid(pid, 0)
    report.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
