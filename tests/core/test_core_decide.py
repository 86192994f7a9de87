"""Decisions: total, bounded by retries and age, and steered by handler, status code and class."""

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_core_policy import policies

from redrive.core.classify import retriable
from redrive.core.decide import AwaitPerson, Decision, Die, Reason, RetryIn, Succeed, decide, expired
from redrive.core.outcome import Category, Failure, Outcome, Steer, Success
from redrive.core.policy import Policy, PolicyKind
from redrive.core.presets import PRESETS

ZERO = timedelta(0)
DOWN = Failure(Category.SERVER_ERROR, "503", status_code=503)

ages = st.timedeltas(ZERO, timedelta(days=400))
failures_st = st.builds(
    Failure,
    category=st.sampled_from(Category),
    message=st.just("no"),
    status_code=st.none() | st.integers(100, 599),
    retry_after=st.none() | st.timedeltas(ZERO, timedelta(days=40)),
    steer=st.none() | st.sampled_from(Steer),
)


def after(
    policy: str | Policy, outcome: Outcome = DOWN, *, failures: int = 1, age: timedelta = ZERO, roll: float = 0.5
) -> Decision:
    chosen = PRESETS[policy] if isinstance(policy, str) else policy
    return decide(chosen, outcome, failures=failures, age=age, roll=roll)


@settings(max_examples=200, deadline=None)
@given(policies(), failures_st, st.integers(1, 2000), ages, st.floats(0, 1))
def test_every_failure_has_a_decision_within_the_policy(
    policy: Policy, failure: Failure, failures: int, age: timedelta, roll: float
) -> None:
    decision = decide(policy, failure, failures=failures, age=age, roll=roll)
    spent = policy.max_retries is not None and failures - 1 >= policy.max_retries
    match decision:
        case RetryIn(delay=delay):
            assert not spent
            assert not expired(policy, age)
            assert retriable(policy, failure)
            assert delay >= ZERO
            if policy.max_age_s is not None:
                assert age + delay <= timedelta(seconds=policy.max_age_s)
        case AwaitPerson():
            assert policy.kind is PolicyKind.MANUAL
            assert not spent
        case Die(reason=reason, category=category):
            assert category is failure.category
            assert (reason is Reason.PERMANENT) == (not retriable(policy, failure))
            assert reason is not Reason.EXHAUSTED or spent
            assert reason is not Reason.EXPIRED or expired(policy, age)
        case Succeed():
            pytest.fail("a failure never succeeds")


@settings(max_examples=100, deadline=None)
@given(policies(), failures_st, st.integers(1, 1100), ages)
def test_a_task_that_died_of_its_failures_would_die_of_more(
    policy: Policy, failure: Failure, failures: int, age: timedelta
) -> None:
    if isinstance(after(policy, failure, failures=failures, age=age), Die):
        assert isinstance(after(policy, failure, failures=failures + 1, age=age), Die)


@settings(max_examples=50, deadline=None)
@given(policies(), st.integers(0, 50), ages)
def test_success_succeeds_under_every_policy(policy: Policy, failures: int, age: timedelta) -> None:
    assert after(policy, Success(200), failures=failures, age=age) == Succeed()


def test_three_retries_are_four_tries() -> None:
    made = [after("integration", failures=failures) for failures in (1, 2, 3, 4)]
    assert made == [
        RetryIn(timedelta(seconds=5)),
        RetryIn(timedelta(seconds=30)),
        RetryIn(timedelta(seconds=300)),
        Die(Reason.EXHAUSTED, Category.SERVER_ERROR),
    ]


def test_no_retries_means_one_try() -> None:
    policy = Policy(PolicyKind.IMMEDIATE, max_retries=0)
    assert after(policy) == Die(Reason.EXHAUSTED, Category.SERVER_ERROR)


def test_a_manual_task_waits_for_a_person_until_its_retries_are_used_up() -> None:
    assert after("manual") == AwaitPerson()
    assert after("manual", failures=3) == AwaitPerson()
    assert after("manual", failures=4) == Die(Reason.EXHAUSTED, Category.SERVER_ERROR)
    assert after("manual", Failure(Category.VALIDATION, "bad")) == Die(Reason.PERMANENT, Category.VALIDATION)


def test_a_manual_policy_with_a_bound_dies_at_it() -> None:
    assert after(Policy(PolicyKind.MANUAL, max_retries=1), failures=2) == Die(Reason.EXHAUSTED, Category.SERVER_ERROR)


def test_retry_after_is_a_floor_and_no_more_than_the_policy_allows() -> None:
    def asked(seconds: int) -> Failure:
        return Failure(Category.RATE_LIMITED, "429", status_code=429, retry_after=timedelta(seconds=seconds))

    assert after("integration", asked(60)) == RetryIn(timedelta(seconds=60))
    assert after("integration", asked(1)) == RetryIn(timedelta(seconds=5))
    assert after("integration", asked(10**8)) == RetryIn(timedelta(hours=1))


def test_the_last_retry_falls_due_when_the_task_expires() -> None:
    week = timedelta(days=7)
    assert after("relay", failures=100, age=week - timedelta(minutes=5)) == RetryIn(timedelta(minutes=5))
    assert after("relay", failures=100, age=week) == Die(Reason.EXPIRED, Category.SERVER_ERROR)
    assert expired(PRESETS["relay"], week)
    assert not expired(PRESETS["relay"], week - timedelta(microseconds=1))
    assert not expired(PRESETS["integration"], timedelta(days=1000))


@pytest.mark.parametrize("status", [400, 404, 408, 410, 425, 429, 499])
def test_the_relay_gives_up_at_every_4xx(status: int) -> None:
    failure = Failure(Category.RATE_LIMITED if status == 429 else Category.SERVER_ERROR, "", status_code=status)
    assert after("relay", failure) == Die(Reason.PERMANENT, failure.category)


def test_triggers_retry_everything_but_three_codes() -> None:
    policy = PRESETS["triggers"]
    for category in Category:
        assert retriable(policy, Failure(category, ""))
    refused = [code for code in range(300, 600) if not retriable(policy, Failure(Category.CLIENT_ERROR, "", code))]
    assert refused == [401, 403, 410]


def test_the_default_classification() -> None:
    retried = [category for category in Category if retriable(PRESETS["integration"], Failure(category, ""))]
    assert retried == ["timeout", "network", "rate_limited", "server_error", "unknown"]


def test_a_code_beats_its_family_and_a_family_its_class() -> None:
    spec = {"kind": "immediate", "classify": {"retry": ["4xx", 501], "fail": [404, "5xx"]}}
    policy = Policy.from_spec(spec)
    judged = {
        code: retriable(policy, Failure(category, "", code))
        for code, category in [
            (400, Category.CLIENT_ERROR),
            (404, Category.CLIENT_ERROR),
            (500, Category.SERVER_ERROR),
            (501, Category.SERVER_ERROR),
            (302, Category.CLIENT_ERROR),
        ]
    }
    assert judged == {400: True, 404: False, 500: False, 501: True, 302: False}


def test_a_handler_steers_past_the_policy_but_not_past_its_end() -> None:
    again = Failure(Category.VALIDATION, "", status_code=410, steer=Steer.RETRY)
    enough = Failure(Category.TIMEOUT, "", steer=Steer.GIVE_UP)
    assert after("triggers", again) == RetryIn(timedelta(seconds=60))
    assert after("triggers", again, failures=4) == Die(Reason.EXHAUSTED, Category.VALIDATION)
    assert after("triggers", enough) == Die(Reason.PERMANENT, Category.TIMEOUT)


def test_jitter_follows_the_roll() -> None:
    assert after("triggers", roll=0.0) == RetryIn(timedelta(seconds=54))
    assert after("triggers", roll=1.0) == RetryIn(timedelta(seconds=66))


def test_a_failure_counts_itself() -> None:
    with pytest.raises(ValueError, match="1 or more"):
        after("integration", failures=0)
