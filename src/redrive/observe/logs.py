"""Log lines: events with facts, as JSON or for a terminal. Set up once per process by the command line."""

import logging
import sys
from typing import Literal

import structlog


def set_up_logs(log_format: Literal["json", "console"], level: str, *, service: str) -> None:
    structlog.contextvars.bind_contextvars(service=service)
    severity = logging.getLevelNamesMapping()[level.upper()]
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="@timestamp"),
        structlog.processors.format_exc_info,
    ]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(severity),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    # What libraries say (asyncpg of a lost connection, asyncio of a stray task) comes in the same shape.
    handler = logging.StreamHandler(sys.stderr)
    finish = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processors=[finish, renderer], foreign_pre_chain=shared))
    logging.basicConfig(handlers=[handler], level=max(severity, logging.WARNING), force=True)
