"""JSON merge patch: the examples of RFC 7396, and what holds for every target and patch."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.merge_patch import merge_patch

scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_the_examples_of_the_rfc(target: object, patch: object, expected: object) -> None:
    assert merge_patch(target, patch) == expected


@given(target=values, patch=values)
def test_a_patch_applied_twice_is_applied_once(target: object, patch: object) -> None:
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once


@given(target=values, patch=values)
def test_neither_target_nor_patch_is_changed(target: object, patch: object) -> None:
    before = copy.deepcopy((target, patch))
    merge_patch(target, patch)
    assert (target, patch) == before


@given(target=values)
def test_an_empty_patch_changes_no_object(target: object) -> None:
    assert merge_patch(target, {}) == (target if isinstance(target, dict) else {})
