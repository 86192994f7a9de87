"""`redrive serve`: everything on one machine. PostgreSQL, the API and the workers are its children.

Also `redrive api`, hidden: the API's own process.
"""

import asyncio
import importlib
import secrets
import sys
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, closing
from dataclasses import dataclass
from socket import socket
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import structlog
import typer
import uvloop

from redrive.cli.connect import answered_version
from redrive.cli.listener import Lender, address_of, bind, borrow
from redrive.cli.login_link import sign_in_url_at
from redrive.cli.options import AsJson, Place, command
from redrive.cli.output import emit, say
from redrive.cli.runner import Refused, Unreachable, run_service
from redrive.ending import end
from redrive.engine.supervisor import Child, PostgresKeeper, Supervisor, stop_on_signals
from redrive.observe import traces
from redrive.observe.logs import set_up_logs
from redrive.observe.metrics_server import CHILDREN_VARIABLE, NAME_VARIABLE, SOCKET_VARIABLE
from redrive.settings import Settings, load_settings
from redrive.store.db import shown
from redrive.store.embedded import AlreadyRunning, EmbeddedPostgres
from redrive.version import __version__

if TYPE_CHECKING:
    from redrive.app import Prepared

T = TypeVar("T")

# The settings that children need; the rest was used up when the database was prepared.
PASSED_ON = (
    "data_dir",
    "concurrency",
    "lease_margin_s",
    "log_format",
    "log_level",
    "retention_every_s",
    "breaker_failure_rate",
    "breaker_min_tries",
    "breaker_trickle_per_s",
    "breaker_trickle_in_flight",
    "retry_share",
    "trace_share",
    "disable_after_days",
    "service_version",
    "trust_proxy",
    "rabbitmq_org",
    "rabbitmq_redrive_to",
)

log = structlog.get_logger("redrive.serve")


class _Stopped(Exception):
    """Told to stop before everything ran."""


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """What `serve` and `worker` share."""

    concurrency: Annotated[
        int | None, typer.Option("--concurrency", help="Deliveries in flight at once, per worker.", show_default=False)
    ] = None
    allow_networks: Annotated[
        str | None,
        typer.Option(
            "--allow-networks",
            metavar="CIDRS",
            help="Networks that deliveries may reach although private, like 127.0.0.0/8,10.1.0.0/16.",
            show_default=False,
        ),
    ] = None
    log_format: Annotated[str | None, typer.Option("--log-format", help="json or console.", show_default=False)] = None
    log_level: Annotated[
        str | None, typer.Option("--log-level", help="debug, info, warning, error or critical.", show_default=False)
    ] = None


MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        metavar="PORT",
        help="Serve /metrics, /healthz and /readyz on this port; 0 takes a free one.",
        show_default=False,
    ),
]
BrokerUrl = Annotated[
    str | None,
    typer.Option("--rabbitmq", metavar="URL", help="RabbitMQ: amqp://user:password@host/vhost.", show_default=False),
]


def add_to(app: typer.Typer) -> None:
    command(app, "serve")(serve)
    command(app, "api", hidden=True)(api)


def serve(
    place: Place,
    options: ServiceOptions,
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on.", show_default=False)] = None,
    port: Annotated[
        int | None, typer.Option("--port", help="Port to listen on; 0 takes a free one.", show_default=False)
    ] = None,
    workers: Annotated[int | None, typer.Option("--workers", help="Worker processes.", show_default=False)] = None,
    rabbitmq: BrokerUrl = None,
    no_worker: Annotated[bool, typer.Option("--no-worker", help="API only; workers run elsewhere.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run Redrive: API, workers and, unless another database is named, a PostgreSQL of its own."""

    async def work() -> bool:
        settings = load_settings(
            host=host,
            port=port,
            workers=0 if no_worker else workers,
            data_dir=place.data_dir,
            database_url=place.database_url,
            concurrency=options.concurrency,
            allow_networks=options.allow_networks,
            rabbitmq_url=rabbitmq,
            log_format=options.log_format,
            log_level=options.log_level,
        )
        set_up_logs(settings.log_format, settings.log_level, service=settings.service_name or "redrive")
        traces.require(settings.collector_url)
        settings.require_sender()
        stop = stop_on_signals()
        with closing(bind(settings.host, settings.port)) as listener:
            try:
                await _serve(settings, listener, stop, as_json)
            except _Stopped:
                log.info("stopped_while_starting")
        return True

    run_service(work, asyncio.run)


async def _serve(settings: Settings, listener: socket, stop: asyncio.Event, as_json: bool) -> None:
    # PostgreSQL starts while Python reads the rest of Redrive: on a first start both take their time.
    loading = asyncio.create_task(asyncio.to_thread(importlib.import_module, "redrive.app"))
    postgres: EmbeddedPostgres | None = None
    if settings.database_url is None:
        try:
            postgres = await _unless(stop, EmbeddedPostgres.start(settings.data_dir))
        except AlreadyRunning as problem:
            raise Refused(str(problem)) from problem
    url = postgres.url if postgres is not None else settings.database_url
    assert url is not None
    try:
        await loading
        prepared = await _unless(stop, _prepare(settings, url))
    except BaseException:
        if postgres is not None:
            await asyncio.shield(postgres.stop())
        raise
    _greet(settings, listener, prepared, as_json)
    await _run_children(settings, url, postgres, listener, stop)


async def _prepare(settings: Settings, url: str) -> "Prepared":
    """Bring the database up to date: what people need to get in."""
    from redrive.app import prepare_database  # loaded by now

    await answered_version(settings, url)  # says clearly what is wrong with a database that somebody else runs
    return await prepare_database(settings, url)


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:
    """The result of the work, or _Stopped: then it was broken off and has cleaned up behind itself."""
    working = asyncio.create_task(work)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise _Stopped
        return await working
    finally:
        stopping.cancel()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def _run_children(
    settings: Settings, url: str, postgres: EmbeddedPostgres | None, listener: socket, stop: asyncio.Event
) -> None:
    keeper = None
    if postgres is not None:
        keeper = PostgresKeeper(postgres, lambda: EmbeddedPostgres.start(settings.data_dir), log=log)
    lender = Lender(listener)
    env = _child_env(settings, url)
    # Where each worker answers for its numbers, to the API's process: a name that only this `serve` uses.
    doors = {f"worker-{number}": secrets.token_hex(16) for number in range(1, settings.workers + 1)}
    named = {CHILDREN_VARIABLE: ",".join(f"{name}={door}" for name, door in doors.items())}
    children = [
        Child("api", _argv("api"), env | lender.env | named),
        *(
            Child(name, _argv("worker"), env | {NAME_VARIABLE: name, SOCKET_VARIABLE: door})
            for name, door in doors.items()
        ),
    ]
    lending = asyncio.create_task(lender.lend())
    try:
        await Supervisor(children, log=log, postgres=keeper).run(stop)
    finally:
        await end(lending)


def _argv(name: str) -> list[str]:
    # -P: the folder that `serve` was started in is no place to import from.
    return [sys.executable, "-P", "-m", "redrive.cli.child", name]


def _child_env(settings: Settings, url: str) -> dict[str, str]:
    """What flags said, for processes that see only the environment. The URL has a password: not for argv."""
    env = {f"REDRIVE_{name.upper()}": str(getattr(settings, name)) for name in PASSED_ON}
    env["REDRIVE_SERVICE_NAME"] = settings.service_name or ""
    env["REDRIVE_DATABASE_URL"] = url
    env["REDRIVE_DATABASE_POOLER"] = settings.pooler
    # Said although it may be the same: a file might name another, for another database.
    env["REDRIVE_DATABASE_DIRECT_URL"] = settings.direct_url(url) or ""
    # An empty variable counts as unset, and a file might open what a flag has closed: say it.
    env["REDRIVE_ALLOW_NETWORKS"] = ",".join(map(str, settings.allow_networks)) or "none"
    if settings.collector_url is not None:
        env["REDRIVE_OTEL_ENDPOINT"] = settings.collector_url
    env["REDRIVE_RABBITMQ_COLLECT"] = ",".join(settings.rabbitmq_collect)
    if settings.rabbitmq_url is not None:
        env["REDRIVE_RABBITMQ_URL"] = settings.rabbitmq_url.get_secret_value()
    if settings.public_url is not None:
        env["REDRIVE_PUBLIC_URL"] = settings.public_url
    if settings.archive_dir is not None:
        env["REDRIVE_ARCHIVE_DIR"] = str(settings.archive_dir)
    if settings.secret_key is not None:
        env["REDRIVE_SECRET_KEY"] = settings.secret_key.get_secret_value()
    return env


def _greet(settings: Settings, listener: socket, prepared: "Prepared", as_json: bool) -> None:
    """Say where it is. Nothing else of `serve` goes to stdout, and the sign-in link goes nowhere else."""
    where = address_of(listener, settings.host)
    sign_in_url = sign_in_url_at(where, prepared.sign_in_token)
    first_key = prepared.first_key
    embedded = settings.database_url is None
    networks = [str(network) for network in settings.allow_networks]
    if as_json:
        emit(
            {
                "url": where,
                "sign_in_url": sign_in_url,
                "version": __version__,
                "data_dir": str(settings.data_dir),
                "embedded_postgres": embedded,
                "workers": settings.workers,
                "allow_networks": networks,
                "first_key": first_key,
            }
        )
    else:
        for line in _banner(settings, where, sign_in_url, embedded, networks, first_key):
            say(line)
    sys.stdout.flush()


def _banner(
    settings: Settings, where: str, sign_in_url: str, embedded: bool, networks: list[str], first_key: str | None
) -> list[str]:
    database = "an embedded PostgreSQL" if embedded else shown(settings.database_url or "")
    lines = [
        f"Redrive {__version__} is at {where}",
        f"  Sign in     {sign_in_url}",
        "              once, within 15 minutes. `redrive login-link` prints another.",
        f"  Data        {settings.data_dir}, {database}",
        f"  Workers     {settings.workers or 'none here: run `redrive worker` beside it'}",
    ]
    if networks:
        lines.append(f"  Deliveries  may reach public addresses and {', '.join(networks)}")
    else:
        lines += [
            "  Deliveries  may reach public addresses only. Private networks, this machine included, are closed;",
            "              to open some, start with REDRIVE_ALLOW_NETWORKS=127.0.0.0/8 or --allow-networks.",
        ]
    if first_key is not None:
        lines += [
            f"  API key     {first_key}",
            '              OWNER of the org "default"; shown this once. `redrive keys create` makes more.',
        ]
    return lines


def traced(settings: Settings, process: str, *, has_handlers: bool = False) -> AbstractAsyncContextManager[None]:
    """Traces of this process are sent where the settings say, while the block runs."""
    return traces.sent_to(
        settings.collector_url,
        share=settings.trace_share,
        service="redrive",
        version=__version__,
        facts={"redrive.process": process},
        for_handlers=has_handlers,
    )


def api() -> None:
    """Run the API's process alone, on the database that the settings name."""

    async def work() -> bool:
        from redrive.api_process import run_api

        settings = load_settings()
        set_up_logs(settings.log_format, settings.log_level, service=settings.service_name or "redrive-api")
        if settings.database_url is None:
            raise Unreachable("The API's process needs REDRIVE_DATABASE_URL.")
        stop = stop_on_signals(log=log)
        with closing(borrow() or bind(settings.host, settings.port)) as listener:
            async with traced(settings, "redrive-api"):
                await run_api(settings, settings.database_url, stop, listener=listener)
        return True

    run_service(work, uvloop.run)
