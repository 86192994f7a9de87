"""Parts of a whole: a half circle for a rate, a ring for shares. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from redrive.web.charts.numbers import drawable, number_text, percent_text
from redrive.web.charts.svg import element, image, number, words

GAUGE_WIDTH, GAUGE_HEIGHT = 220.0, 140.0
DONUT_WIDTH, DONUT_HEIGHT = 320.0, 150.0
WARN_BELOW_TARGET = 0.05  # less than this short of the target is a warning, more is bad
MAX_PARTS = 7  # as many lines fit beside the ring
WHOLE = 0.9999  # an arc that ends where it began would be none: from here on it is a circle


@dataclass(frozen=True, slots=True)
class Part:
    """`name` is that of its colour."""

    name: str
    label: str
    value: float


@dataclass(frozen=True, slots=True)
class _Circle:
    x: float
    y: float
    radius: float

    def at(self, turn: float) -> tuple[float, float]:
        """A place on it; turns go clockwise from the top."""
        angle = 2 * math.pi * turn
        return self.x + self.radius * math.sin(angle), self.y - self.radius * math.cos(angle)

    def arc(self, begin: float, end: float) -> str:
        (x1, y1), (x2, y2) = self.at(begin), self.at(end)
        radius, is_large = number(self.radius), int(end - begin > 0.5)
        return f"M{number(x1)} {number(y1)}A{radius} {radius} 0 {is_large} 1 {number(x2)} {number(y2)}"


def gauge(title: str, rate: float | None, target: float | None = None, *, caption: str = "") -> Markup:
    """A rate from 0 to 1 on a half circle; None where there is nothing yet to have a rate of."""
    circle = _Circle(GAUGE_WIDTH / 2, 104.0, 80.0)
    share = min(drawable(rate), 1.0)
    goal = None if target is None else min(drawable(target), 1.0)
    marks = [element("path", css="chart-track", d=circle.arc(-0.25, 0.25))]
    if rate is not None and share > 0:
        marks.append(element("path", css=f"chart-gauge-{_health(share, goal)}", d=circle.arc(-0.25, -0.25 + share / 2)))
    if goal is not None:
        marks.append(_goal(circle, goal))
    told = "nothing yet" if rate is None else percent_text(share)
    marks.append(words("–" if rate is None else told, circle.x, circle.y - 12, css="chart-figure", anchor="middle"))
    below = " · ".join(filter(None, (caption, "" if goal is None else f"target {percent_text(goal)}")))
    marks.append(words(below, circle.x, GAUGE_HEIGHT - 6, anchor="middle"))
    aim = "" if goal is None else f", the target is {percent_text(goal)}"
    return image("gauge", GAUGE_WIDTH, GAUGE_HEIGHT, title, f"{title}: {told}{aim}.", *marks)


def donut(title: str, parts: Sequence[Part], *, whole: str = "in all") -> Markup:
    """A ring of parts with their sum inside and their numbers beside it. `whole` says what the sum is of."""
    if len(parts) > MAX_PARTS:
        raise ValueError(f"a donut has at most {MAX_PARTS} parts, not {len(parts)}")
    circle = _Circle(75.0, 75.0, 54.0)
    total = sum(drawable(part.value) for part in parts)
    marks = [element("circle", css="chart-track", cx=circle.x, cy=circle.y, r=circle.radius)]
    begin = 0.0
    for part in parts:
        share = drawable(part.value) / total if total else 0.0
        marks += [_slice(circle, part, begin, share)] if share else []
        begin += share
    marks.append(words(number_text(total), circle.x, circle.y + 3, css="chart-figure", anchor="middle"))
    marks.append(words(whole, circle.x, circle.y + 19, anchor="middle"))
    top = circle.y - 10.0 * (len(parts) - 1) + 4
    for place, part in enumerate(parts):
        marks += _legend(part, total, top + 20.0 * place)
    told = "; ".join(_part_text(part, total) for part in parts)
    return image("donut", DONUT_WIDTH, DONUT_HEIGHT, title, f"{told}." if total else "Nothing yet.", *marks)


def _health(share: float, goal: float | None) -> str:
    if goal is None or share >= goal:
        return "ok"
    return "warn" if share >= goal - WARN_BELOW_TARGET else "bad"


def _goal(circle: _Circle, goal: float) -> Markup:
    """A short line across the arc."""
    turn = -0.25 + goal / 2
    (x1, y1), (x2, y2) = (_Circle(circle.x, circle.y, circle.radius + step).at(turn) for step in (-12, 12))
    return element(
        "line", element("title", f"target {percent_text(goal)}"), css="chart-target", x1=x1, y1=y1, x2=x2, y2=y2
    )


def _slice(circle: _Circle, part: Part, begin: float, share: float) -> Markup:
    told, css = element("title", f"{part.label}: {number_text(part.value)}"), f"chart-slice chart-slice-{part.name}"
    if share >= WHOLE:
        return element("circle", told, css=css, cx=circle.x, cy=circle.y, r=circle.radius)
    return element("path", told, css=css, d=circle.arc(begin, begin + share))


def _legend(part: Part, total: float, y: float) -> list[Markup]:
    return [
        element("rect", css=f"chart-key chart-{part.name}", x=154.0, y=y - 9, width=10.0, height=10.0, rx=2.0),
        words(part.label, 171.0, y, css="chart-words chart-label"),
        words(number_text(part.value), 276.0, y, css="chart-words chart-value", anchor="end"),
        words(percent_text(drawable(part.value) / total) if total else "", 318.0, y, anchor="end"),
    ]


def _part_text(part: Part, total: float) -> str:
    return f"{part.label}: {number_text(part.value)} ({percent_text(drawable(part.value) / total if total else 0.0)})"
