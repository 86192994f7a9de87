"""A process that has loaded the command line and begins each command as a copy of itself: loading it anew takes most
of the time of a command, and tests run hundreds.

Run by begun.py as a script, with one end of a socket pair as its only argument. It ends when the other end closes.
"""

import asyncio
import atexit
import contextlib
import ctypes
import gc
import io
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from typer.main import get_command

from redrive.process import Process
from redrive.process_launch import PR_SET_PDEATHSIG
from redrive.settings import load_settings

MAX_REQUEST_BYTES = 256 * 1024
MAX_FDS = 1024
CHILD = "redrive.cli.child"
ALTERED = Path(__file__).with_name("altered") / "sitecustomize.py"  # breaks this process as its environment says
STREAMS = 3  # what a request brings: stdin, stdout, stderr; then where to say how it ended


_codes: list[int] = []  # how the command of this process ended, once it has


def main(door: socket.socket) -> None:
    atexit.register(_leave)  # before anybody else, so it is called after all others
    from redrive.cli import child
    from redrive.cli.main import app

    redrive = get_command(app)  # all commands, put together once
    for part in ("redrive.app", "redrive.api_process", "redrive.consume_process", "redrive.hub"):
        import_module(part)
    _rehearse(redrive)

    gc.freeze()  # what is loaded stays: the copies need not look through it
    under_way = selectors.DefaultSelector()
    under_way.register(door, selectors.EVENT_READ)
    while True:
        for key, _ in under_way.select():
            if key.fileobj is not door:
                under_way.unregister(key.fd)
                _tell_the_end(key.fd, *key.data)
                continue
            message, fds, _, _ = socket.recv_fds(door, MAX_REQUEST_BYTES, STREAMS + 1)
            if not message:
                return
            report = socket.socket(fileno=fds.pop())
            if (pid := os.fork()) == 0:
                _leave_alone(under_way, door, report)
                _become(fds, **json.loads(message))
                _begin_children_as_copies(child.main)
                _run_to_its_end(redrive)
            for fd in fds:
                os.close(fd)
            report.send(str(pid).encode())
            under_way.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, report))


def _rehearse(redrive: Callable[..., object]) -> None:
    """What every command does first is prepared when it is done for the first time: here, once for all of them."""
    load_settings(secret_key="a secret key of a rehearsal")
    asyncio.run(asyncio.sleep(0))
    with contextlib.redirect_stdout(io.StringIO()):
        redrive(["--help"], standalone_mode=False)


def _tell_the_end(pidfd: int, pid: int, report: socket.socket) -> None:
    os.close(pidfd)
    _, status = os.waitpid(pid, 0)
    with report, contextlib.suppress(BrokenPipeError):  # nobody waits for it any more
        report.send(str(os.waitstatus_to_exitcode(status)).encode())


def _leave_alone(under_way: selectors.BaseSelector, door: socket.socket, report: socket.socket) -> None:
    """A copy has nothing to do with the others, nor with what is said of itself."""
    for key in under_way.get_map().values():
        if key.fileobj is not door:
            os.close(key.fd)
            key.data[1].close()
    under_way.close()
    door.close()
    report.close()


def _become(fds: list[int], words: list[str], env: dict[str, str], cwd: str) -> None:
    """From here on this is the command that was asked for."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where whoever runs the tests ignores it
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.path.insert(0, cwd)  # as of `python -m`
    sys.argv = ["redrive", *words]
    if "ALTERED" in env:
        runpy.run_path(str(ALTERED))


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


class _Copy:
    """As much of subprocess.Popen as Process asks for."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _begin_children_as_copies(main: Callable[[], object]) -> None:
    """Those of `serve`, in this process, from now on: it has loaded all that they need. Each is its child as any other,
    with a session, an environment and files of its own, and dies with it. `main`: what they run, by sys.argv.

    That they start from the beginning is shown by cli/test_serve.py.
    """
    shipped = Process.spawn

    def spawn(argv: Sequence[str], *, death_signal: signal.Signals, env: Mapping[str, str], **more: Any) -> Process:
        if CHILD not in argv:
            return shipped(argv, death_signal=death_signal, env=env, **more)
        parent = os.getpid()
        # A signal between the fork and the child's own handlers would be told to the parent's loop.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        pid = os.fork()
        if pid == 0:
            _run_child(main, list(argv[argv.index(CHILD) :]), parent, death_signal, env, mask)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return Process(_Copy(pid), Path(argv[0]).name)  # type: ignore[arg-type]

    Process.spawn = spawn  # type: ignore[method-assign]


def _run_child(
    main: Callable[[], object],
    words: list[str],
    parent: int,
    death_signal: signal.Signals,
    env: Mapping[str, str],
    mask: set[signal.Signals | int],
) -> NoReturn:
    """Never back into the frames of the parent, which are this process's too."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.setsid()
        assert ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0) == 0
        assert os.getppid() == parent
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.closerange(3, MAX_FDS)
        os.environ.clear()
        os.environ.update(env)
        sys.argv = words
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - told, and its end
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
