"""Rendering steps: it never raises, a URL never leaves its authority, and each problem says what to look at."""

import json
import re
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.core.address import parse_target
from redrive.core.limits import MAX_PAYLOAD_BYTES
from redrive.core.step_fields import ROOTS, RUN_FIELDS, STEP_FIELDS
from redrive.core.steps import Rendered, RunScope, is_of_input, render_step
from redrive.core.workflow import Workflow
from support.workflows import DATA, definitions

NOW = datetime(2030, 1, 31, 9, 30, tzinfo=UTC)
WAIT: dict[str, object] = {"name": "before", "kind": "wait", "wait_s": 0}
INPUT: dict[str, object] = {"id": "é/?#&", "amount": 12.5, "at": "2030-01-31T10:30:00+01:00", "list": [1, {"a": None}]}


def scope(data: object = INPUT, **more: object) -> RunScope:
    return RunScope("01JRUN", "orders", 3, "corr-1", data, **more)  # type: ignore[arg-type]


def rendered(step: dict[str, object], given: RunScope | None = None, **more: object) -> Rendered:
    """The step, behind another one that it may name."""
    spec = Workflow.from_spec("orders", {"steps": [WAIT, {"name": "it", **step}]}).steps[1]
    return render_step(spec, 1, given or scope(), "01JRUN:1", NOW, **more)  # type: ignore[arg-type]


def http(**fields: object) -> dict[str, object]:
    return {"kind": "http", "url": "https://a.example/x", **fields}


def problem(step: dict[str, object], given: RunScope | None = None, **more: object) -> str:
    found = rendered(step, given, **more)
    assert found.problem is not None
    assert (found.body, found.due_in_s) == (b"null", 0.0)
    assert is_of_input(found.problem) or (found.url, found.headers) == (None, None)
    return found.problem


@settings(max_examples=120, deadline=None)
@given(spec=definitions(), data=DATA, outputs=st.lists(DATA, min_size=3, max_size=3), lost=st.booleans())
def test_rendering_never_raises_and_what_it_makes_can_be_sent(
    spec: dict[str, object], data: object, outputs: list[object], lost: bool
) -> None:
    workflow = Workflow.from_spec("orders", spec)
    known = {step.name: output for step, output in zip(workflow.steps, outputs, strict=False)}
    absent = {workflow.steps[0].name: "was too large"} if lost else {}
    for index, step in enumerate(workflow.steps):
        found = render_step(step, index, scope(data, outputs=known, absent=absent), f"01JRUN:{index}", NOW)
        if found.problem is not None and not is_of_input(found.problem):
            assert found == Rendered(problem=found.problem)
            continue
        if found.body:
            json.loads(found.body)
        if found.url is not None:
            assert parse_target(found.url).origin == ("https", "api.example.com", 443)
            assert urlsplit(found.url).path.startswith("/v1/")
        for value in (found.headers or {}).values():
            assert value.isascii()
            assert value.isprintable()
            assert value == value.strip()
        assert 0 <= found.due_in_s <= 366 * 86_400


@settings(max_examples=80, deadline=None)
@given(value=st.text(max_size=12))
def test_a_value_fills_its_own_part_of_a_url(value: str) -> None:
    found = rendered(http(url="https://a.example/x/{{ input }}/y?q={{ input }}&r=1"), scope(value))
    is_whole = value.encode(errors="ignore").decode() == value
    assert (found.problem is None) == (bool(value) and is_whole and not {".", ".."} & set(re.split(r"[/\\]", value)))
    if found.url is None:
        return
    target = parse_target(found.url)
    assert target.host == "a.example"
    path, _, query = target.path_and_query.partition("?")
    assert len(path.split("/")) == 4
    assert len(query.split("&")) == 2


@pytest.mark.parametrize("value", ["..", ".", "", "../admin", "a/../b", "..\\x"])
def test_a_value_that_would_lead_elsewhere_is_a_problem(value: str) -> None:
    assert "leads elsewhere" in problem(http(url="https://a.example/x/{{ input }}"), scope(value))


def test_two_values_cannot_lead_elsewhere_together() -> None:
    assert "leads elsewhere" in problem(http(url="https://a.example/{{ input }}{{ input }}/x"), scope("."))
    assert "leads elsewhere" in problem(http(url="https://a.example/%{{ input }}./x"), scope("2e"))
    assert rendered(http(url="https://a.example/?q={{ input }}"), scope("..")).url == "https://a.example/?q=.."


def test_values_in_a_url_are_percent_encoded() -> None:
    found = rendered(http(url="https://a.example/x/{{ input.id }}?n={{ input.amount }}&l={{ input.list }}"))
    assert found.url == ("https://a.example/x/%C3%A9%2F%3F%23%26?n=12.5&l=%5B1%2C%7B%22a%22%3Anull%7D%5D")


def test_an_http_step_has_a_body_only_where_it_says_so() -> None:
    assert rendered(http()) == Rendered(b"", "https://a.example/x", {})
    assert rendered(http(body=None)).body == b"null"
    assert rendered(http(body={"€": "{{ input.amount }}", "x": ["{{ input.list }}"]})).body.decode() == (
        '{"€":12.5,"x":[[1,{"a":null}]]}'
    )
    assert rendered({"kind": "http", "endpoint": "billing"}).url is None


def test_headers_with_expressions_are_rendered_and_the_others_left_to_the_definition() -> None:
    found = rendered(http(headers={"X-Key": "literal", "X-Amount": "a {{ input.amount }}", "X-It": "{{ step.name }}"}))
    assert found.headers == {"X-Amount": "a 12.5", "X-It": "it"}


@pytest.mark.parametrize("value", ["a\r\nx-evil: 1", "a\nb", "a\0b", "é", " a", "a" * 9_000, {"a": "\n é"}])
def test_a_header_value_that_cannot_be_sent_is_a_problem_that_does_not_repeat_it(value: object) -> None:
    said = problem(http(headers={"X-Id": "{{ input }}"}), scope(value))
    assert said.startswith("headers cannot be sent")
    assert "evil" not in said


def test_a_handler_and_an_emit_step_get_the_input_of_the_run_unless_they_say_otherwise() -> None:
    whole = json.dumps(INPUT, separators=(",", ":"), ensure_ascii=False).encode()
    assert rendered({"kind": "handler", "handler": "h"}) == Rendered(whole)
    assert rendered({"kind": "emit", "event_type": "a"}) == Rendered(whole)
    assert rendered({"kind": "handler", "handler": "h", "input": "{{ input.amount }}"}).body == b"12.5"
    assert rendered({"kind": "emit", "event_type": "a", "payload": [1]}).body == b"[1]"


@pytest.mark.parametrize(
    ("template", "key"),
    [
        ("k-{{ input.amount }}", "k-12.5"),
        ("{{ input.amount }}", "12.5"),
        ("{{ input.none ?? null }}", None),
        ("fixed", "fixed"),
    ],
)
def test_an_ordering_key_is_a_text_or_none(template: str, key: str | None) -> None:
    assert rendered({"kind": "emit", "event_type": "a", "ordering_key": template}).ordering_key == key


@pytest.mark.parametrize("value", ["", "x" * 201, "a\nb", "\ud800"])
def test_an_ordering_key_that_cannot_be_kept_is_a_problem(value: str) -> None:
    assert "ordering_key must" in problem(
        {"kind": "emit", "event_type": "a", "ordering_key": "{{ input.k }}", "payload": 1}, scope({"k": value})
    )


@pytest.mark.parametrize(
    ("fields", "due_in_s"),
    [
        ({"wait_s": 1.5}, 1.5),
        ({"wait_s": "{{ input.amount }}"}, 12.5),
        ({"wait_s": "{{ input.amount }}5"}, 12.55),
        ({"until": "{{ input.at }}"}, 0.0),
        ({"until": "2030-01-31T09:30:10.5Z"}, 10.5),
        ({"until": "2000-01-01T00:00:00Z"}, 0.0),
        ({"until": "0001-01-01T00:00:00+23:59"}, 0.0),
    ],
)
def test_a_wait_is_due_in_seconds(fields: dict[str, object], due_in_s: float) -> None:
    assert rendered({"kind": "wait", **fields}) == Rendered(b"{}", due_in_s=due_in_s)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("wait_s", -1, "wait_s must be between 0 and 31622400"),
        ("wait_s", "soon", "wait_s must be a number of seconds"),
        ("wait_s", "nan", "wait_s must be a number of seconds"),
        ("wait_s", "1_0", "wait_s must be a number of seconds"),
        ("wait_s", "\ud800", "wait_s must be a number of seconds"),
        ("wait_s", 10**400, "wait_s must be between"),
        ("wait_s", True, "wait_s must be a number"),
        ("wait_s", None, "wait_s must be a number"),
        ("until", "soon", "until must be an ISO 8601 time"),
        ("until", "2030-01-31T09:30:00", "until must say its time zone"),
        ("until", 1_900_000_000, "until must be a text"),
        ("until", "9999-12-31T23:59:59-23:59", "until must not be more than 366 days away"),
        ("until", (NOW + timedelta(days=366, seconds=1)).isoformat(), "until must not be more than 366 days away"),
    ],
)
def test_a_wait_that_cannot_be_told_is_a_problem(name: str, value: object, said: str) -> None:
    assert said in problem({"kind": "wait", name: "{{ input }}"}, scope(value))


def test_a_missing_value_is_told_with_its_place_and_what_there_is() -> None:
    said = problem(http(body={"lines": [{"sku": "{{ input.sku }}"}]}))
    assert said == "body.lines.0.sku needs {{ input.sku }}, which is not there: input has id, amount, at, list"
    assert problem(http(body="{{ steps.before.output.id }}")) == (
        "body needs {{ steps.before.output.id }}, which is not there: steps is an empty object"
    )


def test_no_default_stands_in_for_an_output_that_was_lost() -> None:
    lost = scope(outputs={"before": 1}, absent={"before": "was larger than 262144 bytes and was not kept"})
    said = problem(http(body={"id": '{{ steps.before.output.id ?? "none" }}'}), lost)
    assert said == "body.id needs the output of step before, which was larger than 262144 bytes and was not kept"
    assert rendered(http(body='{{ steps.before.output.id ?? "none" }}')).body == b'"none"'
    assert rendered(http(body="{{ steps }}"), lost).body == b"{}"


def test_outputs_run_and_step_can_be_named() -> None:
    body = {
        "id": "{{ steps.before.output.id }}",
        "run": "{{ run.id }} {{ run.workflow }} {{ run.version }} {{ run.correlation_id }}",
        "step": "{{ step.name }} {{ step.index }} {{ step.idempotency_key }}",
        "steps": "{{ steps }}",
    }
    found = rendered(http(body=body), scope(outputs={"before": {"id": 7}}))
    assert json.loads(found.body) == {
        "id": 7,
        "run": "01JRUN orders 3 corr-1",
        "step": "it 1 01JRUN:1",
        "steps": {"before": {"output": {"id": 7}}},
    }


def test_what_may_be_named_is_what_there_is() -> None:
    names = scope().names("it", 1, "01JRUN:1")
    assert set(names) == set(ROOTS)
    assert [*names["run"]] == [*RUN_FIELDS]  # type: ignore[misc]
    assert [*names["step"]] == [*STEP_FIELDS]  # type: ignore[misc]


def test_a_body_has_a_limit_in_bytes_and_never_grows_far_beyond_it() -> None:
    assert rendered(http(body="{{ input }}"), scope("é" * 49), max_bytes=100).problem is None
    assert problem(http(body="{{ input }}"), scope("é" * 50), max_bytes=100) == "body is larger than 100 bytes"
    for body in (["{{ input }}"] * 1_000, "{{ input }}" * 1_000):
        assert "too large" in problem(http(body=body), scope("x" * MAX_PAYLOAD_BYTES))


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), 10**5_000, "\ud800", {"a": ["\udfff"]}, {1, 2}, b"x"],
    ids=["nan", "infinite", "huge", "half a character", "half a character inside", "a set", "bytes"],
)
def test_what_json_cannot_write_is_a_problem(value: object) -> None:
    for body in ("{{ input }}", {"a": "{{ input }}"}, "x{{ input }}"):
        assert problem(http(body=body), scope(value)).startswith("body")
    assert problem({"kind": "handler", "handler": "h"}, scope(value)).startswith("input")
    assert problem(http(url="https://a.example/{{ input }}"), scope(value)).startswith("url")


def test_a_value_that_is_nested_too_deep_is_a_problem() -> None:
    deep: object = 1
    for _ in range(5_000):
        deep = [deep]
    assert "nested too deep" in problem(http(body="{{ input }}"), scope(deep))
    fits: object = 1
    for _ in range(64):
        fits = [fits]
    assert rendered(http(body="{{ input }}"), scope(fits)).problem is None
    assert "deeper than 64 levels" in problem(http(body=["{{ input }}"]), scope(fits))
    assert "nested too deep" in problem(http(url="https://a.example/{{ input }}"), scope(deep))


def test_secrets_stay_out_of_reprs_and_problems() -> None:
    found = rendered(
        http(url="https://a.example/{{ input.k }}", headers={"X": "{{ input.k }}"}, body="{{ input }}"),
        scope({"k": "C4nary"}),
    )
    assert found.url == "https://a.example/C4nary"
    assert "C4nary" not in repr(found) + repr(scope({"k": "C4nary"}))
