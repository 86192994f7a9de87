"""Which JSON is taken in, and where a fault is said to be."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis.strategies import booleans, dictionaries, floats, integers, lists, none, recursive, text

from redrive.api.json_rules import (
    MAX_EXPLAINED_CHARS,
    MAX_INTEGER_DIGITS,
    BadJson,
    decode_strictly,
)
from redrive.core.json_depth import MAX_JSON_DEPTH, is_too_deep

json_values = recursive(
    none() | booleans() | integers() | floats(allow_nan=False, allow_infinity=False) | text(),
    lambda inner: lists(inner, max_size=4) | dictionaries(text(), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_every_ordinary_value_is_taken_in_as_it_is(value: object) -> None:
    assert decode_strictly(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    ("body", "place", "message"),
    [
        (b'{"a": [1, NaN]}', ("a", 1), "NaN is not"),
        (b'{"a": {"b": -Infinity}}', ("a", "b"), "-Infinity is not"),
        (b'{"a": 1, "b": [0, {"c": 1e999}]}', ("b", 1, "c"), "out of range"),
        (b"[-1e999]", (0,), "out of range"),
        (b'{"n": ' + b"9" * 5_000 + b"}", ("n",), "digits"),
        (b'{"n": ' + b"9" * 400 + b".0}", ("n",), "out of range"),
        (b'{"s": "\\ud800"}', ("s",), "lone surrogate"),
        (b'{"s": ["x", "\\udc00\\ud800"]}', ("s", 1), "lone surrogate"),
        (b'{"s": "\\ud800\\ud800\\udc00"}', ("s",), "lone surrogate"),
        (b'{"\\ud800": 1}', ("\\ud800",), "lone surrogate"),
        (b'{"s": "\xff"}', (), "UTF-8 at byte 7"),
        (b'{"s": "\xed\xa0\x80"}', (), "UTF-8 at byte 7"),
        (b'{"a": 1,}', (), "byte 8"),
        (b'{"a": 1', (), "byte 7"),
        (b'{"a": 01}', (), "byte"),
        (b"", (), "ends too early (byte 0)"),
        (b"{} {}", (), "trailing"),
    ],
)
def test_a_fault_is_refused_with_its_place(body: bytes, place: tuple[str | int, ...], message: str) -> None:
    with pytest.raises(BadJson) as refused:
        decode_strictly(body)
    assert refused.value.place == place
    assert message in refused.value.message


@pytest.mark.parametrize("body", [b'"\\ud83d\\ude00"', b'"\\\\ud800"', b'"\\u0000"', b'{"a":1,"a":2}', b"1e-999"])
def test_what_only_looks_like_a_fault_is_taken_in(body: bytes) -> None:
    decode_strictly(body)


def test_the_longest_integer_is_kept_whole() -> None:
    assert decode_strictly(b"9" * MAX_INTEGER_DIGITS) == int("9" * MAX_INTEGER_DIGITS)


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"k[":', "}]")])
def test_depth_is_counted_exactly(opening: str, closing: str) -> None:
    step = opening.replace('"k["', "").count("[") + opening.count("{")
    most = MAX_JSON_DEPTH // step

    def nested(times: int) -> bytes:
        return (opening * times + "0" + closing * times).encode()

    decode_strictly(nested(most))
    with pytest.raises(BadJson, match="deeper than 64"):
        decode_strictly(nested(most + 1))


@pytest.mark.parametrize("depth", [900, 5_000, 100_000])
def test_extreme_depth_is_refused_like_any_other(depth: int) -> None:
    with pytest.raises(BadJson, match="deeper than 64"):
        decode_strictly(b"[" * depth + b"]" * depth)


def test_brackets_in_strings_are_not_depth() -> None:
    assert not is_too_deep(json.dumps(["[" * 1_000, {"{" * 1_000 + '"\\': "]"}]).encode())
    assert not is_too_deep(json.dumps([[{}] for _ in pairwise(range(5_000))]).encode())


def test_a_fault_beyond_what_is_walked_through_is_still_refused() -> None:
    with pytest.raises(BadJson, match="out of range"):
        decode_strictly(b"[" + b"1," * MAX_EXPLAINED_CHARS + b"1e999]")
