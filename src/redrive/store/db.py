"""Connections and named queries: the way into PostgreSQL for every other module of the store.

A Database speaks as one of three roles. The engine's sees every org and plans for index look-ups only, and so does the
janitor's, which removes; the app's sees the one org named for the transaction, and nothing outside of one. Role and
plans are said once, when a connection begins; behind a pooler, which keeps nothing from one transaction to the next,
they are said in each of them.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from importlib import resources
from typing import Any, Literal, TypeAlias, TypeVar
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import asyncpg

from redrive.core.permissions import Role
from redrive.observe.process_metrics import DATABASE_WAIT_SECONDS, DATABASE_WAITS

Record = asyncpg.Record
Connection: TypeAlias = "asyncpg.Connection[Record]"
DatabaseRole = Literal["redrive_engine", "redrive_app", "redrive_janitor"]
Pooler = Literal["none", "transaction"]

COMMAND_TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 10.0
STREAM_ROWS = 16  # read ahead; each may hold a megabyte
DEADLOCK_TRIES = 5
CLOSE_WITHIN_S = 3.0
TIDY_WITHIN_S = 0.5

# What the end of a connection, or of its server, looks like. A time that is over is an OSError too.
LOST = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)

T = TypeVar("T")

# The engine's statements work on rows handed in by array, whose number the planner can only guess. Look-ups by index
# are right for all of them, at any size of table: nothing else is offered, and plans are made once.
ENGINE_PLANS = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
}
# Lists have optional filters: a plan made for the values at hand drops the filters that are absent. A table is never
# read whole, even where few rows seem to match: it holds the other tenants' rows too. And nobody waits for ever: a few
# slow lists must not hold all connections.
_APP_PLANS = {
    "enable_seqscan": "off",
    "plan_cache_mode": "force_custom_plan",
    "jit": "off",
    "statement_timeout": "15s",
}


@cache
def query(name: str) -> str:
    """The text of sql/<name>.sql."""
    return (resources.files("redrive.store") / "sql" / f"{name}.sql").read_text(encoding="utf-8")


def like_literal(text: str) -> str:
    """Text that stands for itself in a LIKE pattern."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def like_pattern(event_type: str) -> str:
    """`invoice.*` as a LIKE pattern; everything but the star stands for itself."""
    return like_literal(event_type).replace("*", "%")


def array_or_null(column: Sequence[object]) -> Sequence[object] | None:
    """A column of rows handed in by arrays. NULL where no row has a value: unnest fills it up, and an array costs."""
    return None if column[0] is None and column.count(None) == len(column) else column


async def connect(url: str, *, name: str = "redrive", command_timeout_s: float | None = None) -> Connection:
    """One connection under the login role, for a few statements; also through a pooler if they are in transactions."""
    return await asyncpg.connect(
        url,
        timeout=CONNECT_TIMEOUT_S,
        command_timeout=command_timeout_s,
        statement_cache_size=0,
        server_settings={"application_name": name, "timezone": "UTC"},
    )


def shown(url: str) -> str:
    """Which database a URL means, without user and password."""
    parts = urlsplit(url)
    asked = parse_qs(parts.query)
    host = parts.hostname or asked.get("host", ["localhost"])[0]
    return f"{parts.path.lstrip('/') or 'postgres'} at {host}" + (f":{parts.port}" if parts.port else "")


async def leave_as_is(connection: Connection) -> None:
    """Nothing to reset: settings are local to their transaction. asyncpg's own reset is a round trip per release."""


async def past_deadlocks(step: Callable[[], Awaitable[T]]) -> T:
    """Do it, and again where the server broke it up for what others did at the same time: that left nothing behind."""
    for _ in range(DEADLOCK_TRIES - 1):
        with contextlib.suppress(asyncpg.DeadlockDetectedError, asyncpg.SerializationError):
            return await step()
        await asyncio.sleep(0)
    return await step()


class Database:
    """Connections under one role."""

    def __init__(
        self, pool: "asyncpg.Pool[Record]", role: DatabaseRole, url: str, size: int, terms: Sequence[str] = ()
    ) -> None:
        """`terms`: statements that every transaction begins with."""
        self._pool = pool
        self._terms = terms
        self._turns = asyncio.Semaphore(size)
        self._kept: list[Any] = []
        self.role = role
        self.url = url

    @staticmethod
    async def open(
        url: str,
        *,
        role: DatabaseRole,
        size: int = 10,
        name: str = "redrive",
        pooler: Pooler = "none",
        command_timeout_s: float | None = None,
    ) -> "Database":
        """`pooler`: what stands between here and the server. `command_timeout_s`: how long to wait for each answer."""
        terms = {"role": role, **(_APP_PLANS if role == "redrive_app" else ENGINE_PLANS)}
        options: dict[str, Any] = {"server_settings": {"application_name": name, "timezone": "UTC"}}
        if pooler == "none":
            options["server_settings"] |= terms
        else:
            options["statement_cache_size"] = 0  # a statement prepared on one server is unknown to the next
        pool = await asyncpg.create_pool(
            url,
            min_size=1,
            max_size=size,
            command_timeout=COMMAND_TIMEOUT_S if command_timeout_s is None else command_timeout_s,
            timeout=CONNECT_TIMEOUT_S,
            max_inactive_connection_lifetime=300,
            reset=leave_as_is,
            **options,
        )
        if pooler == "none":
            return Database(pool, role, url, size)
        return _PooledDatabase(
            pool, role, url, size, [f"SET LOCAL {name} = '{value}'" for name, value in terms.items()]
        )

    def hurry(self, within_s: float) -> None:
        """The process ends: what is still asked has so long, all in all. Then the connections are cut."""
        asyncio.get_running_loop().call_later(within_s, self._pool.terminate)

    async def close(self) -> None:
        """Close, politely for a moment, then at once: a shutdown must not hang on a dead server."""
        try:
            async with asyncio.timeout(CLOSE_WITHIN_S):
                while self._kept:
                    await self._pool.release(self._kept.pop())
                await self._pool.close()
        except LOST:
            self._pool.terminate()

    async def fetch(self, name: str, *args: object) -> list[Record]:
        async with self._lend() as connection:
            rows: list[Record] = await connection.fetch(query(name), *args)
            return rows

    async def fetchrow(self, name: str, *args: object) -> Record | None:
        async with self._lend() as connection:
            row: Record | None = await connection.fetchrow(query(name), *args)
            return row

    async def execute(self, name: str, *args: object) -> str:
        async with self._lend() as connection:
            status: str = await connection.execute(query(name), *args)
            return status

    @asynccontextmanager
    async def tenant(self, org_id: UUID, role: Role = Role.OWNER) -> AsyncIterator["Session"]:
        """A transaction in which only this org's rows exist, and are changed by those roles only that may."""
        async with self._begun("BEGIN", _tenant_terms(org_id, role)) as connection:
            session = Session(connection, org_id)
            yield session
        session.committed()

    @asynccontextmanager
    async def transaction(self, *, snapshot: bool = False) -> AsyncIterator["Session"]:
        """A transaction that sees what the role sees (the engine's: every org).

        A snapshot: it reads alone, and all of it sees the same moment.
        """
        async with self._begun(f"BEGIN{' ISOLATION LEVEL REPEATABLE READ READ ONLY' * snapshot}") as connection:
            session = Session(connection, None)
            yield session
        session.committed()

    @asynccontextmanager
    async def _begun(self, begin: str, *more: str) -> AsyncIterator[Any]:
        """A transaction that begins in one round trip, terms included, and leaves the error that ends it as it is."""
        async with self._lend() as connection:
            try:
                await connection.execute("; ".join((begin, *self._terms, *more)))
                yield connection
            except BaseException:
                async with _tidying(connection):
                    await connection.execute("ROLLBACK")
                raise
            await connection.execute("COMMIT")

    @asynccontextmanager
    async def _lend(self) -> AsyncIterator[Any]:
        """A connection. After use it is kept here: asyncpg's pool makes a task and three turns of the loop of taking
        it back, before the caller gets its rows. Only where something went wrong the pool looks after it.
        """
        if self._turns.locked():
            await self._wait_for_turn()
        else:
            await self._turns.acquire()
        try:
            connection = await self._take()
            try:
                yield connection
            except BaseException:
                async with _tidying(connection):
                    await self._pool.release(connection)
                raise
            self._kept.append(connection)
        finally:
            self._turns.release()

    async def _wait_for_turn(self) -> None:
        """All connections are lent."""
        began = time.monotonic()
        await self._turns.acquire()
        DATABASE_WAITS.add((self.role,))
        DATABASE_WAIT_SECONDS.add((self.role,), time.monotonic() - began)

    async def _take(self) -> Any:
        while self._kept:
            connection = self._kept.pop()
            with contextlib.suppress(asyncpg.InterfaceError):  # lost while it was kept: the pool has it already
                if not connection.is_closed():
                    return connection
                await self._pool.release(connection)
        return await self._pool.acquire()


def _tenant_terms(org_id: UUID, role: Role) -> str:
    # Neither has quotes: they may stand in the text, which saves the round trip of a parameter.
    return f"SET LOCAL redrive.org = '{org_id}'; SET LOCAL redrive.role = '{role}'"


class _PooledDatabase(Database):
    """Behind a pooler in transaction mode: the next statement may meet another server, which somebody else has just
    used. So every statement runs in a transaction, and each begins by saying the role and the plans, for itself alone.
    """

    async def fetch(self, name: str, *args: object) -> list[Record]:
        async with self.transaction() as session:
            return await session.fetch(name, *args)

    async def fetchrow(self, name: str, *args: object) -> Record | None:
        async with self.transaction() as session:
            return await session.fetchrow(name, *args)

    async def execute(self, name: str, *args: object) -> str:
        async with self.transaction() as session:
            return await session.execute(name, *args)


@asynccontextmanager
async def _tidying(connection: Any) -> AsyncIterator[None]:
    """What is done with a connection behind an error, which the caller is to hear of, and of nothing else: a loop that
    is cancelled while its server goes away would take the lost connection for the error, and go on for ever.

    Where tidying fails too, or takes long, the connection goes: its server must not be lent on so.
    """
    try:
        async with asyncio.timeout(TIDY_WITHIN_S):
            yield
    except LOST:
        with contextlib.suppress(asyncpg.InterfaceError):  # the pool has ended it already
            connection.terminate()


class Session:
    """One transaction. `org_id` is set where it is a tenant's."""

    def __init__(
        self, connection: Any, org_id: UUID | None, afterwards: list[Callable[[], object]] | None = None
    ) -> None:
        self._connection = connection
        self._org_id = org_id
        self._afterwards = [] if afterwards is None else afterwards

    def after_commit(self, call: Callable[[], object]) -> None:
        """Do this once the transaction is durable; not at all where it is not."""
        self._afterwards.append(call)

    def committed(self) -> None:
        """Called by whoever committed the transaction."""
        for call in self._afterwards:
            call()

    @property
    def org_id(self) -> UUID:
        assert self._org_id is not None, "this session belongs to no org"
        return self._org_id

    def of(self, org_id: UUID) -> "Session":
        """The same transaction, for what belongs to another org. As the engine: the app's role sees one org."""
        return Session(self._connection, org_id, self._afterwards)

    async def fetch(self, name: str, *args: object) -> list[Record]:
        rows: list[Record] = await self._connection.fetch(query(name), *args)
        return rows

    async def fetchrow(self, name: str, *args: object) -> Record | None:
        row: Record | None = await self._connection.fetchrow(query(name), *args)
        return row

    async def execute(self, name: str, *args: object) -> str:
        status: str = await self._connection.execute(query(name), *args)
        return status

    async def stream(self, name: str, *args: object) -> AsyncIterator[Record]:
        """Rows that together may be too much for the memory."""
        async for row in self._connection.cursor(query(name), *args, prefetch=STREAM_ROWS):
            yield row
