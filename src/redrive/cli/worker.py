"""`redrive worker`: a worker alone. Any number of them, on any machine, share one database."""

import importlib
import os
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import structlog
import typer
import uvloop

from redrive.cli.connect import proven_sealer, reach
from redrive.cli.options import Place, command
from redrive.cli.runner import Refused, WrongUsage, run_service
from redrive.cli.serve import BrokerUrl, MetricsPort, ServiceOptions, traced
from redrive.core.workflow import Workflow, WorkflowError
from redrive.engine.supervisor import stop_on_signals
from redrive.observe.logs import set_up_logs
from redrive.observe.metrics_server import Refused as MetricsRefused
from redrive.settings import Settings, load_settings
from redrive.store.audit import Act
from redrive.store.clock import DatabaseClock
from redrive.store.db import Database
from redrive.store.orgs import DEFAULT_ORG, find_org
from redrive.store.seal import Sealer
from redrive.store.workflows import TooManyWorkflows, put_workflow

if TYPE_CHECKING:
    from redrive.destinations.callbacks import Callback
    from redrive.destinations.python import Handler
    from redrive.library import Redrive

log = structlog.get_logger("redrive.worker")


def add_to(app: typer.Typer) -> None:
    command(app, "worker")(worker)


def worker(
    place: Place,
    options: ServiceOptions,
    rabbitmq: BrokerUrl = None,
    metrics_port: MetricsPort = None,
    app: Annotated[
        str | None,
        typer.Option(
            "--app", metavar="MODULE:NAME", help="Handlers and callback to run, as in mymodule:app.", show_default=False
        ),
    ] = None,
) -> None:
    """Run a worker: it delivers webhooks and calls what --app registered, until it is stopped. Then it drains."""

    async def work() -> bool:
        settings = load_settings(
            data_dir=place.data_dir,
            database_url=place.database_url,
            concurrency=options.concurrency,
            allow_networks=options.allow_networks,
            rabbitmq_url=rabbitmq,
            metrics_port=metrics_port,
            log_format=options.log_format,
            log_level=options.log_level,
        )
        set_up_logs(settings.log_format, settings.log_level, service=settings.service_name or "redrive-worker")
        stop = stop_on_signals(log=log)
        from redrive.app import run_worker  # brings the whole of Redrive with it

        handlers: Mapping[str, Handler] = {}
        on_dead_letter: Callback | None = None
        workflows: Mapping[str, Workflow] = {}
        org = DEFAULT_ORG
        if app is not None:
            registered = load_app(app)
            handlers, on_dead_letter = registered.handlers, registered.dead_letter_callback
            workflows, org = registered.workflows, registered.org
            if not (handlers or workflows) and on_dead_letter is None:
                name = app.partition(":")[2]
                raise Refused(
                    f"{app} has no handlers. Register some with @{name}.handler(…), @{name}.workflow(…) or "
                    f"@{name}.on_dead_letter."
                )
            settings = _with_url_of(registered, place, settings)
        async with AsyncExitStack() as stack:
            url = await stack.enter_async_context(reach(settings))
            sealer = await _prove_seal(settings, url)
            if workflows:
                await _keep_workflows(settings, url, org, workflows, sealer)
            await stack.enter_async_context(traced(settings, "redrive-worker", has_handlers=app is not None))
            try:
                await run_worker(settings, url, stop, handlers=handlers, on_dead_letter=on_dead_letter)
            except MetricsRefused as problem:
                raise Refused(str(problem)) from problem
        return True

    run_service(work, uvloop.run)


def load_app(named: str) -> "Redrive":
    """The Redrive object that `module:name` means; the working folder is where modules are looked for first."""
    from redrive.library import Redrive

    module_name, colon, name = named.partition(":")
    if not (module_name and colon and name):
        raise WrongUsage(f'--app is MODULE:NAME, as in mymodule:app, not "{named}".')
    folder = os.getcwd()  # noqa: PTH109  # sys.path holds text
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as problem:
        if problem.name is None or not f"{module_name}.".startswith(f"{problem.name}."):
            raise  # the module is there; what it imports is not
        raise WrongUsage(f"There is no module {module_name}, neither in {folder} nor installed.") from None
    found = getattr(module, name, None)
    if not isinstance(found, Redrive):
        what = "has no such name" if found is None else f"is a {type(found).__name__}"
        raise WrongUsage(f"{named} should be a redrive.Redrive, but {what}.")
    return found


def _with_url_of(app: "Redrive", place: Place, settings: Settings) -> Settings:
    """The database that the app itself names, unless a flag names one."""
    if place != Place():
        return settings
    try:
        url = app.database_url()
    except ConnectionError:  # nothing runs: the embedded one may be started
        return settings
    return settings.model_copy(update={"database_url": url})


async def _keep_workflows(
    settings: Settings, url: str, org: str, workflows: "Mapping[str, Workflow]", sealer: Sealer
) -> None:
    """Store the definitions of the app, each a new version where it has changed."""
    engine = await Database.open(url, role="redrive_engine", size=1, pooler=settings.pooler)
    try:
        org_id = await find_org(engine, org)
        if org_id is None:
            raise Refused(f'The app is for the org "{org}", which does not exist. `redrive orgs create` makes it.')
        for name, workflow in workflows.items():
            await _keep_workflow(engine, org_id, name, workflow, sealer)
    finally:
        await engine.close()


async def _keep_workflow(engine: Database, org_id: UUID, name: str, workflow: Workflow, sealer: Sealer) -> None:
    try:
        async with engine.tenant(org_id) as session:
            row, is_new = await put_workflow(session, workflow, Act("worker", source="app"), DatabaseClock(), sealer)
    except WorkflowError as error:
        raise Refused(f'The workflow "{name}" cannot be used: {error}') from None
    except TooManyWorkflows as error:
        raise Refused(f'The workflow "{name}" cannot be stored: {error}.') from None
    if is_new:
        log.info("workflow_stored", workflow=name, version=row["version"], org_id=str(org_id))


async def _prove_seal(settings: Settings, url: str) -> Sealer:
    engine = await Database.open(url, role="redrive_engine", size=1, pooler=settings.pooler)
    try:
        return await proven_sealer(settings, engine)
    finally:
        await engine.close()
