"""Redrive's commands as real processes: started, listened to, stopped, paused, killed.

    async with worker(database_url) as program:
        await program.said("worker_started")
        program.send(signal.SIGSTOP)

Nothing of the caller's environment reaches them but what a test says. Each ends with its block, by SIGKILL if need be.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from support.begun import Begun, begin, own_env

SECRET_KEY = "a secret key of the tests"
ADMIN_KEY = "an admin key of the tests"
LOOPBACK = "127.0.0.0/8"
ALTERED = Path(__file__).with_name("altered")  # builds that are broken on purpose: see sitecustomize.py there
WHILE_LOADING = {"no_fence"}  # of what is read while it is loaded nothing can be changed afterwards
START_WITHIN_S = 60.0
SAID_WITHIN_S = 30.0
STOP_WITHIN_S = 10.0
MAX_LINE_BYTES = 1024 * 1024


class Program:
    """A running command. Its log lines are kept as they come; those that are no JSON as {"text": …}."""

    def __init__(
        self, process: asyncio.subprocess.Process | Begun, out: asyncio.StreamReader, err: asyncio.StreamReader
    ) -> None:
        self.process = process
        self.log: list[dict[str, Any]] = []
        self.out: list[str] = []
        self._said_all = False
        self._news = asyncio.Condition()
        self._readers = [asyncio.create_task(self._read_log(err)), asyncio.create_task(self._read_out(out))]

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def said(self, event: str, *, within_s: float = SAID_WITHIN_S, **facts: object) -> dict[str, Any]:
        """The first log line of this event with these facts, once it is there."""
        wanted = {"event": event, **facts}
        try:
            async with asyncio.timeout(within_s), self._news:
                while (line := next((one for one in self.log if wanted.items() <= one.items()), None)) is None:
                    assert not self._said_all, f"it ended without {wanted}; the log ends {self.log[-5:]}"
                    await self._news.wait()
                return line
        except TimeoutError:
            raise AssertionError(f"no {wanted} within {within_s} s; the log ends {self.log[-5:]}") from None

    def lines(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.log if line.get("event") == event]

    async def first_output(self) -> str:
        async with asyncio.timeout(START_WITHIN_S), self._news:
            await self._news.wait_for(lambda: self.out or self._said_all)
        assert self.out, f"it ended at once; the log ends {self.log[-5:]}"
        return self.out[0]

    async def terminated(self) -> float:
        """Ask it to stop; the seconds that it took. It must have ended in good order."""
        began = time.monotonic()
        self.send(signal.SIGTERM)
        async with asyncio.timeout(STOP_WITHIN_S * 3):
            code = await self.process.wait()
        assert code == 0, (code, self.log[-5:])
        return time.monotonic() - began

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()

    async def close(self) -> None:
        await self.kill()
        for reader in self._readers:  # children that outlive it by a moment may hold the pipes open
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)

    async def _read_log(self, stderr: asyncio.StreamReader) -> None:
        async for raw in stderr:
            try:
                line = json.loads(raw)
            except ValueError:
                line = {"text": raw.decode(errors="replace").rstrip()}
            async with self._news:
                self.log.append(line)
                self._news.notify_all()
        async with self._news:
            self._said_all = True
            self._news.notify_all()

    async def _read_out(self, stdout: asyncio.StreamReader) -> None:
        async for raw in stdout:
            async with self._news:
                self.out.append(raw.decode().rstrip())
                self._news.notify_all()


@asynccontextmanager
async def program(
    *words: str, env: Mapping[str, str], cwd: Path = Path("/"), stdin: int | None = None, anew: bool = False
) -> AsyncIterator[Program]:
    """`redrive …`, running for as long as the block does. `anew`: loaded from the beginning, not begun as a copy."""
    anew = anew or any(name.startswith("PYTHON") for name in env)
    with Path(os.devnull).open() as nothing:
        given = nothing.fileno() if stdin is None else stdin
        running = await (_started if anew else _begun)(words, given, own_env(**env), cwd)
    try:
        yield running
    finally:
        await running.close()


async def _started(words: Sequence[str], stdin: int, env: Mapping[str, str], cwd: Path) -> Program:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "redrive.cli.main",
        *words,
        stdin=stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=env,
        cwd=cwd,
        limit=MAX_LINE_BYTES,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    return Program(process, process.stdout, process.stderr)


async def _begun(words: Sequence[str], stdin: int, env: Mapping[str, str], cwd: Path) -> Program:
    (out, its_out), (err, its_err) = os.pipe(), os.pipe()
    try:
        process = await begin(words, [stdin, its_out, its_err], env=env, cwd=cwd)
    finally:
        os.close(its_out)
        os.close(its_err)
    return Program(process, await _reader(out), await _reader(err))


async def _reader(fd: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    loop = asyncio.get_running_loop()
    pipe = os.fdopen(fd, "rb", buffering=0)  # closed with the transport, when the last writer is gone
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader


@asynccontextmanager
async def worker(
    url: str,
    *words: str,
    cwd: Path = Path("/"),
    env: Mapping[str, str] = MappingProxyType({}),
    anew: bool = False,
) -> AsyncIterator[Program]:
    """`redrive worker` on a database, at work. Its leases outlast a try by one second; loopback is open."""
    given = {
        "REDRIVE_DATABASE_URL": url,
        "REDRIVE_SECRET_KEY": SECRET_KEY,
        "REDRIVE_ALLOW_NETWORKS": LOOPBACK,
        "REDRIVE_LEASE_MARGIN_S": "1",
        **env,
    }
    async with program("worker", *words, env=given, cwd=cwd, anew=anew) as running:
        await running.said("worker_started", within_s=START_WITHIN_S)
        yield running


@dataclass(frozen=True, slots=True)
class Served:
    """A running `redrive serve`, ready for requests."""

    program: Program
    host: str
    port: int
    data_dir: Path | None

    async def child_pid(self, name: str) -> int:
        """The latest process of that name: api, worker-1."""
        await self.program.said("child_started", name=name)
        pid: int = [line["pid"] for line in self.program.lines("child_started") if line["name"] == name][-1]
        return pid

    @property
    def postmaster_pid(self) -> int:
        assert self.data_dir is not None
        return int((self.data_dir / "postgres" / "postmaster.pid").read_text().split()[0])


@asynccontextmanager
async def serve(
    *words: str, data_dir: Path | None = None, env: Mapping[str, str] = MappingProxyType({}), anew: bool = False
) -> AsyncIterator[Served]:
    """`redrive serve` on a free port; on an embedded PostgreSQL in the folder, if one is given. `anew`: its processes
    too are loaded from the beginning.
    """
    given = {
        "REDRIVE_ADMIN_KEY": ADMIN_KEY,
        "REDRIVE_SECRET_KEY": SECRET_KEY,
        "REDRIVE_ALLOW_NETWORKS": LOOPBACK,
        "REDRIVE_LEASE_MARGIN_S": "1",
        **({"REDRIVE_DATA_DIR": str(data_dir)} if data_dir else {}),
        **env,
    }
    async with program("serve", "--json", "--port", "0", *words, env=given, anew=anew) as running:
        where = urlsplit(json.loads(await running.first_output())["url"])
        assert where.hostname is not None
        assert where.port is not None
        yield Served(running, where.hostname, where.port, data_dir)


async def run(*words: str, **env: str) -> tuple[int, str]:
    """`redrive …` to its end: the exit code and what it said."""
    async with program(*words, env=env) as running:
        async with asyncio.timeout(START_WITHIN_S):
            code = await running.process.wait()
            await asyncio.gather(*running._readers)
        return code, "\n".join([*running.out, *(str(line.get("text", line)) for line in running.log)])


def altered(name: str) -> dict[str, str]:
    """What to add to the environment of a process for a build that is broken in this way. Python breaks it while it
    loads; a copy, which has loaded all, is broken by warm.py, where that is not too late.
    """
    return {"ALTERED": name, **({"PYTHONPATH": str(ALTERED)} if name in WHILE_LOADING else {})}


def memory_mb(pid: int) -> float:
    """Resident memory, as the kernel counts it."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) / 1024


async def until(condition: Callable[[], bool], *, within_s: float = 30.0, why: Callable[[], object] = str) -> None:
    """Wait for a condition with a bound."""
    try:
        async with asyncio.timeout(within_s):
            while not condition():
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"not within {within_s} s: {why()}") from None
