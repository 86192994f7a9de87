"""The breaker and what is let through: no more than promised, whatever comes in whatever order; nothing stays shut."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.breaker import (
    BUCKETS,
    BURST_S,
    CLOSED,
    DEFAULT_RULES,
    MAX_EARNED,
    OPEN,
    UNLIMITED,
    Breaker,
    BreakerRules,
    Budget,
    Closed,
    Open,
    Pace,
    Ramping,
    Verdict,
    Window,
    after_time,
    after_try,
    breaker_verdict,
    delivery_verdict,
    ramp_rate,
)
from redrive.core.outcome import Category, Failure, Success

RULES = BreakerRules(failure_rate=0.5, min_span_s=0)
START = 1_000_000.0  # a clock that has run for days
moments = st.floats(START, START + 10_000)


@st.composite
def rule_sets(draw: st.DrawFn) -> BreakerRules:
    return BreakerRules(
        failure_rate=draw(st.floats(0.01, 1)),
        min_tries=draw(st.integers(1, 1_000)),
        window_s=draw(st.floats(0.1, 3_600)),
        trickle_per_s=draw(st.floats(0.1, 1_000)),
        trickle_in_flight=draw(st.integers(1, 100)),
        ramp_doubling_s=draw(st.floats(0.01, 100)),
        ramp_s=draw(st.floats(0.1, 1_000)),
        retry_share=draw(st.floats(0, 0.99)),
        retry_floor_per_s=draw(st.floats(0.1, 100)),
    )


# -- what counts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("category", "breaker", "delivery"),
    [
        (Category.TIMEOUT, Verdict.FAILED, Verdict.FAILED),
        (Category.NETWORK, Verdict.FAILED, Verdict.FAILED),
        (Category.SERVER_ERROR, Verdict.FAILED, Verdict.FAILED),
        (Category.RATE_LIMITED, Verdict.FAILED, Verdict.FAILED),
        (Category.CLIENT_ERROR, Verdict.SUCCEEDED, Verdict.FAILED),
        (Category.VALIDATION, Verdict.SUCCEEDED, Verdict.FAILED),
        (Category.UNKNOWN, Verdict.NEITHER, Verdict.FAILED),
        (Category.CONFIGURATION, Verdict.NEITHER, Verdict.NEITHER),
    ],
)
def test_a_failure_says_whether_the_endpoint_was_there_and_whether_it_took_it(
    category: Category, breaker: Verdict, delivery: Verdict
) -> None:
    assert breaker_verdict(Failure(category, "…")) is breaker
    assert delivery_verdict(Failure(category, "…")) is delivery


def test_a_success_speaks_for_an_endpoint_and_no_try_says_nothing() -> None:
    assert breaker_verdict(Success(200)) is delivery_verdict(Success(200)) is Verdict.SUCCEEDED
    assert breaker_verdict(None) is delivery_verdict(None) is Verdict.NEITHER


@pytest.mark.parametrize(
    "wrong",
    [
        {"failure_rate": 0.0},
        {"failure_rate": 1.1},
        {"failure_rate": float("nan")},
        {"min_tries": 0},
        {"window_s": 0.0},
        {"trickle_per_s": 0.0},
        {"trickle_per_s": float("inf")},
        {"trickle_in_flight": 0},
        {"ramp_doubling_s": 0.0},
        {"ramp_s": 0.0},
        {"retry_share": -0.1},
        {"retry_share": 1.1},
        {"retry_floor_per_s": 0.0},
    ],
)
def test_rules_that_make_no_sense_are_refused_by_name(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        replace(RULES, **wrong)  # type: ignore[arg-type]


# -- the window --------------------------------------------------------------------------------------------------------

notes = st.lists(st.tuples(moments, st.booleans()), max_size=200).map(sorted)


@given(notes=notes, later=st.floats(0, 200), span_s=st.floats(1, 100))
def test_a_window_knows_the_last_of_its_span_and_nothing_older(
    notes: list[tuple[float, bool]], later: float, span_s: float
) -> None:
    window = Window(span_s)
    for at, failed in notes:
        window.note(at, failed)
    now = max([at for at, _ in notes], default=START) + later
    window.note_batch(now, 0, 0)
    slack = 1e-6
    for counted, of in ((window.tries, [at for at, _ in notes]), (window.failures, [at for at, bad in notes if bad])):
        surely = sum(now - at < span_s * (BUCKETS - 1) / BUCKETS - slack for at in of)
        possibly = sum(now - at <= span_s + slack for at in of)
        assert surely <= counted <= possibly


@given(st.lists(st.tuples(moments, st.booleans()), max_size=100))
def test_a_window_never_counts_below_nothing_whatever_its_clock_does(notes: list[tuple[float, bool]]) -> None:
    window = Window(60)
    for at, failed in notes:
        window.note(at, failed)
        assert 0 <= window.failures <= window.tries


def test_a_window_trips_from_the_rate_on_and_not_before_there_were_enough_tries() -> None:
    window = Window(60)
    window.note_batch(START, 19, 19)
    assert not window.trips(START, RULES)
    assert window.trips_in_ramp(START, RULES)
    window.note(START, failed=True)
    assert window.trips(START, RULES)
    window.note_batch(START, 21, 0)
    assert not window.trips(START, RULES)
    assert window.is_unhealthy(START, RULES)
    window.note_batch(START, 100, 0)
    assert not window.is_unhealthy(START, RULES)


def test_failures_that_come_all_at_once_trip_no_window_before_some_time_has_passed() -> None:
    window = Window(60)
    window.note_batch(START, 1_000, 1_000)
    assert not window.trips(START, DEFAULT_RULES)
    assert not window.trips(START + 1.9, DEFAULT_RULES)
    assert window.trips(START + 2, DEFAULT_RULES)


def test_a_window_that_forgot_trips_no_more() -> None:
    window = Window(RULES.window_s)
    window.note_batch(START, 100, 100)
    assert window.trips(START, RULES)
    assert not window.trips(START + RULES.window_s + RULES.window_s / BUCKETS, RULES)
    assert window.tries == window.failures == 0


def test_a_window_that_was_cleared_begins_anew() -> None:
    window = Window(60)
    window.note_batch(START, 100, 100)
    window.clear()
    assert not window.trips_in_ramp(START, RULES)
    window.note_batch(START + 100, 5, 5)
    assert (window.tries, window.failures) == (5, 5)


# -- the breaker -------------------------------------------------------------------------------------------------------


def full(tries: int, failures: int) -> Window:
    window = Window(RULES.window_s)
    window.note_batch(START, tries, failures)
    return window


def test_a_breaker_opens_ramps_at_the_first_success_and_closes() -> None:
    breaker = after_try(CLOSED, Verdict.FAILED, full(20, 10), START, RULES)
    assert breaker is OPEN
    assert after_time(breaker, START + 1_000, RULES) is breaker
    for verdict in (Verdict.FAILED, Verdict.NEITHER):
        assert after_try(breaker, verdict, full(50, 50), START, RULES) is breaker
    breaker = after_try(breaker, Verdict.SUCCEEDED, full(51, 50), START + 10, RULES)
    assert breaker == Ramping(START + 10)
    assert after_time(breaker, START + 39.9, RULES) is breaker
    assert after_time(breaker, START + 40, RULES) is CLOSED


def test_a_ramp_that_fails_opens_again_after_few_tries() -> None:
    ramping = Ramping(START)
    assert after_try(ramping, Verdict.FAILED, full(4, 4), START, RULES) is ramping
    assert after_try(ramping, Verdict.FAILED, full(5, 3), START, RULES) is OPEN


steps = st.lists(st.tuples(st.sampled_from(Verdict), st.floats(0, 100)), max_size=100)
LEGAL = {(Closed, Open), (Open, Ramping), (Ramping, Open), (Ramping, Closed)}


@given(rules=rule_sets(), steps=steps)
def test_a_breaker_takes_legal_steps_only_and_always_has_a_way_on(
    rules: BreakerRules, steps: list[tuple[Verdict, float]]
) -> None:
    breaker: Breaker = CLOSED
    seen: list[Breaker] = [breaker]
    window = Window(rules.window_s)
    at = START
    for verdict, later in steps:
        at += later
        if verdict is not Verdict.NEITHER:
            window.note(at, verdict is Verdict.FAILED)
        seen += [after_time(seen[-1], at, rules)]
        seen += [after_try(seen[-1], verdict, window, at, rules)]
    for before, after in pairwise(seen):
        assert before == after or (type(before), type(after)) in LEGAL
    # Whatever has been: one success and time lead back.
    end = after_try(seen[-1], Verdict.SUCCEEDED, Window(rules.window_s), at, rules)
    assert after_time(end, at + 2 * rules.ramp_s, rules) == CLOSED


@given(rules=rule_sets(), since_s=st.floats(-10, 2_000))
def test_a_ramp_begins_gently_never_falls_and_ends(rules: BreakerRules, since_s: float) -> None:
    rate = ramp_rate(rules, since_s)
    if since_s >= rules.ramp_s:
        assert rate is None
        return
    assert rate is not None
    assert rate >= rules.trickle_per_s
    earlier = ramp_rate(rules, since_s - 1)
    assert earlier is not None
    assert earlier <= rate
    if since_s <= 0:
        assert rate == rules.trickle_per_s


def test_a_ramp_doubles_as_it_says() -> None:
    assert [ramp_rate(RULES, s) for s in (0, 3, 6, 9, 30)] == [10, 20, 40, 80, None]


# -- pace and budget ---------------------------------------------------------------------------------------------------

takings = st.lists(st.tuples(st.floats(0, 5), st.floats(0, 1)), max_size=80)


@given(rate=st.floats(0.01, 10_000), takings=takings)
def test_a_pace_lets_no_more_through_than_its_rate_and_a_burst_in_any_interval(
    rate: float, takings: list[tuple[float, float]]
) -> None:
    pace = Pace(rate, START)
    at = START
    taken: list[tuple[float, int]] = []
    for later, part in takings:
        at += later
        n = round(pace.room(at) * part)
        pace.take(at, n)
        taken.append((at, n))
    for first, (began, _) in enumerate(taken):
        total = 0
        for ended, n in taken[first:]:
            total += n
            assert total <= rate * (ended - began) + max(1.0, rate * BURST_S) + 1e-3


@given(takings=takings)
def test_a_pace_that_changes_lets_no_more_through_than_the_sum_of_its_rates(
    takings: list[tuple[float, float]],
) -> None:
    pace = Pace(10, START)
    at, most, total = START, 1.0, 0
    for later, part in takings:
        at += later
        most += later * pace.rate_per_s
        pace.set_rate(at, 1 + part * 10_000)
        n = pace.room(at)
        pace.take(at, n)
        total += n
        assert total <= most + 1e-3


@given(rate=st.floats(0.01, 10_000), debt=st.integers(0, 100), later=st.floats(0, 10))
def test_a_pace_has_room_when_it_said_it_would(rate: float, debt: int, later: float) -> None:
    pace = Pace(rate, START)
    pace.take(START, pace.room(START) + debt)
    when = pace.next_at(START + later)
    assert when >= START + later
    assert pace.room(when) >= 1


def test_a_pace_that_rested_has_no_more_than_a_burst() -> None:
    pace = Pace(1_000, START)
    assert pace.room(START + 3_600) == 100
    pace.take(START + 3_600, 100)
    assert pace.room(START + 3_600) == 0
    assert pace.room(START) == 0  # a clock that ran backwards gives nothing
    assert Pace(0.5, START).room(START + 3_600) == 1


@given(
    rules=rule_sets(),
    steps=st.lists(st.tuples(st.floats(0, 2), st.integers(0, 50), st.floats(0, 1), st.floats(0, 1)), max_size=80),
)
def test_retries_that_fail_keep_to_their_share_beyond_the_floor_in_any_order(
    rules: BreakerRules, steps: list[tuple[float, int, float, float]]
) -> None:
    budget = Budget(rules, START)
    at, firsts, retries = START, 0, 0
    for later, first_tries, part, come_through in steps:
        at += later
        budget.note_first_tries(first_tries)
        firsts += first_tries
        n = round(budget.allows(at) * part)
        budget.take(at, n)
        good = int(n * come_through)
        for _ in range(good):
            budget.give_back()
        retries += n - good
        floor = rules.retry_floor_per_s * (at - START) + max(1.0, rules.retry_floor_per_s * BURST_S)
        beyond = max(0.0, retries - floor)
        assert beyond <= rules.retry_share * (firsts + beyond) + 1e-2


@given(rules=rule_sets(), rest=st.floats(0, 10_000), firsts=st.integers(0, 10**9))
def test_a_budget_never_dries_up_and_never_piles_up(rules: BreakerRules, rest: float, firsts: int) -> None:
    budget = Budget(rules, START)
    budget.note_first_tries(firsts)
    at = START + rest
    assert budget.allows(at) <= MAX_EARNED + max(1.0, rules.retry_floor_per_s * BURST_S)
    budget.take(at, budget.allows(at))
    assert budget.allows(at) == 0
    assert budget.allows(budget.next_at(at)) >= 1


def test_retries_that_come_through_may_be_as_many_as_wait() -> None:
    """Each fails once and is taken the second time: nothing is gained by keeping it back."""
    budget = Budget(RULES, START)
    budget.note_first_tries(400)
    most = budget.allows(START)
    for _ in range(100):
        budget.take(START, most)
        for _ in range(most):
            budget.give_back()
    assert budget.allows(START) >= most - 1


def test_a_fifth_of_the_tries_is_a_quarter_of_the_first_ones() -> None:
    budget = Budget(RULES, START)
    budget.take(START, budget.allows(START))
    budget.note_first_tries(40)
    assert budget.allows(START) == 10


def test_a_share_of_all_is_no_budget() -> None:
    budget = Budget(replace(RULES, retry_share=1.0), START)
    budget.note_first_tries(5)
    budget.take(START, 1_000_000)
    assert budget.allows(START) == UNLIMITED
    assert budget.next_at(START) == START
