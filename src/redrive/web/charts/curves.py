"""What changes with time: lines with their areas, stacked areas, sparklines. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup

from redrive.web.charts.numbers import Unit, drawable
from redrive.web.charts.svg import element, image, line, number, percent, wide_image, words

HEIGHT = 160.0
TOP, BELOW = 8.0, 22.0  # what the words take of the height
PLOT_WIDTH = 1000.0  # of the curves' own measure, stretched over the width there is
SPARK_WIDTH, SPARK_HEIGHT, SPARK_EDGE = 120.0, 28.0, 2.5
MAX_HOVERS = 200  # places that say their values; of more points several share one

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Series:
    """Values at equal distances, oldest first; None where there is none. `name` is that of its colour."""

    name: str
    label: str
    values: Sequence[float | None]


def lines(
    title: str,
    series: Sequence[Series],
    *,
    start: str = "60 min ago",
    end: str = "now",
    moments: Sequence[str] = (),
    unit: Unit = Unit.COUNT,
    height: float = HEIGHT,
    adds_up: bool = True,
) -> Markup:
    """One line with its area for each series, over one axis. `moments` names each place for those who hover. `adds_up`:
    counts of each place, and so of all; not so what is counted per minute, or how deep something is.
    """
    top = unit.top(value for each in series for value in each.values)
    plot = _plot(*(mark for each in series for mark in _curve(each, PLOT_WIDTH, depth_of(height), top)), height=height)
    return _over_time("lines", title, series, plot, top, start, end, moments, unit, height, adds_up)


def stacked(
    title: str,
    series: Sequence[Series],
    *,
    start: str = "60 min ago",
    end: str = "now",
    moments: Sequence[str] = (),
    unit: Unit = Unit.COUNT,
    height: float = HEIGHT,
) -> Markup:
    """Areas on top of each other, the first one lowest: the upper edge is the sum."""
    length = _length(series)
    levels = [[0.0] * length]
    for each in series:
        values = [drawable(value) for value in each.values] + [0.0] * (length - len(each.values))
        levels.append([below + value for below, value in zip(levels[-1], values, strict=True)])
    top = unit.top(levels[-1])
    edges = [_points(level, PLOT_WIDTH, depth_of(height), top) for level in levels]
    areas = [
        element("path", css=f"chart-stack chart-{each.name}", d=_area(upper, lower))
        for each, lower, upper in zip(series, edges, edges[1:], strict=False)
        if length
    ]
    plot = _plot(*areas, height=height)
    return _over_time("stacked", title, series, plot, top, start, end, moments, unit, height, adds_up=True)


def sparkline(title: str, values: Sequence[float | None], *, name: str = "spark", unit: Unit = Unit.COUNT) -> Markup:
    """A line alone, as high as its highest value."""
    series = Series(name, title, values)
    top = max((drawable(value) for value in values), default=0.0) or 1.0
    width, depth = SPARK_WIDTH - 2 * SPARK_EDGE, SPARK_HEIGHT - 2 * SPARK_EDGE
    curve = element("g", *_curve(series, width, depth, top), transform=f"translate({SPARK_EDGE} {SPARK_EDGE})")
    return image("spark", SPARK_WIDTH, SPARK_HEIGHT, title, _in_words([series], unit, adds_up=True), curve)


def grid(top: float, unit: Unit, height: float) -> list[Markup]:
    """Three lines across with what they stand for: nothing, half and all of the axis."""
    return [mark for share in (0.0, 0.5, 1.0) for mark in rung(share, unit.text(top * share), height)]


def rung(share: float, text: str, height: float) -> list[Markup]:
    """A line across at a share of the height, and its words."""
    y = TOP + depth_of(height) * (1 - share)
    return [
        line(0, y, "100%", y, "chart-base" if share == 0 else "chart-grid"),
        words(text, -6, y + 3.5, anchor="end"),
    ]


def depth_of(height: float) -> float:
    """What is left of a chart's height for its values."""
    return height - TOP - BELOW


def nothing(height: float) -> Markup:
    return words("Nothing in this time", "50%", TOP + depth_of(height) / 2 - 4, anchor="middle")


def _over_time(
    kind: str,
    title: str,
    series: Sequence[Series],
    plot: Markup,
    top: float,
    start: str,
    end: str,
    moments: Sequence[str],
    unit: Unit,
    height: float,
    adds_up: bool,
) -> Markup:
    is_empty = all(value is None for each in series for value in each.values)
    return wide_image(
        kind,
        height,
        title,
        _in_words(series, unit, adds_up),
        *grid(top, unit, height),
        words(start, 0, height - 7),
        words(end, "100%", height - 7, anchor="end"),
        nothing(height) if is_empty else plot,
        *_hovers(series, moments, unit, height),
    )


def _plot(*marks: Markup, height: float) -> Markup:
    """Curves in a measure of their own, stretched over the width; their strokes are not (charts.css)."""
    depth = depth_of(height)
    box = f"0 0 {number(PLOT_WIDTH)} {number(depth)}"
    return element(
        "svg",
        *marks,
        css="chart-plot",
        y=TOP,
        width="100%",
        height=depth,
        viewBox=box,
        preserveAspectRatio="none",
    )


def _points(values: Sequence[float | None], width: float, depth: float, top: float) -> list[Point]:
    """Where they lie; a single one lies at the right end, where now is."""
    last = len(values) - 1
    return [
        (width * (place / last if last else 1.0), depth * (1 - min(drawable(value) / top, 1.0)))
        for place, value in enumerate(values)
    ]


def _curve(series: Series, width: float, depth: float, top: float) -> Iterable[Markup]:
    """The line and its area, in pieces where values are missing; a piece of one point is a dot."""
    points = _points(series.values, width, depth, top)
    known = groupby(range(len(points)), key=lambda place: series.values[place] is not None)
    for piece in [[points[place] for place in places] for has_value, places in known if has_value]:
        ends = piece if len(piece) > 1 else piece * 2
        floor = [(x, depth) for x, _ in ends]
        yield element("path", css=f"chart-area chart-{series.name}", d=_area(ends, floor))
        alone = "" if len(piece) > 1 else " chart-alone"
        yield element("path", css=f"chart-line chart-line-{series.name}{alone}", d=_path(ends))


def _length(series: Sequence[Series]) -> int:
    return max((len(each.values) for each in series), default=0)


def _path(points: Sequence[Point]) -> str:
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)


def _area(upper: Sequence[Point], lower: Sequence[Point]) -> str:
    return f"{_path([*upper, *reversed(lower)])}Z"


def _hovers(series: Sequence[Series], moments: Sequence[str], unit: Unit, height: float) -> list[Markup]:
    """Upright strips over the whole height, one for each place: easier to meet than a point."""
    length = _length(series)
    step = -(-length // MAX_HOVERS) or 1
    strips = range(0, length, step)
    return [
        element(
            "rect",
            element("title", _moment(series, place, moments, unit)),
            css="chart-hover",
            x=percent(strip / len(strips)),
            y=TOP,
            width=percent(1 / len(strips)),
            height=depth_of(height),
        )
        for strip, place in enumerate(strips)
    ]


def _moment(series: Sequence[Series], place: int, moments: Sequence[str], unit: Unit) -> str:
    values = [f"{each.label} {_text(each.values[place], unit)}" for each in series if place < len(each.values)]
    when = f"{moments[place]}: " if place < len(moments) else ""
    return when + ", ".join(values)


def _text(value: float | None, unit: Unit) -> str:
    return "–" if value is None else unit.text(value)


def _in_words(series: Sequence[Series], unit: Unit, adds_up: bool) -> str:
    return " ".join(_told(each, unit, adds_up) for each in series) or "No values."


def _told(series: Series, unit: Unit, adds_up: bool) -> str:
    known = [value for value in series.values if value is not None]
    if not known:
        return f"{series.label}: no values."
    low, high = unit.text(min(known)), unit.text(max(known))
    range_of = f"always {low}" if low == high else f"from {low} to {high}"
    total = f", {unit.text(sum(map(drawable, known)))} in all" if unit is Unit.COUNT and adds_up else ""
    when = "at the end" if series.values[-1] is not None else "when last known"
    return f"{series.label}: {unit.text(known[-1])} {when}, {range_of}{total}."
