"""Handing in within the caller's own transaction: the task exists exactly when the caller's commit does.

The same for every library that people use: asyncpg, psycopg and SQLAlchemy, with and without an event loop.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any
from uuid import UUID

import asyncpg
import psycopg
import pytest
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, use_span
from psycopg.rows import dict_row
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from conftest import database_of
from redrive import Redrive, Task
from redrive.core.trace import kept_context
from redrive.store.embedded import EmbeddedPostgres
from support.engine import SHARED, Engine
from support.flows import put_workflow

HANDLER = "edi.orders"
UsersTransaction = Callable[[str], AbstractAsyncContextManager[Any]]
CONFLICT = (asyncpg.UniqueViolationError, psycopg.errors.UniqueViolation, DBAPIError)


class TakenBack(Exception):
    """Ends a transaction without a commit."""


@asynccontextmanager
async def with_asyncpg(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def with_asyncpg_pool(url: str) -> AsyncIterator[Any]:
    async with (
        asyncpg.create_pool(url, min_size=1, max_size=1) as pool,
        pool.acquire() as connection,
        connection.transaction(),
    ):
        yield connection


@asynccontextmanager
async def with_psycopg_async(url: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield connection


@asynccontextmanager
async def with_psycopg_async_dicts(url: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(url, row_factory=dict_row) as connection:
        yield connection


@asynccontextmanager
async def with_psycopg(url: str) -> AsyncIterator[Any]:
    with psycopg.connect(url) as connection:
        yield connection


@asynccontextmanager
async def with_psycopg_dicts(url: str) -> AsyncIterator[Any]:
    with psycopg.connect(url, row_factory=dict_row) as connection:
        yield connection


@asynccontextmanager
async def with_psycopg_cursor(url: str) -> AsyncIterator[Any]:
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        yield cursor


def _dialect(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://")


@asynccontextmanager
async def with_sqlalchemy(url: str) -> AsyncIterator[Any]:
    engine = create_engine(_dialect(url, "psycopg"))
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


@asynccontextmanager
async def with_sqlalchemy_session(url: str) -> AsyncIterator[Any]:
    engine = create_engine(_dialect(url, "psycopg"))
    try:
        with Session(engine) as session, session.begin():
            yield session
    finally:
        engine.dispose()


def with_sqlalchemy_async(driver: str, *, session: bool = False) -> UsersTransaction:
    @asynccontextmanager
    async def transaction(url: str) -> AsyncIterator[Any]:
        engine = create_async_engine(_dialect(url, driver))
        try:
            if session:
                async with AsyncSession(engine) as work, work.begin():
                    yield work
            else:
                async with engine.begin() as connection:
                    yield connection
        finally:
            await engine.dispose()

    return transaction


ASYNCHRONOUS: dict[str, UsersTransaction] = {
    "asyncpg": with_asyncpg,
    "asyncpg pool": with_asyncpg_pool,
    "psycopg async": with_psycopg_async,
    "psycopg async, rows as dicts": with_psycopg_async_dicts,
    "sqlalchemy async, psycopg": with_sqlalchemy_async("psycopg"),
    "sqlalchemy async, asyncpg": with_sqlalchemy_async("asyncpg"),
    "sqlalchemy async session, psycopg": with_sqlalchemy_async("psycopg", session=True),
    "sqlalchemy async session, asyncpg": with_sqlalchemy_async("asyncpg", session=True),
}
SYNCHRONOUS: dict[str, UsersTransaction] = {
    "psycopg": with_psycopg,
    "psycopg, rows as dicts": with_psycopg_dicts,
    "psycopg cursor": with_psycopg_cursor,
    "sqlalchemy": with_sqlalchemy,
    "sqlalchemy session": with_sqlalchemy_session,
}
ALL = ASYNCHRONOUS | SYNCHRONOUS


async def hand(app: Redrive, library: str, payload: Any, connection: Any, **options: Any) -> UUID:
    if library in SYNCHRONOUS:
        return app.enqueue_sync(HANDLER, payload, connection=connection, **options)
    return await app.enqueue(HANDLER, payload, connection=connection, **options)


@pytest.mark.parametrize("library", ALL)
async def test_a_rollback_leaves_nothing_and_a_commit_is_delivered(live: Engine, library: str) -> None:
    app = Redrive(live.url)
    got: list[Any] = []

    @app.handler(HANDLER)
    async def handle(task: Task) -> None:
        got.append((task.event_id, task.payload))

    async def taken_back() -> None:
        async with ALL[library](live.url) as connection:
            await hand(app, library, {"order": 1}, connection)
            raise TakenBack

    with pytest.raises(TakenBack):
        await taken_back()
    async with ALL[library](live.url) as connection:
        task_id = await hand(app, library, {"order": 2}, connection)
        assert await live.sql.fetchval("SELECT count(*) FROM redrive.event") == 0  # not before the commit
    await live.run_until_idle(app.handlers)
    assert got == [(task_id, {"order": 2})]


@pytest.mark.parametrize("library", ALL)
async def test_the_same_key_is_the_same_task_and_another_payload_under_it_an_error(live: Engine, library: str) -> None:
    app = Redrive(live.url)
    ids = set()
    for _ in range(2):
        async with ALL[library](live.url) as connection:
            ids.add(await hand(app, library, [7], connection, idempotency_key="order-7"))
    assert len(ids) == 1
    with pytest.raises(CONFLICT, match="idempotency key 'order-7' was used for another payload"):
        async with ALL[library](live.url) as connection:
            await hand(app, library, [8], connection, idempotency_key="order-7")
    assert await live.sql.fetchval("SELECT count(*) FROM redrive.task") == 1


async def test_the_same_key_for_a_call_and_for_an_event_is_two_things(live: Engine) -> None:
    app = Redrive(live.url)
    try:
        ids = {await app.enqueue(HANDLER, 1, idempotency_key="k"), await app.publish(HANDLER, 1, idempotency_key="k")}
    finally:
        await app.close()
    assert len(ids) == 2


@pytest.mark.parametrize("other", [{"policy": "manual"}, {"external_system": "SAP"}])
async def test_the_same_key_under_other_terms_is_an_error(live: Engine, other: dict[str, str]) -> None:
    app = Redrive(live.url)
    try:
        await app.enqueue(HANDLER, 1, idempotency_key="k", correlation_id="a")
        await app.enqueue(HANDLER, 1, idempotency_key="k", correlation_id="b")
        with pytest.raises(asyncpg.UniqueViolationError, match="was used for another payload, name, policy"):
            await app.enqueue(HANDLER, 1, idempotency_key="k", **other)
        with pytest.raises(asyncpg.UniqueViolationError):
            await app.enqueue("another", 1, idempotency_key="k")
    finally:
        await app.close()


async def test_twenty_at_once_under_one_key_make_one_task(live: Engine) -> None:
    app = Redrive(live.url)
    try:
        ids = await asyncio.gather(*(app.enqueue(HANDLER, {}, idempotency_key="k") for _ in range(20)))
    finally:
        await app.close()
    assert len(set(ids)) == 1
    assert await live.sql.fetchval("SELECT count(*) FROM redrive.task") == 1


async def test_a_key_belongs_to_its_org(live: Engine) -> None:
    await live.org("other")
    apps = [Redrive(live.url), Redrive(live.url, org="other")]
    ids = [await app.enqueue(HANDLER, {}, idempotency_key="k") for app in apps]
    for app in apps:
        await app.close()
    assert len(set(ids)) == 2


async def test_the_policy_of_a_handler_is_that_of_its_tasks(live: Engine) -> None:
    app = Redrive(live.url)

    @app.handler(HANDLER, policy="manual")
    def handle(task: Task) -> None: ...

    try:
        for policy in (None, "immediate"):
            await app.enqueue(HANDLER, {}, policy=policy)
    finally:
        await app.close()
    rows = await live.sql.fetch(
        "SELECT p.name FROM redrive.task t JOIN redrive.policy p ON p.id = t.policy_id ORDER BY t.id"
    )
    assert [row["name"] for row in rows] == ["manual", "immediate"]


async def test_an_event_is_published_to_whoever_subscribes(live: Engine) -> None:
    await live.endpoint(event_types=("invoice.*",))
    app = Redrive(live.url)
    try:
        taken = await app.publish("invoice.paid", {"n": 1}, external_system="SAP", correlation_id="c-1")
        left = await app.publish("order.sent", b"\x00raw")
    finally:
        await app.close()
    event = await live.event(taken)
    assert (event["status"], event["external_system"], event["correlation_id"]) == ("queued", "SAP", "c-1")
    assert (await live.event(left))["status"] == "received"
    assert await live.sql.fetchval("SELECT body FROM redrive.event WHERE id = $1", left) == b"\x00raw"


async def test_any_program_that_speaks_sql_can_hand_in(live: Engine) -> None:
    await live.endpoint()
    connection = await asyncpg.connect(live.url)
    try:
        called = await connection.fetchval("SELECT redrive.enqueue('edi.orders', '{\"order\": 7}')")
        same = [
            await connection.fetchval("SELECT redrive.enqueue('a', '[1]', idempotency_key => 'k')") for _ in range(2)
        ]
        sent = await connection.fetchval(
            "SELECT redrive.publish('invoice.paid', '{}', policy => 'immediate', correlation_id => 'c-9')"
        )
    finally:
        await connection.close()
    assert (await live.task_of(called))["queue"] == "handler:edi.orders"
    assert await live.sql.fetchval("SELECT body FROM redrive.event WHERE id = $1", called) == b'{"order": 7}'
    assert same[0] == same[1]
    assert (await live.task_of(sent))["queue"] == "http"
    assert (await live.event(sent))["correlation_id"] == "c-9"


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        ("redrive.enqueue('a', '1', org => 'nobody''s')", "there is no org named 'nobody''s'"),
        ("redrive.enqueue('a', '1', policy => 'none')", "there is no policy named 'none'"),
        ("redrive.enqueue('', '1')", "has 1 to 200 characters"),
        ("redrive.enqueue(repeat('x', 201), '1')", "has 1 to 200 characters"),
        ("redrive.enqueue(NULL, '1')", "has 1 to 200 characters"),
        ("redrive.enqueue(E'a\\nb', '1')", "none of them a control character"),
        ("redrive.enqueue('a', to_jsonb(repeat('x', 1048577)))", "at most 1048576 bytes"),
        ("redrive.enqueue('a', '1', external_system => repeat('x', 201))", "system has at most 200 characters"),
        ("redrive.enqueue('a', '1', external_system => E'a\\nb')", "none of them a control character"),
        ("redrive.enqueue('a', '1', correlation_id => repeat('x', 129))", "correlation id has at most 128 characters"),
        ("redrive.publish('a', '1', correlation_id => E'a\\rb')", "none of them a control character"),
    ],
)
async def test_what_cannot_be_handed_in_is_refused_with_a_reason(live: Engine, call: str, complaint: str) -> None:
    with pytest.raises(asyncpg.PostgresError) as refusal:
        await live.sql.fetchval(f"SELECT {call}")
    assert complaint in str(refusal.value)
    assert await live.sql.fetchval("SELECT count(*) FROM redrive.event") == 0


async def test_a_producer_can_hand_in_and_read_nothing(live: Engine, postgres: EmbeddedPostgres) -> None:
    superuser = await asyncpg.connect(database_of(postgres.superuser_url, SHARED))
    producer = None
    try:
        await superuser.execute("CREATE ROLE shop LOGIN; GRANT redrive_producer TO shop; GRANT shop TO redrive")
        producer = await asyncpg.connect(live.url, server_settings={"role": "shop"})
        async with producer.transaction():
            called = await Redrive(live.url).enqueue(HANDLER, {}, connection=producer)
            await producer.execute("SELECT redrive.publish('invoice.paid', '{}')")
        assert (await live.task_of(called))["state"] == "waiting"
        tables = await superuser.fetch(
            "SELECT relname FROM pg_class WHERE relnamespace = 'redrive'::regnamespace AND relkind IN ('r', 'v')"
        )
        for table in tables:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await producer.fetch(f"SELECT * FROM redrive.{table['relname']}")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await producer.fetch("SELECT redrive.accept('{}','{}','{}','{}','{}','{}','{}','{}','{}','{}','{}')")
    finally:
        if producer is not None:
            await producer.close()
        await superuser.execute("DROP ROLE IF EXISTS shop")
        await superuser.close()


async def test_a_connection_of_the_wrong_kind_is_told_apart(live: Engine) -> None:
    app = Redrive(live.url)
    with pytest.raises(TypeError, match=r"builtins.int: give a connection of asyncpg, psycopg or SQLAlchemy"):
        await app.enqueue(HANDLER, {}, connection=7)
    async with with_asyncpg(live.url) as connection:
        with pytest.raises(TypeError, match="this connection is asynchronous"):
            app.enqueue_sync(HANDLER, {}, connection=connection)


async def test_nothing_but_json_or_bytes_is_handed_in(live: Engine) -> None:
    app = Redrive(live.url)
    for payload in (float("nan"), {1, 2}, object()):
        with pytest.raises((TypeError, ValueError)):
            await app.enqueue(HANDLER, payload)


def test_a_handler_has_one_name_and_a_name_one_handler() -> None:
    app = Redrive("postgresql://nowhere/none")
    app.handler("a")(lambda task: None)
    with pytest.raises(ValueError, match="there is a handler named 'a' already"):
        app.handler("a")
    for name in ("", "x" * 201, "a\nb"):
        with pytest.raises(ValueError, match="1 to 200 printable characters"):
            app.handler(name)


async def test_the_text_of_a_query_stays_the_caller_s(live: Engine) -> None:
    """Other statements of the caller's transaction stand or fall with the task."""
    async with with_sqlalchemy_async("psycopg")(live.url) as connection:
        await connection.execute(text("CREATE TEMP TABLE orders (id int) ON COMMIT DROP"))
        await Redrive(live.url).enqueue(HANDLER, {}, connection=connection)
        await connection.execute(text("INSERT INTO orders VALUES (1)"))
    assert await live.sql.fetchval("SELECT count(*) FROM redrive.task") == 1


@pytest.mark.parametrize("given", [b"\xff", b"{bad", b"1e999", b"[" * 65 + b"]" * 65, b'"' + b"x" * 1_048_576 + b'"'])
async def test_a_run_is_not_begun_with_what_its_steps_could_not_read(live: Engine, given: bytes) -> None:
    await put_workflow(live, "fulfil")
    app = Redrive(live.url)
    try:
        with pytest.raises(ValueError, match="a run's input"):
            await app.start("fulfil", given)
    finally:
        await app.close()


@pytest.mark.parametrize(
    ("correlation_id", "complaint"),
    [("x" * 129, "at most 128 characters"), ("a\rb", "none of them a control character")],
)
async def test_a_run_is_not_begun_with_a_correlation_id_that_may_not_be_posted(
    live: Engine, correlation_id: str, complaint: str
) -> None:
    await put_workflow(live, "fulfil")
    app = Redrive(live.url)
    try:
        with pytest.raises(asyncpg.CheckViolationError, match=complaint):
            await app.start("fulfil", {"order": 7}, correlation_id=correlation_id)
    finally:
        await app.close()
    assert await live.sql.fetchval("SELECT count(*) FROM redrive.run") == 0


@pytest.mark.parametrize("library", ALL)
async def test_a_run_begins_exactly_when_the_users_transaction_commits(live: Engine, library: str) -> None:
    await put_workflow(live, "fulfil")
    app = Redrive(live.url)

    async def taken_back() -> None:
        async with ALL[library](live.url) as connection:
            await app.start("fulfil", {"order": 7}, connection=connection)
            raise TakenBack

    with pytest.raises(TakenBack):
        await taken_back()
    async with ALL[library](live.url) as connection:
        run_id = await app.start("fulfil", {"order": 8}, idempotency_key="o-8", connection=connection)
        assert await app.start("fulfil", {"order": 8}, idempotency_key="o-8", connection=connection) == run_id
        with pytest.raises(LookupError, match="no workflow 'other'"):
            await app.start("other", connection=connection)
        with pytest.raises(ValueError, match="another workflow or input"):
            await app.start("fulfil", {"order": 9}, idempotency_key="o-8", connection=connection)
        assert await live.sql.fetchval("SELECT count(*) FROM redrive.run") == 0  # not before the commit
    rows = await live.sql.fetch("SELECT run_id, step FROM redrive.task")
    assert [(row["run_id"], row["step"]) for row in rows] == [(run_id, 0)]


async def test_what_is_handed_in_within_a_trace_goes_on_in_it(live: Engine) -> None:
    app = Redrive(live.url)
    sampled = NonRecordingSpan(SpanContext(0xA1, 0xB2, is_remote=False, trace_flags=TraceFlags(1)))
    with use_span(sampled):
        named = await app.enqueue(HANDLER, {"n": 1}, idempotency_key="k")
        published = await app.publish("order.made", {"n": 1})
    again = await app.enqueue(HANDLER, {"n": 1}, idempotency_key="k")  # from elsewhere: the same all the same
    untraced = await app.enqueue(HANDLER, {"n": 1})
    await app.close()
    rows = await live.sql.fetch("SELECT id, headers FROM redrive.event")
    kept = {row["id"]: kept_context(row["headers"]) for row in rows}
    context = f"00-{0xA1:032x}-{0xB2:016x}-01"
    assert again == named
    assert kept == {named: context, published: context, untraced: None}
