"""Handing in within the caller's own transaction: the task exists exactly when the caller's commit does.

Takes the connections of asyncpg, psycopg and SQLAlchemy, recognised by the module of their class, so that neither of
the last two need be installed. All end in the SQL function redrive.hand_in. Called by library.
"""

import inspect
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg

from redrive.store.db import Pooler, leave_as_is

MAX_CONNECTIONS = 5


class SqlFunction:
    """A function of the schema as each library calls it, by the types of its arguments."""

    def __init__(self, name: str, *types: str) -> None:
        numbered = list(enumerate(types, start=1))
        self.asyncpg = f"SELECT {name}({', '.join(f'${n}::{type_}' for n, type_ in numbered)})"
        self.psycopg = f"SELECT {name}({', '.join(f'%s::{type_}' for type_ in types)})"
        self.sqlalchemy = f"SELECT {name}({', '.join(f'CAST(:a{n} AS {type_})' for n, type_ in numbered)})"


HAND_IN = SqlFunction("redrive.hand_in", "text", "text", "bytea", "text", "text", "text", "text", "text", "text")


class HandIn(NamedTuple):
    """The arguments of redrive.hand_in, in its order."""

    event_type: str
    handler: str | None
    payload: bytes
    idempotency_key: str | None
    org: str
    policy: str | None
    external_system: str | None
    correlation_id: str | None
    headers: str | None  # the trace that it is handed in within


class Producer:
    """Connections of our own, for who hands in without a transaction of theirs."""

    def __init__(self, pool: "asyncpg.Pool[asyncpg.Record]") -> None:
        self._pool = pool

    @classmethod
    async def open(cls, url: str, *, pooler: Pooler = "none") -> "Producer":
        if pooler == "none":
            return cls(await asyncpg.create_pool(url, min_size=0, max_size=MAX_CONNECTIONS))
        # One statement is one transaction: nothing else need be said. No prepared statements, and no reset, which
        # would meet a server that somebody else uses.
        return cls(
            await asyncpg.create_pool(
                url, min_size=0, max_size=MAX_CONNECTIONS, statement_cache_size=0, reset=leave_as_is
            )
        )

    @property
    def connections(self) -> Any:
        """What `call` can speak through."""
        return self._pool

    async def hand_in(self, item: HandIn) -> UUID:
        return await hand_in(self._pool, item)

    async def close(self) -> None:
        await self._pool.close()


async def hand_in(connection: Any, item: HandIn) -> UUID:
    """Hand in through the caller's connection, in whatever transaction it is."""
    return _uuid(await call(connection, HAND_IN, *item))


async def call(connection: Any, function: SqlFunction, *args: object) -> Any:
    """What a function answers, called through the caller's connection."""
    return await _settled(_call(connection, function, args))


def hand_in_sync(connection: Any, item: HandIn) -> UUID:
    """The same for code that does not run in an event loop."""
    result = _call(connection, HAND_IN, item)
    if inspect.isawaitable(result):
        close = getattr(result, "close", None)
        if close is not None:
            close()
        raise TypeError("this connection is asynchronous: use `await app.enqueue(..., connection=...)`")
    return _uuid(_scalar(result))


def _call(connection: Any, function: SqlFunction, args: tuple[object, ...]) -> Any:
    match _library(connection):
        case "asyncpg":
            return connection.fetchval(function.asyncpg, *args)
        case "psycopg":
            from psycopg.rows import tuple_row  # only a caller who has it comes here

            # A cursor of our own: the caller's may make anything of a row.
            owner = connection if hasattr(connection, "cursor") else connection.connection
            return owner.cursor(row_factory=tuple_row).execute(function.psycopg, args)
        case "sqlalchemy":
            from sqlalchemy import text

            return connection.execute(text(function.sqlalchemy), {f"a{n}": value for n, value in enumerate(args, 1)})
    raise TypeError(
        f"cannot hand in through a {type(connection).__module__}.{type(connection).__qualname__}: "
        "give a connection of asyncpg, psycopg or SQLAlchemy, or call the SQL function redrive.enqueue yourself"
    )


def _library(connection: Any) -> str | None:
    for cls in type(connection).__mro__:
        root = cls.__module__.partition(".")[0]
        if root in ("asyncpg", "psycopg", "sqlalchemy"):
            return root
    return None


async def _settled(result: Any) -> Any:
    """The value, whether the library answers now or later, and with a value, a cursor or a result."""
    if inspect.isawaitable(result):
        result = await result
    value = _scalar(result)
    return (await value)[0] if inspect.isawaitable(value) else value  # a row of psycopg's, where it comes later


def _scalar(result: Any) -> Any:
    if hasattr(result, "scalar_one"):  # SQLAlchemy's result
        return result.scalar_one()
    if hasattr(result, "fetchone"):  # psycopg's cursor
        row = result.fetchone()
        return row if inspect.isawaitable(row) else row[0]
    return result


def _uuid(value: Any) -> UUID:
    return value if type(value) is UUID else UUID(str(value))
