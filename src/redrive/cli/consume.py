"""`redrive consume`: the consumers of an app, on queues of RabbitMQ. Any number of processes share a queue."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import structlog
import typer
import uvloop

from redrive.cli.options import command
from redrive.cli.runner import Refused, Unreachable, run_service
from redrive.cli.serve import BrokerUrl, MetricsPort, traced
from redrive.cli.worker import load_app
from redrive.core.broker import ConsumerSpec
from redrive.core.policy import Policy
from redrive.engine.supervisor import stop_on_signals
from redrive.observe.logs import set_up_logs
from redrive.observe.metrics_server import Refused as MetricsRefused
from redrive.settings import Settings, load_settings

if TYPE_CHECKING:
    from redrive.library import Redrive


def add_to(app: typer.Typer) -> None:
    command(app, "consume")(consume)


def consume(
    app: Annotated[
        str, typer.Option("--app", metavar="MODULE:NAME", help="Where the consumers are, as in mymodule:app.")
    ],
    rabbitmq: BrokerUrl = None,
    queues: Annotated[
        list[str] | None,
        typer.Option("--queue", metavar="NAME", help="Only the consumer of this queue; may be given again."),
    ] = None,
    dead_letter_queue: Annotated[
        str | None,
        typer.Option("--dead-letter-queue", metavar="NAME", help="Where dead letters go, instead of <queue>-dlq."),
    ] = None,
    queue_type: Annotated[
        str | None,
        typer.Option(
            "--queue-type", metavar="TYPE", help="classic or quorum: the type of queues that do not exist yet."
        ),
    ] = None,
    metrics_port: MetricsPort = None,
    log_format: Annotated[str | None, typer.Option("--log-format", help="json or console.", show_default=False)] = None,
    log_level: Annotated[
        str | None, typer.Option("--log-level", help="debug, info, warning, error or critical.", show_default=False)
    ] = None,
) -> None:
    """Run the consumers that --app registered, until it is stopped. Then it drains. Needs no database."""

    async def work() -> bool:
        settings = load_settings(
            rabbitmq_url=rabbitmq, metrics_port=metrics_port, log_format=log_format, log_level=log_level
        )
        set_up_logs(settings.log_format, settings.log_level, service=settings.service_name or "redrive-consume")
        if not settings.broker_urls:
            raise Refused("There is no RabbitMQ to consume from: name it with --rabbitmq or REDRIVE_RABBITMQ_URL.")
        stop = stop_on_signals(log=structlog.get_logger("redrive.consume"))
        registered = load_app(app)
        chosen = [_with_options(spec, dead_letter_queue, queue_type) for spec in _chosen(registered, app, queues or [])]
        try:
            from redrive.broker.topology import TopologyError
            from redrive.consume_process import NoPolicy, run_consumers
        except ModuleNotFoundError as missing:
            needed = str(missing.name).partition(".")[0]
            raise Refused(f"Consuming needs {needed}: install redrive[rabbitmq].") from missing
        try:
            async with traced(settings, "redrive-consume", has_handlers=True):
                await run_consumers(settings, chosen, await _policies(settings, registered, chosen), stop)
        except* (TopologyError, NoPolicy, MetricsRefused) as problems:
            raise Refused("\n".join(str(problem) for problem in problems.exceptions)) from None
        return True

    run_service(work, uvloop.run)


def _chosen(registered: "Redrive", app: str, queues: Sequence[str]) -> list[ConsumerSpec]:
    if not registered.consumers:
        raise Refused(f"{app} has no consumers. Register some with @{app.partition(':')[2]}.consume(…).")
    unknown = sorted(set(queues) - registered.consumers.keys())
    if unknown:
        raise Refused(
            f"{app} has no consumer of {', '.join(unknown)}. It has: {', '.join(sorted(registered.consumers))}."
        )
    return [spec for queue, spec in registered.consumers.items() if not queues or queue in queues]


def _with_options(spec: ConsumerSpec, dead_letter_queue: str | None, queue_type: str | None) -> ConsumerSpec:
    try:
        return replace(
            spec,
            dead_letter_queue=spec.dead_letter_queue if dead_letter_queue is None else dead_letter_queue,
            queue_type=spec.queue_type if queue_type is None else queue_type,
        )
    except ValueError as problem:
        raise Refused(f"The consumer of {spec.queue} cannot run with these options: {problem}.") from None


async def _policies(settings: Settings, registered: "Redrive", specs: Sequence[ConsumerSpec]) -> Mapping[str, Policy]:
    """Of the database, where the app or the settings name one."""
    from redrive.consume_process import preset_policies, stored_policies

    url = registered.named_database_url or settings.database_url
    if url is None:
        return preset_policies(settings)
    try:
        return await stored_policies(settings, url, registered.org, specs)
    except OSError as problem:
        raise Unreachable(
            f"The policies of the consumers are in a database that cannot be reached: {problem}."
        ) from problem
