"""Keep the processes of `redrive serve` alive, and end them in order: API and workers first, PostgreSQL last.

Starts, restarts and signals processes; knows nothing of what they do. PostgreSQL comes through a protocol,
since the store is not for the engine to import. Called by the app.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, NoReturn, Protocol

from redrive.process import Process

STOP_GRACE_S = 8.0  # of the 10 s that stopping may take in all
STOP_TOTAL_S = 9.5
MIN_POSTGRES_STOP_S = 1.0
FIRST_BACKOFF_S = 0.1
MAX_BACKOFF_S = 5.0
STABLE_AFTER_S = 30.0


class Log(Protocol):
    """The part of structlog's logger that is used here."""

    def info(self, event: str, **facts: Any) -> Any: ...
    def warning(self, event: str, **facts: Any) -> Any: ...
    def exception(self, event: str, **facts: Any) -> Any: ...


class Postgres(Protocol):
    """A running server, as store.embedded gives it."""

    @property
    def pid(self) -> int: ...
    async def wait(self) -> int: ...
    async def stop(self, patience_s: float = ...) -> None: ...


@dataclass(frozen=True, slots=True)
class Child:
    """A process to keep running. `env` is added to our own environment and may hold secrets."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)


class Backoff:
    """How long to wait before a restart: doubling while it keeps dying, from the start after a long life."""

    def __init__(self) -> None:
        self._next_s = FIRST_BACKOFF_S

    def after_a_life_of(self, lived_s: float) -> float:
        if lived_s >= STABLE_AFTER_S:
            self._next_s = FIRST_BACKOFF_S
        pause_s = self._next_s
        self._next_s = min(self._next_s * 2, MAX_BACKOFF_S)
        return pause_s


class PostgresKeeper:
    """Holds a running PostgreSQL and starts it again whenever it dies."""

    def __init__(self, postgres: Postgres, start: Callable[[], Awaitable[Postgres]], *, log: Log) -> None:
        self._postgres: Postgres | None = postgres
        self._start = start
        self._log = log

    async def run(self) -> None:
        """Until cancelled. A start that fails is tried again, for as long as it takes."""
        backoff = Backoff()
        started = monotonic()
        while True:
            if self._postgres is not None:
                pid, code = self._postgres.pid, await self._postgres.wait()
                self._postgres = None
                self._log.warning("postgres_died", pid=pid, ended_by=_ending(code))
            await asyncio.sleep(backoff.after_a_life_of(monotonic() - started))
            started = monotonic()
            try:
                self._postgres = await self._start()
            except Exception:  # noqa: BLE001  # whatever it was: without a database there is nothing else to do
                self._log.exception("postgres_restart_failed")
            else:
                self._log.info("postgres_restarted", pid=self._postgres.pid)

    async def stop(self, patience_s: float) -> None:
        if self._postgres is not None:
            await self._postgres.stop(patience_s)


class Supervisor:
    """Runs the children until told to stop. It never gives up on one that dies."""

    def __init__(
        self,
        children: Sequence[Child],
        *,
        log: Log,
        postgres: PostgresKeeper | None = None,
        grace_s: float = STOP_GRACE_S,
    ) -> None:
        self._children = children
        self._log = log
        self._postgres = postgres
        self._grace_s = grace_s

    async def run(self, stop: asyncio.Event) -> None:
        """Return when `stop` was set and every child, and after them PostgreSQL, has ended."""
        stopping = asyncio.create_task(_note_time(stop))
        keeping = asyncio.create_task(self._postgres.run()) if self._postgres else None
        try:
            async with asyncio.TaskGroup() as group:
                for child in self._children:
                    group.create_task(self._keep(child, stopping))
                await asyncio.wait([stopping])
        finally:
            began = stopping.result() if stopping.done() and not stopping.cancelled() else monotonic()
            stopping.cancel()
            if self._postgres is not None and keeping is not None:
                keeping.cancel()
                await asyncio.wait([keeping])
                left_s = STOP_TOTAL_S - (monotonic() - began)
                await self._postgres.stop(max(left_s, MIN_POSTGRES_STOP_S))

    async def _keep(self, child: Child, stopping: asyncio.Task[float]) -> None:
        backoff = Backoff()
        while not stopping.done():
            started = monotonic()
            ended_by = await self._run_once(child, stopping)
            if stopping.done():
                self._log.info("child_stopped", name=child.name, ended_by=ended_by)
                return
            lived_s = monotonic() - started
            pause_s = backoff.after_a_life_of(lived_s)
            self._log.warning(
                "child_died",
                name=child.name,
                ended_by=ended_by,
                lived_s=round(lived_s, 1),
                restart_in_s=pause_s,
            )
            await asyncio.wait([stopping], timeout=pause_s)

    async def _run_once(self, child: Child, stopping: asyncio.Task[float]) -> str:
        """One life of a child; says how it ended. On the way out it gets its grace, then SIGKILL."""
        try:
            process = Process.spawn(child.argv, death_signal=signal.SIGTERM, env={**os.environ, **child.env})
        except OSError as problem:  # no memory, no process slots: that may pass
            return f"not started: {problem.strerror}"
        self._log.info("child_started", name=child.name, pid=process.pid)
        try:
            either: list[asyncio.Future[Any]] = [process.exited, stopping]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            code = await process.end([(signal.SIGTERM, self._grace_s)])
        return _ending(code)


def stop_on_signals(*, log: Log | None = None) -> asyncio.Event:
    """An event that SIGTERM, Ctrl-C or a closed terminal sets. For the main thread, once per process.

    With a log, a process that cannot stop is ended STOP_TOTAL_S later, and says so there.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def told() -> None:
        if log is not None and not stop.is_set():
            # In a thread: whatever it is that does not end may hold up the loop, or be waited for after it.
            timer = threading.Timer(STOP_TOTAL_S, _end_overdue, [log])
            timer.daemon = True
            timer.start()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # Under nohup SIGHUP is ignored on purpose; SIGINT in a script's background job is not.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            loop.add_signal_handler(number, told)
    return stop


def _end_overdue(log: Log) -> NoReturn:
    """A handler that takes no cancellation, say. What it has leased is tried again when its time is over."""
    log.warning("stop_overdue", after_s=STOP_TOTAL_S)
    os._exit(1)


async def _note_time(stop: asyncio.Event) -> float:
    await stop.wait()
    return monotonic()


def _ending(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name
