"""An API in the test's own loop, over a database of its own, beside which a test starts workers: real processes, or one
in the same loop whose clock the test moves.

    async with installation(database_url) as redrive, worker(database_url):
        endpoint = await redrive.api.endpoint(receiver.url)
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cache
from uuid import UUID

import uvicorn

from redrive.api.server import ApiContext, create_app
from redrive.api_process import hub_terms, relay_worker
from redrive.app import Stores, open_stores, open_worker, prepare_database, sealer_of
from redrive.core.address import AddressRules
from redrive.core.permissions import Role
from redrive.core.ports import WorkerCard
from redrive.core.presets import PresetOverrides, presets
from redrive.destinations.apprise import ServiceJudge
from redrive.destinations.python import Handler
from redrive.destinations.relay import RelayDestination
from redrive.engine.heartbeat import Heartbeat
from redrive.engine.operations import run_operations
from redrive.engine.worker import Worker
from redrive.settings import Settings, load_settings
from redrive.store import sessions
from redrive.store.audit import Act
from redrive.store.clock import Clock, DatabaseClock
from redrive.store.db import Pooler
from redrive.store.endpoints import EndpointTermsBook
from redrive.store.keys import new_key, store_key
from redrive.store.listen import listen
from redrive.store.operation_steps import OperationSteps
from redrive.store.orgs import DEFAULT_ORG, ensure_org, prove_seal
from redrive.store.seal import Sealer
from redrive.store.workers import Workers, list_workers
from redrive.web.site import Site
from support.engine import until
from support.processes import ADMIN_KEY, LOOPBACK, SECRET_KEY
from support.remote import Remote

STOP_WITHIN_S = 15.0
CARD = WorkerCard(UUID(int=7), "test", 1, "0.0.1", ("http",), 100)


@dataclass(slots=True, repr=False)  # its URL holds a password
class Installation:
    url: str
    settings: Settings
    stores: Stores
    clock: Clock
    org_id: UUID
    host: str
    port: int
    api: Remote
    relay: RelayDestination

    async def work(self, handlers: Mapping[str, Handler] | None = None) -> None:
        """Carry out everything that is due by the test's clock, operations included."""
        steps = OperationSteps(self.stores.engine, self.clock)
        await steps.step()
        async with open_worker(
            self.settings, self.stores.engine, clock=self.clock, dice=lambda: 0.5, handlers=handlers
        ) as worker:
            await worker.run_until_idle()
        await self.relay_worker().run_until_idle()
        await steps.step()

    def relay_worker(self) -> Worker:
        """What delivers through the hubs that are connected."""
        return relay_worker(self.settings, self.stores.engine, self.relay, self.clock, dice=lambda: 0.5)

    async def other_org(self, name: str) -> Remote:
        """A caller of another org."""
        org_id = await ensure_org(self.stores.engine, name, presets(PresetOverrides()), overridden=frozenset())
        key = new_key()
        await store_key(self.stores.engine, org_id, key, name=name, role="OWNER")
        return Remote(self.host, self.port, key)

    @property
    def base_url(self) -> str:
        return f"http://{self.host}:{self.port}"

    async def session_token(self, role: Role = Role.OWNER, *, user_id: UUID | None = None) -> str:
        """Of a browser's session, as somebody with this role, or as this user."""
        async with self.stores.engine.tenant(self.org_id) as session:
            token, _ = await sessions.open_session(
                session,
                org_id=self.org_id,
                user_id=user_id,
                role=None if user_id else role,
                source="test",
                clock=self.clock,
            )
        return token

    async def sign_in_url(self, role: Role = Role.OWNER) -> str:
        """Of a one-time link."""
        async with self.stores.engine.tenant(self.org_id) as session:
            token = await sessions.make_link(session, user_id=None, role=role, act=Act("test"), clock=self.clock)
        return f"{self.base_url}/login?token={token}"

    @asynccontextmanager
    async def working(self, handlers: Mapping[str, Handler] | None = None) -> AsyncIterator[None]:
        """A worker at work in this loop, operations included, by the installation's clock."""
        stop = asyncio.Event()
        async with open_worker(self.settings, self.stores.engine, clock=self.clock, handlers=handlers) as worker:
            tasks = [
                asyncio.create_task(worker.run(stop)),
                asyncio.create_task(run_operations(OperationSteps(self.stores.engine, self.clock))),
                asyncio.create_task(listen(self.url, worker.wake)),
                asyncio.create_task(Heartbeat(Workers(self.stores.engine, self.clock), CARD).run()),
            ]
            try:
                yield
            finally:
                stop.set()
                async with asyncio.timeout(STOP_WITHIN_S):
                    await tasks[0]
                for task in tasks[1:]:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def has_worker(self) -> None:
        """Wait until a worker has said that it is there."""

        async def has_beaten() -> bool:
            return any(not worker.is_silent for worker in await list_workers(self.stores.engine, self.clock))

        await until(has_beaten)

    def caller(self) -> Remote:
        """Another connection of the same org."""
        return Remote(self.host, self.port, ADMIN_KEY)


@asynccontextmanager
async def installation(
    url: str,
    *,
    clock: Clock | None = None,
    allow: str = LOOPBACK,
    pool_size: int = 10,
    pooler: Pooler = "none",
    port: int = 0,
    stores: Stores | None = None,
    rabbitmq_url: str | None = None,
    smtp_url: str | None = None,
    public_url: str | None = None,
) -> AsyncIterator[Installation]:
    """`stores`: connections that outlast it."""
    settings = _settings(
        database_url=url,
        database_pooler=pooler,
        secret_key=SECRET_KEY,
        admin_key=ADMIN_KEY,
        allow_networks=allow,
        rabbitmq_url=rabbitmq_url,
        smtp_url=smtp_url,
        mail_from="Redrive <redrive@sender.test>" if smtp_url is not None else None,
        public_url=public_url,
    )
    org_id = await _prepared(settings, url, stores)
    clock = clock or DatabaseClock()
    async with AsyncExitStack() as stack:
        if stores is None:
            opening = open_stores(url, size=pool_size, name="test-api", pooler=pooler)
            stores = await stack.enter_async_context(opening)
        rules = AddressRules(settings.allow_networks)
        sealer = Sealer.from_passphrase(SECRET_KEY)
        relay = RelayDestination(EndpointTermsBook(stores.engine, sealer), version="0.0.1")
        broker_org = settings.rabbitmq_org if settings.broker_urls else None
        context = ApiContext(
            stores.engine,
            stores.app,
            sealer,
            clock,
            rules,
            "0.0.1",
            hubs=relay,
            broker_org=broker_org,
            has_mail=smtp_url is not None,
            judge_service=ServiceJudge(rules),
        )
        listener = _listen(port)
        host, port = listener.getsockname()
        api_app = create_app(context, Site(context))
        config = uvicorn.Config(api_app, access_log=False, log_config=None, timeout_keep_alive=3_600, **hub_terms())
        server = _Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        async with asyncio.timeout(10):
            while not server.started:
                await asyncio.sleep(0.005)
        api = Remote(host, port, ADMIN_KEY)
        try:
            yield Installation(url, settings, stores, clock, org_id, host, port, api, relay)
        finally:
            api.close()
            api_app.close_streams()
            server.told_to_stop.set()
            async with asyncio.timeout(STOP_WITHIN_S):
                await serving


@cache
def _settings(**given: str | None) -> Settings:
    """Immutable, and the same for all tests of a folder; to put them together takes longer than many requests do."""
    return load_settings(**given)


async def _prepared(settings: Settings, url: str, stores: Stores | None) -> UUID:
    """The org, as a start leaves it. Connections that are open already lead to a database that is up to date: they do
    the rest, and are not new to anything.
    """
    if stores is None:
        return (await prepare_database(settings, url)).org_id
    await prove_seal(stores.engine, sealer_of(settings))
    org_id = await ensure_org(stores.engine, DEFAULT_ORG, presets(PresetOverrides()), overridden=frozenset())
    await store_key(stores.engine, org_id, ADMIN_KEY, name="admin key of the settings", role="OWNER", by="settings")
    async with stores.engine.tenant(org_id) as session:
        act = Act("installation", source="start")
        await sessions.make_link(session, user_id=None, role=Role.OWNER, act=act, clock=DatabaseClock())
    return org_id


class _Server(uvicorn.Server):
    """One that stops as soon as it is told. The other looks every tenth of a second, and stops after another one."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.told_to_stop = asyncio.Event()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self.told_to_stop.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        while self.server_state.connections or self.server_state.tasks:
            for connection in list(self.server_state.connections):
                connection.shutdown()
            await asyncio.sleep(0.005)
        await self.lifespan.shutdown()


def _listen(port: int) -> socket.socket:
    # The protocol must be named: else asyncio does not turn Nagle's algorithm off, and every answer takes 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(1_024)
    return listener
