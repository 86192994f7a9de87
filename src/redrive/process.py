"""Programs that die with the process that started them, waited for without a thread or a signal handler.

May start and signal processes; knows nothing of what they do. Imports nothing of ours.
Called by store.embedded (initdb, postgres) and engine.supervisor (API and worker processes).
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

LAUNCHER = Path(__file__).with_name("process_launch.py")
MAX_STDIN_BYTES = 4096  # written in one go; a pipe takes this much without a reader


@dataclass(frozen=True, slots=True)
class User:
    """An account to run a program under; only root can choose one."""

    uid: int
    gid: int


class Process:
    """A child in a session of its own (a Ctrl-C in the terminal does not reach it) that dies with us.

    The kernel sends the death signal when the *thread* that forked ends, not the process. So a Process is
    started on the thread of the event loop, never in an executor.
    """

    def __init__(self, popen: subprocess.Popen[bytes], name: str) -> None:
        self.name = name
        self.pid = popen.pid
        self._popen = popen
        self._loop = asyncio.get_running_loop()
        self._pidfd = os.pidfd_open(popen.pid)
        self.exited: asyncio.Future[int] = self._loop.create_future()
        self._loop.add_reader(self._pidfd, self._on_exit)

    @classmethod
    def spawn(
        cls,
        argv: Sequence[str],
        *,
        death_signal: signal.Signals,
        env: Mapping[str, str],
        user: User | None = None,
        cwd: Path | None = None,
        stdin: bytes | None = None,
        output: int | None = None,
    ) -> "Process":
        """Start it; `output` takes stdout and stderr: a descriptor, subprocess.DEVNULL, or None for ours."""
        assert stdin is None or len(stdin) <= MAX_STDIN_BYTES
        account = f"{user.uid}:{user.gid}" if user else "-"
        # -I -S: no site packages and nothing from the environment between fork and exec.
        launcher = [
            sys.executable,
            "-I",
            "-S",
            str(LAUNCHER),
            str(os.getpid()),
            str(int(death_signal)),
            account,
        ]
        popen = subprocess.Popen(  # noqa: S603
            [*launcher, *argv],
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=dict(env),
            cwd=cwd,
            start_new_session=True,
        )
        process = cls(popen, Path(argv[0]).name)
        if popen.stdin is not None:
            # One that died before it read shows that by its exit code.
            with contextlib.suppress(BrokenPipeError), popen.stdin as pipe:
                pipe.write(stdin or b"")
        return process

    def __repr__(self) -> str:
        return f"Process({self.name}, pid={self.pid}, returncode={self.returncode})"

    @property
    def returncode(self) -> int | None:
        """As subprocess has it: minus the signal's number for a killed one, None for a running one."""
        return self.exited.result() if self.exited.done() else None

    async def wait(self) -> int:
        return await asyncio.shield(self.exited)

    def send(self, number: signal.Signals) -> None:
        # Between its death and our turn in the loop it is a zombie that keeps its pid: never a stranger's.
        if not self.exited.done():
            os.kill(self.pid, number)

    async def end(self, steps: Sequence[tuple[signal.Signals, float]]) -> int:
        """Send each signal and give it its seconds; the last word is SIGKILL for it and its group."""
        if self.exited.done():
            return self.exited.result()
        for number, patience_s in steps:
            self.send(number)
            done, _ = await asyncio.wait([self.exited], timeout=patience_s)
            if done:
                return self.exited.result()
        self._kill_group()
        return await self.wait()

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def _on_exit(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        # Whatever it left behind in its group goes too: before the reaping, while its id cannot be reused.
        self._kill_group()
        self.exited.set_result(self._popen.wait())
