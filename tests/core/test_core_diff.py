"""Diffs of payloads: they name every place that differs, hide what is secret, and stay short whatever they compare."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.diff import MAX_CHANGES, MAX_DIFF_CHARS, Change, diff
from redrive.core.redact import REDACTED

SECRET = "swordfish-9c1e"
numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False).map(lambda number: number + 0.0)  # without -0.0
scalars = st.none() | st.booleans() | numbers | st.text(max_size=5)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "b", "c~/d"]), inner, max_size=4),
    max_leaves=20,
)


def at(value: object, pointer: str) -> object:
    """What a JSON pointer leads to; KeyError or IndexError where there is nothing."""
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list):
            value = value[int(name)]
        else:
            assert isinstance(value, dict)
            value = value[name]
    return value


def same(one: object, other: object) -> bool:
    """As JSON: true is not 1."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


@given(value=values)
def test_a_value_does_not_differ_from_itself(value: object) -> None:
    assert diff(value, json.loads(json.dumps(value))) == ([], False)


@given(before=values, after=values)
def test_what_differs_has_an_entry_and_every_entry_differs(before: object, after: object) -> None:
    changes, _ = diff(before, after)
    assert bool(changes) == (not same(before, after))
    for path, change, _, _ in changes:
        if change == "added":
            with pytest.raises((KeyError, IndexError)):
                at(before, path)
            at(after, path)
        elif change == "removed":
            at(before, path)
            with pytest.raises((KeyError, IndexError)):
                at(after, path)
        else:
            assert not same(at(before, path), at(after, path))


@given(before=values, after=values)
def test_a_diff_turned_round_is_the_diff_of_the_reverse(before: object, after: object) -> None:
    there, back = diff(before, after).changes, diff(after, before).changes
    assert {change.path for change in there} == {change.path for change in back}


def test_it_says_what_was_before_and_what_is_now() -> None:
    before = {"amount": 7, "lines": [1, 2], "gone": {"x": None}}
    after = {"amount": 7.5, "lines": [1, 3, 4], "new": True}
    assert diff(before, after).changes == [
        Change("/amount", "changed", 7, 7.5),
        Change("/lines/1", "changed", 2, 3),
        Change("/lines/2", "added", None, 4),
        Change("/gone", "removed", {"x": None}, None),
        Change("/new", "added", None, True),
    ]


def test_true_and_one_are_not_the_same() -> None:
    assert diff([1, 0, 1], [True, False, 1.0]).changes[0] == Change("/0", "changed", 1, True)
    assert len(diff([1, 0, 1], [True, False, 1.0]).changes) == 3


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"password": SECRET}, {"password": "x"}),
        ({"a": {"api_key": {"deep": [SECRET]}}}, {"a": {"api_key": {"deep": ["x"]}}}),
        ({}, {"card": {"token": SECRET}}),
        ({"note": f"password={SECRET}"}, {"note": "none"}),
        ({"list": [1]}, {"list": [1, {"x": {"secret": SECRET}}]}),
        ({f"token={SECRET}": 1}, {}),
        (f"Authorization: Bearer {SECRET}", None),
    ],
)
def test_what_looks_secret_is_hidden(before: object, after: object) -> None:
    shown = repr(diff(before, after)) + repr(diff(after, before))
    assert SECRET not in shown
    assert REDACTED in shown


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([0] * 5_000, [1] * 5_000),
        ({}, {str(n): "x" * 1_000 for n in range(5_000)}),
        ({"a" * 100_000: 1}, {}),
        ("x" * 1_000_000, "y" * 1_000_000),
        ([[n] * 50 for n in range(1_000)], []),
        ({"a": [{"b": "x" * 500}] * 500}, {"a": 10**4_000}),
    ],
)
def test_a_diff_stays_short(before: object, after: object) -> None:
    changes, is_cut = diff(before, after)
    assert 1 <= len(changes) <= MAX_CHANGES
    assert is_cut or len(changes) < MAX_CHANGES
    assert len(json.dumps([change._asdict() for change in changes], ensure_ascii=False)) < 2 * MAX_DIFF_CHARS


def test_a_huge_or_deep_value_ends() -> None:
    assert diff([1] * 1_000_000, [1] * 1_000_000) == ([], True)
    deep: object = 1
    for _ in range(500):
        deep = [deep]
    assert diff(deep, [deep]).is_cut
