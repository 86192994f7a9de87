"""Numbers as people read them, and axes that end at round ones. Pure."""

import math
from collections.abc import Callable, Iterable
from enum import Enum

LIMIT = 1e15  # what is more is drawn and written as this
_SMALLEST = 1e-9

_STEPS = (1.0, 2.0, 4.0, 6.0, 8.0, 10.0)  # half of each is as round
_MINUTE, _HOUR, _DAY = 60.0, 3_600.0, 86_400.0
# fmt: off
_SPANS = (
    0.1, 0.2, 0.5, 1, 2, 4, 10, 20, 30, 60, 2 * _MINUTE, 4 * _MINUTE, 10 * _MINUTE, 20 * _MINUTE, 30 * _MINUTE, _HOUR,
    2 * _HOUR, 4 * _HOUR, 6 * _HOUR, 12 * _HOUR, _DAY, 2 * _DAY, 4 * _DAY, 8 * _DAY, 14 * _DAY, 30 * _DAY,
)
# fmt: on


def drawable(value: float | None) -> float:
    """The same, from 0 to LIMIT. Not a number is nothing."""
    if value is None or value != value or value <= 0:  # only NaN differs from itself
        return 0.0
    return float(min(value, LIMIT))


def number_text(value: float) -> str:
    """Exact up to five digits: 0.25, 12, 1,284; then 12.3k, 4M."""
    value = drawable(value)
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size * (10 if unit == "k" else 1):
            return f"{value / size:,.1f}".removesuffix(".0") + unit
    return f"{value:,.0f}" if value == int(value) else f"{value:.2g}" if value < 1 else f"{value:,.1f}"


def percent_text(rate: float) -> str:
    """97.4%. What is not quite all never reads as all, nor what is not quite nothing as nothing."""
    percent = min(drawable(rate), 1.0) * 100
    if 99.9 < percent < 100:
        return ">99.9%"
    if 0 < percent < 0.1:
        return "<0.1%"
    return f"{percent:.1f}".removesuffix(".0") + "%"


def duration_text(seconds: float) -> str:
    """In the largest unit that leaves one or more of it: 250 ms, 2.5 s, 12 min, 6 h, 7 d."""
    seconds = drawable(seconds)
    if seconds == 0:
        return "0 s"
    if seconds < 1:
        return f"{max(seconds * 1000, 0.01):.3g} ms"
    for unit, size in (("d", _DAY), ("h", _HOUR), ("min", _MINUTE), ("s", 1.0)):
        if seconds >= size:
            count = seconds / size
            return f"{count:,.0f} {unit}" if count >= 100 or round(count, 1) == int(count) else f"{count:.1f} {unit}"
    raise AssertionError("a second or more")


class Unit(Enum):
    """What values are: how they are written, and where an axis for them ends."""

    COUNT = "count"
    RATE = "rate"  # 0 to 1
    SECONDS = "seconds"

    def text(self, value: float) -> str:
        return _TEXTS[self](value)

    def top(self, values: Iterable[float | None]) -> float:
        """A round number that none of them exceeds; for rates not more than all."""
        most = max((drawable(value) for value in values), default=0.0)
        match self:
            case Unit.COUNT:
                return max(2.0, _round_up(most))
            case Unit.RATE:
                return max(0.01, min(1.0, _round_up(most)))
            case Unit.SECONDS:
                return next((float(span) for span in _SPANS if span >= most), _round_up(most / _DAY) * _DAY)


_TEXTS: dict[Unit, Callable[[float], str]] = {
    Unit.COUNT: number_text,
    Unit.RATE: percent_text,
    Unit.SECONDS: duration_text,
}


def _round_up(value: float) -> float:
    """The next of 1, 2, 4, 6, 8 and 10 times a power of ten."""
    if value <= _SMALLEST:
        return _SMALLEST
    power = 10.0 ** math.floor(math.log10(value))
    return next((step * power for step in _STEPS if step * power >= value), 10 * power)
