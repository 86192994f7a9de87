"""Whose time rules. In production the database's (now() is None); tests pass their own."""

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime | None:
        """The time to write, or None for the database's own."""
        ...


class DatabaseClock:
    def now(self) -> datetime | None:
        return None
