"""What a filter can be set to: the event types that are there, for people who type one.

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
        row = await session.fetchrow("choose_from_queue", session.org_id, MAX_ENTRIES)
        assert row is not None
        found = [value for value in row["event_types"] if value.startswith(prefix)]
    else:
        assert subject == DEAD_LETTERS
        row = await session.fetchrow("choose_letter_types", session.org_id, state, prefix, limit, MAX_STEPS)
        assert row is not None
        found = row["choices"]
    return Choices(found[:limit], row["is_whole"] and len(found) <= limit)
