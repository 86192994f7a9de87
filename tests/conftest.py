"""Fixtures that every test may use: a real PostgreSQL for the session, a fresh database for each test.

Data folders lie directly below /tmp or in memory, not in pytest's own folders: those are closed to other accounts, and
as root PostgreSQL runs under one of its own.
"""

import asyncio
import gc
import itertools
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import pytest
import pytest_asyncio
import structlog
from argon2 import PasswordHasher
from hypothesis import settings

from redrive.store import passwords
from redrive.store.embedded import EmbeddedPostgres
from redrive.store.migrate import migrate
from support.rabbitmq import rabbitmq, vhost_url
from support.spread import Spread

__all__ = ["rabbitmq", "vhost_url"]  # fixtures, here since a server is shared by all tests of a process

# For tests of behaviour. Tests about durability start a server of their own, with the settings as shipped.
FAST_SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    # What the planner knows, tests say: it does not come by itself, from whatever was there when somebody looked.
    "autovacuum_analyze_threshold": "2000000000",
    "autovacuum_vacuum_threshold": "2000000000",
    "autovacuum_vacuum_insert_threshold": "-1",
    "max_wal_size": "256MB",
    "min_wal_size": "80MB",
}
DISK, MEMORY = Path("/tmp"), Path("/dev/shm")
SESSION_BYTES = 4 * 1024**3  # some times what a server with the databases of a few tests takes
TEMPLATE = "redrive_template"
REMOVED_WITHIN_S = 10.0
# Begun first, since their files take long: at the end, where some processes have nothing left to do, files are short.
LONG_FOLDERS = ("faults", "rabbitmq", "browser", "cli", "e2e", "tests", "engine", "rows", "api", "store")
_numbers = itertools.count(1)

Eventually = Callable[..., Awaitable[None]]

# How long an example takes is a matter of who else is at work. `--hypothesis-profile=thorough`: when there is time.
settings.register_profile("redrive", deadline=None, max_examples=50)
settings.register_profile("thorough", deadline=None, max_examples=1_000)
settings.load_profile("redrive")

# What parts say in the processes of the tests is read where a test fails: without the colours of a console, whose
# making takes longer than most of what is said of.
structlog.configure(processors=[structlog.contextvars.merge_contextvars, structlog.processors.JSONRenderer()])

# Thousands of tests are collected, and stay until the end: to look through them for what is not needed any more takes
# a quarter of the time, and again whenever the collector comes round.
gc.disable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Spread:
    return Spread(config, log)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ranks = {folder: rank for rank, folder in enumerate(LONG_FOLDERS)}
    items.sort(key=lambda item: ranks.get(item.path.parent.name, len(ranks)))


class Hashing(NamedTuple):
    """How passwords are hashed, and what stands for the hash of somebody who has none."""

    hasher: PasswordHasher
    nobody: str


@pytest.fixture(scope="session", autouse=True)
def shipped_hashing() -> Iterator[Hashing]:
    """That of passwords, as shipped. In tests one takes its place that is as it should not be outside: quick."""
    shipped = Hashing(passwords._hasher, passwords._NOBODY)
    quick = PasswordHasher(time_cost=1, memory_cost=1_024, parallelism=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passwords, "_hasher", quick)
        patch.setattr(passwords, "_NOBODY", quick.hash("the password of nobody"))
        yield shipped


@pytest.fixture(scope="session")
def session_dir() -> Iterator[Path]:
    yield from _short_folder(_in_memory())


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A short path that PostgreSQL's own account can reach."""
    yield from _short_folder(_in_memory())


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def postgres(session_dir: Path) -> AsyncIterator[EmbeddedPostgres]:
    """One server for the whole session; quick, not durable."""
    server = await EmbeddedPostgres.start(session_dir, settings=FAST_SETTINGS)
    yield server
    await server.stop()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def template_database(postgres: EmbeddedPostgres) -> str:
    """A migrated database that nobody is connected to, to copy from."""
    await create_database(postgres, TEMPLATE, "template1")
    conn = await asyncpg.connect(database_of(postgres.url, TEMPLATE))
    try:
        await migrate(conn)
    finally:
        await conn.close()
    return TEMPLATE


@pytest_asyncio.fixture(loop_scope="session")
async def database_url(postgres: EmbeddedPostgres, template_database: str) -> AsyncIterator[str]:
    """A migrated database of this test's own."""
    async with _database(postgres, template_database) as url:
        yield url


@pytest_asyncio.fixture(loop_scope="session")
async def empty_database_url(postgres: EmbeddedPostgres) -> AsyncIterator[str]:
    """A database of this test's own without any schema."""
    async with _database(postgres, "template1") as url:
        yield url


@pytest.fixture
def eventually() -> Eventually:
    """Wait for a condition with a bound: `await eventually(lambda: done(), within_s=5)`."""

    async def wait(condition: Callable[[], bool], *, within_s: float = 10.0) -> None:
        async with asyncio.timeout(within_s):
            while not condition():
                await asyncio.sleep(0.02)

    return wait


def database_of(url: str, name: str) -> str:
    """The same server's URL for another database."""
    return url.replace("/redrive?", f"/{name}?")


@asynccontextmanager
async def _database(postgres: EmbeddedPostgres, template: str) -> AsyncIterator[str]:
    name = f"test_{next(_numbers)}"
    await create_database(postgres, name, template)
    yield database_of(postgres.url, name)
    await _as_superuser(postgres, f"DROP DATABASE {name} WITH (FORCE)")


async def create_database(postgres: EmbeddedPostgres, name: str, template: str) -> None:
    # Settings of a database are not copied with it.
    await _as_superuser(
        postgres,
        # By its files, which lie in memory: half the work of writing every page to the log first.
        f"CREATE DATABASE {name} TEMPLATE {template} OWNER redrive STRATEGY file_copy",
        f"ALTER DATABASE {name} SET search_path = redrive, public",
    )


async def _as_superuser(postgres: EmbeddedPostgres, *statements: str, database: str | None = None) -> None:
    url = postgres.superuser_url
    conn = await asyncpg.connect(url if database is None else database_of(url, database))
    try:
        for statement in statements:
            await conn.execute(statement)
    finally:
        await conn.close()


def _in_memory() -> Path:
    """Where there is plenty of it: a file system that makes and removes as many files as a database for each test has
    is busy with little else.
    """
    has_room = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > SESSION_BYTES
    return MEMORY if has_room else DISK


def _short_folder(within: Path = DISK) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="rd-", dir=within))
    path.chmod(0o755)
    yield path
    # A server whose owner was killed ends by itself, a moment later, and takes files of its own away meanwhile.
    until = time.monotonic() + REMOVED_WITHIN_S
    while path.exists():
        shutil.rmtree(path, ignore_errors=time.monotonic() < until)
