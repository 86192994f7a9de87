"""What happened, in numbers: windows of time, distributions, and what is read out of them. Pure.

The database keeps the numbers per minute as they come, by the same bounds; store.pulse reads them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from itertools import pairwise

# The upper ends of all waits but the last, which has none: from a tenth of a second to a week.
WAIT_BOUNDS_S = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3_600, 21_600, 86_400, 604_800)
WAIT_SLOTS = len(WAIT_BOUNDS_S) + 1
RETRY_SLOTS = 11  # 0 to 9 retries, and 10 or more


@dataclass(frozen=True, slots=True)
class Span:
    """A window of time in equal buckets, the last of which is the one that now falls into."""

    bucket: timedelta
    buckets: int


class Window(Enum):
    HOUR = Span(timedelta(minutes=1), 60)
    DAY = Span(timedelta(minutes=15), 96)
    WEEK = Span(timedelta(hours=2), 84)


def quantile(waits: Sequence[int], share: float) -> float | None:
    """The seconds within which this share of them was done; None of none.

    Known to its slot only: within it they are taken to lie evenly. Of the last one only its beginning is known.
    """
    total = sum(waits)
    if total == 0:
        return None
    wanted = share * total
    below = 0
    for (low_s, high_s), n in zip(pairwise((0.0, *WAIT_BOUNDS_S)), waits[:-1], strict=True):
        if n and below + n >= wanted:
            return low_s + (high_s - low_s) * max(0.0, wanted - below) / n
        below += n
    return float(WAIT_BOUNDS_S[-1])


def longer_than(waits: Sequence[int], seconds: float) -> tuple[int, float]:
    """How many surely took longer, and longer than what: the end of a slot, this one's or the next."""
    bound = next((end for end in WAIT_BOUNDS_S if end >= seconds), WAIT_BOUNDS_S[-1])
    return sum(waits[WAIT_BOUNDS_S.index(bound) + 1 :]), float(bound)


def rate_of(part: int, whole: int) -> float | None:
    """None where there is nothing to be a part of."""
    return part / whole if whole else None


def depths(now: int, changes: Sequence[int]) -> list[int]:
    """How many were open at the end of each bucket, from how many are now and what each bucket added.

    Never below nothing: what was open before the numbers were kept is known only from then on.
    """
    found: list[int] = []
    for change in reversed(changes):
        found.append(max(0, now))
        now -= change
    return found[::-1]
