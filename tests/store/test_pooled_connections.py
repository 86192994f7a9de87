"""Tenants that share connections: each sees its own rows, whatever happened to whoever had the connection before.

The same claims hold directly and through a real pgbouncer in transaction mode with one connection to the server.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import asyncpg
import pytest

from redrive import Redrive
from redrive.app import migrate_database, prepare_database, run_worker
from redrive.core.decide import RetryIn
from redrive.core.permissions import Role
from redrive.core.ports import HTTP_QUEUE, NO_EXCHANGE, Settlement
from redrive.core.presets import PRESETS
from redrive.destinations.handler_tasks import Task
from redrive.settings import load_settings
from redrive.store import policies
from redrive.store.audit import Act
from redrive.store.check import check
from redrive.store.clock import DatabaseClock
from redrive.store.db import Database, DatabaseRole, Pooler, Session
from redrive.store.events import NewEvent, accept, get_event
from redrive.store.orgs import ensure_org, new_id
from redrive.store.tasks import Tasks
from support.engine import UNAVAILABLE, claim_due
from support.installation import installation
from support.pgbouncer import pgbouncer
from support.processes import SECRET_KEY

TENANTS = 2
USERS_EACH = 8
TURNS_EACH = 60


@dataclass(frozen=True, slots=True, repr=False)  # URLs may hold a password
class Way:
    """How a test reaches the database."""

    url: str
    pooler: Pooler

    @asynccontextmanager
    async def open(self, role: DatabaseRole, size: int = 1) -> AsyncIterator[Database]:
        db = await Database.open(self.url, role=role, size=size, pooler=self.pooler)
        try:
            yield db
        finally:
            await db.close()


@pytest.fixture
def pooled_url(database_url: str, data_dir: Path) -> Iterator[str]:
    with pgbouncer(database_url, data_dir) as url:
        yield url


@pytest.fixture(params=["directly", "as a pooler wants it", "through pgbouncer"])
def way(request: pytest.FixtureRequest, database_url: str) -> Way:
    match request.param:
        case "directly":
            return Way(database_url, "none")
        case "as a pooler wants it":
            return Way(database_url, "transaction")
    return Way(request.getfixturevalue("pooled_url"), "transaction")


async def test_interleaved_tenants_on_one_connection_see_their_own_and_never_the_other_s(way: Way) -> None:
    async with way.open("redrive_engine") as engine, way.open("redrive_app") as app:
        orgs = [await _org(engine, f"tenant {number}") for number in range(TENANTS)]
        users = [_User(app, org, seed) for org in orgs for seed in range(USERS_EACH)]
        async with asyncio.timeout(90):
            await asyncio.gather(*(user.work() for user in users))
        assert {user.seen for user in users} == {frozenset({org}) for org in orgs}
        assert sum(user.broken_off for user in users) > TENANTS * USERS_EACH, "too few were broken off to tell anything"
        await _nothing_is_left(app)


async def test_a_role_that_may_not_change_leaves_its_limits_to_nobody(way: Way) -> None:
    async with way.open("redrive_engine") as engine, way.open("redrive_app") as app:
        org = await _org(engine, "tenant")
        for _ in range(3):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                async with app.tenant(org, Role.VIEWER) as session:
                    await _put(session)
            async with app.tenant(org, Role.OWNER) as session:
                await _put(session)


async def test_outside_of_a_tenant_s_transaction_nothing_is_seen(way: Way) -> None:
    async with way.open("redrive_engine") as engine, way.open("redrive_app") as app:
        org = await _org(engine, "tenant")
        async with app.tenant(org) as session:
            assert await policies.list_policies(session)
        await _nothing_is_left(app)


async def test_what_follows_a_commit_follows_it_only(way: Way) -> None:
    told: list[str] = []
    async with way.open("redrive_engine") as engine, way.open("redrive_app") as app:
        org = await _org(engine, "tenant")
        with contextlib.suppress(ZeroDivisionError):
            async with app.tenant(org) as session:
                session.after_commit(lambda: told.append("rolled back"))
                raise ZeroDivisionError
        async with app.tenant(org) as session:
            session.after_commit(lambda: told.append("committed"))
            assert told == []
        assert told == ["committed"]


async def test_the_engine_claims_and_settles(way: Way) -> None:
    async with way.open("redrive_engine", size=4) as engine:
        tasks = Tasks(engine, DatabaseClock())
        org = await _org(engine, "tenant")
        event = NewEvent(org, new_id(), "edi.orders", b"{}", handler="edi.orders")
        assert [receipt.verdict for receipt in await accept(engine, [event], DatabaseClock())] == ["accepted"]
        claims = await asyncio.gather(
            *(claim_due(tasks, 5, queues=["handler:edi.orders", HTTP_QUEUE]) for _ in range(4))
        )
        (job,) = [job for claim in claims for job in claim.jobs]
        settlement = Settlement(job, UNAVAILABLE, RetryIn(timedelta(seconds=5)), NO_EXCHANGE, 0.1)
        (settled,) = await tasks.settle([settlement])
        assert settled.held_lease
        assert (await check(way.url)).clean


# -- through a real pooler only ----------------------------------------------------------------------------------------


async def test_nothing_is_left_on_the_server_that_the_pooler_lends_on(pooled_url: str) -> None:
    way = Way(pooled_url, "transaction")
    asked = "SELECT current_user AS who, current_setting('enable_seqscan') AS plans, pg_backend_pid() AS server"
    stranger = await asyncpg.connect(pooled_url, statement_cache_size=0)
    try:
        before = await stranger.fetchrow(asked)
        assert before is not None
        async with way.open("redrive_engine") as engine, way.open("redrive_app") as app:
            async with app.tenant(await _org(engine, "tenant")) as session:
                seen = await session._connection.fetchrow(asked)
                assert (seen["who"], seen["plans"], seen["server"]) == ("redrive_app", "off", before["server"])
            assert await stranger.fetchrow(asked) == before
    finally:
        await stranger.close()


async def test_migrations_run_through_the_pooler_from_many_at_once(empty_database_url: str, data_dir: Path) -> None:
    with pgbouncer(empty_database_url, data_dir) as url:
        applied = await asyncio.gather(*(migrate_database(url) for _ in range(3)))
        versions = [migration.version for one in applied for migration in one]
        assert sorted(versions) == list(range(1, len(versions) + 1))


async def test_a_worker_without_wake_ups_finds_its_work_behind_a_pooler(pooled_url: str) -> None:
    handled: asyncio.Queue[int] = asyncio.Queue()
    app = Redrive(pooled_url, pooler="transaction")

    @app.handler("edi.orders")
    async def handle(task: Task) -> None:
        handled.put_nowait(task.payload["order"])

    settings = load_settings(database_url=pooled_url, database_pooler="transaction", secret_key=SECRET_KEY)
    await prepare_database(settings, pooled_url)
    stop = asyncio.Event()
    working = asyncio.create_task(run_worker(settings, pooled_url, stop, handlers=app.handlers))
    try:
        for order in range(3):
            await app.enqueue("edi.orders", {"order": order})
        async with asyncio.timeout(15):
            assert sorted([await handled.get() for _ in range(3)]) == [0, 1, 2]
    finally:
        stop.set()
        await working
        await app.close()
    assert (await check(pooled_url)).clean


async def test_wake_ups_come_over_the_direct_way(pooled_url: str, database_url: str) -> None:
    settings = load_settings(
        database_url=pooled_url, database_pooler="transaction", database_direct_url=database_url, secret_key=SECRET_KEY
    )
    await prepare_database(settings, pooled_url)
    stop = asyncio.Event()
    working = asyncio.create_task(run_worker(settings, pooled_url, stop, handlers={}))
    connection = await asyncpg.connect(database_url)
    listens = (
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN %')"
    )
    try:
        async with asyncio.timeout(15):
            while not await connection.fetchval(listens):
                await asyncio.sleep(0.02)
    finally:
        await connection.close()
        stop.set()
        await working


async def test_the_api_answers_through_the_pooler(pooled_url: str) -> None:
    async with installation(pooled_url, pooler="transaction") as redrive:
        endpoint_id = (await redrive.api.endpoint("http://127.0.0.1:9/closed"))["id"]
        stranger = await redrive.other_org("another")
        callers = [redrive.caller() for _ in range(8)]
        events = await asyncio.gather(*(caller.event(endpoint_id) for caller in callers))
        await redrive.work()
        statuses = await asyncio.gather(*(caller.status(id) for caller, id in zip(callers, events, strict=True)))
        assert {status["retry_attempts"] for status in statuses} == {1}
        assert (await stranger.http.get(f"/v1/events/{events[0]}/status")).status == 404
        waiting = await redrive.api.get("/v1/retry-queue", endpoint_id=endpoint_id)
        assert waiting["pagination"]["total_count"] == len(events)
        for caller in (stranger, *callers):
            caller.close()
    assert (await check(pooled_url)).clean


# -- steps -------------------------------------------------------------------------------------------------------------


async def _org(engine: Database, name: str) -> UUID:
    return await ensure_org(engine, name, PRESETS, overridden=frozenset())


async def _put(session: Session) -> None:
    await policies.put_policy(session, "mine", PRESETS["immediate"], Act("test"))


async def _nothing_is_left(app: Database) -> None:
    """No org and no other role than the connection's own, where nobody has named one."""
    async with app.transaction() as session:
        connection = session._connection
        seen = await connection.fetchrow(
            "SELECT redrive.current_org() AS org, current_user AS role, redrive.may_change()"
        )
        assert tuple(seen) == (None, "redrive_app", False)
        assert await connection.fetch("SELECT * FROM redrive.policy") == []


class _User:
    """Somebody of an org, who uses the database in many ways, and is often broken off."""

    def __init__(self, app: Database, org: UUID, seed: int) -> None:
        self._app = app
        self._org = org
        self._dice = random.Random(f"{org} {seed}")
        self._seen: set[UUID] = set()
        self.broken_off = 0

    @property
    def seen(self) -> frozenset[UUID]:
        return frozenset(self._seen)

    async def work(self) -> None:
        for _ in range(TURNS_EACH):
            turn = self._dice.choice([self._read, self._read, self._fail, self._error, self._impatient])
            await turn()

    async def _look(self) -> None:
        async with self._app.tenant(self._org) as session:
            self._seen |= {
                row["org_id"] for row in await session._connection.fetch("SELECT org_id FROM redrive.policy")
            }
            await asyncio.sleep(0)  # another turn of the loop, with the transaction open
            assert await get_event(session, new_id()) is None

    async def _read(self) -> None:
        await self._look()

    async def _fail(self) -> None:
        with pytest.raises(ZeroDivisionError):
            async with self._app.tenant(self._org) as session:
                (await policies.list_policies(session))[0]["timeout_s"] / 0
        self.broken_off += 1

    async def _error(self) -> None:
        with pytest.raises(asyncpg.PostgresError):
            async with self._app.tenant(self._org) as session:
                await session._connection.fetch("SELECT 1 / 0")
        self.broken_off += 1

    async def _impatient(self) -> None:
        """Cancelled somewhere: while waiting for the connection, in a statement, or while that is undone."""
        looking = asyncio.create_task(self._look())
        for _ in range(self._dice.randrange(1, 4)):
            await asyncio.sleep(self._dice.random() * 0.004)
            self.broken_off += looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
