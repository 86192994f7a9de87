"""Definitions: what is taken round-trips, every mistake is named with its place, and no secret is shown."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.core.policy import Policy
from redrive.core.presets import PRESETS
from redrive.core.redact import REDACTED
from redrive.core.step_fields import MAX_EXPRESSIONS
from redrive.core.workflow import DEFAULT_POLICY, MAX_DEFINITION_BYTES, MAX_STEPS, MISSING, Workflow, WorkflowError
from redrive.core.workflow_view import restored
from support.workflows import DATA, definitions

CANARY = "C4naryXq9Zsecret"
WAIT: dict[str, object] = {"name": "pause", "kind": "wait", "wait_s": 5}
CHARGE: dict[str, object] = {
    "name": "charge",
    "kind": "http",
    "url": "https://pay.example.com/charges/{{ input.id ?? 7 }}?key=" + CANARY,
    "headers": {"Authorization": f"Bearer {CANARY}", "X-Token": "Token {{ input.token }}", "accept": "text/plain"},
    "body": {"amount": "{{ input.amount }}", "password": CANARY, "api_key": "{{ input.key }}", "n": [{"pin": CANARY}]},
}


def http(**fields: object) -> dict[str, object]:
    return {"name": "call", "kind": "http", "url": "https://a.example/x", **fields}


def workflow(*steps: dict[str, object]) -> Workflow:
    return Workflow.from_spec("orders", {"steps": list(steps)})


def problems(spec: Any, name: str = "orders") -> dict[tuple[str | int, ...], str]:
    with pytest.raises(WorkflowError) as caught:
        Workflow.from_spec(name, spec)
    return dict(caught.value.errors)


def step_problem(step: object, *place: str | int) -> str:
    """What is said of the second step."""
    found = problems({"steps": [WAIT, step]})
    assert set(found) == {("steps", 1, *place)}
    return found["steps", 1, *place]


@settings(max_examples=80, deadline=None)
@given(spec=definitions())
def test_a_definition_survives_the_way_through_its_spec(spec: dict[str, object]) -> None:
    made = Workflow.from_spec("orders", spec)
    assert Workflow.from_spec("orders", made.to_spec()) == made
    assert Workflow.from_spec("orders", json.loads(json.dumps(made.to_spec()))).to_spec() == made.to_spec()
    apart = made.to_spec(with_literal_headers=False)
    assert Workflow.from_spec("orders", apart, made.literal_headers) == made


@settings(max_examples=60, deadline=None)
@given(spec=definitions())
def test_what_is_shown_of_a_definition_can_be_saved_again(spec: dict[str, object]) -> None:
    made = Workflow.from_spec("orders", spec)
    assert Workflow.from_spec("orders", restored(made.redacted(), made.to_spec())) == made


@settings(max_examples=80, deadline=None)
@given(
    spec=st.dictionaries(st.sampled_from(["steps", "description", "retention_s", "x"]), DATA)
    | st.builds(
        lambda steps: {"steps": steps},
        st.lists(
            st.dictionaries(
                st.sampled_from([*CHARGE, *WAIT, "until", "handler", "input", "event_type", "payload", "policy"]),
                DATA | st.sampled_from([*CHARGE.values(), "{{", "handler", "emit"]),
            ),
            max_size=2,
        ),
    )
    | DATA
)
def test_any_json_is_a_definition_or_an_error_with_places(spec: object) -> None:
    try:
        made = Workflow.from_spec("orders", spec)
    except WorkflowError:
        assert all(problems(spec).values())
    else:
        assert Workflow.from_spec("orders", made.to_spec()) == made


def test_every_problem_is_reported_at_once_with_its_place() -> None:
    found = problems(
        {
            "description": 7,
            "retention_s": -1,
            "colour": "green",
            "steps": [
                {
                    "name": "a b",
                    "kind": "http",
                    "url": "https://{{ input.host }}/x",
                    "method": "TRACE",
                    "headers": {"host": "a", "Idempotency-Key": "b", "X-A": "a\r\nb", "X-B": 1, "x-b": "2"},
                    "body": {"ok": "{{ input.a }}", "late": ["{{ steps.pause.output }}"], "open": "{{ input"},
                    "expected_status": [200, "2xx", 99, "9xx", True],
                    "policy": {"kind": "list", "delays_s": [-1]},
                    "max_retries": 1.5,
                    "timeout_s": 0,
                    "external_system": "",
                    "wait_s": 1,
                },
                WAIT,
                {"kind": "nonsense"},
                "a step",
            ],
        },
        name="-orders",
    )
    first = ("steps", 0)
    assert set(found) == {
        ("name",),
        ("description",),
        ("retention_s",),
        ("colour",),
        (*first, "name"),
        (*first, "url"),
        (*first, "method"),
        (*first, "headers", "host"),
        (*first, "headers", "Idempotency-Key"),
        (*first, "headers", "X-A"),
        (*first, "headers", "X-B"),
        (*first, "body", "late", 0),
        (*first, "body", "open"),
        (*first, "expected_status", 2),
        (*first, "expected_status", 3),
        (*first, "expected_status", 4),
        (*first, "policy", "delays_s", 0),
        (*first, "max_retries"),
        (*first, "timeout_s"),
        (*first, "external_system"),
        (*first, "wait_s"),
        ("steps", 2, "name"),
        ("steps", 2, "kind"),
        ("steps", 3),
    }


@pytest.mark.parametrize("name", ["a", "A.b-c_9", "_x", "a" * 100])
def test_a_workflow_may_be_named(name: str) -> None:
    assert Workflow.from_spec(name, {"steps": [WAIT]}).name == name


@pytest.mark.parametrize("name", ["", ".a", "-a", "a b", "a/b", "é", "a\n", "a" * 101])
def test_a_workflow_may_not_be_named(name: str) -> None:
    assert set(problems({"steps": [WAIT]}, name)) == {("name",)}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ([], "must be an object"),
        ({"steps": float("nan")}, "must be JSON"),
        ({"steps": 10**5000}, "must be JSON"),
        ({"steps": "\ud800"}, "must be JSON"),
        ({"description": "a\0b", "steps": [WAIT]}, "NUL"),
        ({"description": "x" * MAX_DEFINITION_BYTES, "steps": [WAIT]}, f"larger than {MAX_DEFINITION_BYTES} bytes"),
    ],
)
def test_what_cannot_be_kept_is_refused_as_a_whole(spec: object, said: str) -> None:
    assert said in problems(spec)[()]


def test_a_backslash_before_u0000_is_not_the_character() -> None:
    assert Workflow.from_spec("orders", {"description": "\\u0000", "steps": [WAIT]}).description == "\\u0000"


def test_endless_nesting_is_refused() -> None:
    deep: object = []
    for _ in range(100):
        deep = [deep]
    assert "deeper than" in problems({"steps": [http(body=deep)]}).popitem()[1]
    for _ in range(2_000):
        deep = [deep]
    assert "must be JSON" in problems({"steps": [http(body=deep)]})[()]


@pytest.mark.parametrize("steps", [None, [], {}, "x", [WAIT] * (MAX_STEPS + 1)])
def test_there_are_1_to_100_steps(steps: object) -> None:
    assert f"1 to {MAX_STEPS} steps" in problems({"steps": steps})["steps",]


def test_a_definition_has_a_limited_number_of_expressions() -> None:
    workflow(http(body=["{{ input.a }}"] * MAX_EXPRESSIONS))
    found = problems({"steps": [http(body=["{{ input.a }}"] * (MAX_EXPRESSIONS + 1))]})
    assert f"at most {MAX_EXPRESSIONS} expressions" in found["steps",]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("{{ steps.later.output }}", "must name a step that comes earlier: those are pause"),
        ("{{ steps.call.output }}", "must name a step that comes earlier"),
        ("{{ steps.pause.result }}", "must go on with .output"),
        ("{{ steps[0].output }}", "must name a step"),
        ("{{ inputs.a }}", "a template knows input, steps, run, step"),
        ("{{ run.user }}", "run has id, workflow, version, correlation_id"),
        ("{{ step.index.x }}", "step.index has no parts"),
    ],
)
def test_a_path_that_can_never_be_there_is_refused_when_it_is_saved(body: str, said: str) -> None:
    assert said in step_problem(http(body=body), "body")


@pytest.mark.parametrize("body", ["{{ steps }}", "{{ steps.pause }}", "{{ steps.pause.output.x[0] }}", "{{ run }}"])
def test_a_path_that_may_be_there_is_taken(body: str) -> None:
    assert workflow(WAIT, http(body=body)).steps[1].body == body


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("{{ input.url }}", "scheme and host must be literal"),
        ("https://{{ input.host }}/", "scheme and host must be literal"),
        ("https://a.example{{ input.rest }}", "scheme and host must be literal"),
        ("https://a.example:{{ input.port }}/", "scheme and host must be literal"),
        ("{{ input.scheme }}://a.example/", "scheme and host must be literal"),
        ("https://a.example\\{{ input.x }}/", "scheme and host must be literal"),
        ("https://me:{{ input.x }}@a.example/", "scheme and host must be literal"),
        ("https://a@b.example/{{ input.x }}", "user name"),
        ("ftp://a.example/", "http:// or https://"),
        ("https://a.example/#{{ input.x }}", "fragment"),
        ("https://a.example/../{{ input.x }}", "leads elsewhere"),
        ("https://a.example/é{{ input.x }}", "percent-encode"),
        (7, "must be a text"),
    ],
)
def test_a_url_leads_to_one_place(url: object, said: str) -> None:
    assert said in step_problem(http(url=url), "url")


@pytest.mark.parametrize(
    ("fields", "place", "said"),
    [
        ({"url": None}, "url", "exactly one of url and endpoint"),
        ({"endpoint": "billing"}, "url", "exactly one of url and endpoint"),
        ({"kind": "handler", "url": None, "handler": "{{ input.h }}"}, "handler", "taken as it is"),
        ({"kind": "emit", "url": None, "event_type": "a\nb"}, "event_type", "control characters"),
    ],
)
def test_a_field_that_cannot_be_used_is_named(fields: dict[str, object], place: str, said: str) -> None:
    step = {name: value for name, value in http(**fields).items() if value is not None}
    assert said in step_problem(step, place)


@pytest.mark.parametrize(
    ("fields", "place", "said"),
    [
        ({}, "wait_s", "exactly one"),
        ({"wait_s": 1, "until": "{{ input.at }}"}, "wait_s", "exactly one"),
        ({"wait_s": "5"}, "wait_s", "a number of seconds"),
        ({"wait_s": -1}, "wait_s", "between 0 and 31622400"),
        ({"wait_s": True}, "wait_s", "must be a number"),
        ({"until": "tomorrow"}, "until", "ISO 8601"),
        ({"until": "2030-01-31T09:30:00"}, "until", "time zone"),
        ({"until": 7}, "until", "ISO 8601"),
    ],
)
def test_a_wait_has_one_end_that_can_be_read(fields: dict[str, object], place: str, said: str) -> None:
    assert said in step_problem({"name": "w", "kind": "wait", **fields}, place)


def test_names_are_unique_and_fit_into_an_event_type() -> None:
    assert "step 0 is named" in step_problem(WAIT, "name")
    long = {"steps": [WAIT | {"name": "s" * 100}]}
    Workflow.from_spec("w" * 99, long)
    assert "at most 99 characters" in problems(long, "w" * 100)["steps", 0, "name"]


def test_what_is_left_out_has_defaults() -> None:
    step = workflow(http()).steps[0]
    assert (step.method, step.policy, step.body) == ("POST", DEFAULT_POLICY, MISSING)
    assert workflow(http(body=None)).steps[0].body is None
    assert [step.expects(status) for status in (199, 200, 204, 299, 300, 404, 500)] == [False, True, True, True] + [
        False
    ] * 3
    assert DEFAULT_POLICY in PRESETS


def test_expected_statuses_are_classes_and_codes() -> None:
    step = workflow(http(expected_status=[409, "2xx", 404, 409])).steps[0]
    assert step.expected_status == ("2xx", 404, 409)
    assert step.expects(404)
    assert not step.expects(400)


def test_a_step_may_change_the_retries_and_the_time_out_of_its_policy() -> None:
    policy = PRESETS["workflow"]
    assert workflow(http()).steps[0].terms(policy) == policy
    changed = workflow(http(max_retries=0, timeout_s=2.5)).steps[0].terms(policy)
    assert (changed.max_retries, changed.timeout_s, changed.cap_s) == (0, 2.5, policy.cap_s)
    own = workflow(http(policy={"kind": "manual"})).steps[0].policy
    assert isinstance(own, Policy)


def test_literal_headers_are_kept_apart_from_those_with_expressions() -> None:
    made = workflow(CHARGE)
    assert made.literal_headers == {0: {"Authorization": f"Bearer {CANARY}", "accept": "text/plain"}}
    assert made.steps[0].header_templates == {"X-Token": "Token {{ input.token }}"}
    written = made.to_spec(with_literal_headers=False)
    assert Workflow.from_spec("orders", written).steps[0].headers == made.steps[0].header_templates


def test_what_people_see_has_the_expressions_and_none_of_the_secrets() -> None:
    made = workflow(CHARGE)
    shown: Any = made.redacted()
    assert CANARY not in json.dumps(shown)
    assert CANARY not in repr(made)
    step = shown["steps"][0]
    assert step["url"] == "https://pay.example.com/charges/{{ input.id ?? 7 }}?" + REDACTED
    assert step["headers"] == {"Authorization": REDACTED, "X-Token": "Token {{ input.token }}", "accept": "text/plain"}
    assert step["body"] == {
        "amount": "{{ input.amount }}",
        "password": REDACTED,
        "api_key": "{{ input.key }}",
        "n": [{"pin": REDACTED}],
    }


def test_a_literal_beside_an_expression_is_hidden_like_any_other() -> None:
    hidden = [f"{CANARY}{{{{ input.a }}}}", f'{{{{ input.a ?? "{CANARY}" }}}}', f'{{{{ "{CANARY}" }}}}']
    for value in hidden:
        made = workflow(http(headers={"X-Key": value}, body={"password": value}))
        assert CANARY not in json.dumps(made.redacted())


def test_a_shown_definition_with_a_change_keeps_its_hidden_values() -> None:
    made = workflow(WAIT, CHARGE)
    shown: Any = made.redacted()
    shown["steps"].pop(0)
    shown["steps"][0]["method"] = "PUT"
    shown["steps"][0]["body"]["amount"] = 1
    again = Workflow.from_spec("orders", restored(shown, made.to_spec())).steps[0]
    assert again.headers == CHARGE["headers"]
    assert again.url == CHARGE["url"]
    assert again.body == CHARGE["body"] | {"amount": 1}  # type: ignore[operator]
    assert again.method == "PUT"


def test_a_mark_that_stands_for_nothing_stored_is_refused() -> None:
    made = workflow(CHARGE)
    shown: Any = made.redacted()
    shown["steps"][0]["name"] = "another"
    found = problems(restored(shown, made.to_spec()))
    assert set(found) == {
        ("steps", 0, "url"),
        ("steps", 0, "headers", "Authorization"),
        ("steps", 0, "body", "password"),
        ("steps", 0, "body", "n", 0, "pin"),
    }
    assert REDACTED in found["steps", 0, "url"]


@pytest.mark.parametrize("given", [None, [], {"steps": 1}, {"steps": [1, {"name": []}]}])
def test_nonsense_is_handed_on_as_it_is(given: object) -> None:
    assert restored(given, workflow(CHARGE).to_spec()) == given


@pytest.mark.parametrize(
    ("whole", "change"),
    [
        ("a" * 20_000, lambda shown: f"b{shown}"),
        (list(range(20_000)), lambda shown: [7, *shown]),
        ({f"k{n}": n for n in range(12_000)}, lambda shown: shown | {"k0": 7}),
    ],
    ids=["a text", "a list", "an object"],
)
def test_a_part_that_was_shown_does_not_take_the_place_of_the_whole(
    whole: object, change: Callable[[Any], object]
) -> None:
    made = workflow({"name": "tell", "kind": "emit", "event_type": "told", "payload": {"whole": whole}})
    shown: Any = made.redacted()
    assert Workflow.from_spec("orders", restored(shown, made.to_spec())) == made
    payload = shown["steps"][0]["payload"]
    payload["whole"] = change(payload["whole"])
    [(place, message)] = problems(restored(shown, made.to_spec())).items()
    assert place[:4] == ("steps", 0, "payload", "whole")
    assert "give its value" in message
