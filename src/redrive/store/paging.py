"""Keyset pages: a bounded list, and the key of its last row where there is more."""

from collections.abc import Sequence
from dataclasses import dataclass

from redrive.store.db import Record

MAX_PAGE_ROWS = 250


@dataclass(frozen=True, slots=True)
class Page:
    rows: list[Record]
    next_key: tuple[object, ...] | None
    total: int | None = None


def page_of(rows: list[Record], limit: int, key: Sequence[str], total: int | None = None) -> Page:
    """A page out of `limit + 1` rows read: the extra one only tells that there are more."""
    if len(rows) <= limit:
        return Page(rows, None, total)
    kept = rows[:limit]
    return Page(kept, tuple(kept[-1][column] for column in key), total)
