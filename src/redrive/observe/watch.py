"""Log lines of transitions, handed to whoever watches with `redrive tail`. While nobody does, nothing is done and
nothing kept.

A watcher says that it is there by NOTIFY, every few seconds; store.listen hears it, and sends what was gathered here,
in small batches. What comes too fast is counted instead. Whatever the log's level is: what is watched is not what is
written.
"""

import os
import re
import socket
import time
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import structlog

from redrive.core.watching import MAX_NOTIFY_BYTES, WATCHED_FOR_S, Facts, Wish, word_of
from redrive.observe.json_lines import encoded

MAX_WATCHERS = 16
MAX_LINES_PER_S = 150  # of one process, for one watcher
MAX_TEXT_CHARS = 300
FLUSH_S = 0.25
_ROOM = 300  # bytes of a notification besides its lines
_ID = re.compile(r"[0-9a-f]{32}")

log = structlog.get_logger("redrive.watch")


class _Call(msgspec.Struct):
    """What a watcher says of itself."""

    id: str
    wish: dict[str, Any] = {}
    leaves: bool = False


class _Watcher:
    """Somebody who looks, and what was gathered for them."""

    def __init__(self, wish: Wish, until: float) -> None:
        self.wish = wish
        self.until = until
        self.is_new = True
        self._lines: deque[bytes] = deque()
        self._missed = 0
        self._second = 0
        self._taken = 0

    def take(self, line: Facts, at: float) -> None:
        second = int(at)
        if second != self._second:
            self._second, self._taken = second, 0
        if self._taken >= MAX_LINES_PER_S:
            self._missed += 1
            return
        self._taken += 1
        text = encoded(line)
        if len(text) >= MAX_NOTIFY_BYTES - _ROOM:
            self._missed += 1
            return
        self._lines.append(text)

    def batches(self, by: str) -> Iterator[str]:
        """What was gathered since, in pieces that fit; at first also where there is nothing, to say who is here."""
        while self._lines or self._missed or self.is_new:
            self.is_new = False
            room = MAX_NOTIFY_BYTES - _ROOM
            lines = []
            while self._lines and len(self._lines[0]) + 1 <= room:
                lines.append(self._lines.popleft())
                room -= len(lines[-1]) + 1
            missed, self._missed = (self._missed, 0) if not self._lines else (0, self._missed)
            head = msgspec.json.encode({"by": by, "missed": missed}).decode()
            yield f'{head[:-1]},"lines":[{b",".join(lines).decode()}]}}'


class Gallery:
    """Those who watch this process."""

    def __init__(self) -> None:
        self.service = "redrive"  # what runs in this process
        self._watchers: dict[str, _Watcher] = {}
        self._until = 0.0

    @property
    def is_open(self) -> bool:
        return time.monotonic() < self._until

    def hear(self, said: str) -> None:
        """Somebody watches, goes on to watch, or leaves. What cannot be read is a newer Redrive's, or a stranger's."""
        try:
            call = msgspec.json.decode(said, type=_Call)
            wish = Wish.from_spec(call.wish)
        except (msgspec.DecodeError, ValueError, TypeError):
            log.debug("watch_unreadable")
            return
        self._forget()
        if call.leaves:
            self._watchers.pop(call.id, None)
        elif _ID.fullmatch(call.id):
            until = time.monotonic() + WATCHED_FOR_S
            if call.id in self._watchers:
                self._watchers[call.id].until = until
            elif len(self._watchers) < MAX_WATCHERS:
                self._watchers[call.id] = _Watcher(wish, until)
        self._until = max((watcher.until for watcher in self._watchers.values()), default=0.0)

    def show(self, event: str, facts: Facts) -> None:
        word = word_of(event, facts)
        if word is None:
            return
        line: dict[str, object] | None = None
        at = time.monotonic()
        for watcher in self._watchers.values():
            if watcher.wish.wants(word, facts):
                line = line or _line(word, event, facts)
                watcher.take(line, at)

    def batches(self) -> Iterator[tuple[str, str]]:
        """The id of a watcher and what is to be sent to it."""
        self._forget()
        by = f"{self.service} {socket.gethostname()}:{os.getpid()}"
        for name, watcher in list(self._watchers.items()):
            for text in watcher.batches(by):
                yield name, text

    def _forget(self) -> None:
        now = time.monotonic()
        for name in [name for name, watcher in self._watchers.items() if watcher.until <= now]:
            del self._watchers[name]


gallery = Gallery()


def is_watched() -> bool:
    return gallery.is_open


def show_all(event: str, lines: Iterable[Facts]) -> None:
    for facts in lines:
        gallery.show(event, facts)


class Watched:
    """A logger whose lines are also seen by those who watch, whatever its level."""

    def __init__(self, own: Any) -> None:
        self._own = own

    def info(self, event: str, **facts: Any) -> None:
        self._show(event, facts)
        self._own.info(event, **facts)

    def warning(self, event: str, **facts: Any) -> None:
        self._show(event, facts)
        self._own.warning(event, **facts)

    def error(self, event: str, **facts: Any) -> None:
        self._show(event, facts)
        self._own.error(event, **facts)

    def _show(self, event: str, facts: dict[str, Any]) -> None:
        if gallery.is_open:
            gallery.show(event, facts)


def _line(word: str, event: str, facts: Facts) -> dict[str, object]:
    line: dict[str, object] = {"at": datetime.now(UTC).isoformat().replace("+00:00", "Z"), "what": word, "event": event}
    for name, value in facts.items():
        if value is not None:
            line[name] = value[:MAX_TEXT_CHARS] if isinstance(value, str) else value
    return line
