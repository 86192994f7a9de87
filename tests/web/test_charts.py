"""Charts hold for any values: they are well-formed, inside their frame, and say their numbers in words."""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markupsafe import Markup

from redrive.core.policy import Policy, PreviewRow, preview
from redrive.web import charts
from redrive.web.charts import Part, Series, Unit, duration_text, number_text, percent_text
from redrive.web.charts.svg import WORD_ROOM

CSS = Path(charts.__file__).parent.parent / "static" / "charts.css"
LENGTHS = {"x", "y", "width", "height", "x1", "x2", "y1", "y2", "cx", "cy", "r", "rx"}
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
PATH = re.compile(r"(?:[MLZ]|-?\d+(?:\.\d+)?| |A)*")
MARK_SIZE = 5.0  # what is drawn around a place, in pixels
TOLERANCE = 0.011  # of rounding to two digits

values = st.floats(allow_nan=True, allow_infinity=True) | st.integers(-(10**400), 10**400) | st.just(0)
known = st.floats(0, 1e6) | st.integers(0, 10**6)
texts = st.text(max_size=20)
units = st.sampled_from(Unit)
series = st.lists(
    st.builds(Series, st.sampled_from(["created", "failed"]), texts, st.lists(values | st.none(), max_size=120)),
    max_size=4,
)
waits = st.floats(0, 1e7)


def drawn(chart: Markup) -> ElementTree.Element:
    """The chart as a browser reads it, after everything was looked at that holds for all of them."""
    assert not re.search(r"\b(nan|inf|None)\b", re.sub(r"<(title|desc|text)[^>]*>[^<]*", "", chart))
    assert "style=" not in chart
    root = ElementTree.fromstring(re.sub(r' xmlns="[^"]*"', "", chart))
    assert root.get("role") == "img"
    assert [child.tag for child in root[:2]] == ["title", "desc"]
    assert root[1].text
    wide = root.get("viewBox") is None
    frame = (math.inf, float(root.get("height", ""))) if wide else _size(root)
    for node in root.iter():
        _look_at(node, frame)
    return root


def _size(node: ElementTree.Element) -> tuple[float, float]:
    left, top, width, height = map(float, node.get("viewBox", "").split())
    assert (left, top) == (0, 0)
    return width, height


def _look_at(node: ElementTree.Element, frame: tuple[float, float]) -> None:
    width, height = frame
    for key in LENGTHS & set(node.attrib):
        value = node.attrib[key]
        if value.endswith("%"):
            assert 0 <= float(value[:-1]) <= 100 + TOLERANCE, (node.tag, key, value)
        elif key in ("y", "y1", "y2", "cy", "height"):
            assert -TOLERANCE <= float(value) <= height + TOLERANCE, (node.tag, key, value)
        else:
            low = -WORD_ROOM if node.tag == "text" else -MARK_SIZE
            assert low <= float(value) <= width, (node.tag, key, value)
    if node.tag == "svg" and node.get("viewBox"):
        frame = _size(node)
        for path in node.iter("path"):
            _look_along(path, *frame)
    if node.tag == "rect" and node.get("x", "").endswith("%"):
        right = float(node.attrib["x"][:-1]) + float(node.attrib["width"][:-1])
        assert right <= 100 + 2 * TOLERANCE


def _look_along(path: ElementTree.Element, width: float, height: float) -> None:
    """Every corner of a path lies in its frame. An arc's radii and flags are left out."""
    text = path.attrib["d"]
    assert PATH.fullmatch(text), text
    numbers = [float(n) for n in NUMBER.findall(re.sub(r"A\S+ \S+ 0 \d 1 ", " ", text))]
    for x, y in zip(numbers[::2], numbers[1::2], strict=True):
        assert -TOLERANCE <= x <= width + TOLERANCE, text
        assert -TOLERANCE <= y <= height + TOLERANCE, text


def shown(root: ElementTree.Element) -> list[str]:
    """What can be read on hover."""
    return [node.text or "" for node in root.iter("title")][1:]


def marks(root: ElementTree.Element, css: str) -> Iterator[ElementTree.Element]:
    return (node for node in root.iter() if css in node.get("class", "").split())


@given(series, texts, st.lists(texts, max_size=120), units)
def test_lines_hold_for_any_values(given: list[Series], title: str, moments: list[str], unit: Unit) -> None:
    drawn(charts.lines(title, given, moments=moments, unit=unit))


@given(series, texts, units)
def test_stacked_areas_hold_for_any_values(given: list[Series], title: str, unit: Unit) -> None:
    drawn(charts.stacked(title, given, unit=unit))


@given(st.lists(values | st.none(), max_size=200), texts)
def test_a_sparkline_holds_for_any_values(given: list[float | None], title: str) -> None:
    drawn(charts.sparkline(title, given))


@given(st.lists(st.tuples(texts, values), max_size=60), units)
def test_bars_hold_for_any_values(given: list[tuple[str, float]], unit: Unit) -> None:
    root = drawn(charts.bars("b", [label for label, _ in given], [value for _, value in given], unit=unit))
    assert len(list(marks(root, "chart-bar"))) == len(given)


@given(values | st.none(), values | st.none(), texts)
def test_a_gauge_holds_for_any_rate(rate: float | None, target: float | None, caption: str) -> None:
    drawn(charts.gauge("g", rate, target, caption=caption))


@given(st.lists(st.builds(Part, st.just("failed"), texts, values), max_size=7))
def test_a_donut_holds_for_any_parts(parts: list[Part]) -> None:
    drawn(charts.donut("d", parts))


@given(st.lists(st.tuples(waits, waits, waits), max_size=30), st.none() | st.integers(-1, 40))
def test_a_schedule_holds_for_any_waits(given: list[tuple[float, float, float]], at: int | None) -> None:
    rows = [PreviewRow(n, delay, min(low, high), max(low, high), 0) for n, (delay, low, high) in enumerate(given)]
    root = drawn(charts.schedule("s", rows, at=at))
    assert len(list(marks(root, "chart-here"))) == (1 if at is not None and 0 <= at < len(rows) else 0)


@given(st.lists(known, min_size=2, max_size=50))
def test_the_highest_value_is_drawn_highest_and_an_axis_wastes_less_than_half(given: list[float]) -> None:
    root = drawn(charts.bars("b", ["x"] * len(given), given))
    heights = [float(bar.attrib["height"]) for bar in marks(root, "chart-bar")]
    assert heights.index(max(heights)) == given.index(max(given)) or max(heights) == heights[given.index(max(given))]
    top = Unit.COUNT.top(given)
    assert max(given) <= top
    assert top <= max(2.0, 2 * max(given) + 1e-9)


@given(known, known, units)
@example(0.0, 0.0078125, Unit.RATE)
def test_what_is_more_never_reads_as_a_lower_axis(low: float, high: float, unit: Unit) -> None:
    low, high = sorted((low, high))
    assert unit.top([low]) <= unit.top([high])


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        (number_text, 0, "0"),
        (number_text, 0.25, "0.25"),
        (number_text, 1284, "1,284"),
        (number_text, 9999, "9,999"),
        (number_text, 12_345, "12.3k"),
        (number_text, 4_000_000, "4M"),
        (number_text, 1e40, "1,000T"),
        (percent_text, 0.974, "97.4%"),
        (percent_text, 1, "100%"),
        (percent_text, 0.99999, ">99.9%"),
        (percent_text, 0.00001, "<0.1%"),
        (percent_text, 0, "0%"),
        (duration_text, 0, "0 s"),
        (duration_text, 0.25, "250 ms"),
        (duration_text, 2.5, "2.5 s"),
        (duration_text, 720, "12 min"),
        (duration_text, 6 * 3600, "6 h"),
        (duration_text, 7 * 86400, "7 d"),
    ],
)
def test_numbers_read_as_people_write_them(text: Callable[[float], str], value: float, expected: str) -> None:
    assert text(value) == expected


def test_text_stays_text() -> None:
    evil = '<script>alert(1)</script>"&'
    pieces = [
        charts.lines(evil, [Series("created", evil, [1, 2])], start=evil, end=evil, moments=[evil, evil]),
        charts.bars(evil, [evil], [1]),
        charts.donut(evil, [Part("failed", evil, 1)], whole=evil),
        charts.gauge(evil, 0.5, caption=evil),
    ]
    for chart in pieces:
        assert "<script" not in chart
        assert evil in {node.text for node in drawn(chart).iter()}


def test_a_line_says_its_values_on_hover_and_in_words() -> None:
    given = [Series("created", "created", [3, 5]), Series("failed", "failed", [0, None])]
    root = drawn(charts.lines("Events per minute", given, moments=["12:01", "12:02"]))
    assert shown(root) == ["12:01: created 3, failed 0", "12:02: created 5, failed –"]
    assert (root[0].text, root[1].text) == (
        "Events per minute",
        "created: 5 at the end, from 3 to 5, 8 in all. failed: 0 when last known, always 0, 0 in all.",
    )


def test_a_gap_in_the_values_is_a_gap_in_the_line() -> None:
    root = drawn(charts.lines("x", [Series("failed", "failed", [1, 2, None, 3, None, 1, 1])]))
    assert len(list(marks(root, "chart-line-failed"))) == 3


def test_without_values_a_chart_says_so() -> None:
    assert "Nothing in this time" in charts.lines("x", [Series("created", "created", [None, None])])
    assert "Nothing in this time" in charts.bars("x", [], [])
    assert "nothing yet" in charts.gauge("x", None)
    assert "Nothing yet" in charts.donut("x", [])


@pytest.mark.parametrize(
    ("rate", "target", "health"), [(0.99, 0.95, "ok"), (0.92, 0.95, "warn"), (0.5, 0.95, "bad"), (0.1, None, "ok")]
)
def test_a_gauge_warns_below_its_target(rate: float, target: float | None, health: str) -> None:
    assert list(marks(drawn(charts.gauge("x", rate, target)), f"chart-gauge-{health}"))


def test_a_donut_shows_each_part_with_its_share() -> None:
    root = drawn(
        charts.donut("Events", [Part("delivered", "delivered", 3), Part("failed", "failed", 1)], whole="events")
    )
    assert root[1].text == "delivered: 3 (75%); failed: 1 (25%)."
    assert shown(root) == ["delivered: 3", "failed: 1"]


def test_a_donut_of_too_many_parts_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 7 parts, not 8"):
        charts.donut("x", [Part("failed", "x", 1)] * 8)


def test_a_schedule_says_which_retries_were_made_and_which_is_next() -> None:
    policy = Policy.from_spec({"kind": "list", "delays_s": [5, 30, 300], "max_retries": 3})
    root = drawn(charts.schedule("integration", preview(policy), at=1))
    assert root[1].text == "Retry 1: after 5 s, made; Retry 2: after 30 s, next; Retry 3: after 5 min."
    assert len(list(marks(root, "chart-past"))) == 1


def test_waits_that_differ_widely_are_drawn_by_doublings() -> None:
    heights = _heights([1, 2, 4, 1000])
    assert heights[1] - heights[0] == pytest.approx(heights[2] - heights[1], abs=0.05)
    linear = _heights([10, 20, 40])
    assert linear[1] / linear[0] == pytest.approx(2, abs=0.01)


def test_jitter_is_drawn_as_a_range() -> None:
    policy = Policy.from_spec({"kind": "list", "delays_s": [10], "jitter": 0.5, "max_retries": 1})
    root = drawn(charts.schedule("x", preview(policy)))
    assert "5 s to 15 s" in (root[1].text or "")
    assert len(list(marks(root, "chart-range"))) == 3


def test_every_colour_comes_from_the_stylesheet_and_every_colour_of_it_from_the_page() -> None:
    style = CSS.read_text(encoding="utf-8")
    states = {"created", "delivered", "failed", "waiting", "held"}
    page = {"ink", "muted", "line", "accent", "ok", "bad", "warn", "surface", "mark", *states}
    assert set(re.findall(r"var\(--([a-z]+)\)", style)) <= page
    assert not re.search(r"#[0-9a-fA-F]{3,8}\b|rgb", style)
    assert f"padding-left: {WORD_ROOM:.0f}px" in style
    for chart in (
        charts.lines("x", [Series("created", "c", [1, 2])]),
        charts.bars("x", ["a"], [1]),
        charts.gauge("x", 0.4, 0.5),
        charts.donut("x", [Part("failed", "f", 1)]),
        charts.schedule("x", [PreviewRow(0, 2, 1, 3, 2)], at=0),
    ):
        for node in drawn(chart).iter():
            assert not {"fill", "stroke"} & set(node.attrib)
            assert node.tag in ("title", "desc", "svg", "g") or any(
                re.search(rf"\.{name}\b", style) for name in node.get("class", "").split()
            ), ElementTree.tostring(node)


def _heights(delays: Sequence[float]) -> list[float]:
    rows = [PreviewRow(n, delay, delay, delay, 0) for n, delay in enumerate(delays)]
    return [float(bar.attrib["height"]) for bar in marks(drawn(charts.schedule("x", rows)), "chart-bar")]


def test_a_value_without_neighbours_is_a_dot_that_can_be_seen() -> None:
    assert "chart-alone" in charts.lines("Failed", [Series("failed", "failed", [None, 3, None])])
    assert "chart-alone" not in charts.lines("Failed", [Series("failed", "failed", [1, 3, None])])
