"""Laying a JSON text out changes how it looks, and nothing of what it says."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.web.json_text import MAX_GROWTH, MAX_PRETTY_CHARS, pretty

NUMBERS = st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?", fullmatch=True)


class Written(str):
    """A number as it stands in a text: compared letter by letter."""


def _read(text: str) -> object:
    return json.loads(text, parse_int=Written, parse_float=Written, object_pairs_hook=lambda pairs: ("object", pairs))


def _texts() -> st.SearchStrategy[str]:
    strings = st.text(st.characters(exclude_categories=["Cs"]), max_size=8).map(json.dumps)
    space = st.sampled_from(["", " ", "\n\t"])

    def containers(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        pairs = st.tuples(strings, space, inner).map(lambda pair: f"{pair[0]}{pair[1]}:{pair[2]}")
        lists = st.lists(inner, max_size=4).map(lambda items: f"[{' ,'.join(items)} ]")
        return lists | st.lists(pairs, max_size=4).map(lambda items: f"{{{','.join(items)}}}")

    return st.recursive(strings | NUMBERS | st.sampled_from(["true", "false", "null"]), containers, max_leaves=20)


@given(_texts())
def test_a_text_laid_out_says_the_same_with_every_digit(text: str) -> None:
    assert _read(pretty(text)) == _read(text)


@given(_texts())
def test_a_text_laid_out_once_stays_so(text: str) -> None:
    assert pretty(pretty(text)) == pretty(text)


@given(st.text())
def test_what_is_no_json_stays_as_it_is(text: str) -> None:
    try:
        json.loads(text, parse_constant=lambda name: json.loads(f"no {name}"))
    except (ValueError, RecursionError):
        assert pretty(text) == text


def test_each_value_has_a_line_and_what_is_empty_has_one() -> None:
    shown = pretty('{"a":[1.10,12345678901234567890],"b":{},"c":[],"a":"x, {y}: \\"z\\""}')
    assert shown == (
        '{\n  "a": [\n    1.10,\n    12345678901234567890\n  ],\n  "b": {},\n  "c": [],\n  "a": "x, {y}: \\"z\\""\n}'
    )


@pytest.mark.parametrize("text", ["[" * 60 + "1," * 1_000 + "1" + "]" * 60, f"[{'1,' * MAX_PRETTY_CHARS}1]"])
def test_what_would_grow_beyond_measure_stays_as_it_is(text: str) -> None:
    assert len(pretty(text)) <= MAX_GROWTH * (len(text) + 2)
    assert pretty(text) == text


def test_a_text_of_the_longest_kind_is_laid_out_in_time_that_grows_with_it() -> None:
    text = json.dumps({f"name {n}": [n, n / 3, "x" * 20] for n in range(4_000)})
    assert len(text) < MAX_PRETTY_CHARS
    assert re.sub(r"\s", "", pretty(text)) == re.sub(r"\s", "", text)
