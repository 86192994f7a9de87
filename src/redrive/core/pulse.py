"""What happened, in numbers: windows of time, distributions, and what is read out of them. Pure.

The database keeps the numbers per minute as they come, by the same bounds; store.pulse reads them.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from itertools import pairwise

# Durations that people choose as targets. Each is the bound of a slot, so that "within a minute" is exact.
WAIT_MARKS_S = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3_600, 21_600, 86_400, 604_800)
SHORTEST_WAIT_S = 0.001
LONGEST_WAIT_S = 2_592_000.0  # 30 days
WIDEST_SLOT = 1.05  # a slot's upper bound over its lower one
_STEP = 1.049  # a little less: bounds are rounded to four digits


def _wait_bounds() -> tuple[float, ...]:
    bounds = []
    for low, high in pairwise((SHORTEST_WAIT_S, *WAIT_MARKS_S, LONGEST_WAIT_S)):
        steps = math.ceil(math.log(high / low) / math.log(_STEP))
        bounds += [float(f"{low * (high / low) ** (step / steps):.4g}") for step in range(steps)]
    return (*bounds, LONGEST_WAIT_S)


# The upper bounds of all slots but the last. Slot n has what took at least the bound before it, and less than its own.
WAIT_BOUNDS_S = _wait_bounds()
Waits = Mapping[int, int]  # how many took so long, by slot; empty slots are left out
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


def wait_slot(seconds: float) -> int:
    return bisect_right(WAIT_BOUNDS_S, seconds)


def quantile(waits: Waits, share: float) -> float | None:
    """Return the seconds within which this share of them was done; None without any. The one place that does.

    It is the middle of the slot, so at most 2.5 % off from a millisecond to 30 days. Beyond that it is the bound.
    """
    wanted = share * sum(waits.values()) - 1e-6
    below = 0
    for slot in sorted(waits):
        below += waits[slot]
        if below >= wanted and waits[slot]:
            return _middle_s(slot)
    return None


def _middle_s(slot: int) -> float:
    if slot == 0:
        return SHORTEST_WAIT_S / 2
    if slot == len(WAIT_BOUNDS_S):
        return LONGEST_WAIT_S
    return float(f"{math.sqrt(WAIT_BOUNDS_S[slot - 1] * WAIT_BOUNDS_S[slot]):.4g}")


def wait_text(seconds: float | None) -> str:
    """Write how long something took, with three significant digits or two units: 412 ms, 1.53 s, 5 min 3 s."""
    if seconds is None:
        return "–"
    if seconds < 0.9995:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 59.95:
        return f"{seconds:.3g} s"
    return in_two_units(round(seconds))


def in_two_units(seconds: int) -> str:
    """Write whole seconds in the two largest units that follow each other: 1 h 5 min, but 1 h for an hour and 5 s."""
    left, parts = seconds, list[str]()
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}")
        elif parts:
            break
    return " ".join(parts[:2])


def below_marks(waits: Waits, marks_s: Sequence[float]) -> list[int]:
    """Gather slots into coarser ones that end at these bounds, and one for the rest."""
    found = [0] * (len(marks_s) + 1)
    for slot, n in waits.items():
        reaches_s = WAIT_BOUNDS_S[slot] if slot < len(WAIT_BOUNDS_S) else math.inf
        found[next((place for place, mark in enumerate(marks_s) if reaches_s <= mark), len(marks_s))] += n
    return found


def added_waits(some: Waits, others: Waits) -> Waits:
    return {slot: some.get(slot, 0) + others.get(slot, 0) for slot in {*some, *others}} if others else some


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
