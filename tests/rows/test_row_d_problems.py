"""Row D: definitions that are refused, steps that could not be filled in, and what another input or key mends."""

import json
from datetime import timedelta
from typing import Any
from urllib.parse import unquote

import pytest

from redrive import GiveUp, Redrive, StepTask, step
from redrive.python_workflows import read_class
from redrive.store import workflows
from support.engine import ManualClock
from support.holding import HoldingReceiver
from support.installation import Installation
from support.receiver import Answer

from .test_row_d import statuses

MISSING = "{{ input.missing }}"


@pytest.mark.parametrize(
    ("fields", "is_mended"), [({"body": {"n": MISSING}}, True), ({"headers": {"X-Ref": MISSING}, "body": {}}, False)]
)
async def test_d6_a_step_that_could_not_be_filled_in_is_tried_with_another_input(
    redrive: Installation, receiver: HoldingReceiver, fields: dict[str, Any], is_mended: bool
) -> None:
    ship = {"name": "ship", "kind": "http", "url": f"{receiver.url}/{{{{ input.n }}}}", **fields}
    await redrive.api.workflow("one", ship)
    run_id = await redrive.api.run("one", {"n": 7})
    await redrive.work()
    run = await redrive.api.run_of(run_id)
    letter, said = run["steps"][0]["dead_letter_id"], run["steps"][0]["error_message"]
    await redrive.api.post(f"/v1/dead-letters/{letter}/retry", {"now": True})
    await redrive.work()
    assert statuses(await redrive.api.run_of(run_id)) == ("DLQ_PENDING", ["DLQ"])
    await redrive.api.post(f"/v1/dead-letters/{letter}/replay", {"payload": {"n": 8}, "now": True})
    await redrive.work()
    run = await redrive.api.run_of(run_id)
    if is_mended:
        assert statuses(run) == ("SUCCESS", ["SUCCESS"])
        [request] = receiver.requests
        assert (request.path.rpartition("/")[2], request.body) == ("7", b'{"n": 8}')
    else:
        assert (statuses(run), run["steps"][0]["error_message"]) == (("DLQ_PENDING", ["DLQ"]), said)
        assert receiver.requests == []


async def test_d6_a_step_whose_new_input_cannot_be_made_is_not_tried_with_none(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    """Its first input could be made, and it died; the step before it ran again, and answered something else."""
    charge = {"name": "charge", "kind": "http", "url": f"{receiver.url}/charge"}
    ship = {"name": "ship", "kind": "http", "url": f"{receiver.url}/ship", "body": "{{ steps.charge.output.id }}"}
    await redrive.api.workflow("two", charge, ship)
    receiver.script(Answer(200, b'{"id": 1}'), 422, Answer(200, b"{}"))
    run_id = await redrive.api.run("two")
    await redrive.work()
    await redrive.api.post(f"/v1/runs/{run_id}/replay", {"from_step_index": 0})
    await redrive.work()
    run = await redrive.api.run_of(run_id)
    assert statuses(run) == ("DLQ_PENDING", ["SUCCESS", "DLQ"])
    assert "steps.charge.output.id" in run["steps"][1]["error_message"]
    assert [request.path.rpartition("/")[2] for request in receiver.requests] == ["charge", "ship", "charge"]
    await redrive.api.post(f"/v1/runs/{run_id}/replay", {"from_step_index": 1, "payload": {"id": 2}, "now": True})
    await redrive.work()
    assert statuses(await redrive.api.run_of(run_id)) == ("SUCCESS", ["SUCCESS"] * 2)
    assert receiver.requests[-1].body == b'{"id": 2}'


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({"amount": 5}, ({"amount": 5}, {})),
        ([5], ([5], {})),
        ({"input": {"amount": 5}, "steps": 7}, ({"input": {"amount": 5}, "steps": 7}, {})),
        ({"input": {"amount": 5}, "steps": {"a": {"output": 1}}}, ({"amount": 5}, {"a": 1})),
    ],
)
async def test_d6_a_step_in_python_gets_the_input_that_a_replay_gives_it(
    redrive: Installation, payload: object, expected: tuple[object, object]
) -> None:
    app = Redrive(redrive.url)
    seen: list[tuple[object, object]] = []

    @app.workflow("pay")
    class Pay:
        @step
        def charge(self, task: StepTask) -> None:
            seen.append((task.input, task.outputs))
            if len(seen) == 1:
                raise GiveUp("there is nothing to charge")

    await redrive.api.workflow("pay", *app.workflows["pay"].to_spec()["steps"])  # type: ignore[misc]
    run_id = await redrive.api.run("pay", {"amount": 0})
    await redrive.work(app.handlers)
    await redrive.api.post(f"/v1/runs/{run_id}/replay", {"from_step_index": 0, "payload": payload, "now": True})
    await redrive.work(app.handlers)
    assert seen == [({"amount": 0}, {}), expected]
    assert statuses(await redrive.api.run_of(run_id)) == ("SUCCESS", ["SUCCESS"])


async def test_d1_a_step_in_python_that_needs_an_output_which_was_not_kept_dies_and_says_so(
    redrive: Installation,
) -> None:
    app = Redrive(redrive.url)

    @app.workflow("pay")
    class Pay:
        @step
        def ask(self, task: StepTask) -> str:
            return "x" * 70_000

        @step
        def tell(self, task: StepTask) -> int:
            return len(task.outputs["ask"])

    await redrive.api.workflow("pay", *app.workflows["pay"].to_spec()["steps"])  # type: ignore[misc]
    run_id = await redrive.api.run("pay")
    await redrive.work(app.handlers)
    run = await redrive.api.run_of(run_id)
    assert statuses(run) == ("DLQ_PENDING", ["SUCCESS", "DLQ"])
    assert "larger than 65536 bytes and was not kept" in run["steps"][1]["error_message"]


def test_d1_a_step_in_python_that_is_not_declared_by_names_is_refused() -> None:
    with pytest.raises(TypeError, match="by name, as in"):
        step("charge")  # type: ignore[call-overload]


def test_a_workflow_in_python_has_the_steps_of_its_base_classes_before_its_own() -> None:
    class Paid:
        @step
        def charge(self, task: StepTask) -> str:
            return "the base class"

        cool_off = step.wait(30)
        left_out = step.wait(1)

    class Sent(Paid):
        @step(max_retries=1)
        def charge(self, task: StepTask) -> str:
            return "the class itself"

        left_out = None  # type: ignore[assignment]
        ship = step.http("https://example.com/ship")

    workflow, handlers = read_class("sent", Sent)
    assert [each.name for each in workflow.steps] == ["charge", "cool_off", "ship"]
    assert workflow.steps[0].max_retries == 1
    assert list(handlers) == ["sent.charge"]


async def test_d6_a_new_key_also_goes_where_a_template_names_it(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    key = "{{ step.idempotency_key }}"
    await redrive.api.workflow(
        "pay",
        {
            "name": "charge",
            "kind": "http",
            "url": f"{receiver.url}/charge?key={key}",
            "headers": {"x-key": key},
            "body": {"key": key},
        },
    )
    receiver.usual = 422
    run_id = await redrive.api.run("pay")
    await redrive.work()
    (letter,) = (await redrive.api.get("/v1/dead-letters"))["data"]
    asked: list[dict[str, object]] = [{"new_idempotency_key": True}, {}, {"payload": {"key": "mine"}}]
    for times, terms in enumerate(asked, start=1):
        await redrive.api.post(f"/v1/dead-letters/{letter['id']}/replay", {"now": True, **terms})
        await redrive.work()
        assert len(receiver.requests) == 1 + times
    renewed = f"{run_id}:0:r1"
    sent = [(quoted(each.path), each.headers["x-key"], json.loads(each.body)["key"]) for each in receiver.requests]
    assert sent == [(f"{run_id}:0",) * 3, (renewed,) * 3, (renewed,) * 3, (renewed, renewed, "mine")]


def quoted(path: str) -> str:
    """The key in an address."""
    return unquote(path.partition("key=")[2])


async def test_d6_a_wait_takes_no_other_payload(redrive: Installation) -> None:
    await redrive.api.workflow("slow", {"name": "rest", "kind": "wait", "wait_s": 60})
    run_id = await redrive.api.run("slow")
    await redrive.api.post(f"/v1/runs/{run_id}/cancel")
    answer = await redrive.api.http.request(
        "POST", f"/v1/runs/{run_id}/replay", {"from_step_index": 0, "payload": {"wait_s": 1}}
    )
    assert (answer.status, answer.json["errors"][0]["loc"]) == (422, ["body", "payload"])
    assert "waits sends nothing" in answer.json["errors"][0]["msg"]


async def test_d1_a_wait_until_a_time_that_is_too_far_is_refused_when_it_is_defined(
    redrive: Installation, clock: ManualClock
) -> None:
    for days, status in ((366, 200), (367, 422)):
        until = (clock.now() + timedelta(days=days)).isoformat()
        given = {"steps": [{"name": "rest", "kind": "wait", "until": until}]}
        answer = await redrive.api.http.request("PUT", "/v1/workflows/slow", given)
        assert answer.status == status
    assert answer.json["errors"][0]["loc"] == ["body", "steps", 0, "until"]
    assert answer.json["errors"][0]["msg"] == "must not be more than 366 days away"


async def test_d1_a_workflow_has_so_many_versions_and_no_more(
    redrive: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows, "MAX_VERSIONS", 2)
    for wait_s, status in ((1, 200), (2, 200), (3, 422), (2, 200)):
        given = {"steps": [{"name": "rest", "kind": "wait", "wait_s": wait_s}]}
        answer = await redrive.api.http.request("PUT", "/v1/workflows/slow", given)
        assert (answer.status, answer.json.get("version", 2)) == (status, min(wait_s, 2))
    await redrive.api.http.request("DELETE", "/v1/workflows/slow")
    answer = await redrive.api.http.request("PUT", "/v1/workflows/slow", given)
    assert answer.json["errors"][0]["msg"] == "A workflow has at most 2 versions. Give this one another name"


@pytest.mark.parametrize("by_endpoint", [True, False])
async def test_d3_people_are_told_which_workflow_a_dead_step_is_of(
    redrive: Installation, receiver: HoldingReceiver, by_endpoint: bool
) -> None:
    receiver.usual = Answer(400)
    place = {"endpoint": (await redrive.api.endpoint(receiver.url, name="shop"))["name"]} if by_endpoint else {}
    await redrive.api.workflow("order", {"name": "ship", "kind": "http", **(place or {"url": receiver.url})})
    await redrive.api.run("order")
    await redrive.work()
    [notice] = (await redrive.api.get("/v1/notices"))["data"]
    assert notice["text"].startswith(
        'order.ship for the workflow "order" is a dead letter: another try would not help.'
    )
    assert notice["facts"]["endpoint"] == ("shop" if by_endpoint else None)


async def test_d1_a_text_that_is_too_large_once_it_is_json_is_not_kept(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    receiver.script(Answer(200, b"\xff" * 60_000), path="/hook/ask")
    ask = {"name": "ask", "kind": "http", "url": f"{receiver.url}/ask"}
    tell = {"name": "tell", "kind": "http", "url": f"{receiver.url}/tell", "body": "{{ steps.ask.output }}"}
    await redrive.api.workflow("two", ask, tell)
    run_id = await redrive.api.run("two")
    await redrive.work()
    run = await redrive.api.run_of(run_id)
    assert statuses(run) == ("DLQ_PENDING", ["SUCCESS", "DLQ"])
    assert run["steps"][0]["output_is_cut"]
    assert "larger than 65536 bytes" in run["steps"][1]["error_message"]
