"""Keyset pages: a bounded list, and the key of its last row where there is more."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from redrive.store.db import Record

MAX_PAGE_ROWS = 250
MAX_COUNTED = 10_000  # rows looked at for a total
MAX_LOOKED = 20_000  # rows, for one page
LOOK_FACTOR = 10  # rows looked at first, for each wanted


@dataclass(frozen=True, slots=True)
class Sort:
    """By which column a list goes. As clients write it: `created_at`, or `-created_at` where it descends."""

    column: str
    descends: bool = False

    @classmethod
    def read(cls, text: str) -> "Sort":
        return cls(text.removeprefix("-"), text.startswith("-"))

    def __str__(self) -> str:
        return f"-{self.column}" if self.descends else self.column


@dataclass(frozen=True, slots=True)
class Page:
    """`is_by_time`: too many rows match to be sorted in another way."""

    rows: list[Record]
    next_key: tuple[object, ...] | None
    total: int | None = None
    is_by_time: bool = False


def page_of(rows: list[Record], limit: int, key: Sequence[str], total: int | None = None) -> Page:
    """A page out of `limit + 1` rows read: the extra one only tells that there are more."""
    if len(rows) <= limit:
        return Page(rows, None, total)
    kept = rows[:limit]
    return Page(kept, tuple(kept[-1][column] for column in key), total)


async def page_of_looks(
    read: Callable[[int], Awaitable[list[Record]]], looks: Sequence[int], limit: int, key: Sequence[str]
) -> Page:
    """A page of a list whose filters no index answers. `read` looks at so many rows and gives those that match, each
    with `looked`, `looked_at` and `looked_id`: how many it looked at, and where that ended.

    Most pages are found close by. Only where rows that match are far apart, more are looked at: the page may be short,
    or empty, and yet have a next one, which goes on where the look ended.
    """
    rows: list[Record] = []
    found: list[Record] = []
    for look in looks:
        rows = await read(look)
        found = [row for row in rows if row["id"] is not None]
        if len(found) > limit or not rows or rows[0]["looked"] < look:
            return page_of(found, limit, key)
    return Page(found, (rows[0]["looked_at"], rows[0]["looked_id"]))
