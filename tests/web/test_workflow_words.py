"""Steps of workflows in words, and what the dialog of a replay is told of them."""

import pytest
from hypothesis import given

from redrive.core.run_states import RunStatus, StepStatus
from redrive.core.workflow import StepKind, Workflow
from redrive.web.workflow_words import (
    RUN_STATUSES,
    STEP_STATUSES,
    choices_of,
    defined_step,
    icon,
)
from support.workflows import definitions

HTTP = {"name": "charge", "kind": "http", "url": "https://pay.example.com/charges/{{ input.id }}"}


@given(spec=definitions())
def test_whatever_can_be_defined_can_be_shown(spec: dict[str, object]) -> None:
    shown = Workflow.from_spec("any", spec).redacted()["steps"]
    assert isinstance(shown, list)
    for index, each in enumerate(shown):
        step = defined_step(index, each)
        assert (step.index, step.name, step.kind) == (index, each["name"], each["kind"])
        assert step.whole_target
        assert step.policy


def test_every_status_has_words_and_every_kind_a_picture() -> None:
    assert set(RUN_STATUSES) == set(RunStatus)
    assert set(STEP_STATUSES) == set(StepStatus)
    assert len({icon(kind) for kind in StepKind}) == len(StepKind)


@pytest.mark.parametrize(
    ("spec", "target", "whole"),
    [
        (HTTP, "POST pay.example.com", "POST https://pay.example.com/charges/{{ input.id }}"),
        ({"name": "a", "kind": "http", "method": "GET", "endpoint": "billing"}, "GET billing", "GET billing"),
        ({"name": "a", "kind": "handler", "handler": "notify"}, "notify", "notify"),
        ({"name": "a", "kind": "emit", "event_type": "x.y", "endpoint": "crm"}, "x.y", "x.y to crm"),
        ({"name": "a", "kind": "wait", "wait_s": 5400}, "1 h 30 min", "1 h 30 min"),
        ({"name": "a", "kind": "wait", "wait_s": 0}, "0 ms", "0 ms"),
        ({"name": "a", "kind": "wait", "wait_s": "{{ input.s }}"}, "{{ input.s }}", "{{ input.s }}"),
        ({"name": "a", "kind": "wait", "until": "{{ input.t }}"}, "until {{ input.t }}", "until {{ input.t }}"),
    ],
)
def test_what_a_step_does_is_told_in_short_and_whole(spec: dict[str, object], target: str, whole: str) -> None:
    step = defined_step(0, spec)
    assert (step.target, step.whole_target) == (target, whole)


def test_what_a_step_says_over_its_policy_is_told() -> None:
    own = {"kind": "list", "delays_s": [5], "max_retries": 2}
    terms = {"max_retries": 1, "timeout_s": 15, "expected_status": [201, "3xx"], "external_system": "SAP"}
    assert defined_step(0, HTTP | terms).terms == (
        "at most 1 retry",
        "a try may take 15 s",
        "expects 201, 3xx",
        "external system SAP",
    )
    step = defined_step(0, HTTP | {"policy": own})
    assert (step.policy, step.policy_href) == ("its own", None)
    assert step.terms == ("retries 5 s, 5 s; ends after 2 retries",)
    assert defined_step(0, HTTP | {"policy": "slow"}).policy_href == "/policies/slow"


def test_a_replay_knows_what_ran_what_is_done_and_what_keeps_its_input() -> None:
    base: dict[str, object] = {"execution": 0, "dead_letter_id": None, "log_id": "a"}
    steps: list[dict[str, object]] = [
        base | {"index": 0, "name": "charge", "status": "SUCCESS"},
        base | {"index": 1, "name": "ship", "status": "DLQ", "dead_letter_id": "a"},
        base | {"index": 2, "name": "tell", "status": "PENDING", "log_id": None},
        base | {"index": 3, "name": "bill", "status": "PENDING", "log_id": None, "execution": 1},
        base | {"index": 4, "name": "gone", "status": "FAILED"},  # its letter was deleted
    ]
    told = [(each["stands"], each["is_done"], each["is_new"], each["keeps_input"]) for each in choices_of(steps)]
    assert told == [
        ("succeeded", True, False, False),
        ("dead", False, False, True),
        ("not begun", False, True, False),
        ("not begun", False, False, False),
        ("dead, closed", False, False, False),
    ]
