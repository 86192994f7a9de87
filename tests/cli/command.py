"""The real command, in a process of its own, with nothing of ours in its environment but what a test says.

`redrive` runs one to its end, begun by warm.py; COMMAND is the same for tests that begin it themselves.
"""

import asyncio
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .world import SECRET_KEY

COMMAND = (sys.executable, "-m", "redrive.cli.main")
WITHIN_S = 60.0
MAX_REPORT_BYTES = 100


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def objects(self) -> list[dict[str, Any]]:
        """stdout as JSON lines: fails on anything else."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def object(self) -> dict[str, Any]:
        [only] = self.objects
        return only


def clean_env(**own: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG", "TMPDIR")}
    return {**kept, "COLUMNS": "80", **own}


async def redrive(
    *words: str,
    url: str | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    cwd: Path | None = None,
) -> Ended:
    """Run `redrive …` to its end. `url` names the database, by the environment."""
    database = {"REDRIVE_DATABASE_URL": url, "REDRIVE_SECRET_KEY": SECRET_KEY} if url is not None else {}
    request = {"words": words, "env": clean_env(**{**database, **(env or {})}), "cwd": str(cwd or "/")}
    ours, theirs = _messages()
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, ours:
        given.write(stdin)
        given.seek(0)
        with theirs:
            fds = [stream.fileno() for stream in (given, out, err, theirs)]
            socket.send_fds(_warm(), [json.dumps(request).encode()], fds)
        code = await _code(ours)
        out.seek(0)
        err.seek(0)
        return Ended(code, out.read().decode(), err.read().decode())


async def _code(report: socket.socket) -> int:
    """Two messages come: its process id at once, and in the end its exit code."""
    report.setblocking(False)
    loop = asyncio.get_running_loop()
    pid = int(await loop.sock_recv(report, MAX_REPORT_BYTES))
    try:
        return int(await asyncio.wait_for(loop.sock_recv(report, MAX_REPORT_BYTES), WITHIN_S))
    except TimeoutError:
        os.kill(pid, signal.SIGKILL)
        raise


def _messages() -> tuple[socket.socket, socket.socket]:
    """Two ends, between which each message comes whole or not at all."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


@functools.cache
def _warm() -> socket.socket:
    """The process that begins commands: one for each that runs tests. It ends with this one, whose end closes then."""
    ours, theirs = _messages()
    with theirs:
        words = [sys.executable, str(Path(__file__).with_name("warm.py")), str(theirs.fileno())]
        subprocess.Popen(words, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=clean_env(), cwd="/")
    return ours
