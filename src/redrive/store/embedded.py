"""The PostgreSQL that Redrive brings along: made on first use, run as a child, gone when we are gone.

May create the data folder, run initdb and postgres, and (as root) switch to a system user for them; see
store.postgres_folder for what lies where. Called by the app, which hands the URL to everybody else, and by
command-line tools through `running_url`.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from types import MappingProxyType
from typing import BinaryIO

import asyncpg
import structlog

from redrive.process import Process
from redrive.store.db import LOST
from redrive.store.postgres_binaries import Binaries, copied_to, find_binaries
from redrive.store.postgres_cluster import LOGIN_ROLE, SUPERUSER, create_cluster, run_program, server_env
from redrive.store.postgres_errors import AlreadyRunning, EmbeddedError
from redrive.store.postgres_folder import (
    DataFolder,
    FolderLock,
    discard_stale_pid_files,
    live_processes,
    lock_holder,
    open_folder,
    read_password,
    socket_dir,
)

__all__ = ["AlreadyRunning", "EmbeddedError", "EmbeddedPostgres", "running_url"]

DATABASE = "redrive"
LOCK_PATIENCE_S = 1.0  # a look at the lock by `running_url` lasts microseconds, a restart a little longer
PREDECESSOR_PATIENCE_S = 30.0
POLL_S = 0.02
MAX_POLL_S = 0.25
PROGRESS_EVERY_S = 5.0
CONNECT_TIMEOUT_S = 10.0
FAST_STOP_S = 8.0
IMMEDIATE_STOP_S = 6.0  # PostgreSQL itself kills its children 5 s after an immediate stop began
MAX_LOG_BYTES = 16 * 1024 * 1024
LOG_CHECK_S = 60.0
LOG_TAIL_BYTES = 2000

# Immediate shutdown when we are killed: nothing committed is lost (the log is on disk), nothing stays behind
# after some milliseconds, and the next start replays the log. A fast shutdown (SIGINT) would first write all
# dirty pages, which on a slow disk keeps the folder busy for long and has nobody left to watch it.
DEATH_SIGNAL = signal.SIGQUIT

# For two cores and a small machine. Durability is not for sale: fsync and synchronous_commit stay on.
SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "max_connections": "200",
        "shared_buffers": "256MB",
        "effective_cache_size": "1GB",
        "work_mem": "8MB",
        "maintenance_work_mem": "64MB",
        "random_page_cost": "1.1",
        "fsync": "on",
        "synchronous_commit": "on",
        "checkpoint_timeout": "10min",
        "max_wal_size": "2GB",
        "min_wal_size": "256MB",
        "autovacuum_naptime": "15s",  # queues turn over quickly; the thresholds are the tables' own
        "jit": "off",
        "timezone": "UTC",
        "log_timezone": "UTC",
        "log_checkpoints": "off",
        "log_min_error_statement": "panic",  # statements may hold what a log must not
        "cluster_name": "redrive",
    }
)


class EmbeddedPostgres:
    """A running server of ours. It dies with this process, and `stop` ends it in good order."""

    def __init__(self, folder: DataFolder, process: Process, lock: FolderLock, socket: Path) -> None:
        self.url = _url(folder.path, LOGIN_ROLE, socket)
        self.superuser_url = _url(folder.path, SUPERUSER, socket)
        self.pid = process.pid
        self._folder = folder
        self._process = process
        self._log_keeper = asyncio.get_running_loop().create_task(self._bound_log())
        process.exited.add_done_callback(lambda _: self._gone(lock))

    def __repr__(self) -> str:  # the URLs hold passwords
        return f"EmbeddedPostgres({str(self._folder.path)!r}, pid={self.pid})"

    @classmethod
    async def start(cls, data_dir: Path, *, settings: Mapping[str, str] = MappingProxyType({})) -> "EmbeddedPostgres":
        """Start the server on this folder, making it first if need be; returns when it answers queries.

        Call it on a thread that lives as long as the server should: the kernel ends it with that thread.
        """
        folder = await asyncio.to_thread(open_folder, data_dir)
        socket = socket_dir(folder.path)
        lock = await _take_lock(folder, socket)
        process = None
        try:
            await _wait_for_predecessor(folder)
            binaries = await _programs(folder)
            _rotate_log(folder.log)
            with _open_log(folder.log) as log:
                if folder.major() is None:
                    await create_cluster(folder, binaries, log.fileno())
                discard_stale_pid_files(folder.cluster, socket)
                folder.private_dir(socket)
                log_start = os.fstat(log.fileno()).st_size
                chosen = {"wal_compression": await _wal_compression(folder, binaries), **SETTINGS, **settings}
                process = _spawn(folder, binaries, socket, chosen, log.fileno())
            await _wait_until_ready(folder, process, _url(folder.path, LOGIN_ROLE, socket), log_start)
            return cls(folder, process, lock, socket)
        except BaseException as problem:
            if process is not None:
                await asyncio.shield(process.end([(signal.SIGQUIT, IMMEDIATE_STOP_S)]))
            lock.release()
            if isinstance(problem, OSError):
                raise _unusable(folder.path, problem) from problem
            raise

    async def wait(self) -> int:
        """Return its exit code when the server is gone, for whatever reason."""
        return await self._process.wait()

    async def stop(self, patience_s: float = FAST_STOP_S) -> None:
        """End the server: sessions are cut and dirty pages written; past the patience, at once."""
        await self._process.end([(signal.SIGINT, patience_s), (signal.SIGQUIT, IMMEDIATE_STOP_S)])

    def _gone(self, lock: FolderLock) -> None:
        self._log_keeper.cancel()
        lock.release()

    async def _bound_log(self) -> None:
        """The server appends through a descriptor of its own, so the file is emptied, not replaced.

        Lines written between the copy and the emptying are lost.
        """
        while True:
            await asyncio.sleep(LOG_CHECK_S)
            if self._folder.log.stat().st_size > MAX_LOG_BYTES:
                await asyncio.to_thread(shutil.copyfile, self._folder.log, _older(self._folder.log))
                os.truncate(self._folder.log, 0)


def running_url(data_dir: Path) -> str | None:
    """The URL of the server that some process runs on this folder (it may still be starting), else None."""
    path = data_dir.expanduser().resolve()
    try:
        holder = lock_holder(path)
    except PermissionError as problem:
        raise EmbeddedError(
            f"The data folder {path} belongs to another user. Run this as the user who runs Redrive."
        ) from problem
    return _url(path, LOGIN_ROLE, holder.socket_dir) if holder else None


def prompt(data_dir: Path) -> str | None:
    """What opens psql, for all that a person may have to do, on the server that some process runs on this folder."""
    path = data_dir.expanduser().resolve()
    holder = lock_holder(path)
    if holder is None:
        return None
    try:
        psql = find_binaries(DataFolder(path, None).major()).program("psql")
    except (EmbeddedError, OSError):
        psql = ""
    if not os.access(psql, os.X_OK):  # whoever packages PostgreSQL may leave it out
        psql = "psql"
    password, socket = quote(str(path / f"{SUPERUSER}.password")), quote(str(holder.socket_dir))
    return f'PGPASSWORD="$(cat {password})" {quote(psql)} -h {socket} -p 5432 -U {SUPERUSER} {DATABASE}'


def _url(data_dir: Path, role: str, socket: Path) -> str:
    # The port is spelled out, or PGPORT in somebody's environment would name another socket.
    return f"postgresql://{role}:{read_password(data_dir, role)}@/{DATABASE}?host={socket}&port=5432"


def _unusable(path: Path, problem: OSError) -> EmbeddedError:
    return EmbeddedError(
        f"The data folder {path} cannot be used: {problem}. Check its owner, its permissions and the space left on"
        " its disk, or choose another with --data-dir."
    )


async def _take_lock(folder: DataFolder, socket: Path) -> FolderLock:
    deadline = time.monotonic() + LOCK_PATIENCE_S
    while True:
        try:
            lock = FolderLock.try_take(folder.path, socket)
        except OSError as problem:
            raise _unusable(folder.path, problem) from problem
        if lock is not None:
            return lock
        if time.monotonic() > deadline:
            holder = lock_holder(folder.path)
            by = f"process {holder.pid}" if holder else "another process"
            raise AlreadyRunning(
                f"PostgreSQL in {folder.path} is already run by {by}."
                " Stop that one first, or choose another folder with --data-dir."
            )
        await asyncio.sleep(POLL_S)


async def _wait_for_predecessor(folder: DataFolder) -> None:
    """A server whose parent was killed is about to end, and so are the backends of a killed server."""
    deadline = time.monotonic() + PREDECESSOR_PATIENCE_S
    while left := live_processes(folder.cluster, folder.staging):
        if time.monotonic() > deadline:
            raise AlreadyRunning(
                f"A PostgreSQL that this Redrive did not start still runs in {folder.cluster} (process"
                f" {left[0]}). Stop it with: kill -INT {left[0]}"
            )
        await asyncio.sleep(POLL_S)


async def _programs(folder: DataFolder) -> Binaries:
    binaries = await asyncio.to_thread(find_binaries, folder.major())
    if folder.server_may_reach(binaries.bin_dir / "postgres"):
        return binaries
    return await asyncio.to_thread(copied_to, binaries, folder.path)


async def _wal_compression(folder: DataFolder, binaries: Binaries) -> str:
    """lz4 where the build has it. PostgreSQL's own compression costs more CPU than the bytes are worth."""
    asked = ["-C", "wal_compression", "-c", "wal_compression=lz4", "-D", str(folder.cluster)]
    refused = await run_program(folder, binaries, "postgres", asked, output=subprocess.DEVNULL)
    return "off" if refused else "lz4"


def _spawn(folder: DataFolder, binaries: Binaries, socket: Path, settings: Mapping[str, str], output: int) -> Process:
    fixed = {"listen_addresses": "", "port": "5432", "unix_socket_directories": str(socket)}
    options = [f"--{name}={value}" for name, value in {**settings, **fixed}.items()]
    return Process.spawn(
        [binaries.program("postgres"), "-D", str(folder.cluster), *options],
        death_signal=DEATH_SIGNAL,
        env=server_env(),
        user=folder.user,
        cwd=folder.cluster,
        output=output,
    )


async def _wait_until_ready(folder: DataFolder, process: Process, url: str, log_start: int) -> None:
    """Until a query is answered. Recovery may take long, so the only limit is the server's own life."""
    log = structlog.get_logger()
    started = time.monotonic()
    report_at = started + PROGRESS_EVERY_S
    pause_s = POLL_S
    while not await _answers(url, folder):
        if process.returncode is not None:
            raise EmbeddedError(
                f"PostgreSQL ended with exit code {process.returncode} while starting in {folder.path}. Its"
                f" last words (more in {folder.log}):\n{_log_tail(folder.log, log_start)}"
            )
        if time.monotonic() >= report_at:
            report_at += PROGRESS_EVERY_S
            last_line = _log_tail(folder.log, log_start).rpartition("\n")[2]
            log.info("postgres_starting", waited_s=round(time.monotonic() - started), last_line=last_line)
        await asyncio.wait([process.exited], timeout=pause_s)
        pause_s = min(pause_s * 1.5, MAX_POLL_S)


async def _answers(url: str, folder: DataFolder) -> bool:
    try:
        connection = await asyncpg.connect(url, timeout=CONNECT_TIMEOUT_S)
    except (OSError, asyncpg.CannotConnectNowError, asyncpg.ConnectionDoesNotExistError):
        return False  # no socket yet, starting up, recovering (OSError holds TimeoutError too)
    except (asyncpg.InvalidPasswordError, asyncpg.InvalidCatalogNameError) as problem:
        raise EmbeddedError(
            f"The embedded PostgreSQL in {folder.path} runs but does not let Redrive in: {problem}. The"
            " password file and the cluster belong together: restore both from the same backup."
        ) from problem
    try:
        return bool(await connection.fetchval("SELECT true"))
    except (OSError, asyncpg.PostgresConnectionError, asyncpg.InterfaceError, asyncpg.InternalClientError):
        return False
    finally:
        with contextlib.suppress(*LOST):
            await connection.close(timeout=CONNECT_TIMEOUT_S)


def _open_log(path: Path) -> BinaryIO:
    """Opened by us and inherited by the server, whose account need not be able to write here."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb")


def _rotate_log(path: Path) -> None:
    if path.exists() and path.stat().st_size > MAX_LOG_BYTES:
        path.rename(_older(path))


def _older(path: Path) -> Path:
    return path.with_name(path.name + ".1")


def _log_tail(path: Path, start: int) -> str:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(start, size - LOG_TAIL_BYTES))
        return file.read().decode(errors="replace").strip()
