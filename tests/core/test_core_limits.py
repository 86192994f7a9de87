"""Limits of an org, the bucket of its requests, and the waits of failed logins."""

from hypothesis import given
from hypothesis.strategies import floats, integers, lists

from redrive.core.limits import DEFAULT_LIMITS, Bucket, Limits
from redrive.core.throttle import FREE_FAILURES, LONGEST_WAIT_S, WINDOW_S, failures_after, wait_s

STEPS = lists(floats(0, 10), max_size=200)


@given(rate=floats(0.5, 10_000), size=integers(1, 100), steps=STEPS)
def test_a_bucket_never_lets_more_through_than_its_size_and_its_rate(
    rate: float, size: int, steps: list[float]
) -> None:
    bucket = Bucket(rate, size, 0.0)
    now = taken = 0.0
    for step in steps:
        now += step
        taken += bucket.take(now) == 0.0
        assert taken <= size + now * rate + 1e-6


@given(rate=floats(0.5, 10_000), size=integers(1, 100), steps=STEPS)
def test_who_waits_as_long_as_told_is_let_through(rate: float, size: int, steps: list[float]) -> None:
    bucket = Bucket(rate, size, 0.0)
    now = 0.0
    for step in steps:
        now += step
        wait = bucket.take(now)
        assert 0.0 <= wait <= 1 / rate + 1e-9
        if wait:
            now += wait * (1 + 1e-6) + 1e-9
            assert bucket.take(now) == 0.0


def test_a_bucket_does_not_fill_when_the_clock_goes_back() -> None:
    bucket = Bucket(1, 1, 100.0)
    assert bucket.take(100.0) == 0.0
    assert bucket.take(50.0) == 1.0
    assert bucket.take(100.5) == 0.5


def test_limits_are_the_defaults_but_for_what_is_set() -> None:
    assert Limits.from_spec(None) == Limits.from_spec({}) == DEFAULT_LIMITS
    assert Limits.from_spec({"max_endpoints": 3, "of_a_newer_version": 1}) == Limits(max_endpoints=3)
    assert Limits.from_spec(Limits(burst=7).to_spec()) == Limits(burst=7)


@given(failures=integers(0, 10**6), since_s=floats(0, 10**6))
def test_a_wait_is_bounded_grows_with_failures_and_ends_with_the_window(failures: int, since_s: float) -> None:
    wait = wait_s(failures, since_s)
    assert 0.0 <= wait <= LONGEST_WAIT_S
    assert wait <= wait_s(failures + 1, since_s)
    if failures < FREE_FAILURES or since_s >= WINDOW_S:
        assert wait == 0.0


def test_the_sixth_try_waits_and_the_seventh_longer() -> None:
    assert [wait_s(failures, 0.0) for failures in (4, 5, 6, 7, 20)] == [0.0, 30.0, 60.0, 120.0, 900.0]
    assert wait_s(5, 12.0) == 18.0
    assert failures_after(5, 10.0) == 6
    assert failures_after(50, WINDOW_S) == 1
