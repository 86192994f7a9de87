"""Shares, quantiles and depths that are read out of the tallies."""

import math
import re
from collections import Counter
from datetime import timedelta
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.pulse import (
    WAIT_BOUNDS_S,
    WAIT_MARKS_S,
    WIDEST_SLOT,
    Window,
    below_marks,
    depths,
    quantile,
    rate_of,
    wait_slot,
    wait_text,
)

durations = st.lists(st.floats(0.001, 2_591_999), min_size=1, max_size=200)
shares = st.floats(0.01, 1)


def kept(seconds: list[float]) -> dict[int, int]:
    return dict(Counter(map(wait_slot, seconds)))


@given(durations, shares, shares)
def test_a_larger_share_never_waits_less(seconds: list[float], low: float, high: float) -> None:
    low, high = sorted((low, high))
    shortest, longest = quantile(kept(seconds), low), quantile(kept(seconds), high)
    assert shortest is not None
    assert longest is not None
    assert shortest <= longest


@given(durations, shares)
def test_c15_a_percentile_is_within_5_percent_of_the_true_one(seconds: list[float], share: float) -> None:
    true_s = sorted(seconds)[max(0, math.ceil(share * len(seconds) - 1e-6) - 1)]
    assert quantile(kept(seconds), share) == pytest.approx(true_s, rel=0.0251)
    text = wait_text(quantile(kept(seconds), share))
    assert seconds_in(text) == pytest.approx(true_s, rel=0.05)


def seconds_in(text: str) -> float:
    units = {"ms": 0.001, "s": 1, "min": 60, "h": 3_600, "d": 86_400}
    return sum(float(n) * units[unit] for n, unit in re.findall(r"([\d.]+) (\w+)", text))


def test_slots_are_at_most_5_percent_wide_and_targets_are_bounds() -> None:
    assert max(high / low for low, high in pairwise(WAIT_BOUNDS_S)) <= WIDEST_SLOT
    assert set(WAIT_MARKS_S) <= set(WAIT_BOUNDS_S)
    assert (WAIT_BOUNDS_S[0], WAIT_BOUNDS_S[-1]) == (0.001, 30 * 86_400)


@pytest.mark.parametrize(
    ("seconds", "share", "expected"), [([], 0.5, None), ([0.0], 0.5, 0.0005), ([9_999_999.0], 0.5, 2_592_000)]
)
def test_what_lies_outside_the_slots_has_their_bound(
    seconds: list[float], share: float, expected: float | None
) -> None:
    assert quantile(kept(seconds), share) == expected


@given(durations)
def test_coarse_slots_hold_what_took_less_than_their_bound(seconds: list[float]) -> None:
    marks = (1, 60, 3_600)
    ends = [sum(one < mark for one in seconds) for mark in marks]
    assert below_marks(kept(seconds), marks) == [ends[0], ends[1] - ends[0], ends[2] - ends[1], len(seconds) - ends[2]]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0.0012, "1.2 ms"),
        (0.41234, "412 ms"),
        (0.9996, "1 s"),
        (1.534, "1.53 s"),
        (59.96, "1 min"),
        (303, "5 min 3 s"),
        (90_000, "1 d 1 h"),
    ],
)
def test_durations_have_three_digits_or_two_units(seconds: float | None, text: str) -> None:
    assert wait_text(seconds) == text


def test_nothing_has_no_rate() -> None:
    assert rate_of(0, 0) is None
    assert rate_of(1, 4) == 0.25


@given(st.lists(st.integers(0, 100)), st.integers(0, 100))
def test_depths_step_back_from_now(ups: list[int], at_first: int) -> None:
    levels = list(accumulate(ups, initial=at_first))
    assert depths(levels[-1], ups) == levels[1:]


def test_a_depth_is_never_below_nothing() -> None:
    assert depths(1, [5, 5]) == [0, 1]


def test_windows_are_an_hour_a_day_and_a_week() -> None:
    assert [window.value.bucket * window.value.buckets for window in Window] == [
        timedelta(hours=1),
        timedelta(days=1),
        timedelta(days=7),
    ]
