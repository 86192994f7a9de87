"""How many of something came when: counts over equal parts of a span of time. Pure; filled from rows of the store.

Used by groups and dead_letters for the small charts of the pages.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from redrive.store.db import Record

MAX_BUCKETS = 400


@dataclass(frozen=True, slots=True)
class Trend:
    """`counts`, oldest first, over [since, until) in equal parts.

    Only the newest were looked at where there are too many: then `is_whole` is False, `total` is how many that were,
    and what is older than `known_since` is not known (the counts before it are too low).
    """

    since: datetime
    until: datetime
    counts: tuple[int, ...]
    is_whole: bool = True
    known_since: datetime | None = None

    @property
    def total(self) -> int:
        return sum(self.counts)


@dataclass(frozen=True, slots=True)
class Span:
    """What is asked for."""

    since: datetime
    until: datetime
    buckets: int

    def __post_init__(self) -> None:
        assert self.since < self.until
        assert 1 <= self.buckets <= MAX_BUCKETS
        assert self.bucket_s >= 1e-6  # as fine as the database's time

    @property
    def bucket_s(self) -> float:
        return (self.until - self.since).total_seconds() / self.buckets

    def trend_of(self, rows: Iterable[Record], *, is_whole: bool) -> Trend:
        """Out of rows with `bucket`, `n` and `oldest`: when the oldest came that was looked at."""
        counts = [0] * self.buckets
        oldest: datetime | None = None
        for row in rows:
            # The last microsecond may be rounded into a bucket behind the last one.
            if row["n"]:
                counts[min(row["bucket"], self.buckets - 1)] += row["n"]
            oldest = row["oldest"] if oldest is None else min(oldest, row["oldest"])
        return Trend(self.since, self.until, tuple(counts), is_whole, None if is_whole else oldest)
