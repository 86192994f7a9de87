"""Log lines: events with facts, as JSON or for a terminal. Set up once per process by the command line."""

import logging
import os
import sys
from datetime import UTC, datetime
from typing import Any, Literal

import structlog

from redrive.observe import lines, watch
from redrive.observe.console import Console
from redrive.observe.json_lines import encoded
from redrive.observe.process_metrics import LEVELS, LOG_LINES, LOG_LINES_LOST
from redrive.observe.standard_error import AsText, StandardError

MAX_TEXT_CHARS = 16_000  # of one fact


def set_up_logs(log_format: Literal["json", "console"], level: str, *, service: str) -> None:
    watch.gallery.service = service
    severity = logging.getLevelNamesMapping()[level.upper()]

    def with_service(_logger: Any, _method: str, facts: structlog.typing.EventDict) -> structlog.typing.EventDict:
        """No context variable, of which other threads would not know."""
        facts.setdefault("service", service)
        return facts

    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        with_service,
        structlog.processors.add_log_level,
        _count,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="@timestamp"),
        structlog.processors.format_exc_info,
        _bound,
    ]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer() if log_format == "json" else Console(colours=_wants_colours())
    )
    as_bytes = structlog.processors.JSONRenderer(serializer=encoded)

    def lost_line(n: int) -> bytes:
        """Made here: whoever writes cannot log."""
        at = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        facts = {"event": "log_lines_lost", "lines": n, "level": "warning", "service": service, "@timestamp": at}
        line = encoded(facts) if log_format == "json" else str(renderer(None, "warning", facts)).encode()
        return line + b"\n"

    binary = StandardError(sys.stderr.fileno(), lost_line, lambda n: LOG_LINES_LOST.add(n=n))
    text: Any = AsText(binary, sys.stderr.encoding)
    structlog.configure(
        processors=[*shared, as_bytes if log_format == "json" else renderer],
        wrapper_class=structlog.make_filtering_bound_logger(severity),
        logger_factory=structlog.BytesLoggerFactory(file=binary)  # type: ignore[arg-type]
        if log_format == "json"
        else structlog.WriteLoggerFactory(file=text),
        cache_logger_on_first_use=True,
    )
    lines.write_to(binary if log_format == "json" else None, service)
    # What libraries say (asyncpg of a lost connection, asyncio of a stray task) comes in the same shape.
    handler = logging.StreamHandler(text)
    finish = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processors=[finish, renderer], foreign_pre_chain=shared))
    logging.basicConfig(handlers=[handler], level=max(severity, logging.WARNING), force=True)


def _count(_logger: Any, _method: str, facts: structlog.typing.EventDict) -> structlog.typing.EventDict:
    level = facts.get("level")
    LOG_LINES.add((level if level in LEVELS else "info",))
    return facts


def _bound(_logger: Any, _method: str, facts: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Messages of libraries, and the tracebacks of whatever they met, are as long as they like."""
    for name, value in facts.items():
        if isinstance(value, str) and len(value) > MAX_TEXT_CHARS:
            facts[name] = f"{value[: MAX_TEXT_CHARS // 2]} … {value[-MAX_TEXT_CHARS // 2 :]}"
    return facts


def _wants_colours() -> bool:
    """On a terminal, unless somebody asked for none (https://no-color.org)."""
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
