"""A running API for tests: uvicorn in the test's own loop, on a free port, over a database of its own."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest_asyncio
import uvicorn

from conftest import database_of
from redrive.api.server import ApiContext, create_app
from redrive.api.short_way import with_short_way
from redrive.core.address import AddressRules
from redrive.core.decide import Decision, Die, Reason, RetryIn, Succeed
from redrive.core.outcome import Category, Failure, Outcome, Success
from redrive.core.ports import Exchange, Job, Settlement
from redrive.core.presets import PresetOverrides, presets
from redrive.destinations.relay import RelayDestination
from redrive.store.clock import DatabaseClock
from redrive.store.db import Database
from redrive.store.embedded import EmbeddedPostgres
from redrive.store.endpoints import EndpointTermsBook
from redrive.store.keys import new_key, store_key
from redrive.store.orgs import ensure_org
from redrive.store.seal import Sealer
from redrive.store.tasks import Tasks
from redrive.web.site import Site
from support.engine import claim_due
from support.http import HttpClient

BROKER_ORG = "org of the broker"
SHARED_DATABASE = "redrive_api_shared"
URL = "https://receiver.example.com/hooks"


@dataclass(slots=True, repr=False)  # its URL holds a password
class Api:
    """A running API, clients with different keys, and the engine's hand on the same database."""

    url: str
    host: str
    port: int
    context: ApiContext
    org_id: UUID
    tasks: Tasks
    owner: HttpClient
    staff: HttpClient
    viewer: HttpClient
    stranger: HttpClient
    nobody: HttpClient
    extra: list[HttpClient] = field(default_factory=list)

    def client(self, key: str | None) -> HttpClient:
        """Another connection."""
        made = HttpClient(self.host, self.port, key)
        self.extra.append(made)
        return made

    async def sql(self, statement: str, *args: object) -> Any:
        """As the owner of the tables, who sees nothing of them but may change their structure."""
        connection = await asyncpg.connect(self.url)
        try:
            return await connection.fetch(statement, *args)
        finally:
            await connection.close()

    async def endpoint(self, **fields: object) -> dict[str, Any]:
        given = {"name": f"endpoint {uuid4().hex[:8]}", "url": URL, "event_types": ["*"], **fields}
        made = await self.owner.post("/v1/endpoints", given)
        assert made.status == 201, made.body
        shape: dict[str, Any] = made.json
        return shape

    async def event(self, event_type: str = "invoice.paid", payload: object = None, **fields: object) -> str:
        made = await self.owner.post("/v1/events", {"event_type": event_type, "payload": payload, **fields})
        assert made.status == 202, made.body
        event_id: str = made.json["event_id"]
        return event_id

    async def claim(self) -> list[Job]:
        """This org's due tasks; what other tests left behind is passed by."""
        claimed = await claim_due(self.tasks, 1_000, margin_s=5.0)
        return [job for job in claimed.jobs if job.org_id == self.org_id]

    async def settle(self, job: Job, outcome: Outcome, decision: Decision, exchange: Exchange) -> None:
        (settled,) = await self.tasks.settle([Settlement(job, outcome, decision, exchange, 0.125)])
        assert settled.held_lease

    async def fail(self, job: Job, *, retry_in_s: float = 5.0, message: str = "HTTP 503 Service Unavailable") -> None:
        """A try that failed, to be tried again."""
        failure = Failure(Category.SERVER_ERROR, message, status_code=503)
        exchange = Exchange(URL, '{"x-tenant": "[redacted]"}', 503, '{"server": "nginx"}', b"busy", False)
        await self.settle(job, failure, RetryIn(timedelta(seconds=retry_in_s)), exchange)

    async def die(self, job: Job, *, reason: Reason = Reason.EXHAUSTED, message: str = "HTTP 500") -> None:
        failure = Failure(Category.SERVER_ERROR, message, status_code=500, stack="Traceback: here")
        await self.settle(job, failure, Die(reason, Category.SERVER_ERROR), Exchange(URL, None, 500, None, b"\xff\x00"))

    async def succeed(self, job: Job) -> None:
        await self.settle(job, Success(200), Succeed(), Exchange(URL, None, 200, None, b'{"ok": true}'))

    async def failed_task(self, **fields: object) -> dict[str, Any]:
        """An event whose one task has failed once and waits in the retry queue; its entry."""
        event_id = await self.event(**fields)  # type: ignore[arg-type]
        for job in await self.claim():
            await self.fail(job)
        entries = (await self.owner.get("/v1/retry-queue?limit=250")).json["data"]
        entry: dict[str, Any] = next(entry for entry in entries if entry["event_id"] == event_id)
        return entry

    async def dead_task(self, **fields: object) -> dict[str, Any]:
        """An event whose one task has died; its dead letter."""
        event_id = await self.event(**fields)  # type: ignore[arg-type]
        for job in await self.claim():
            await self.die(job)
        letters = (await self.owner.get("/v1/dead-letters?limit=250")).json["data"]
        letter: dict[str, Any] = next(letter for letter in letters if letter["event_id"] == event_id)
        return letter


@dataclass(frozen=True, slots=True, repr=False)
class Server:
    url: str
    host: str
    port: int
    context: ApiContext


@asynccontextmanager
async def running_server(url: str) -> AsyncIterator[Server]:
    engine_db = await Database.open(url, role="redrive_engine")
    app_db = await Database.open(url, role="redrive_app")
    sealer = Sealer.from_passphrase("a passphrase of tests")
    hubs = RelayDestination(EndpointTermsBook(engine_db, sealer), version="0.0.1")
    context = ApiContext(
        engine_db, app_db, sealer, DatabaseClock(), AddressRules(), "0.0.1", hubs=hubs, broker_org=BROKER_ORG
    )
    # The protocol must be named: else asyncio does not turn Nagle's algorithm off, and every answer takes 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(1_024)
    host, port = listener.getsockname()
    app = create_app(context, Site(context))
    config = uvicorn.Config(
        app,
        http=with_short_way(app.front_door),
        access_log=False,
        proxy_headers=False,
        log_config=None,
        lifespan="on",
        timeout_keep_alive=3_600,
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    async with asyncio.timeout(10):
        while not server.started:
            await asyncio.sleep(0.005)
    yield Server(url, host, port, context)
    server.should_exit = True
    await serving
    await engine_db.close()
    await app_db.close()


@asynccontextmanager
async def populated(server: Server, name: str | None = None) -> AsyncIterator[Api]:
    """Two orgs that nobody else uses, unless one of them is to have this name, with keys."""
    engine_db = server.context.engine_db
    org_id, other_id = [
        await ensure_org(engine_db, called, presets(PresetOverrides()), overridden=frozenset())
        for called in (name or f"org {uuid4().hex}", f"org {uuid4().hex}")
    ]

    async def keyed(role: str, org: UUID = org_id) -> HttpClient:
        key = new_key()
        await store_key(engine_db, org, key, name=role.lower(), role=role)
        return HttpClient(server.host, server.port, key)

    api = Api(
        server.url,
        server.host,
        server.port,
        server.context,
        org_id,
        Tasks(engine_db, server.context.clock),
        owner=await keyed("OWNER"),
        staff=await keyed("STAFF"),
        viewer=await keyed("VIEWER"),
        stranger=await keyed("OWNER", other_id),
        nobody=HttpClient(server.host, server.port),
    )
    yield api
    for client in (api.owner, api.staff, api.viewer, api.stranger, api.nobody, *api.extra):
        client.close()


@asynccontextmanager
async def database_named(postgres: EmbeddedPostgres, template: str, name: str) -> AsyncIterator[str]:
    """The URL of a migrated database that lives as long as the context: longer than one test, where that is wanted."""
    superuser = await asyncpg.connect(postgres.superuser_url)
    try:
        await superuser.execute(f"CREATE DATABASE {name} TEMPLATE {template} OWNER redrive")
        yield database_of(postgres.url, name)
        await superuser.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await superuser.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server(postgres: EmbeddedPostgres, template_database: str) -> AsyncIterator[Server]:
    async with (
        database_named(postgres, template_database, SHARED_DATABASE) as url,
        running_server(url) as running,
    ):
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def api(server: Server) -> AsyncIterator[Api]:
    """Orgs of this test's own on a server that all share: row-level security keeps them apart."""
    async with populated(server) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def broker_api(server: Server) -> AsyncIterator[Api]:
    """The org that RabbitMQ belongs to."""
    async with populated(server, BROKER_ORG) as running:
        yield running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_api(server: Server) -> AsyncIterator[Api]:
    """One org for all tests that leave nothing behind that another could trip over."""
    async with populated(server) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def own_api(database_url: str) -> AsyncIterator[Api]:
    """A server and a database of this test's own, to be broken."""
    async with running_server(database_url) as server, populated(server) as running:
        yield running
