"""Many log lines of one kind at once: transitions that pass by the thousand are encoded together and written together.

One by one a line costs as much as a delivery; like this a tenth of it. Called by engine.transitions, store.transitions
and api.committer; set up with the rest of the log.
"""

import logging
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Literal, Protocol

import structlog

from redrive.observe import watch
from redrive.observe.json_lines import encoded_lines
from redrive.observe.process_metrics import LOG_LINES

log = structlog.get_logger("redrive.lines")


class File(Protocol):
    """What lines are written to. It raises nothing."""

    def write(self, data: bytes, /) -> int: ...


class _Sink:
    """Where lines go as JSON, and what each of them says besides its own facts."""

    def __init__(self) -> None:
        self.file: File | None = None
        self.service = ""


_sink = _Sink()


def write_to(file: File | None, service: str) -> None:
    """None: one by one, through the ordinary log."""
    _sink.file, _sink.service = file, service


SYSTEM = "system"  # the actor of what nobody asked for

Level = Literal["info", "warning", "error"]

_SEVERITY = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def are_wanted(level: Level = "info") -> bool:
    """Whether anybody reads them: in the log, or at the moment with `redrive tail`."""
    return _are_written(level) or watch.is_watched()


def _are_written(level: Level) -> bool:
    return bool(log.is_enabled_for(_SEVERITY[level]))


def utc(moment: datetime) -> str:
    """A time as every line has it."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


@lru_cache(maxsize=1024)
def who(submitted_by: str | None, actor: str | None = None) -> dict[str, object]:
    """Who acted, and who handed in what it is about: an API key by its id, a person by theirs, others by what they are.

    Without an actor Redrive itself acted. Do not change the answer: it is shared.
    """
    acted: dict[str, object] = {"actor": actor or SYSTEM}
    if submitted_by is None:
        return acted
    kind, _, id_ = submitted_by.partition(":")
    return acted | ({"key_id": id_} if kind == "key" else {"user_id": id_ if kind == "user" else submitted_by})


def say_all(event: str, lines: Iterable[dict[str, object]], level: Level = "info") -> None:
    """Log them, and show them to whoever watches."""
    if watch.is_watched():
        lines = list(lines)
        watch.show_all(event, lines)
    if not _are_written(level):
        return
    if _sink.file is None:
        for line in lines:
            log.log(_SEVERITY[level], event, **line)
        return
    now = utc(datetime.now(UTC))
    told = list(lines)
    LOG_LINES.add((level,), len(told))
    _sink.file.write(encoded_lines(told, {"event": event, "service": _sink.service, "level": level, "@timestamp": now}))
