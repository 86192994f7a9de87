"""Policies in words, and on the strip of time."""

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.policy import Policy, PolicyKind, PreviewRow, preview
from redrive.core.presets import PRESETS
from redrive.web.policy_strip import HEIGHT, WIDTH, strip
from redrive.web.policy_words import ends, goes_on, schedule, span

SECONDS = {"d": 86_400, "h": 3_600, "min": 60, "s": 1}


@given(st.floats(min_value=0, max_value=1e9, allow_nan=False).map(lambda value: round(value, 6)))
def test_a_span_says_exactly_what_it_was_made_of(seconds: float) -> None:
    count, unit = span(seconds).split(" ")
    assert float(count) * SECONDS[unit] == pytest.approx(seconds, rel=1e-14)


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(5.0, "5 s"), (300.0, "5 min"), (90.0, "90 s"), (604_800.0, "7 d"), (0.25, "0.25 s"), (0.0, "0 s"), (None, "")],
)
def test_a_span_takes_the_largest_unit_that_fits(seconds: float | None, told: str) -> None:
    assert span(seconds) == told


@pytest.mark.parametrize(
    ("name", "when", "end"),
    [
        ("integration", "5 s, 30 s, 5 min", "after 3 retries"),
        ("immediate", "5 s each time", "after 3 retries"),
        ("manual", "a person retries", "after 3 retries"),
        ("relay", "1 s, 2 s, 4 s, 8 s … times 2, at most 1 h", "7 d after it was received"),
        ("triggers", "1 min, 5 min, 15 min", "after 3 retries"),
        ("transformer", "2 s, 4 s, 8 s", "after 3 retries"),
    ],
)
def test_the_presets_in_words(name: str, when: str, end: str) -> None:
    assert (schedule(PRESETS[name]), ends(PRESETS[name])) == (when, end)


def test_what_is_never_retried_and_what_ends_early_is_said_to() -> None:
    assert schedule(Policy(PolicyKind.LIST, (5.0,), max_retries=0)) == "no retries"
    short = Policy(PolicyKind.LIST, (60.0,), max_retries=10, max_age_s=150.0)
    told = goes_on(short, len(preview(short)))
    assert told == "It ends 150 s after it was received, before it has made all its retries."
    assert goes_on(PRESETS["integration"], 3) is None
    assert goes_on(PRESETS["relay"], 20) == "It goes on like this, and ends 7 d after it was received."


@given(st.lists(st.floats(min_value=0, max_value=1e15, allow_nan=False), max_size=20))
def test_every_mark_of_a_strip_lies_within_it(moments: list[float]) -> None:
    rows = [PreviewRow(n, at_s, at_s, at_s, at_s) for n, at_s in enumerate(moments)]
    drawn = ElementTree.fromstring(str(strip(rows)))
    marks = drawn.findall("circle")
    assert len(marks) == len(moments)
    for mark in marks:
        assert 0 <= float(mark.attrib["cx"]) <= WIDTH
        assert 0 <= float(mark.attrib["cy"]) <= HEIGHT


def test_a_strip_has_no_inline_style_and_tells_its_marks_in_words() -> None:
    drawn = str(strip(preview(PRESETS["integration"])))
    assert "style=" not in drawn
    assert re.search('aria-label="([^"]*)"', drawn)[1] == "Retried after the first failure: 5 s, 35 s, 5 min 35 s"  # type: ignore[index]
