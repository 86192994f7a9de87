"""Whose time rules. In production the database's (now() is None); tests pass their own."""

from datetime import datetime
from typing import Protocol

from redrive.store.db import Session


class Clock(Protocol):
    def now(self) -> datetime | None:
        """The time to write, or None for the database's own."""
        ...


class DatabaseClock:
    def now(self) -> datetime | None:
        return None


async def time_of(session: Session, clock: Clock) -> datetime:
    """What time it is by that clock. This machine's own is never asked: it may be off."""
    row = await session.fetchrow("now", clock.now())
    assert row is not None
    now: datetime = row["now"]
    return now
