"""Row D: workflows. A run of ordered steps; a step that cannot succeed stands among the dead letters."""

import json
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from redrive import StepTask
from redrive.core.run_states import schedule_id
from support.engine import ManualClock
from support.holding import HoldingReceiver
from support.http import HttpClient
from support.installation import Installation
from support.receiver import HANG, RESET, Answer
from support.remote import at

DELAYS_S = [2, 4, 8]
NAMES = ("charge", "ship", "tell")


def call(receiver: HoldingReceiver, name: str, **fields: Any) -> dict[str, Any]:
    """A step that calls the receiver under a path of its own."""
    return {"name": name, "kind": "http", "url": f"{receiver.url}/{name}", "body": {"n": "{{ input.n }}"}, **fields}


def statuses(run: dict[str, Any]) -> tuple[str, list[str]]:
    return run["status"], [each["status"] for each in run["steps"]]


def called(receiver: HoldingReceiver) -> list[str]:
    """The steps in the order in which they called."""
    return [request.path.rpartition("/")[2] for request in receiver.requests]


async def begun(redrive: Installation, receiver: HoldingReceiver, *answers: Any, at_step: str = "ship") -> str:
    """A run of three steps; one of them gets these answers first."""
    await redrive.api.workflow("fulfil", *(call(receiver, name) for name in NAMES))
    receiver.usual = Answer(200, b'{"id": "c-7"}')
    receiver.script(*answers, path=f"/hook/{at_step}")
    run_id = await redrive.api.run("fulfil", {"n": 7})
    await redrive.work()
    return run_id


async def letter_of(redrive: Installation, run_id: str) -> dict[str, Any]:
    run = await redrive.api.run_of(run_id)
    (letter_id,) = [step["dead_letter_id"] for step in run["steps"] if step["status"] == "DLQ"]
    letter: dict[str, Any] = await redrive.api.get(f"/v1/dead-letters/{letter_id}")
    return letter


async def test_d1_a_run_takes_its_steps_one_after_the_other(redrive: Installation, receiver: HoldingReceiver) -> None:
    await redrive.api.workflow("fulfil", *(call(receiver, name) for name in NAMES))
    receiver.usual = Answer(200, b'{"id": "c-7"}')
    run_id = await redrive.api.run("fulfil", {"n": 7})
    assert statuses(await redrive.api.run_of(run_id)) == ("PENDING", ["PENDING"] * 3)
    await redrive.work()
    run = await redrive.api.run_of(run_id)
    assert statuses(run) == ("SUCCESS", ["SUCCESS"] * 3)
    assert called(receiver) == list(NAMES)
    assert [json.loads(request.body) for request in receiver.requests] == [{"n": 7}] * 3
    assert [each["output"] for each in run["steps"]] == [{"id": "c-7"}] * 3


async def test_d1_the_states_of_a_step_that_fails_and_of_its_run(
    redrive: Installation, receiver: HoldingReceiver, clock: ManualClock
) -> None:
    run_id = await begun(redrive, receiver, 503, 503, 503, 503)
    assert statuses(await redrive.api.run_of(run_id)) == ("RUNNING", ["SUCCESS", "RETRYING", "PENDING"])
    for delay_s in DELAYS_S:
        clock.advance(delay_s)
        await redrive.work()
    assert statuses(await redrive.api.run_of(run_id)) == ("DLQ_PENDING", ["SUCCESS", "DLQ", "PENDING"])
    letter = await letter_of(redrive, run_id)
    await redrive.api.post(f"/v1/dead-letters/{letter['id']}/ignore", {"because": "a test order"})
    assert statuses(await redrive.api.run_of(run_id)) == ("FAILED", ["SUCCESS", "FAILED", "PENDING"])
    await redrive.api.post(f"/v1/dead-letters/{letter['id']}/reopen")
    assert statuses(await redrive.api.run_of(run_id)) == ("DLQ_PENDING", ["SUCCESS", "DLQ", "PENDING"])


async def test_d1_a_step_is_running_while_it_is_tried(redrive: Installation, receiver: HoldingReceiver) -> None:
    await redrive.api.workflow("fulfil", *(call(receiver, name) for name in NAMES))
    receiver.hold()
    run_id = await redrive.api.run("fulfil", {"n": 7})
    async with redrive.working():
        await receiver.wait_for(1)
        assert statuses(await redrive.api.run_of(run_id)) == ("RUNNING", ["RUNNING", "PENDING", "PENDING"])
        receiver.release()
        await receiver.wait_for(3)


async def test_d2_retries_are_the_steps_own_at_2_4_and_8_seconds_under_an_id_of_run_step_and_attempt(
    redrive: Installation, receiver: HoldingReceiver, clock: ManualClock
) -> None:
    run_id = await begun(redrive, receiver, 503, 503, 503)
    for attempt, delay_s in enumerate(DELAYS_S, start=1):
        step = (await redrive.api.run_of(run_id))["steps"][1]
        assert (step["status"], step["attempt_count"], step["max_retries"]) == ("RETRYING", attempt, 3)
        assert step["scheduled_as"] == schedule_id(run_id, 1, attempt + 1) == f"{run_id}:1:{attempt + 1}"
        assert at(step["next_retry_at"]) == clock.now().replace() + (at(step["next_retry_at"]) - clock.now())
        assert (at(step["next_retry_at"]) - clock.now()).total_seconds() == delay_s
        clock.advance(delay_s - 0.01)
        await redrive.work()
        assert len(receiver.requests) == 1 + attempt  # not before its time
        clock.advance(0.01)
        await redrive.work()
    assert statuses(await redrive.api.run_of(run_id)) == ("SUCCESS", ["SUCCESS"] * 3)
    assert called(receiver) == ["charge", "ship", "ship", "ship", "ship", "tell"]


async def test_d2_a_step_that_is_scheduled_twice_is_executed_once(
    redrive: Installation, receiver: HoldingReceiver, clock: ManualClock
) -> None:
    run_id = await begun(redrive, receiver, 503)
    task_id = (await redrive.api.run_of(run_id))["steps"][1]["log_id"]
    for _ in range(3):
        await redrive.api.post(f"/v1/retry-queue/{task_id}/retry")
    # What settles a step enqueues the next one under an id of its own: whoever does it again makes nothing.
    async with redrive.stores.engine.transaction() as session:
        sql = "SELECT redrive.enqueue_steps($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)"
        row = [redrive.org_id, UUID(run_id), 1, "ship", "step.http", "fulfil.ship"]
        made = await session._connection.fetchval(  # as nobody does
            sql, *([value] for value in (*row, None, None, None, None, b"{}", None, None, None, 0.0))
        )
    assert made == 0
    await redrive.work()
    assert called(receiver) == ["charge", "ship", "ship", "tell"]


async def classes(redrive: Installation, *names: str) -> dict[str, Any]:
    """Begin a run of each of these workflows and try what is due; by name, the state and the class of their step."""
    runs = {name: await redrive.api.run(name, {"n": 7, "broken": "a\r\nb"}) for name in names}
    await redrive.work()
    steps = {name: (await redrive.api.run_of(run_id))["steps"][0] for name, run_id in runs.items()}
    return {name: (step["status"], step["category"], step["attempt_count"]) for name, step in steps.items()}


async def test_d2_what_trying_again_cannot_help_is_a_dead_letter_at_once(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    answers = {"missing": 404, "bad": 400, "moved": 302, "unexpected": 200}  # where 201 was expected
    for name, answer in answers.items():
        await redrive.api.workflow(name, call(receiver, name, expected_status=[201]))
        receiver.script(answer, path=f"/hook/{name}")
    assert await classes(redrive, *answers) == {
        **dict.fromkeys(("missing", "bad", "moved"), ("DLQ", "client_error", 1)),
        "unexpected": ("DLQ", "validation", 1),
    }
    letters = (await redrive.api.get("/v1/dead-letters"))["data"]
    assert {(letter["reason"], letter["retry_count"]) for letter in letters} == {("permanent", 0)}
    assert len(receiver.requests) == 4


async def test_d2_what_may_pass_is_retried(redrive: Installation, receiver: HoldingReceiver) -> None:
    answers: dict[str, Any] = {"busy": 503, "broken": 500, "many": 429, "late": 408, "cut": RESET, "hangs": HANG}
    for name, answer in answers.items():
        await redrive.api.workflow(name, call(receiver, name, timeout_s=0.3))
        receiver.script(answer, path=f"/hook/{name}")
    assert await classes(redrive, *answers) == {
        **dict.fromkeys(("busy", "broken", "late"), ("RETRYING", "server_error", 1)),
        "many": ("RETRYING", "rate_limited", 1),
        "cut": ("RETRYING", "network", 1),
        "hangs": ("RETRYING", "timeout", 1),
    }


async def test_d2_a_step_whose_input_cannot_be_made_is_a_dead_letter_that_says_why(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    fields: dict[str, dict[str, Any]] = {
        "order": {"body": {"ref": "{{ input.order.id }}"}},
        "missing": {"url": "http://127.0.0.1:9/{{ input.missing }}"},
        "X-Ref": {"headers": {"X-Ref": "{{ input.broken }}"}},
    }
    for name, given in fields.items():
        await redrive.api.workflow(name, call(receiver, "ship", **given))
    assert await classes(redrive, *fields) == dict.fromkeys(fields, ("DLQ", "validation", 1))
    letters = (await redrive.api.get("/v1/dead-letters"))["data"]
    for letter in letters:
        assert letter["event_type"].partition(".")[0] in letter["error_message"]
    assert (len(letters), receiver.requests) == (3, [])


async def test_d2_missing_configuration_and_unknown_errors_of_a_handler_are_not_retried(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    await redrive.api.workflow("two", {"name": "configured", "kind": "handler", "handler": "configured"})
    await redrive.api.workflow("three", {"name": "known", "kind": "handler", "handler": "known"})

    async def configured(task: StepTask) -> None:
        from redrive import ConfigurationError

        raise ConfigurationError("no API key for the carrier")

    async def known(task: StepTask) -> None:
        raise LookupError("who knows")

    runs = [await redrive.api.run(name) for name in ("two", "three")]
    await redrive.work({"configured": configured, "known": known})
    letters = [await letter_of(redrive, run_id) for run_id in runs]
    assert [(letter["reason"], letter["category"]) for letter in letters] == [
        ("permanent", "configuration"),
        ("permanent", "unknown"),
    ]
    assert "no API key" in letters[0]["error_message"]
    assert "LookupError" in letters[1]["error_stack"]


async def test_d3_the_dead_letter_of_a_step_has_all_that_a_person_needs(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    secret = "Bearer sk-canary-1234567890"
    steps = [
        call(receiver, "charge"),
        call(
            receiver,
            "ship",
            headers={"Authorization": secret},
            body={"ref": "{{ steps.charge.output.id }}", "password": "p-canary"},
        ),
    ]
    await redrive.api.workflow("fulfil", *steps)
    receiver.usual = Answer(200, b'{"id": "c-7", "token": "t-canary"}')
    receiver.script(422, path="/hook/ship")
    run_id = await redrive.api.run("fulfil", {"n": 7}, X_Correlation_Id="checkout-1887")
    await redrive.work()
    assert receiver.requests[1].headers["authorization"] == secret
    letter = await letter_of(redrive, run_id)
    facts = {
        "kind": "step",
        "run_id": run_id,
        "step_index": 1,
        "event_type": "fulfil.ship",
        "reason": "permanent",
        "category": "client_error",
        "state": "open",
        "correlation_id": "checkout-1887",
        "resolution": None,
    }
    assert {name: letter[name] for name in facts} == facts
    assert letter["first_failed_at"] == letter["failed_at"] is not None
    assert letter["payload_snapshot"] == {"ref": "c-7", "password": "[redacted]"}
    step = letter["config_snapshot"]["step"]
    assert (step["workflow"], step["version"], step["name"], step["method"]) == ("fulfil", 1, "ship", "POST")
    assert step["headers"] == {"Authorization": "[redacted]"}
    assert letter["config_snapshot"]["policy"]["name"] == "workflow"
    assert (len(letter["attempts"]), letter["attempts"][0]["number"]) == (1, 1)
    assert letter["replay"] == {"count": 0, "at": None, "by": None, "because": None, "outcome": None}
    shown = json.dumps([letter, await redrive.api.run_of(run_id), await redrive.api.get("/v1/workflows/fulfil")])
    assert "canary" not in shown
    listed = await redrive.api.get("/v1/dead-letters", kind="step")
    assert [each["id"] for each in listed["data"]] == [letter["id"]]


async def test_d4_the_fields_of_a_step(redrive: Installation, receiver: HoldingReceiver, clock: ManualClock) -> None:
    run_id = await begun(redrive, receiver, 503)
    step = (await redrive.api.run_of(run_id))["steps"][1]
    failed_at = clock.now()
    assert (step["attempt_count"], step["max_retries"]) == (1, 3)
    assert at(step["first_failed_at"]) == at(step["last_failed_at"]) == failed_at
    assert (at(step["next_retry_at"]) - failed_at).total_seconds() == 2
    assert step["error_message"] == "HTTP 503 Service Unavailable"
    assert step["error_stack"].endswith("answered 503")
    assert step["correlation_id"] == (await redrive.api.run_of(run_id))["correlation_id"]
    assert step["retry_policy_override"] is None
    assert step["dead_letter_id"] is None


async def test_d5_every_try_of_a_step_carries_the_same_key_and_each_step_another(
    redrive: Installation, receiver: HoldingReceiver, clock: ManualClock
) -> None:
    run_id = await begun(redrive, receiver, 503, 503)
    for delay_s in DELAYS_S[:2]:
        clock.advance(delay_s)
        await redrive.work()
    keys = [request.headers["idempotency-key"] for request in receiver.requests]
    assert keys == [f"{run_id}:{index}" for index in (0, 1, 1, 1, 2)]


async def test_d5_a_handlers_effect_happens_once_though_its_step_runs_twice(
    redrive: Installation, clock: ManualClock
) -> None:
    sent: list[str] = []

    def transfer(key: str) -> dict[str, object]:
        sent.append(key)
        return {"receipt": len(sent)}

    async def pay(task: StepTask) -> dict[str, object]:
        receipt = await task.once("transfer", partial(transfer, task.idempotency_key))
        if task.attempt == 1:
            raise ConnectionResetError("the wire was cut behind the transfer")
        return {"receipt": receipt["receipt"], "attempt": task.attempt}

    await redrive.api.workflow("pay", {"name": "pay", "kind": "handler", "handler": "pay"})
    run_id = await redrive.api.run("pay", {"n": 7})
    await redrive.work({"pay": pay})
    clock.advance(2)
    await redrive.work({"pay": pay})
    run = await redrive.api.run_of(run_id)
    assert statuses(run) == ("SUCCESS", ["SUCCESS"])
    assert run["steps"][0]["output"] == {"receipt": 1, "attempt": 2}
    assert sent == [f"{run_id}:0"]


async def test_d5_an_event_is_emitted_once_though_its_step_is_replayed(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    endpoint = await redrive.api.endpoint(receiver.url, event_types=["order.paid"])
    emit = {"name": "tell", "kind": "emit", "event_type": "order.paid", "payload": {"n": "{{ input.n }}"}}
    await redrive.api.workflow("announce", emit)
    traced = f"00-{'7' * 32}-{'1' * 16}-00"
    run_id = await redrive.api.run("announce", {"n": 7}, X_Correlation_Id="c-1", traceparent=traced)
    await redrive.work()
    event_id = (await redrive.api.run_of(run_id))["steps"][0]["output"]["event_id"]
    await redrive.api.post(f"/v1/runs/{run_id}/replay", {"from_step_index": 0})
    await redrive.work()
    (delivery,) = await redrive.api.deliveries(endpoint["id"])
    assert (delivery["status"], receiver.ids) == ("delivered", [event_id])
    assert json.loads(receiver.requests[0].body) == {"n": 7}
    sent = receiver.requests[0].headers
    assert (sent["x-correlation-id"], sent["traceparent"].split("-")[1]) == ("c-1", "7" * 32)
    # A person may ask for it to happen again.
    await redrive.api.post(f"/v1/runs/{run_id}/replay", {"from_step_index": 0, "new_idempotency_key": True})
    await redrive.work()
    assert len(set(receiver.ids)) == 2


async def test_d6_step_only_leaves_the_run_partial_while_later_steps_remain(
    redrive: Installation, receiver: HoldingReceiver, clock: ManualClock
) -> None:
    run_id = await begun(redrive, receiver, 422)
    letter = await letter_of(redrive, run_id)
    replayed = await redrive.api.post(f"/v1/dead-letters/{letter['id']}/replay", {"mode": "STEP_ONLY", "now": True})
    assert replayed["state"] == "replaying"
    assert statuses(await redrive.api.run_of(run_id)) == ("RUNNING", ["SUCCESS", "PENDING", "PENDING"])
    await redrive.work()
    assert statuses(await redrive.api.run_of(run_id)) == ("PARTIAL", ["SUCCESS", "SUCCESS", "PENDING"])
    assert called(receiver) == ["charge", "ship", "ship"]
    detail = await redrive.api.get(f"/v1/dead-letters/{letter['id']}")
    assert (detail["state"], detail["replay"]["outcome"]) == ("resolved", "succeeded")
    await redrive.api.post(f"/v1/runs/{run_id}/replay", {"from_step_index": 2})
    await redrive.work()
    assert statuses(await redrive.api.run_of(run_id)) == ("SUCCESS", ["SUCCESS"] * 3)
    assert called(receiver) == ["charge", "ship", "ship", "tell"]


async def test_d6_step_only_of_the_last_step_ends_the_run(
    redrive: Installation, receiver: HoldingReceiver, clock: ManualClock
) -> None:
    run_id = await begun(redrive, receiver, 422, at_step="tell")
    letter = await letter_of(redrive, run_id)
    await redrive.api.post(f"/v1/dead-letters/{letter['id']}/replay", {"mode": "STEP_ONLY", "now": True})
    await redrive.work()
    assert statuses(await redrive.api.run_of(run_id)) == ("SUCCESS", ["SUCCESS"] * 3)


async def test_d6_from_its_own_step_the_run_resumes(redrive: Installation, receiver: HoldingReceiver) -> None:
    run_id = await begun(redrive, receiver, 422)
    letter = await letter_of(redrive, run_id)
    await redrive.api.post(f"/v1/dead-letters/{letter['id']}/replay", {"mode": "FROM_STEP", "now": True})
    await redrive.work()
    assert statuses(await redrive.api.run_of(run_id)) == ("SUCCESS", ["SUCCESS"] * 3)
    assert called(receiver) == ["charge", "ship", "ship", "tell"]


async def test_d6_from_an_earlier_step_all_behind_it_return_to_pending(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    run_id = await begun(redrive, receiver, 422, at_step="tell")
    letter = await letter_of(redrive, run_id)
    body = {"mode": "FROM_STEP", "from_step_index": 1, "because": "the parcel was lost"}
    replayed = await redrive.api.post(f"/v1/dead-letters/{letter['id']}/replay", body)
    assert replayed["state"] == "replaying"
    assert statuses(await redrive.api.run_of(run_id)) == ("RUNNING", ["SUCCESS", "PENDING", "PENDING"])
    await redrive.work()
    run = await redrive.api.run_of(run_id)
    assert statuses(run) == ("SUCCESS", ["SUCCESS"] * 3)
    assert called(receiver) == ["charge", "ship", "tell", "ship", "tell"]
    assert [step["execution"] for step in run["steps"]] == [0, 1, 0]
    detail = await redrive.api.get(f"/v1/dead-letters/{letter['id']}")
    assert (detail["state"], detail["replay"]["outcome"]) == ("resolved", "succeeded")


async def test_d6_a_replay_that_fails_puts_the_letter_back(redrive: Installation, receiver: HoldingReceiver) -> None:
    run_id = await begun(redrive, receiver, 422, at_step="tell")
    letter = await letter_of(redrive, run_id)
    receiver.script(422, path="/hook/ship")
    await redrive.api.post(f"/v1/dead-letters/{letter['id']}/replay", {"mode": "FROM_STEP", "from_step_index": 1})
    await redrive.work()
    assert statuses(await redrive.api.run_of(run_id)) == ("DLQ_PENDING", ["SUCCESS", "DLQ", "DLQ"])
    detail = await redrive.api.get(f"/v1/dead-letters/{letter['id']}")
    assert (detail["state"], detail["replay"]["outcome"]) == ("open", "failed")
    # From the step that died now, the run comes to the other by itself.
    other = (await redrive.api.run_of(run_id))["steps"][1]["dead_letter_id"]
    await redrive.api.post(f"/v1/dead-letters/{other}/retry", {"now": True})
    await redrive.work()
    assert statuses(await redrive.api.run_of(run_id)) == ("SUCCESS", ["SUCCESS"] * 3)
    assert (await redrive.api.get(f"/v1/dead-letters/{letter['id']}"))["state"] == "resolved"


async def test_d6_under_another_policy_and_with_another_input(
    redrive: Installation, receiver: HoldingReceiver, clock: ManualClock
) -> None:
    run_id = await begun(redrive, receiver, 422, 503, 503)
    letter = await letter_of(redrive, run_id)
    override = {"kind": "list", "delays_s": [1], "max_retries": 5, "jitter": 0}
    body = {"override_retry_policy": override, "payload": {"n": 8}, "now": True}
    await redrive.api.post(f"/v1/dead-letters/{letter['id']}/replay", body)
    await redrive.work()
    step = (await redrive.api.run_of(run_id))["steps"][1]
    assert (step["status"], step["max_retries"]) == ("RETRYING", 5)
    assert step["retry_policy_override"]["delays_s"] == [1]
    assert (at(step["next_retry_at"]) - clock.now()).total_seconds() == 1
    for _ in range(2):
        clock.advance(1)
        await redrive.work()
    assert statuses(await redrive.api.run_of(run_id)) == ("SUCCESS", ["SUCCESS"] * 3)
    bodies = [json.loads(request.body) for request in receiver.requests if request.path.endswith("ship")]
    assert bodies == [{"n": 7}, {"n": 8}, {"n": 8}, {"n": 8}]


async def test_d6_the_old_path_takes_camel_case_and_milliseconds(
    redrive: Installation, receiver: HoldingReceiver, clock: ManualClock
) -> None:
    run_id = await begun(redrive, receiver, 422, 503)
    letter = await letter_of(redrive, run_id)
    override = {"baseDelayMs": 1500, "factor": 2, "maxDelayMs": 60000, "jitterRatio": 0, "maxRetries": 4}
    body = {"mode": "FROM_STEP", "fromStepIndex": 1, "overrideRetryPolicy": override}
    await redrive.api.post(f"/api/v1/workflow-dlq/{letter['id']}/replay", body)
    await redrive.work()
    step = (await redrive.api.run_of(run_id))["steps"][1]
    assert (step["status"], step["max_retries"], step["attempt_count"]) == ("RETRYING", 4, 1)
    assert (at(step["next_retry_at"]) - clock.now()).total_seconds() == 1.5


@pytest.mark.parametrize("role", ["STAFF", "VIEWER"])
async def test_d7_staff_and_viewers_look_and_change_nothing(
    redrive: Installation, receiver: HoldingReceiver, role: str
) -> None:
    run_id = await begun(redrive, receiver, 422)
    letter = await letter_of(redrive, run_id)
    key = (await redrive.api.post("/v1/keys", {"name": role, "role": role}))["key"]
    client = HttpClient(redrive.host, redrive.port, key)
    for path in (f"/v1/runs/{run_id}", "/v1/runs", "/v1/workflows/fulfil", f"/v1/dead-letters/{letter['id']}"):
        assert (await client.get(path)).status == 200
    for path, body in (
        (f"/v1/dead-letters/{letter['id']}/replay", {}),
        (f"/v1/dead-letters/{letter['id']}/retry", {}),
        (f"/v1/dead-letters/{letter['id']}/resolve", {}),
        (f"/v1/dead-letters/{letter['id']}/ignore", {}),
        (f"/v1/runs/{run_id}/replay", {"from_step_index": 0}),
        (f"/v1/runs/{run_id}/cancel", {}),
        ("/v1/workflows/fulfil/runs", {"input": {}}),
    ):
        assert (await client.post(path, body)).status == 403, path
    client.close()
    other = await redrive.other_org("other")
    for path in (f"/v1/runs/{run_id}", "/v1/workflows/fulfil"):
        assert (await other.http.get(path)).status == 404
    assert (await other.http.post(f"/v1/runs/{run_id}/cancel", {})).status == 404
    other.close()


async def test_d8_moves_replays_and_their_outcomes_are_audited(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    run_id = await begun(redrive, receiver, 422, 422)
    letter = await letter_of(redrive, run_id)
    for _ in range(2):
        await redrive.api.post(f"/v1/dead-letters/{letter['id']}/replay", {"now": True, "because": "try again"})
        await redrive.work()
    audit = (await redrive.api.get("/v1/audit", subject_id=letter["id"]))["data"]
    found = [(entry["action"], entry["actor"].partition(":")[0], entry["after"]) for entry in reversed(audit)]
    assert [action for action, _, _ in found] == [
        "dead_letter.move",
        "dead_letter.replay",
        "dead_letter.move",
        "dead_letter.replay_outcome",
        "dead_letter.replay",
        "dead_letter.replay_outcome",
    ]
    outcomes = [after["outcome"] for action, _, after in found if action == "dead_letter.replay_outcome"]
    assert outcomes == ["failed", "succeeded"]
    assert found[0][1] == "engine"
    assert found[0][2] == {"run_id": run_id, "step_index": 1, "reason": "permanent", "category": "client_error"}
    assert {entry["correlation_id"] for entry in audit if entry["action"] == "dead_letter.move"} == {
        letter["correlation_id"]
    }
    runs = (await redrive.api.get("/v1/audit", subject_id=run_id))["data"]
    assert [entry["action"] for entry in runs] == ["run.replay", "run.replay"]


async def test_d13_tries_retries_moves_and_replays_are_counted(
    redrive: Installation, receiver: HoldingReceiver, clock: ManualClock
) -> None:
    names = ("step_attempts", "step_retries", "dlq_moves", "dlq_replays")

    async def counted() -> list[int]:
        answer = await HttpClient(redrive.host, redrive.port, None).get("/metrics")
        assert (answer.status, answer.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
        values = dict(line.rsplit(" ", 1) for line in answer.body.decode().splitlines() if not line.startswith("#"))
        return [int(float(values[f"workflow_{name}_total"])) for name in names]

    assert await counted() == [0, 0, 0, 0]
    run_id = await begun(redrive, receiver, 503, 422)
    assert await counted() == [2, 0, 0, 0]
    clock.advance(2)
    await redrive.work()
    assert await counted() == [3, 1, 1, 0]
    letter = await letter_of(redrive, run_id)
    await redrive.api.post(f"/v1/dead-letters/{letter['id']}/replay", {"now": True})
    await redrive.work()
    assert await counted() == [5, 1, 1, 1]  # the replay's first try is no retry
