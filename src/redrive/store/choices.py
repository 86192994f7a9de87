"""What a filter can be set to: the event types and external systems that are there, for people who type one.

Reads only, at a cost that does not grow with the lists. Asked by the pages of the dead letters and of the retry queue.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from redrive.store.db import Session
from redrive.store.operations import DEAD_LETTERS, RETRY_QUEUE

MAX_STEPS = 500  # values looked at in an index
MAX_ENTRIES = 5_000  # of the retry queue looked at, those due soonest
DEFAULT_CHOICES = 100


@dataclass(frozen=True, slots=True)
class Choices:
    """Values in the order of the alphabet. `is_whole`: there are no others."""

    values: Sequence[str]
    is_whole: bool


async def event_types(
    session: Session, subject: str, *, prefix: str = "", limit: int = DEFAULT_CHOICES, state: str = "open"
) -> Choices:
    """Types that begin with `prefix`, of the dead letters in this state or of the retry queue (`subject`)."""
    if subject == RETRY_QUEUE:
        return await _of_queue(session, "event_types", prefix, limit)
    assert subject == DEAD_LETTERS
    return await _of_letters(session, "choose_letter_types", state, prefix, limit)


async def external_systems(
    session: Session, subject: str, *, prefix: str = "", limit: int = DEFAULT_CHOICES, state: str = "open"
) -> Choices:
    """The same for external systems."""
    if subject == RETRY_QUEUE:
        return await _of_queue(session, "external_systems", prefix, limit)
    assert subject == DEAD_LETTERS
    return await _of_letters(session, "choose_letter_systems", state, prefix, limit)


async def _of_letters(session: Session, query: str, state: str, prefix: str, limit: int) -> Choices:
    row = await session.fetchrow(query, session.org_id, state, prefix, limit, MAX_STEPS)
    assert row is not None
    return _first(row["choices"], limit, is_whole=row["is_whole"])


async def _of_queue(session: Session, column: str, prefix: str, limit: int) -> Choices:
    row = await session.fetchrow("choose_from_queue", session.org_id, MAX_ENTRIES)
    assert row is not None
    return _first([value for value in row[column] if value.startswith(prefix)], limit, is_whole=row["is_whole"])


def _first(values: Sequence[str], limit: int, *, is_whole: bool) -> Choices:
    return Choices(values[:limit], is_whole and len(values) <= limit)
