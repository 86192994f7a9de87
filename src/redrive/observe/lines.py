"""Many log lines of one kind at once: transitions that pass by the thousand are encoded together and written together.

One by one a line costs as much as a delivery; like this a tenth of it. Called by engine.transitions and api.committer;
set up with the rest of the log.
"""

import logging
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import IO

import msgspec
import structlog

from redrive.observe import watch
from redrive.observe.process_metrics import LOG_LINES

log = structlog.get_logger("redrive.lines")

_encoder = msgspec.json.Encoder()


class _Sink:
    """Where lines go as JSON, and what each of them says besides its own facts."""

    def __init__(self) -> None:
        self.file: IO[bytes] | None = None
        self.service = ""


_sink = _Sink()


def write_to(file: IO[bytes] | None, service: str) -> None:
    """None: one by one, through the ordinary log."""
    _sink.file, _sink.service = file, service


def are_wanted() -> bool:
    """Whether anybody reads them: in the log, or at the moment with `redrive tail`."""
    return _are_written() or watch.is_watched()


def _are_written() -> bool:
    return bool(log.is_enabled_for(logging.INFO))


def say_all(event: str, lines: Iterable[dict[str, object]]) -> None:
    """Log them at the level info, and show them to whoever watches."""
    if watch.is_watched():
        lines = list(lines)
        watch.show_all(event, lines)
    if not _are_written():
        return
    if _sink.file is None:
        for line in lines:
            log.info(event, **line)
        return
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    shared = {"event": event, "service": _sink.service, "level": "info", "@timestamp": now}
    told = [line | shared for line in lines]
    LOG_LINES.add(("info",), len(told))
    _sink.file.write(_encoder.encode_lines(told))
    _sink.file.flush()
