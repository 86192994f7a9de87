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

_NAMES = ("type", "handler", "payload", "key", "org", "policy", "external", "correlation")
_ASYNCPG = "SELECT redrive.hand_in($1::text, $2::text, $3::bytea, $4::text, $5::text, $6::text, $7::text, $8::text)"
_PSYCOPG = "SELECT redrive.hand_in(%s::text, %s::text, %s::bytea, %s::text, %s::text, %s::text, %s::text, %s::text)"
_SQLALCHEMY = "SELECT redrive.hand_in({})".format(
    ", ".join(f"CAST(:{name} AS {'bytea' if name == 'payload' else 'text'})" for name in _NAMES)
)


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

    async def hand_in(self, item: HandIn) -> UUID:
        return await hand_in(self._pool, item)

    async def close(self) -> None:
        await self._pool.close()


async def hand_in(connection: Any, item: HandIn) -> UUID:
    """Hand in through the caller's connection, in whatever transaction it is."""
    return _uuid(await _settled(_call(connection, item)))


def hand_in_sync(connection: Any, item: HandIn) -> UUID:
    """The same for code that does not run in an event loop."""
    result = _call(connection, item)
    if inspect.isawaitable(result):
        close = getattr(result, "close", None)
        if close is not None:
            close()
        raise TypeError("this connection is asynchronous: use `await app.enqueue(..., connection=...)`")
    return _uuid(_scalar(result))


def _call(connection: Any, item: HandIn) -> Any:
    match _library(connection):
        case "asyncpg":
            return connection.fetchval(_ASYNCPG, *item)
        case "psycopg":
            from psycopg.rows import tuple_row  # only a caller who has it comes here

            # A cursor of our own: the caller's may make anything of a row.
            owner = connection if hasattr(connection, "cursor") else connection.connection
            return owner.cursor(row_factory=tuple_row).execute(_PSYCOPG, item)
        case "sqlalchemy":
            from sqlalchemy import text

            return connection.execute(text(_SQLALCHEMY), dict(zip(_NAMES, item, strict=True)))
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
    return await value if inspect.isawaitable(value) else value


def _scalar(result: Any) -> Any:
    if hasattr(result, "scalar_one"):  # SQLAlchemy's result
        return result.scalar_one()
    if hasattr(result, "fetchone"):  # psycopg's cursor
        row = result.fetchone()
        return row if inspect.isawaitable(row) else row[0]
    return result


def _uuid(value: Any) -> UUID:
    if isinstance(value, tuple):
        value = value[0]
    return value if type(value) is UUID else UUID(str(value))
