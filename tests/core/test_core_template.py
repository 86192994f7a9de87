"""Templates: text without braces stays, types are kept, what is missing is named, and nothing grows without bound."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.core.template import (
    MAX_EXPRESSION_CHARS,
    MAX_TEMPLATE_DEPTH,
    Expression,
    TemplateError,
    expressions_of,
    parse,
    path_text,
    render,
    render_text,
    shape_of,
)

SCOPE: dict[str, object] = {
    "input": {"amount": 12.5, "note": None, "items": [{"sku": "a"}, "b"], "a key": True, "0": "zero", "x-y": "hyphen"},
    "steps": {"charge": {"output": {"id": "ch_1"}}},
}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
keys = st.text(max_size=6) | st.integers(0, 3)


def without_braces(value: Any) -> bool:
    return "{{" not in json.dumps(value, ensure_ascii=False)


def refusal(template: object, scope: dict[str, object] = SCOPE) -> str:
    with pytest.raises(TemplateError) as caught:
        render(template, scope)
    return str(caught.value)


@settings(max_examples=60, deadline=None)
@given(value=json_values.filter(without_braces))
def test_a_template_without_braces_renders_to_itself(value: object) -> None:
    assert render(value, {}) == value
    assert list(expressions_of(value)) == []


@settings(max_examples=60, deadline=None)
@given(value=json_values, keys=st.lists(st.text(max_size=6), max_size=4))
def test_a_text_that_is_one_expression_keeps_the_type_of_its_value(value: object, keys: list[str]) -> None:
    inside = value
    for key in reversed(keys):
        inside = {key: inside}
    path = path_text(("input", *keys))
    assert render(f"{{{{ {path} }}}}", {"input": inside}) is value
    if not isinstance(value, str):
        assert json.loads(render_text(f"[{{{{{path}}}}}]", {"input": inside})) == [value]


@settings(max_examples=60, deadline=None)
@given(path=st.lists(keys, max_size=5), default=json_values)
def test_a_path_is_read_as_it_is_written(path: list[str | int], default: object) -> None:
    whole = ("input", *path)
    text = f"{path_text(whole)} ?? {json.dumps(default)}"
    if len(text) <= MAX_EXPRESSION_CHARS:
        (found,) = parse(f"{{{{ {text} }}}}")
        assert found == Expression(text, whole, None, True, default)


@settings(max_examples=150, deadline=None)
@given(
    text=st.lists(
        st.sampled_from(["{{", "}}", "{", "}", "input", "steps", ".", "[0]", '["', '"', "]", "??", " ", "null", "1e9"])
        | st.text(max_size=2),
        max_size=12,
    ).map("".join),
    scope=json_values,
)
def test_any_text_is_filled_in_or_refused(text: str, scope: object) -> None:
    with suppress(TemplateError):
        render(text, {"input": scope, "steps": {}})


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("{{ input.amount }}", 12.5),
        ("{{input.amount}}", 12.5),
        ("{{ input.items.0.sku }}", "a"),
        ("{{ input.items[0].sku }}", "a"),
        ("{{ input.items[1] }}", "b"),
        ('{{ input["a key"] }}', True),
        ("{{ input.0 }}", "zero"),
        ("{{ input.x-y }}", "hyphen"),
        ("{{ input.note }}", None),
        ('{{ input.note ?? "none" }}', "none"),
        ('{{ input.none.of.these ?? {"a": {}} }}', {"a": {}}),
        ("{{ input.items.7 ?? [1]}}", [1]),
        ("{{ input.amount.deep ?? -1 }}", -1),
        ("{{ input.amount ?? 0 }}", 12.5),
        ("€ {{ input.amount }} for {{ steps.charge.output.id }}", "€ 12.5 for ch_1"),
        ("{{ input.items }}!", '[{"sku":"a"},"b"]!'),
        ("{{ input.note }}{{ input.note }}", "nullnull"),
        ('{{ "{{" }} stays', "{{ stays"),
        ('{{ "}}" }}', "}}"),
        ("} }} {", "} }} {"),
        ('{"a":{{ input.amount }}}', '{"a":12.5}'),
        ({"deep": ["{{ input.amount }}", 1, {"x": "{{ input.note }}"}]}, {"deep": [12.5, 1, {"x": None}]}),
    ],
)
def test_a_template_is_filled_in(template: object, value: object) -> None:
    assert render(template, SCOPE) == value


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (
            "{{ input.amont }}",
            "needs {{ input.amont }}, which is not there: input has amount, note, items, a key, 0, x-y",
        ),
        ("{{ input.items.2 }}", "input.items is a list of 2"),
        ("{{ input.items[0][0] }}", "input.items[0] has sku"),
        ("{{ input.amount.cents }}", "input.amount is a number"),
        ("{{ input.note.x }}", "input.note is null"),
        ('{{ input["a key"].b }}', 'input["a key"] is true or false'),
        ("{{ steps.charge.output.id.x }}", "steps.charge.output.id is a text"),
        ("{{ stpes.charge }}", "a template has input, steps"),
        ("{{ }}", "{{ }} is empty"),
        ("a {{ b", "{{ is never closed by }}"),
        ("{{ input.a", "never closed"),
        ("{{ input. }}", "a name behind a dot"),
        ("{{ input[x] }}", 'cannot be read at "[x] }}"'),
        ("{{ 7 }}", "a path such as input.amount"),
        ("{{ input.a ?? }}", "a JSON value"),
        ("{{ input.a ?? NaN }}", "a JSON value"),
        ("{{ input.a ?? 1e999 }}", "a JSON value"),
        ('{{ input.a ?? "\\ud800" }}', "a JSON value"),
        ("{{ input.a ?? nothing }}", "a JSON value"),
        ("{{ input.a | upper }}", 'cannot be read at "| upper }}"'),
        ("{{{ input.a }}}", "cannot be read at"),
        ("{{ input." + "a" * MAX_EXPRESSION_CHARS + " }}", f"at most {MAX_EXPRESSION_CHARS} characters"),
    ],
)
def test_what_is_wrong_is_said(template: str, said: str) -> None:
    assert said in refusal(template)


def test_only_some_of_many_names_are_said_and_no_value_ever() -> None:
    said = refusal("{{ input.x }}", {"input": {f"{'k' * 100}{n}": "the value" for n in range(12)}})
    assert said.endswith(" and 2 more")
    assert "value" not in said
    assert len(said) < 600


def test_the_place_of_a_failure_is_told() -> None:
    with pytest.raises(TemplateError) as caught:
        render({"a": [0, {"b": "{{ input.nothing }}"}]}, SCOPE)
    assert caught.value.place == ("a", 1, "b")


def test_expressions_are_listed_with_their_places_and_so_is_what_cannot_be_read() -> None:
    found = dict(expressions_of({"a": ["{{ input.x }}", "{{ "], "b{{": 1}))
    assert isinstance(found["a", 0], Expression)
    assert isinstance(found["a", 1], TemplateError)
    assert "name of a field" in str(found["b{{",])


def test_depth_and_size_have_ends() -> None:
    deep: object = "x"
    for _ in range(MAX_TEMPLATE_DEPTH):
        deep = [deep]
    assert render(deep, {}) == deep
    assert "deeper than" in refusal([deep])
    ((_, error),) = expressions_of([deep])
    assert isinstance(error, TemplateError)
    large = {"input": {"blob": ["x" * 100_000]}}
    for template in (["{{ input }}"] * 1_000, "{{ input }}" * 1_000):
        with pytest.raises(TemplateError, match="too large"):
            render(template, large, max_chars=1_000_000)


def test_values_go_through_the_encoding_and_the_text_around_them_does_not() -> None:
    assert render_text("a/{{ input.x }}/b", {"input": {"x": "c/d"}}, lambda text: text.replace("/", "|")) == "a/c|d/b"
    assert shape_of("a/{{ input.x }}/b") == "a/x/b"
