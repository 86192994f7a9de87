"""What the routes need, and how they get it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Literal
from uuid import UUID

from fastapi import Depends, Request

from redrive.api.browser import client_address
from redrive.api.cursors import Cursors
from redrive.api.turns import Turns
from redrive.core.address import AddressRules
from redrive.core.relay import Hubs
from redrive.store.audit import Act
from redrive.store.clock import Clock
from redrive.store.db import Database, Session
from redrive.store.endpoints import RELAY, Endpoints
from redrive.store.keys import Caller
from redrive.store.seal import Sealer

# Why a URL of apprise cannot be used; None where it can. Never repeats the URL.
JudgeService = Callable[[str], Awaitable[str | None]]


@dataclass(frozen=True, slots=True)
class BrokerTerms:
    """A broker that this installation is connected to. `redrive_to`: where a redriven message is published."""

    org: str  # that it belongs to
    redrive_to: Literal["exchange", "queue"] = "exchange"


@dataclass(frozen=True, slots=True)
class ApiContext:
    """engine_db sees every org: it looks keys up and accepts events. app_db sees the caller's org only."""

    engine_db: Database
    app_db: Database
    sealer: Sealer
    clock: Clock
    rules: AddressRules
    version: str
    trust_proxy: bool = False  # X-Forwarded-For and -Proto are those of a proxy of ours
    public_url: str | None = None  # where senders reach us; None: where a request did
    broker: BrokerTerms | None = None
    hubs: Hubs | None = None  # where hubs of relays are let in
    broker_org: str | None = None  # the name of the one that RabbitMQ belongs to; None: there is no broker
    has_mail: bool = False  # there is a mail server
    judge_service: JudgeService | None = None  # None: apprise is not installed
    turns: Turns = field(default_factory=Turns)

    @asynccontextmanager
    async def tenant(self, caller: Caller) -> AsyncIterator[Session]:
        """A transaction in the caller's org, with the caller's role."""
        async with self.turns.of(caller.org_id), self.app_db.tenant(caller.org_id, caller.role) as session:
            yield session

    def beyond(self, caller: Caller) -> AbstractAsyncContextManager[Session]:
        """The same as the engine, for what reaches beyond an org: accounts, sessions, orgs."""
        return self.engine_db.tenant(caller.org_id, caller.role)

    def hubs_of(self, kind: str, endpoint_id: UUID) -> int | None:
        """How many hubs of an endpoint are connected to this process; None: it has none, or they do not come in here.

        Where several API processes run, each knows its own.
        """
        return self.hubs.count(endpoint_id) if self.hubs is not None and kind == RELAY else None

    def has_broker(self, caller: Caller) -> bool:
        return self.broker is not None and caller.org_name == self.broker.org

    @property
    def cursors(self) -> Cursors:
        return Cursors(self.sealer.cursor_key)

    @property
    def endpoints(self) -> Endpoints:
        return Endpoints(self.sealer)


async def _context(request: Request) -> ApiContext:
    context: ApiContext = request.app.state.context
    return context


def correlation_of(request: Request) -> str:
    """Set by guard before any route runs."""
    correlation_id: str = request.scope["state"]["correlation_id"]
    return correlation_id


def act_of(request: Request, caller: Caller, because: str | None = None) -> Act:
    """What a caller does, and from where."""
    return Act(caller.actor, because, correlation_of(request), source_of(request))


def source_of(request: Request) -> str:
    """The way in and the address."""
    return f"api {client_address(request)}"


Context = Annotated[ApiContext, Depends(_context)]
