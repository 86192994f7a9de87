"""The API's process: routes and pages on uvicorn, with connections of their own, and workers for relays and notices.

Run by the command line. Beside app.py, which it uses, so that a worker does not load what only the API needs. Relays
are delivered here because their hubs are connected here; notices, because people must hear of it when no worker is.
"""

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import uvicorn

from redrive.api.context import BrokerTerms
from redrive.api.server import Api, ApiContext, create_app
from redrive.api.short_way import with_short_way
from redrive.app import listening, open_stores, reported, rest_collector, run_alerts, sealer_of
from redrive.core import jobs as kinds
from redrive.core.address import AddressRules
from redrive.core.jobs import JobRecord
from redrive.core.ports import Settled
from redrive.core.relay import MAX_HUB_MESSAGE_BYTES
from redrive.destinations.apprise import ServiceJudge, is_installed
from redrive.destinations.notices import ForNotices
from redrive.destinations.relay import RelayDestination
from redrive.ending import end
from redrive.engine.health import HealthBook
from redrive.engine.herald import Herald
from redrive.engine.jobs import Jobs
from redrive.engine.operations import run_operations
from redrive.engine.roller import run_roller
from redrive.engine.worker import Worker
from redrive.observe.process_metrics import WorkerNotes
from redrive.settings import Settings
from redrive.store.clock import Clock, DatabaseClock
from redrive.store.db import Database
from redrive.store.endpoint_history import Ledger
from redrive.store.endpoint_states import BreakerStates
from redrive.store.endpoints import EndpointTermsBook
from redrive.store.jobs import JobRows
from redrive.store.notices import Notices
from redrive.store.operation_steps import OperationSteps
from redrive.store.orgs import new_id
from redrive.store.rollups import BATCH_ROWS, Roller
from redrive.store.seal import Sealer
from redrive.store.tasks import Tasks
from redrive.version import __version__
from redrive.ways_out import http_destination, open_channels
from redrive.web.site import Site
from redrive.worker_metrics import show_workers

STOP_S = 5
RELAY_DRAIN_S = 1.5  # for webhooks under way to be acknowledged before their hubs are sent away
RELAY_CONCURRENCY = 500  # webhooks that hubs have in hand: each is a future, and its body
RELAY_CONNECTIONS = 3  # of the relays and the notices together
NOTICE_CONCURRENCY = 20  # notices on their way at once
HUB_PING_S = 20.0


async def run_api(settings: Settings, url: str, stop: asyncio.Event, *, listener: socket.socket) -> None:
    """Serve the API on a bound socket until `stop`."""
    async with (
        open_stores(url, name="redrive-api", pooler=settings.pooler) as stores,
        _relay_db(settings, url) as relay_db,
    ):
        sealer = sealer_of(settings)
        relay = RelayDestination(
            EndpointTermsBook(relay_db, sealer), version=__version__, turn_wait_s=settings.lease_margin_s / 4
        )
        rules = AddressRules(settings.allow_networks)
        context = ApiContext(
            engine_db=stores.engine,
            app_db=stores.app,
            sealer=sealer,
            clock=DatabaseClock(),
            rules=rules,
            version=__version__,
            trust_proxy=settings.trust_proxy,
            public_url=settings.public_url,
            broker=BrokerTerms(settings.rabbitmq_org, settings.rabbitmq_redrive_to) if settings.broker_urls else None,
            hubs=relay,
            has_mail=settings.mail_server is not None,
            judge_service=ServiceJudge(rules) if is_installed() else None,
            broker_org=settings.rabbitmq_org if settings.broker_urls else None,
        )
        api = create_app(context, Site(context))
        api.show_numbers(lambda: relay.connected)
        server = _Server(server_config(api))
        rest_collector()
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        stopped = asyncio.create_task(stop.wait())
        jobs = Jobs(JobRows(stores.engine, context.clock))
        operations = OperationSteps(stores.engine, context.clock)
        herald = Herald(Notices(stores.engine, context.clock), job=jobs.job(kinds.HERALD))
        beside = [
            asyncio.create_task(api.metrics.teller.run()),
            asyncio.create_task(run_operations(operations, job=jobs.job(kinds.OPERATIONS))),
            asyncio.create_task(run_alerts(settings, stores.engine, jobs)),
            asyncio.create_task(herald.run()),  # so that people hear that there is no worker
            asyncio.create_task(
                run_roller(Roller(stores.engine, context.clock).roll, batch=BATCH_ROWS, job=jobs.job(kinds.ROLLER))
            ),
        ]
        try:
            async with (
                open_relay_worker(settings, relay_db, relay, context.clock, jobs) as worker,
                open_notice_worker(settings, relay_db, sealer, context.clock) as notices,
                listening(settings, url, worker, notices),
                reported(jobs),
            ):
                show_workers(worker, notices)
                relaying = asyncio.create_task(worker.run(stop))
                telling = asyncio.create_task(notices.run(stop))
                try:
                    await asyncio.wait({serving, relaying, telling, stopped}, return_when=asyncio.FIRST_COMPLETED)
                    stop.set()
                    stopped.cancel()
                    relay.stop()
                    await asyncio.wait({relaying}, timeout=RELAY_DRAIN_S)
                    server.should_exit = True
                    api.close_streams()
                    await serving
                    await api.metrics.teller.let_go()
                finally:
                    stop.set()
                    await asyncio.gather(relaying, telling)
        finally:
            await end(*beside)


@contextlib.asynccontextmanager
async def _relay_db(settings: Settings, url: str) -> AsyncIterator[Database]:
    """Connections of the relays' own: claims must not wait for those who hand in, nor they for claims."""
    db = await Database.open(
        url, role="redrive_engine", size=RELAY_CONNECTIONS, name="redrive-relay", pooler=settings.pooler
    )
    try:
        yield db
    finally:
        await db.close()


@contextlib.asynccontextmanager
async def open_relay_worker(
    settings: Settings, engine: Database, relay: RelayDestination, clock: Clock, jobs: Jobs | None = None
) -> AsyncIterator[Worker]:
    """A worker for relays. How they do is reported beside it, and when it has stopped."""
    async with _reported_health(settings, engine, clock, jobs.job(kinds.HEALTH) if jobs else None) as health:
        release_job = jobs.job(kinds.RELEASER) if jobs else None
        yield relay_worker(settings, engine, relay, clock, on_settled=health.note_settled, release_job=release_job)


@contextlib.asynccontextmanager
async def _reported_health(
    settings: Settings, engine: Database, clock: Clock, job: JobRecord | None = None
) -> AsyncIterator[HealthBook]:
    """How endpoints do, said every few seconds and once more at the end."""
    health = HealthBook(Ledger(engine, clock), disable_after_s=settings.disable_after_s, job=job)
    reporting = asyncio.create_task(health.run())
    try:
        yield health
    finally:
        await end(reporting)
        await health.close()


@contextlib.asynccontextmanager
async def open_notice_worker(
    settings: Settings, engine: Database, sealer: Sealer, clock: Clock, *, dice: Callable[[], float] = random.random
) -> AsyncIterator[Worker]:
    """A small worker for the queues of notices. How their endpoints do is reported beside it."""
    few = settings.model_copy(update={"concurrency": NOTICE_CONCURRENCY})
    inner = [http_destination(few, engine, sealer), *open_channels(few, engine, sealer)]
    try:
        async with _reported_health(settings, engine, clock) as health:
            yield Worker(
                Tasks(engine, clock),
                [ForNotices(destination) for destination in inner],
                worker_id=new_id(),
                concurrency=NOTICE_CONCURRENCY,
                margin_s=settings.lease_margin_s,
                dice=dice,
                states=BreakerStates(engine, clock),
                rules=settings.breaker_rules(),
                on_settled=health.note_settled,
                meter=WorkerNotes(),
            )
    finally:
        for destination in inner:
            await destination.aclose()


def relay_worker(
    settings: Settings,
    engine: Database,
    relay: RelayDestination,
    clock: Clock,
    *,
    dice: Callable[[], float] = random.random,
    on_settled: Callable[[list[Settled]], None] | None = None,
    release_job: JobRecord | None = None,
) -> Worker:
    """Claims what is due for relays, and nothing else."""
    worker = Worker(
        Tasks(engine, clock),
        [relay],
        worker_id=new_id(),
        concurrency=RELAY_CONCURRENCY,
        margin_s=settings.lease_margin_s,
        dice=dice,
        states=BreakerStates(engine, clock),
        rules=settings.breaker_rules(),
        on_settled=on_settled,
        meter=WorkerNotes(),
        release_job=release_job,
    )
    relay.on_joined = worker.wake
    return worker


def server_config(api: Api) -> uvicorn.Config:
    return uvicorn.Config(
        api,
        http=with_short_way(api.front_door),
        **hub_terms(),
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=STOP_S,
        timeout_keep_alive=75,
    )


def hub_terms() -> dict[str, Any]:
    """How uvicorn speaks with hubs."""
    return {
        "ws": "websockets-sansio",
        "ws_max_size": MAX_HUB_MESSAGE_BYTES,
        "ws_ping_interval": HUB_PING_S,
        "ws_ping_timeout": HUB_PING_S,
        "ws_per_message_deflate": False,
    }


class _Server(uvicorn.Server):
    """uvicorn, but for the signals: those are the process's own business."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
