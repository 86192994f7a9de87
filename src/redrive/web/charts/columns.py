"""Upright bars: distributions, and the schedule of a retry policy. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from markupsafe import Markup

from redrive.web.charts.curves import BELOW, HEIGHT, TOP, depth_of, grid, nothing, rung
from redrive.web.charts.numbers import Unit, drawable
from redrive.web.charts.svg import element, line, number, percent, wide_image, words

FILLED = 0.72  # of a bar's place; the rest is room between them
MAX_LABELS = 16  # of more bars only some have one; on a narrow page half of these (charts.css)
LOG_FROM = 50.0  # where the longest wait is so many times the shortest, each doubling takes the same height
SHORTEST_S = 1e-3  # on a logarithmic scale, nothing is nowhere


class Planned(Protocol):
    """A retry of a policy's preview, see core.policy."""

    @property
    def retry(self) -> int: ...
    @property
    def delay_s(self) -> float: ...
    @property
    def min_s(self) -> float: ...
    @property
    def max_s(self) -> float: ...


def bars(
    title: str,
    labels: Sequence[str],
    values: Sequence[float],
    *,
    name: str = "bar",
    unit: Unit = Unit.COUNT,
    height: float = HEIGHT,
) -> Markup:
    """A bar for each label. `name` is that of their colour."""
    top = unit.top(values)
    told = [f"{label}: {unit.text(value)}" for label, value in zip(labels, values, strict=True)]
    drawn = [
        _bar(place, len(values), drawable(value) / top, f"chart-bar chart-{name}", told[place], height)
        for place, value in enumerate(values)
    ]
    return wide_image(
        "bars",
        height,
        title,
        f"{'; '.join(told)}." if told else "No values.",
        *grid(top, unit, height),
        *(drawn or [nothing(height)]),
        *_labels(labels, height),
    )


def schedule(title: str, rows: Sequence[Planned], *, at: int | None = None, height: float = HEIGHT) -> Markup:
    """The wait before each retry, with the range that its jitter leaves. `at`: how many retries a task has made."""
    top = Unit.SECONDS.top(row.max_s for row in rows)
    shortest = max(min((row.min_s for row in rows if row.min_s > 0), default=top), SHORTEST_S)
    doublings = _Doublings.between(shortest, top) if top / shortest > LOG_FROM else None
    share = doublings.share if doublings else lambda wait_s: drawable(wait_s) / top
    drawn: list[Markup] = []
    for place, row in enumerate(rows):
        is_past = at is not None and row.retry < at
        css = f"chart-bar chart-wait{' chart-past' if is_past else ''}"
        drawn.append(_bar(place, len(rows), share(row.delay_s), css, _retry_text(row, at), height))
        if row.max_s > row.min_s:
            drawn.append(_range(place, len(rows), share(row.min_s), share(row.max_s), height))
        if row.retry == at:
            drawn.append(_at(place, len(rows), _pointer(share(max(row.delay_s, row.max_s)), height)))
    return wide_image(
        "schedule",
        height,
        title,
        _in_words(rows, at),
        *(grid(top, Unit.SECONDS, height) if doublings is None else _log_grid(top, doublings, height)),
        *drawn,
        *_labels([str(row.retry + 1) for row in rows], height),
    )


def _bar(place: int, places: int, share: float, css: str, told: str, height: float) -> Markup:
    """What is more than nothing is seen, if only as a line. The whole place answers to the pointer."""
    depth = depth_of(height)
    tall = max(depth * min(share, 1.0), 1.0) if share > 0 else 0.0
    left = (place + (1 - FILLED) / 2) / places
    return element(
        "g",
        element("title", told),
        element("rect", css="chart-hover", x=percent(place / places), y=TOP, width=percent(1 / places), height=depth),
        element(
            "rect",
            css=css,
            x=percent(left),
            y=TOP + depth - tall,
            width=percent(FILLED / places),
            height=tall,
            rx=min(2.0, tall / 2),
        ),
    )


def _range(place: int, places: int, low: float, high: float, height: float) -> Markup:
    """From the shortest to the longest wait: a line with ends."""
    y1, y2 = (TOP + depth_of(height) * (1 - min(share, 1.0)) for share in (low, high))
    ends = (line(-3, y, 3, y, "chart-range") for y in (y1, y2))
    return _at(place, places, line(0, y1, 0, y2, "chart-range"), *ends)


def _pointer(share: float, height: float) -> Markup:
    """A small triangle just above a bar."""
    tip = TOP + depth_of(height) * (1 - min(share, 1.0)) - 1
    return element("path", css="chart-here", d=f"M-5 {number(tip - 7)}L5 {number(tip - 7)}L0 {number(tip)}Z")


def _at(place: int, places: int, *marks: Markup) -> Markup:
    """Marks in pixels, around the middle of a place."""
    return element("svg", *marks, css="chart-plot chart-mark", x=percent((place + 0.5) / places))


def _labels(labels: Sequence[str], height: float) -> list[Markup]:
    step = -(-len(labels) // MAX_LABELS) or 1
    return [
        words(
            label,
            percent((place + 0.5) / len(labels)),
            height - BELOW + 15,
            css="chart-words" if place // step % 2 == 0 else "chart-words chart-every-other",
            anchor="middle",
        )
        for place, label in enumerate(labels)
        if place % step == 0
    ]


@dataclass(frozen=True, slots=True)
class _Doublings:
    """Heights on which every doubling takes the same: `count` of them from half the shortest wait to the longest."""

    bottom_s: float
    count: float

    @classmethod
    def between(cls, shortest_s: float, longest_s: float) -> "_Doublings":
        return cls(shortest_s / 2, math.log2(longest_s / shortest_s) + 1)

    def share(self, wait_s: float) -> float:
        return math.log2(max(drawable(wait_s), self.bottom_s) / self.bottom_s) / self.count

    def wait_s(self, share: float) -> float:
        return self.bottom_s * math.exp2(self.count * share)


def _log_grid(top: float, doublings: _Doublings, height: float) -> list[Markup]:
    """Round waits at about the lower, the middle and the upper end."""
    marks = rung(0.0, "", height)
    for wait_s in dict.fromkeys((*(Unit.SECONDS.top([doublings.wait_s(share)]) for share in (0.1, 0.45)), top)):
        marks += rung(min(doublings.share(wait_s), 1.0), Unit.SECONDS.text(wait_s), height)
    return marks


def _retry_text(row: Planned, at: int | None) -> str:
    text = Unit.SECONDS.text
    jitter = f" ({text(row.min_s)} to {text(row.max_s)})" if row.max_s > row.min_s else ""
    stands = "" if at is None else ", made" if row.retry < at else ", next" if row.retry == at else ""
    return f"Retry {row.retry + 1}: after {text(row.delay_s)}{jitter}{stands}"


def _in_words(rows: Sequence[Planned], at: int | None) -> str:
    return f"{'; '.join(_retry_text(row, at) for row in rows)}." if rows else "No retries by itself."
