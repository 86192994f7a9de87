"""Puts Redrive together: the only module that knows everyone. Used by the command line and by tests.

prepare_database   migrations, the default org with its presets, the first key
open_stores        connections for a process
run_alerts         what looks whether alerts are due, in workers and API
run_worker         a worker's process, with its janitor and its herald
reported           the record of the background jobs that a process runs
open_sweeper       what removes by policy
listening          wake-ups for a worker

The API's process is put together in api_process: a worker need not load a web framework.
"""

import asyncio
import gc
import os
import random
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import structlog

from redrive.core import jobs as kinds
from redrive.core.permissions import Role
from redrive.core.ports import Destination, Settled, TaskStore, WorkerCard
from redrive.core.presets import PresetOverrides, presets
from redrive.destinations.callbacks import Callback, awaitable
from redrive.destinations.python import Handler, HandlerDestination
from redrive.destinations.steps import InnerSteps
from redrive.ending import end
from redrive.engine.alerts import watch_alerts
from redrive.engine.callbacks import Callbacks
from redrive.engine.health import HealthBook
from redrive.engine.heartbeat import Heartbeat
from redrive.engine.herald import Herald
from redrive.engine.janitor import Janitor
from redrive.engine.jobs import Jobs
from redrive.engine.operations import run_operations
from redrive.engine.roller import run_roller
from redrive.engine.statistics import keep_statistics
from redrive.engine.worker import Worker
from redrive.observe.process_metrics import WorkerNotes
from redrive.settings import Settings, SettingsError
from redrive.store import keys, orgs, sessions
from redrive.store.alert_rounds import AlertRounds
from redrive.store.archive import Archive
from redrive.store.audit import Act
from redrive.store.clock import Clock, DatabaseClock
from redrive.store.db import Database, Pooler, connect
from redrive.store.dead_messages import REFUSALS, DeadMessagesOf
from redrive.store.endpoint_history import Ledger
from redrive.store.endpoint_states import BreakerStates
from redrive.store.expiry import Expiry
from redrive.store.jobs import JobRows
from redrive.store.listen import listen
from redrive.store.migrate import Migration, migrate, require_known, schema_version
from redrive.store.notices import Notices
from redrive.store.operation_steps import OperationSteps
from redrive.store.orgs import DEFAULT_ORG, new_id
from redrive.store.retention import Retention
from redrive.store.rollups import BATCH_ROWS, Roller
from redrive.store.seal import Sealer
from redrive.store.statistics import analyse_new
from redrive.store.step_book import StoredSteps
from redrive.store.tasks import Tasks
from redrive.store.workers import Workers
from redrive.store.workflows import Versions
from redrive.version import __version__
from redrive.ways_out import http_destination, open_channels, open_publisher, rabbitmq_destinations, step_calls
from redrive.worker_metrics import serving_worker_metrics

SEAL_FILE = "secret.key"
ENGINE_CONNECTIONS = 4
APP_CONNECTIONS = 10
COLLECTOR_ENDS_S = 2.0  # after the worker: both were told at once
GOODBYE_S = 2.0  # for all that a worker writes down when it has drained
GC_THRESHOLD = 10_000  # new objects between two looks for cycles; Python's own is 700

log = structlog.get_logger("redrive.app")


@dataclass(frozen=True, slots=True)
class Stores:
    """A process's ways to the database: as the engine, and as one org at a time."""

    engine: Database
    app: Database


@dataclass(frozen=True, slots=True)
class Prepared:
    org_id: UUID
    first_key: str | None  # made because the org had none; shown once
    sign_in_token: str  # of a link for the UI, good once
    migrations: list[Migration]


def sealer_of(settings: Settings) -> Sealer:
    if settings.secret_key is not None:
        return Sealer.from_passphrase(settings.secret_key.get_secret_value())
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    return Sealer.from_file(Path(settings.data_dir) / SEAL_FILE)


@asynccontextmanager
async def open_stores(
    url: str, *, size: int = APP_CONNECTIONS, name: str = "redrive", pooler: Pooler = "none"
) -> AsyncIterator[Stores]:
    few = min(size, ENGINE_CONNECTIONS)
    engine = await Database.open(url, role="redrive_engine", size=few, name=name, pooler=pooler)
    try:
        app = await Database.open(url, role="redrive_app", size=size, name=name, pooler=pooler)
        try:
            yield Stores(engine, app)
        finally:
            await app.close()
    finally:
        await engine.close()


async def migrate_database(url: str) -> list[Migration]:
    connection = await connect(url, name="redrive-migrate")
    try:
        return await migrate(connection)
    finally:
        await connection.close()


async def refuse_newer_schema(url: str) -> None:
    """SchemaTooNew where a newer Redrive has migrated this database."""
    connection = await connect(url)
    try:
        require_known(await schema_version(connection))
    finally:
        await connection.close()


async def prepare_database(settings: Settings, url: str) -> Prepared:
    """Bring a database up to date and see to it that somebody can use it."""
    migrations = await migrate_database(settings.direct_url(url) or url)
    overrides = PresetOverrides(
        max_retries=settings.max_retries,
        retry_delays_s=settings.retry_delays,
        max_retry_attempts=settings.max_retry_attempts,
    )
    overridden = {"transformer"} if settings.max_retries is not None else set()
    if settings.retry_delays is not None or settings.max_retry_attempts is not None:
        overridden.add("triggers")
    engine = await Database.open(url, role="redrive_engine", size=1, pooler=settings.pooler)
    try:
        await orgs.prove_seal(engine, sealer_of(settings))
        org_id = await orgs.ensure_org(engine, DEFAULT_ORG, presets(overrides), overridden=frozenset(overridden))
        if not await orgs.set_fallback(engine, org_id, settings.default_policy):
            raise SettingsError(
                f'default_policy (REDRIVE_DEFAULT_POLICY) is "{settings.default_policy}", but the org "{DEFAULT_ORG}" '
                "has no such policy. Use the name of a preset, or start without it and create the policy first."
            )
        first_key = None
        if settings.admin_key is not None:
            key = settings.admin_key.get_secret_value()
            await keys.store_key(engine, org_id, key, name="admin key of the settings", role="OWNER", by="settings")
        elif not await keys.has_keys(engine, org_id):
            first_key = keys.new_key()
            await keys.store_key(engine, org_id, first_key, name="first key", role="OWNER", by="installation")
        async with engine.tenant(org_id) as session:
            act = Act("installation", source="start")
            token = await sessions.make_link(session, user_id=None, role=Role.OWNER, act=act, clock=DatabaseClock())
    finally:
        await engine.close()
    return Prepared(org_id, first_key, token, migrations)


@asynccontextmanager
async def open_worker(
    settings: Settings,
    engine: Database,
    *,
    handlers: Mapping[str, Handler] | None = None,
    clock: Clock | None = None,
    dice: Callable[[], float] = random.random,
    store: TaskStore | None = None,
    webhooks: bool = True,
    on_settled: Callable[[list[Settled]], None] | None = None,
    jobs: Jobs | None = None,
) -> AsyncIterator[Worker]:
    """A worker with its destinations, which are closed behind it. Without webhooks it needs no sealing key."""
    destinations: list[Destination] = []
    publisher = open_publisher(settings) if settings.broker_urls else None
    sealer = sealer_of(settings) if webhooks else None
    steps = StoredSteps(engine, clock or DatabaseClock(), Versions(sealer))
    if sealer is not None:
        destinations += [
            http_destination(settings, engine, sealer),
            step_calls(settings, engine, sealer, steps),
            InnerSteps(steps),
            *open_channels(settings, engine, sealer),
        ]
    if sealer is not None and publisher is not None:
        destinations += rabbitmq_destinations(settings, engine, sealer, publisher)
    if handlers:
        destinations.append(HandlerDestination(handlers, steps=steps, slot_wait_s=settings.lease_margin_s / 4))
    try:
        yield Worker(
            store or Tasks(engine, clock or DatabaseClock()),
            destinations,
            worker_id=new_id(),
            concurrency=settings.concurrency,
            margin_s=settings.lease_margin_s,
            dice=dice,
            states=BreakerStates(engine, clock or DatabaseClock()),
            rules=settings.breaker_rules(),
            on_settled=on_settled,
            meter=WorkerNotes(),
            release_job=jobs.job(kinds.RELEASER) if jobs else None,
        )
    finally:
        for destination in destinations:
            await destination.aclose()
        if publisher is not None:
            await publisher.close()


async def run_collector(settings: Settings, engine: Database, jobs: Jobs, stop: asyncio.Event) -> None:
    """Empty the dead-letter queues that the settings name, until `stop`."""
    from redrive.sources.collector import Collector

    book = DeadMessagesOf(engine, settings.rabbitmq_org, DatabaseClock())
    collector = Collector(
        settings.broker_urls, settings.rabbitmq_collect, book, refusals=REFUSALS, job=jobs.job(kinds.COLLECTOR)
    )
    await collector.run(stop)


async def run_worker(
    settings: Settings,
    url: str,
    stop: asyncio.Event,
    *,
    handlers: Mapping[str, Handler] | None = None,
    on_dead_letter: Callback | None = None,
) -> None:
    """Work until `stop`, then drain."""
    await refuse_newer_schema(url)
    engine = await Database.open(
        url, role="redrive_engine", size=ENGINE_CONNECTIONS, name="redrive-worker", pooler=settings.pooler
    )
    try:
        jobs = Jobs(JobRows(engine, DatabaseClock()))
        health = HealthBook(
            Ledger(engine, DatabaseClock()), disable_after_s=settings.disable_after_s, job=jobs.job(kinds.HEALTH)
        )
        async with (
            open_worker(settings, engine, handlers=handlers, on_settled=health.note_settled, jobs=jobs) as worker,
            listening(settings, url, worker),
            serving_worker_metrics(settings, engine, worker),
            reported(jobs),
        ):
            card = _card(settings, worker)
            heartbeat = _heartbeat(settings, engine, card, jobs)
            notices = Notices(engine, DatabaseClock())
            beside = [
                asyncio.create_task(heartbeat.run()),
                asyncio.create_task(health.run()),
                asyncio.create_task(_janitor(settings, url, jobs).run()),
                asyncio.create_task(
                    run_operations(OperationSteps(engine, DatabaseClock()), job=jobs.job(kinds.OPERATIONS))
                ),
                asyncio.create_task(Herald(notices, job=jobs.job(kinds.HERALD)).run()),
                asyncio.create_task(keep_statistics(partial(analyse_new, engine), job=jobs.job(kinds.STATISTICS))),
                asyncio.create_task(
                    run_roller(Roller(engine, DatabaseClock()).roll, batch=BATCH_ROWS, job=jobs.job(kinds.ROLLER))
                ),
                asyncio.create_task(run_alerts(settings, engine, jobs)),
            ]
            collecting: list[asyncio.Task[None]] = []
            if settings.broker_urls and settings.rabbitmq_collect:
                collecting.append(asyncio.create_task(run_collector(settings, engine, jobs, stop)))
                beside += collecting
            if on_dead_letter is not None:
                callbacks = Callbacks(notices, awaitable(on_dead_letter), job=jobs.job(kinds.CALLBACKS))
                beside.append(asyncio.create_task(callbacks.run()))
            rest_collector()
            try:
                await worker.run(stop)
                if collecting:
                    await asyncio.wait(collecting, timeout=COLLECTOR_ENDS_S)
            finally:
                engine.hurry(0.0 if worker.unwritten else GOODBYE_S)
                await end(*beside)
                await health.close()
                await heartbeat.leave()
    finally:
        await engine.close()


def _card(settings: Settings, worker: Worker) -> WorkerCard:
    return WorkerCard(
        worker.worker_id, socket.gethostname(), os.getpid(), __version__, worker.queues, settings.concurrency
    )


def _heartbeat(settings: Settings, engine: Database, card: WorkerCard, jobs: Jobs) -> Heartbeat:
    every_s = settings.heartbeat_every_s
    job = jobs.job(kinds.HEARTBEAT, every_s=every_s)
    return Heartbeat(Workers(engine, DatabaseClock()), card, every_s=every_s, job=job)


async def run_alerts(settings: Settings, engine: Database, jobs: Jobs) -> None:
    """Look whether alerts are due, or over; of all processes that do, one at a time."""
    every_s = settings.alerts_every_s
    rounds = AlertRounds(engine, DatabaseClock(), every_s=every_s)
    await watch_alerts(rounds, every_s=every_s, job=jobs.job(kinds.ALERTS, every_s=every_s))


@asynccontextmanager
async def reported(jobs: Jobs) -> AsyncIterator[None]:
    """Say how the jobs of this process go, and at the end that it runs them no more."""
    reporting = asyncio.create_task(jobs.run())
    try:
        yield
    finally:
        await end(reporting)
        await jobs.leave()


def _janitor(settings: Settings, url: str, jobs: Jobs) -> Janitor:
    every_s = settings.retention_every_s
    return Janitor(
        lambda: open_sweeper(settings, url, Act("engine")),
        every_s=every_s,
        dice=random.random,
        job=jobs.job(kinds.JANITOR, every_s=every_s),
    )


@asynccontextmanager
async def open_sweeper(
    settings: Settings, url: str, act: Act, *, dry_run: bool = False, clock: Clock | None = None
) -> AsyncIterator[Retention]:
    """What lets die and removes by policy, on connections of its own that are closed behind it: one for each role."""
    terms: dict[str, Any] = {"size": 1, "name": "redrive-janitor", "pooler": settings.pooler}
    engine = await Database.open(url, role="redrive_engine", **terms)
    try:
        db = await Database.open(url, role="redrive_janitor", **terms)
        archive = Archive(settings.archive_dir) if settings.archive_dir is not None else None
        clock = clock or DatabaseClock()
        expiry = Expiry(engine, clock, dry_run=dry_run)
        try:
            yield Retention(db, clock, act, archive=archive, expiry=expiry, dry_run=dry_run)
        finally:
            await db.close()
    finally:
        await engine.close()


@asynccontextmanager
async def listening(settings: Settings, url: str, *workers: Worker) -> AsyncIterator[None]:
    """Wake-ups for workers, where the server itself can be reached; else they find their work by polling."""
    direct_url = settings.direct_url(url)
    if direct_url is None:
        log.info("listen_skipped", why="only a pooler is known; REDRIVE_DATABASE_DIRECT_URL names the server")
        yield
        return

    def wake(told: str) -> None:
        for worker in workers:
            worker.wake(told)

    listener = asyncio.create_task(listen(direct_url, wake))
    try:
        yield
    finally:
        await end(listener)


def rest_collector() -> None:
    """Look for garbage less often, and not among what start-up made.

    That lives as long as the process, and what passes through makes few cycles: looking took a fifth of a busy
    worker's time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
