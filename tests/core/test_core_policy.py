"""Policies: delays stay inside their bounds, specs round trip, and every mistake is named with its place."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.core.outcome import RETRIED_BY_DEFAULT, Category
from redrive.core.policy import (
    DAY_S,
    MAX_AGE_S,
    MAX_DELAY_S,
    MAX_DELAYS,
    MAX_RETRIES_LIMIT,
    Policy,
    PolicyError,
    PolicyKind,
    StatusFamily,
    delay_bounds,
    overlaid,
    preview,
    retry_delay,
)
from redrive.core.presets import PRESETS

LIST: dict[str, object] = {"kind": "list", "delays_s": [5, 30, 300]}
delays = st.floats(0, MAX_DELAY_S) | st.integers(0, int(MAX_DELAY_S))
rules: st.SearchStrategy[str | int] = st.sampled_from([*Category, *StatusFamily]) | st.integers(100, 599)


@st.composite
def specs(draw: st.DrawFn) -> dict[str, object]:
    """Valid specs of every kind."""
    kind = draw(st.sampled_from(PolicyKind))
    spec: dict[str, object] = {"kind": kind.value}
    if kind is PolicyKind.LIST:
        spec["delays_s"] = draw(st.lists(delays, min_size=1, max_size=6))
    elif kind is PolicyKind.IMMEDIATE:
        spec["delays_s"] = [draw(delays)]
    elif kind is PolicyKind.EXPONENTIAL:
        spec |= {"base_s": draw(delays), "factor": draw(st.floats(1, 100)), "cap_s": draw(delays)}
    retry = draw(st.sets(rules, max_size=5))
    spec |= {
        "jitter": draw(st.floats(0, 1)),
        "max_retries": draw(st.integers(0, MAX_RETRIES_LIMIT)),
        "max_age_s": draw(st.none() | st.floats(0.001, MAX_AGE_S)),
        "max_retry_after_s": draw(delays),
        "timeout_s": draw(st.floats(0.001, 300)),
        "classify": {"retry": sorted(retry, key=str), "fail": sorted(draw(st.sets(rules)) - retry, key=str)},
        "notify": draw(st.booleans()),
        "quiet_permanent": draw(st.booleans()),
        "retention": {"delivered_s": draw(st.none() | delays), "failed_s": None, "dead_s": draw(delays)},
    }
    return spec


def policies() -> st.SearchStrategy[Policy]:
    return specs().map(Policy.from_spec) | st.sampled_from(sorted(PRESETS)).map(PRESETS.__getitem__)


def problems(spec: Any) -> dict[tuple[str | int, ...], str]:
    with pytest.raises(PolicyError) as caught:
        Policy.from_spec(spec)
    return dict(caught.value.errors)


@settings(max_examples=150, deadline=None)
@given(policy=policies(), retry=st.integers(0, 10**30), roll=st.floats(0, 1))
def test_a_delay_stays_inside_the_bounds_of_its_policy(policy: Policy, retry: int, roll: float) -> None:
    delay, bounds = retry_delay(policy, retry, roll), delay_bounds(policy, retry)
    if delay is None or bounds is None:
        assert delay is None
        assert bounds is None
        assert policy.kind is PolicyKind.MANUAL
        return
    low, high = bounds
    assert timedelta(0) <= low <= delay <= high <= timedelta(seconds=2 * MAX_DELAY_S)


@settings(max_examples=150, deadline=None)
@given(policy=policies())
def test_a_policy_survives_the_way_through_its_spec(policy: Policy) -> None:
    assert Policy.from_spec(policy.to_spec()) == policy
    assert Policy.from_spec(policy.to_spec()).to_spec() == policy.to_spec()


@settings(max_examples=100, deadline=None)
@given(policy=policies(), retry=st.integers(0, 2000))
def test_an_exponential_delay_never_shrinks_and_never_passes_its_cap(policy: Policy, retry: int) -> None:
    if policy.kind is not PolicyKind.EXPONENTIAL:
        return
    here, there = retry_delay(policy, retry, 0.5), retry_delay(policy, retry + 1, 0.5)
    assert here is not None
    assert there is not None
    assert here <= there <= timedelta(seconds=policy.cap_s)


@settings(max_examples=100, deadline=None)
@given(
    spec=st.dictionaries(
        st.sampled_from([*PRESETS["workflow"].to_spec(), "delays_s", "other"]) | st.text(max_size=5),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
            max_leaves=5,
        ),
    )
)
def test_any_spec_is_a_policy_or_a_policy_error_with_places(spec: dict[str, object]) -> None:
    try:
        policy = Policy.from_spec(spec)
    except PolicyError:
        assert all(problems(spec).values())
    else:
        assert Policy.from_spec(policy.to_spec()) == policy


def test_every_problem_is_reported_at_once_with_its_place() -> None:
    found = problems(
        {
            "kind": "list",
            "delays_s": [5, -1, float("nan"), True],
            "jitter": float("inf"),
            "max_retries": 2.5,
            "timeout_s": 10**5000,
            "classify": {"retry": ["server_error", "nonsense", 99], "fail": ["server_error"], "other": 1},
            "retention": {"delivered_s": -1},
            "colour": "green",
        }
    )
    assert set(found) == {
        ("delays_s", 1),
        ("delays_s", 2),
        ("delays_s", 3),
        ("jitter",),
        ("max_retries",),
        ("timeout_s",),
        ("classify", "retry", 1),
        ("classify", "retry", 2),
        ("classify", "fail", 0),
        ("classify", "other"),
        ("retention", "delivered_s"),
        ("colour",),
    }
    assert "rate_limited" in found["classify", "retry", 1]
    assert "4xx" in found["classify", "retry", 1]


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"kind": "sometimes"}, ("kind",)),
        ({"kind": None}, ("kind",)),
        ({"delays_s": []}, ("delays_s",)),
        ({"delays_s": "5,30"}, ("delays_s",)),
        ({"delays_s": [1] * (MAX_DELAYS + 1)}, ("delays_s",)),
        ({"delays_s": [MAX_DELAY_S * 2]}, ("delays_s", 0)),
        ({"delays_s": [1e308]}, ("delays_s", 0)),
        ({"jitter": 1.5}, ("jitter",)),
        ({"jitter": None}, ("jitter",)),
        ({"max_retries": -1}, ("max_retries",)),
        ({"max_retries": True}, ("max_retries",)),
        ({"max_retries": MAX_RETRIES_LIMIT + 1}, ("max_retries",)),
        ({"max_retries": None}, ("max_age_s",)),
        ({"max_retries": None, "max_age_s": 60, "delays_s": [1, 0]}, ("delays_s",)),
        ({"max_age_s": 0}, ("max_age_s",)),
        ({"timeout_s": 0}, ("timeout_s",)),
        ({"timeout_s": "30"}, ("timeout_s",)),
        ({"classify": []}, ("classify",)),
        ({"classify": {"retry": "timeout"}}, ("classify", "retry")),
        ({"classify": {"retry": [600]}}, ("classify", "retry", 0)),
        ({"classify": {"retry": [True]}}, ("classify", "retry", 0)),
        ({"classify": {"retry": ["2xx"]}}, ("classify", "retry", 0)),
        ({"classify": {"retry": [409], "fail": [501, 409]}}, ("classify", "fail", 1)),
        ({"classify": {"retry": [500] * 601}}, ("classify", "retry")),
        ({"notify": "yes"}, ("notify",)),
        ({"retention": None}, ("retention",)),
        ({"base_s": 1}, ("base_s",)),
        ({"kind": "manual"}, ("delays_s",)),
        ({"kind": "immediate", "delays_s": [1, 2]}, ("delays_s",)),
        ({"kind": "exponential", "delays_s": None}, ("base_s",)),
        ({"kind": "exponential", "delays_s": None, "base_s": 1, "factor": 0.5}, ("factor",)),
    ],
)
def test_a_mistake_is_refused_at_its_place(changes: dict[str, object], place: tuple[str | int, ...]) -> None:
    assert set(problems(LIST | changes)) == {place}


def test_what_is_not_an_object_is_refused() -> None:
    assert problems([1]) == {(): "must be an object"}


def test_a_flood_of_mistakes_is_reported_in_part() -> None:
    with pytest.raises(PolicyError) as caught:
        Policy.from_spec({f"field{n}": n for n in range(500)})
    assert len(caught.value.errors) == 50


def test_a_message_does_not_repeat_long_input() -> None:
    found = problems(LIST | {"timeout_s": "x" * 10_000, "y" * 10_000: 1})
    assert all(len(message) < 400 for message in found.values())
    assert all(len(str(place)) < 100 for place in found)


def test_unbounded_retries_are_fine_with_a_max_age_and_for_a_person() -> None:
    assert Policy.from_spec(LIST | {"max_retries": None, "max_age_s": 60}).max_retries is None
    assert Policy.from_spec({"kind": "manual", "max_retries": None}).max_retries is None


def test_a_spec_needs_little() -> None:
    policy = Policy.from_spec(LIST)
    assert (policy.max_retries, policy.timeout_s, policy.max_retry_after_s) == (3, 30.0, 3600.0)
    assert policy.retention.delivered_s == 30 * DAY_S
    assert policy == PRESETS["integration"]
    assert Policy.from_spec({"kind": "immediate"}) == PRESETS["immediate"]
    assert Policy.from_spec({"kind": "manual"}) == PRESETS["manual"]


def test_a_policy_spells_out_the_class_of_everything() -> None:
    policy = Policy.from_spec(LIST | {"classify": {"retry": ["client_error", 409], "fail": ["unknown"]}})
    assert policy.retry == (RETRIED_BY_DEFAULT - {Category.UNKNOWN}) | {Category.CLIENT_ERROR, 409}
    assert policy.fail == {Category.VALIDATION, Category.CONFIGURATION, Category.UNKNOWN}
    assert {rule for rule in policy.retry | policy.fail if isinstance(rule, Category)} == set(Category)


def test_lists_and_formulas_are_both_called_exponential() -> None:
    kinds = {name: policy.public_kind for name, policy in PRESETS.items()}
    assert kinds["integration"] == kinds["relay"] == "exponential"
    assert (kinds["immediate"], kinds["manual"]) == ("immediate", "manual")


def test_a_negative_retry_is_a_bug() -> None:
    with pytest.raises(ValueError, match="0 or more"):
        retry_delay(PRESETS["integration"], -1, 0.5)


def test_a_preview_shows_delays_ranges_and_when_they_fall_due() -> None:
    rows = preview(PRESETS["triggers"])
    assert [(row.retry, row.delay_s, row.at_s) for row in rows] == [(0, 60, 60), (1, 300, 360), (2, 900, 1260)]
    assert rows[1].min_s == pytest.approx(270)
    assert rows[1].max_s == pytest.approx(330)
    assert preview(PRESETS["manual"]) == []
    assert len(preview(PRESETS["relay"])) == 20
    assert len(preview(PRESETS["triggers"], limit=2)) == 2


def test_a_preview_ends_before_the_max_age() -> None:
    policy = Policy(PolicyKind.LIST, delays_s=(10.0,), max_retries=None, max_age_s=35.0)
    assert [row.at_s for row in preview(policy)] == [10, 20, 30]


@given(policy=policies())
def test_d9_an_override_of_nothing_changes_nothing(policy: Policy) -> None:
    assert overlaid(policy, {}) == policy


@pytest.mark.parametrize(
    ("base", "override", "changed"),
    [
        ("integration", {"base_s": 1}, {"kind": "exponential", "base_s": 1, "factor": 2, "cap_s": 120}),
        ("integration", {"delays_s": [7]}, {"delays_s": [7]}),
        ("immediate", {"delays_s": [7]}, {"delays_s": [7]}),
        ("workflow", {"delays_s": [7], "jitter": None}, {"kind": "list", "delays_s": [7]}),
        ("relay", {"max_age_s": 60}, {"max_age_s": 60}),
        ("relay", {"max_age_s": None, "max_retries": 1}, {"max_age_s": None, "max_retries": 1}),
        (
            "workflow",
            {"retention": {"dead_s": 5}},
            {"retention": {"delivered_s": None, "failed_s": None, "dead_s": 5, "received_s": None}},
        ),
    ],
)
def test_d9_what_an_override_leaves_out_keeps_its_value(
    base: str, override: dict[str, Any], changed: dict[str, Any]
) -> None:
    kept = {
        name: value
        for name, value in PRESETS[base].to_spec().items()
        if name not in ("delays_s", "base_s", "factor", "cap_s")
        or changed.get("kind", PRESETS[base].kind) == PRESETS[base].kind
    }
    assert overlaid(PRESETS[base], override).to_spec() == kept | changed


@pytest.mark.parametrize("max_retries", [None, 9])
def test_d9_over_a_manual_policy_an_override_has_the_defaults_of_the_specification(max_retries: int | None) -> None:
    laid = overlaid(Policy(PolicyKind.MANUAL, max_retries=max_retries), {"factor": 2})
    assert (laid.base_s, laid.factor, laid.cap_s, laid.jitter) == (2, 2, 120, 0.25)
    assert laid.max_retries == (3 if max_retries is None else 9)


def test_d9_rules_of_an_override_are_added_to_the_others() -> None:
    laid = overlaid(PRESETS["workflow"], {"classify": {"retry": ["unknown", 409], "fail": ["timeout"]}})
    assert {Category.UNKNOWN, Category.NETWORK, 409} <= laid.retry
    assert {Category.TIMEOUT, Category.VALIDATION} <= laid.fail
    assert overlaid(PRESETS["triggers"], {"classify": {"fail": ["all"]}}).retry == frozenset()
    assert overlaid(PRESETS["relay"], {"classify": {"retry": ["all"]}}).retry == frozenset(Category)
    with pytest.raises(PolicyError, match=r"classify\.retry\.1: must be a status code"):
        overlaid(PRESETS["workflow"], {"classify": {"retry": ["unknown", "x"]}})
