"""A store and an engine on a real database, with the clock and the dice in the test's hands.

    async with open_engine(database_url) as engine:
        await engine.endpoint(url=receiver.url)
        event_id = await engine.accept()
        async with engine.worker() as worker:
            await worker.run_until_idle()
        assert (await engine.event(event_id))["status"] == "delivered"

`engine.sql` speaks as the engine's role, which sees every org: for looking, and for arranging what no caller can.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

import asyncpg
import pytest
import pytest_asyncio

from conftest import create_database, database_of
from redrive.app import Stores
from redrive.core.address import AddressRules
from redrive.core.decide import Decision, Die, Reason, RetryIn, Succeed
from redrive.core.lifecycle import MARKS
from redrive.core.outcome import Category, Failure, Outcome, Success
from redrive.core.policy import Policy
from redrive.core.ports import (
    HTTP_QUEUE,
    NO_EXCHANGE,
    Ask,
    Claim,
    Destination,
    Exchange,
    Floor,
    Job,
    Place,
    Released,
    Settled,
    Settlement,
    Stream,
)
from redrive.core.presets import PRESETS
from redrive.destinations.client import Client
from redrive.destinations.http import HttpDestination
from redrive.destinations.python import Handler, HandlerDestination
from redrive.engine.outlet import START as START_OF_STREAM
from redrive.engine.worker import Worker
from redrive.store import dead_letters, endpoints, inbox, orgs, pausing, policies, removal, retry_queue
from redrive.store.audit import Act
from redrive.store.clock import Clock, DatabaseClock
from redrive.store.db import Database, Record, connect, leave_as_is
from redrive.store.embedded import EmbeddedPostgres
from redrive.store.endpoint_states import BreakerStates
from redrive.store.endpoints import Endpoints, EndpointSpec, EndpointTermsBook
from redrive.store.events import NewEvent, Receipt
from redrive.store.events import accept as accept_events
from redrive.store.orgs import new_id
from redrive.store.pausing import PauseScope
from redrive.store.retry_queue import Refusal
from redrive.store.seal import Sealer
from redrive.store.tasks import Tasks

Connection: TypeAlias = "asyncpg.Connection[Record]"
T = TypeVar("T")

START = datetime(2031, 5, 4, 12, 0, tzinfo=UTC)
LOOPBACK = AddressRules.parse("127.0.0.0/8")
NOWHERE = "http://127.0.0.1:9/never"
PERSON = Act("key:tester", "because the test says so")
UNAVAILABLE = Failure(Category.SERVER_ERROR, "HTTP 503 Service Unavailable", status_code=503)
REFUSED = Failure(Category.CLIENT_ERROR, "HTTP 404 Not Found", status_code=404)
MARGIN_S = 15.0
SHARED = "shared_by_tests"
MAX_BLOAT_BYTES = 1024 * 1024
_TABLES = """
SELECT oid::regclass::text AS name FROM pg_class
 WHERE relnamespace = 'redrive'::regnamespace AND relkind = 'r' AND relname NOT IN ('installation', 'schema_migration')
"""
_CLEAR = f"""
CREATE FUNCTION pg_temp.forget_statistics() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  -- An ANALYZE or VACUUM that saw pages but no row would have the next test's planner believe
  -- that there never is one.
  PERFORM pg_clear_relation_stats('redrive', relname) FROM pg_class
    WHERE relnamespace = 'redrive'::regnamespace AND relkind IN ('r', 'i') AND reltuples >= 0;
END $$;
CREATE FUNCTION pg_temp.clear() RETURNS TABLE (name text) LANGUAGE plpgsql AS $$
BEGIN
  RETURN QUERY SELECT t.name FROM ({_TABLES}) t WHERE pg_relation_size(t.name::regclass) > {MAX_BLOAT_BYTES};
  {{deletes}};
  UPDATE redrive.installation SET seal_check = NULL, paused_at = NULL, resumed_at = NULL
    WHERE num_nonnulls(seal_check, paused_at, resumed_at) > 0;
  PERFORM pg_temp.forget_statistics();
END $$;
"""


class ManualClock:
    """Time that passes only when the test says so."""

    def __init__(self, start: datetime = START) -> None:
        self._now = start

    def now(self) -> datetime:
        return self._now

    def advance(self, seconds: float) -> datetime:
        self._now += timedelta(seconds=seconds)
        return self._now


@dataclass(slots=True, repr=False)  # the URL holds a password
class Engine:
    """One org on one database."""

    url: str
    org_id: UUID
    clock: Clock
    db: Database
    app: Database
    sql: "asyncpg.Pool[Record]"
    sealer: Sealer
    tasks: Tasks
    janitor: Callable[[], Coroutine[Any, Any, Database]]

    # -- arranging -------------------------------------------------------------------------------------------------

    async def org(self, name: str) -> UUID:
        return await orgs.ensure_org(self.db, name, PRESETS, overridden=frozenset())

    async def endpoint(
        self, name: str = "hook", url: str | None = NOWHERE, *, org: UUID | None = None, **spec: Any
    ) -> UUID:
        async with self.app.tenant(org or self.org_id) as session:
            row, _ = await Endpoints(self.sealer).create(session, EndpointSpec(name=name, url=url, **spec), PERSON)
        endpoint_id: UUID = row["id"]
        return endpoint_id

    async def change_endpoint(self, endpoint_id: UUID, **changes: object) -> None:
        async with self.app.tenant(self.org_id) as session:
            assert await Endpoints(self.sealer).update(session, endpoint_id, changes, PERSON) is not None
        await self.release()

    async def delete_endpoint(self, endpoint_id: UUID) -> None:
        async with self.app.tenant(self.org_id) as session:
            assert await endpoints.delete_endpoint(session, endpoint_id, PERSON)
        await self.release()

    async def pause(self, scope: PauseScope, endpoint_id: UUID | None = None) -> bool:
        async with self.app.tenant(self.org_id) as session:
            return await pausing.pause(session, scope, PERSON, self.clock, endpoint_id)

    async def resume(self, scope: PauseScope, endpoint_id: UUID | None = None) -> bool:
        async with self.app.tenant(self.org_id) as session:
            changed = await pausing.resume(session, scope, PERSON, self.clock, endpoint_id)
        await self.release(everywhere=scope is PauseScope.INSTALLATION)
        return changed

    async def release(self, *, everywhere: bool = False) -> int:
        """What follows whatever lifts a hold."""
        return await pausing.release(self.db, None if everywhere else self.org_id, self.clock)

    async def policy(self, name: str, **spec: object) -> None:
        async with self.app.tenant(self.org_id) as session:
            await policies.put_policy(session, name, Policy.from_spec(spec), PERSON)

    def new_event(self, event_type: str = "invoice.paid", body: bytes = b'{"n":1}', **fields: Any) -> NewEvent:
        return NewEvent(
            fields.pop("org_id", self.org_id), fields.pop("id", None) or new_id(), event_type, body, **fields
        )

    async def accept(self, event_type: str = "invoice.paid", body: bytes = b'{"n":1}', **fields: Any) -> UUID:
        """The id of an event that was stored."""
        event = self.new_event(event_type, body, **fields)
        assert [receipt.verdict for receipt in await self.accept_all([event])] == ["accepted"]
        return event.id

    async def accept_many(self, count: int, **fields: Any) -> list[UUID]:
        events = [self.new_event(**fields) for _ in range(count)]
        for start in range(0, count, 1000):
            receipts = await self.accept_all(events[start : start + 1000])
            assert {receipt.verdict for receipt in receipts} == {"accepted"}
        return [event.id for event in events]

    async def accept_all(self, events: Sequence[NewEvent]) -> list[Receipt]:
        return await accept_events(self.db, events, self.clock)

    # -- what a worker does, step by step --------------------------------------------------------------------------

    def first_tries(self, endpoint_id: UUID) -> Stream:
        return Stream(Place(HTTP_QUEUE, self.org_id, endpoint_id), False)

    def retries(self, endpoint_id: UUID) -> Stream:
        return Stream(Place(HTTP_QUEUE, self.org_id, endpoint_id), True)

    async def claim(self, limit: int = 100, *, queues: Sequence[str] = (HTTP_QUEUE,), **options: Any) -> list[Job]:
        store: Tasks = options.pop("store", self.tasks)
        return (await claim_due(store, limit, queues=queues, **options)).jobs

    async def claim_one(self, **options: Any) -> Job:
        (job,) = await self.claim(1, **options)
        return job

    async def settle(
        self, job: Job, outcome: Outcome | None, decision: Decision | Released, exchange: Exchange = NO_EXCHANGE
    ) -> Settled:
        (settled,) = await self.tasks.settle([Settlement(job, outcome, decision, exchange, 0.25)])
        return settled

    async def succeed(self, job: Job) -> Settled:
        return await self.settle(job, Success(200), Succeed(), Exchange(NOWHERE, None, 200))

    async def fail(self, job: Job, delay_s: float = 5.0, failure: Failure = UNAVAILABLE) -> Settled:
        return await self.settle(job, failure, RetryIn(timedelta(seconds=delay_s)))

    async def kill(self, job: Job, reason: Reason = Reason.PERMANENT, failure: Failure = REFUSED) -> Settled:
        return await self.settle(job, failure, Die(reason, failure.category))

    async def fail_all(self, jobs: Sequence[Job], delay_s: float = 5.0) -> None:
        """All in one batch, as a worker does: what is left is the same, in a fraction of the time."""
        decision = RetryIn(timedelta(seconds=delay_s))
        await self.tasks.settle([Settlement(job, UNAVAILABLE, decision, NO_EXCHANGE, 0.25) for job in jobs])

    async def kill_all(self, jobs: Sequence[Job]) -> None:
        decision = Die(Reason.PERMANENT, REFUSED.category)
        await self.tasks.settle([Settlement(job, REFUSED, decision, NO_EXCHANGE, 0.25) for job in jobs])

    async def succeed_all(self, jobs: Sequence[Job]) -> None:
        exchange = Exchange(NOWHERE, None, 200)
        await self.tasks.settle([Settlement(job, Success(200), Succeed(), exchange, 0.25) for job in jobs])

    # -- what a person does ----------------------------------------------------------------------------------------

    async def retry_now(self, task_id: UUID) -> Refusal | None:
        async with self.app.tenant(self.org_id) as session:
            return await retry_queue.retry_now(session, task_id, PERSON, self.clock)

    async def skip(self, task_id: UUID) -> Refusal | None:
        async with self.app.tenant(self.org_id) as session:
            return await retry_queue.skip(session, task_id, PERSON, self.clock)

    async def redrive(self, task_id: UUID, *, at_once: bool = False) -> Refusal | None:
        async with self.app.tenant(self.org_id) as session:
            return await dead_letters.redrive(session, task_id, PERSON, self.clock, roll=0.5, at_once=at_once)

    async def mark_letter(self, task_id: UUID, state: str) -> Refusal | None:
        verb = next(verb for verb, marked in MARKS.items() if marked == state)
        async with self.app.tenant(self.org_id) as session:
            return await dead_letters.mark(session, task_id, verb, PERSON)

    async def acknowledge(self, event_id: UUID) -> str | None:
        async with self.app.tenant(self.org_id) as session:
            return await inbox.acknowledge(session, event_id, PERSON, self.clock)

    async def delete_event(self, event_id: UUID) -> Refusal | None:
        async with self.app.tenant(self.org_id) as session:
            return await removal.delete_event(session, event_id, PERSON)

    # -- looking ---------------------------------------------------------------------------------------------------

    async def event(self, event_id: UUID) -> Record:
        row = await self.sql.fetchrow("SELECT * FROM redrive.event_entry WHERE id = $1", event_id)
        assert row is not None
        return row

    async def task(self, task_id: UUID) -> Record:
        row = await self.sql.fetchrow("SELECT * FROM redrive.task WHERE id = $1", task_id)
        assert row is not None
        return row

    async def task_of(self, event_id: UUID) -> Record:
        (row,) = await self.tasks_of(event_id)
        return row

    async def tasks_of(self, event_id: UUID) -> list[Record]:
        return await self.sql.fetch("SELECT * FROM redrive.task WHERE event_id = $1 ORDER BY id", event_id)

    async def attempts(self, task_id: UUID) -> list[Record]:
        return await self.sql.fetch("SELECT * FROM redrive.attempt WHERE task_id = $1 ORDER BY fence", task_id)

    async def letter(self, task_id: UUID) -> Record | None:
        return await self.sql.fetchrow("SELECT * FROM redrive.dead_letter WHERE task_id = $1", task_id)

    async def counts(self, sql: str, *args: object) -> dict[str, int]:
        """The two columns of a query as a dictionary."""
        return {str(row[0]): int(row[1]) for row in await self.sql.fetch(sql, *args)}

    async def until(self, sql: str, *args: object, within_s: float = 10.0) -> None:
        """Wait until a query's one value is true."""

        async def holds() -> bool:
            return bool(await self.sql.fetchval(sql, *args))

        await until(holds, within_s=within_s)

    # -- running ---------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def worker(
        self, handlers: Mapping[str, Handler] | None = None, *, more: Sequence[Destination] = (), **options: Any
    ) -> AsyncIterator[Worker]:
        """A worker for webhooks and these handlers; `more` destinations come first."""
        book = EndpointTermsBook(self.db, self.sealer)
        http = HttpDestination(Client(rules=LOOPBACK), book, version="test")
        python = HandlerDestination(handlers or {})
        states = BreakerStates(self.db, self.clock)
        arguments = {"worker_id": new_id(), "dice": lambda: 0.5, "margin_s": MARGIN_S, "states": states, **options}
        destinations = list(more) or [http, python]
        try:
            yield Worker(arguments.pop("store", self.tasks), destinations, **arguments)
        finally:
            await http.aclose()
            await python.aclose()

    @asynccontextmanager
    async def running(self, worker: Worker) -> AsyncIterator[Callable[[], Coroutine[Any, Any, None]]]:
        """The worker at work in the background; call what is yielded to stop it before the end."""
        stop = asyncio.Event()
        running = asyncio.create_task(worker.run(stop))

        async def stopped() -> None:
            stop.set()
            async with asyncio.timeout(15):
                await running

        try:
            yield stopped
        finally:
            await stopped()

    async def run_until_idle(self, handlers: Mapping[str, Handler] | None = None, **options: Any) -> None:
        async with self.worker(handlers, **options) as worker:
            await worker.run_until_idle()


@asynccontextmanager
async def open_engine(url: str, clock: Clock | None = None, *, size: int = 10) -> AsyncIterator[Engine]:
    """An engine with the default org and its presets. Without a clock the database's time rules."""
    async with open_ways(url, size=size) as ways:
        yield await engine_by(ways, clock)


@asynccontextmanager
async def open_ways(url: str, *, size: int = 10) -> "AsyncIterator[Ways]":
    async with AsyncExitStack() as stack:
        db = await Database.open(url, role="redrive_engine", size=size, name="test-engine")
        stack.push_async_callback(db.close)
        app = await Database.open(url, role="redrive_app", size=size, name="test-app")
        stack.push_async_callback(app.close)
        settings = {"role": "redrive_engine", "timezone": "UTC"}
        sql = await stack.enter_async_context(
            asyncpg.create_pool(url, min_size=1, max_size=4, server_settings=settings, reset=leave_as_is)
        )
        ways = Ways(url, db, app, sql)
        yield ways
        for janitor in ways.janitors:
            await janitor.close()


async def engine_by(ways: "Ways", clock: Clock | None = None) -> Engine:
    clock = clock or DatabaseClock()
    org_id = await orgs.ensure_org(ways.db, orgs.DEFAULT_ORG, PRESETS, overridden=frozenset())
    sealer, tasks = Sealer.from_passphrase("a test"), Tasks(ways.db, clock)
    return Engine(ways.url, org_id, clock, ways.db, ways.app, ways.sql, sealer, tasks, ways.janitor)


async def claim_due(
    store: Tasks,
    limit: int = 100,
    *,
    queues: Sequence[str] = (HTTP_QUEUE,),
    floors: Mapping[Stream, Floor] | None = None,
    worker_id: UUID | None = None,
    margin_s: float = MARGIN_S,
) -> Claim:
    """What a worker does that has room for all: look everywhere, and claim whatever is due."""
    await store.wake_lanes(from_start=True)
    survey = await store.survey(queues)
    due = [stream for due_at, stream in sorted((due_at, stream) for stream, due_at in survey.due_at.items())]
    due = [stream for stream in due if survey.due_at[stream] <= survey.now]
    asks = [Ask(stream, limit, (floors or {}).get(stream, START_OF_STREAM)) for stream in due]
    return await store.claim(asks, limit=limit, worker_id=worker_id or new_id(), margin_s=margin_s)


def claim_arguments(
    engine: "Engine", stream: Stream, *, most: int = 400, floor: Floor = START_OF_STREAM
) -> tuple[object, ...]:
    """Those of sql/claim.sql, for one stream."""
    asked = ([part] for part in (*stream.place, stream.is_retry, most, *floor))
    return engine.clock.now(), *asked, most, new_id(), MARGIN_S, None


async def until(condition: Callable[[], Awaitable[bool]], *, within_s: float = 10.0) -> None:
    """Wait for a condition with a bound."""
    async with asyncio.timeout(within_s):
        while not await condition():
            await asyncio.sleep(0.02)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_database(postgres: EmbeddedPostgres, template_database: str) -> "AsyncIterator[Shared]":
    """One database for all tests that can do with an emptied one: making one takes longer than most of them."""
    superuser = await asyncpg.connect(postgres.superuser_url)
    # Each folder that takes this fixture has one of its own, over the same database.
    is_there = await superuser.fetchval("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", SHARED)
    await superuser.close()
    if not is_there:
        await create_database(postgres, SHARED, template_database)
    owner = await asyncpg.connect(database_of(postgres.superuser_url, SHARED))
    await prepare_to_clear(owner)
    url = database_of(postgres.url, SHARED)
    async with open_ways(url) as ways, _checks_by_a_kept_connection(url):
        yield Shared(owner, ways, asyncio.get_running_loop())
    await owner.close()


@pytest_asyncio.fixture(loop_scope="session")
async def empty_url(shared_database: "Shared") -> str:
    """The URL of a migrated database without a row in it."""
    await clear(shared_database.owner)
    return shared_database.ways.url


@pytest_asyncio.fixture(loop_scope="session")
async def engine(empty_url: str, shared_database: "Shared", clock: ManualClock) -> Engine:
    """An engine with a database to itself, under a clock that only the test moves."""
    return await engine_by(shared_database.ways, clock)


@pytest_asyncio.fixture(loop_scope="session")
async def live(empty_url: str, shared_database: "Shared") -> Engine:
    """The same under the database's own clock, for what must happen by itself."""
    return await engine_by(shared_database.ways)


@dataclass(frozen=True, slots=True, repr=False)
class Ways:
    """Connections to a database. They outlast a test: to one that is new, everything that it is asked is new as well,
    which takes some times longer than the answers.
    """

    url: str
    db: Database
    app: Database
    sql: "asyncpg.Pool[Record]"
    janitors: list[Database] = field(default_factory=list)

    async def janitor(self) -> Database:
        """The role of whoever removes: opened when somebody asks for it, as few do."""
        if not self.janitors:
            self.janitors.append(await Database.open(self.url, role="redrive_janitor", size=4, name="test-janitor"))
        return self.janitors[0]

    @property
    def stores(self) -> Stores:
        return Stores(self.db, self.app)


@dataclass(frozen=True, slots=True, repr=False)
class Shared:
    owner: Connection
    ways: Ways
    loop: asyncio.AbstractEventLoop

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """For a test that is not a coroutine itself: what Hypothesis drives step by step has the session's loop, and
        with it the connections that are warm.
        """
        return self.loop.run_until_complete(work)


@asynccontextmanager
async def _checks_by_a_kept_connection(url: str) -> AsyncIterator[None]:
    """Most tests of this database end with `check`. Its two dozen queries are planned once, not after every test, which
    takes most of its time: tables are small here and do not change their nature.
    """
    kept: list[_KeptConnection] = []

    async def lend(asked: str, **options: Any) -> Any:
        if asked != url:
            return await connect(asked, **options)
        for connection in kept:
            if connection.is_free and not connection.is_closed():
                connection.is_free = False
                return connection
        kept.append(_KeptConnection(await asyncpg.connect(url, server_settings={"timezone": "UTC"})))
        return kept[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("redrive.store.check.connect", lend)
        yield
    for connection in kept:
        await connection.end()


class _KeptConnection:
    """One that whoever closes it gives back."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.is_free = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def close(self) -> None:
        self.is_free = True

    async def end(self) -> None:
        await self._connection.close()


async def prepare_to_clear(owner: Connection) -> None:
    """Once for each connection that clears: the statements are planned once, not before every test."""
    # Without triggers and foreign keys, in any order.
    await owner.execute("SET session_replication_role = replica; SET lock_timeout = '10s'")
    names = [row["name"] for row in await owner.fetch(_TABLES)]
    await owner.execute(_CLEAR.format(deletes="; ".join(f"DELETE FROM {name}" for name in names)))


async def clear(owner: Connection) -> None:
    """Leave no row. `owner`: a superuser's connection that was prepared for it."""
    bloated = await owner.fetch("SELECT * FROM pg_temp.clear()")
    for table in bloated:  # nobody else tidies up here, and the next test would step over it
        await owner.execute(f"VACUUM {table['name']}")
    if bloated:
        await owner.execute("SELECT pg_temp.forget_statistics()")
