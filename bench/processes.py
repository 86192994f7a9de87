"""Child processes of the bench: they die with it, are stopped by their pid, and say when they are ready.

Used by bench.postgres, bench.receiver, the ceilings and the peers. Touches processes and temporary files only.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / "bench" / ".cache"
READY_TIMEOUT_S = 30.0
STOP_GRACE_S = 5.0
COMMAND_TIMEOUT_S = 300.0
MAX_ERROR_CHARS = 2_000
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class ProcessError(Exception):
    """A child failed or did not get ready; the text carries the end of what it wrote."""


def _dies_with_parent(death_signal: signal.Signals) -> Callable[[], None]:
    def before_exec() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, death_signal)

    return before_exec


class Child:
    """A process in a session of its own (Ctrl-C reaches the bench alone, which then stops its children)."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.process = process
        self.ready_line = ""
        self._drains: list[asyncio.Task[None]] = []
        self._tail = bytearray()

    @classmethod
    async def start(
        cls,
        name: str,
        argv: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path = ROOT,
        user: str | None = None,
        ready: str | None = None,
        ready_timeout_s: float = READY_TIMEOUT_S,
        death_signal: signal.Signals = signal.SIGKILL,
    ) -> Child:
        """Start it and, when `ready` is given, wait for a line of output that contains it."""
        process = await asyncio.create_subprocess_exec(
            *map(str, argv),
            env={**os.environ, **(env or {})},
            cwd=cwd,
            user=user,
            group=user,
            extra_groups=[] if user else None,
            start_new_session=True,
            preexec_fn=_dies_with_parent(death_signal),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        child = cls(name, process)
        try:
            if ready is not None:
                async with asyncio.timeout(ready_timeout_s):
                    await child._wait_for(ready)
        except BaseException as error:
            await child.stop(grace_s=0.5)
            if isinstance(error, TimeoutError):
                raise ProcessError(f"{name} was not ready after {ready_timeout_s:.0f} s: {child.tail}") from None
            raise
        child._drains.append(asyncio.create_task(child._drain()))
        return child

    async def _wait_for(self, ready: str) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            self._keep(line)
            if ready.encode() in line:
                self.ready_line = line.decode(errors="replace").strip()
                return
        raise ProcessError(f"{self.name} ended before it was ready: {self.tail}")

    async def _drain(self) -> None:
        assert self.process.stdout is not None
        while chunk := await self.process.stdout.read(65536):
            self._keep(chunk)

    def _keep(self, chunk: bytes) -> None:
        self._tail += chunk
        del self._tail[:-MAX_ERROR_CHARS]

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.returncode is None

    @property
    def tail(self) -> str:
        return self._tail.decode(errors="replace").strip() or "(it wrote nothing)"

    def require_alive(self) -> None:
        if not self.alive:
            raise ProcessError(f"{self.name} ended with {self.process.returncode}: {self.tail}")

    async def stop(self, sig: signal.Signals = signal.SIGTERM, *, grace_s: float = STOP_GRACE_S) -> None:
        """Signal it, wait `grace_s`, then kill what is left of its session."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(sig)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.process.wait(), grace_s)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)  # its own children too: prefork pools, shells
        await self.process.wait()
        for drain in self._drains:
            drain.cancel()
        await asyncio.gather(*self._drains, return_exceptions=True)


@contextlib.asynccontextmanager
async def children(grace_s: float = STOP_GRACE_S) -> AsyncIterator[list[Child]]:
    """A list to append children to; all are stopped at the end, the newest first, whatever happens."""
    started: list[Child] = []
    try:
        yield started
    finally:
        for child in reversed(started):
            await child.stop(grace_s=grace_s)


async def command(
    argv: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
    user: str | None = None,
    timeout_s: float = COMMAND_TIMEOUT_S,
) -> str:
    """Run a command to its end and return its standard output; ProcessError when it fails or takes too long."""
    process = await asyncio.create_subprocess_exec(
        *map(str, argv),
        env={**os.environ, **(env or {})},
        cwd=cwd,
        user=user,
        group=user,
        extra_groups=[] if user else None,
        start_new_session=True,
        preexec_fn=_dies_with_parent(signal.SIGKILL),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), timeout_s)
    except BaseException as error:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        if isinstance(error, TimeoutError):
            raise ProcessError(f"{argv[0]} took more than {timeout_s:.0f} s") from None
        raise
    if process.returncode != 0:
        text = (err or out).decode(errors="replace").strip()[-MAX_ERROR_CHARS:]
        raise ProcessError(f"{' '.join(map(str, argv[:4]))} failed with {process.returncode}: {text}")
    return out.decode(errors="replace")


def logging_to(log: Path, argv: Sequence[str | Path]) -> list[str | Path]:
    """The command with its standard error appended to a file: no reader of a pipe takes part in what is timed."""
    return ["sh", "-c", 'exec "$@" 2>> "$0"', log, *argv]


def module(name: str, *args: object) -> list[str]:
    """argv of one of the bench's own modules, under this interpreter."""
    return [sys.executable, "-m", name, *map(str, args)]
