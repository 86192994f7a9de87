"""Shares, quantiles and depths that are read out of the tallies."""

from datetime import timedelta
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.pulse import WAIT_BOUNDS_S, WAIT_SLOTS, Window, depths, quantile, rate_of

waits = st.lists(st.integers(0, 10_000), min_size=WAIT_SLOTS, max_size=WAIT_SLOTS)
shares = st.floats(0, 1)


def slots(**filled: int) -> list[int]:
    return [filled.get(f"s{n}", 0) for n in range(WAIT_SLOTS)]


@given(waits, shares, shares)
def test_a_larger_share_never_waits_less(given: list[int], low: float, high: float) -> None:
    low, high = sorted((low, high))
    shortest, longest = quantile(given, low), quantile(given, high)
    if not sum(given):
        assert shortest is longest is None
        return
    assert shortest is not None
    assert longest is not None
    assert 0 <= shortest <= longest <= WAIT_BOUNDS_S[-1]


@given(waits, shares)
def test_a_quantile_lies_in_the_slot_that_its_share_ends_in(given: list[int], share: float) -> None:
    found = quantile(given, share)
    if found is None:
        return
    wanted = share * sum(given)
    slot = next(n for n, below in enumerate(accumulate(given)) if given[n] and below >= wanted)
    low, high = (0.0, *WAIT_BOUNDS_S)[slot], (*WAIT_BOUNDS_S, WAIT_BOUNDS_S[-1])[slot]
    assert low <= found <= high


@pytest.mark.parametrize(
    ("given", "share", "expected"),
    [
        (slots(), 0.5, None),
        (slots(s0=100), 0.5, 0.05),
        (slots(s0=50, s3=50), 0.5, 0.1),
        (slots(s0=50, s3=50), 0.75, 0.75),
        (slots(s15=3), 0.5, 604_800),
    ],
)
def test_within_a_slot_waits_are_taken_to_lie_evenly(given: list[int], share: float, expected: float | None) -> None:
    assert quantile(given, share) == expected


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
