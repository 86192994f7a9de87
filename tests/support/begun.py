"""Commands of Redrive as processes, begun by warm.py: copies of one that has loaded them already.

To load the command line, a worker or a hub anew takes most of the time of a command, and tests begin hundreds. The copy
is a process as any other: it is paused, told to stop and killed as one. What must be loaded from the beginning (a build
that is broken on purpose while it loads; memory that is measured) is no matter for this.
"""

import asyncio
import functools
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

MAX_REPORT_BYTES = 100


def own_env(**own: str) -> dict[str, str]:
    """Nothing of the caller's environment but what every program needs, what counts its lines, and what a test says."""
    names = ("PATH", "HOME", "LANG", "TMPDIR", "COVERAGE_PROCESS_CONFIG")
    kept = {name: value for name, value in os.environ.items() if name in names}
    return {**kept, **own}


class Begun:
    """A process, as far as asyncio's own kind shows it."""

    def __init__(self, pid: int, report: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = asyncio.create_task(self._end(report))

    def send_signal(self, number: signal.Signals) -> None:
        if self.returncode is not None:
            raise ProcessLookupError
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    async def _end(self, report: socket.socket) -> int:
        with report:
            self.returncode = int(await asyncio.get_running_loop().sock_recv(report, MAX_REPORT_BYTES))
        return self.returncode


async def begin(words: Sequence[str], streams: Sequence[int], *, env: Mapping[str, str], cwd: Path | str) -> Begun:
    """`streams`: what is to be its stdin, stdout and stderr. They stay the caller's, too."""
    ours, theirs = _messages()
    with theirs:
        request = {"words": words, "env": dict(env), "cwd": str(cwd)}
        socket.send_fds(_warm(), [json.dumps(request).encode()], [*streams, theirs.fileno()])
    ours.setblocking(False)
    pid = int(await asyncio.get_running_loop().sock_recv(ours, MAX_REPORT_BYTES))
    return Begun(pid, ours)


def _messages() -> tuple[socket.socket, socket.socket]:
    """Two ends, between which each message comes whole or not at all."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


@functools.cache
def _warm() -> socket.socket:
    """The process that begins commands: one for each that runs tests. It ends with this one, whose end closes then."""
    ours, theirs = _messages()
    with theirs:
        # -P: modules of this folder would be taken for the standard library's.
        words = [sys.executable, "-P", str(Path(__file__).with_name("warm.py")), str(theirs.fileno())]
        subprocess.Popen(words, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=own_env(), cwd="/")
    return ours
