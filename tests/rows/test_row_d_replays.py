"""Row D: replays of dead letters: under an override of the policy, again, and what is counted and kept of them."""

import json
from typing import Any

import pytest
import structlog

from redrive import StepTask
from redrive.core.permissions import Role
from redrive.store.check import check
from support.engine import ManualClock
from support.holding import HoldingReceiver
from support.http import HttpClient
from support.installation import Installation
from support.receiver import Answer

from .test_row_d import begun, call, called, letter_of, statuses

D_DEFAULTS = {"base_s": 2, "factor": 2, "cap_s": 120, "jitter": 0.25, "max_retries": 3}


async def replay(redrive: Installation, letter: dict[str, Any], **body: Any) -> dict[str, Any]:
    """As a client of specification D asks."""
    answer: dict[str, Any] = await redrive.api.post(f"/api/v1/workflow-dlq/{letter['id']}/replay", body)
    return answer


async def schedule_of(redrive: Installation, run_id: str, step: int = 1) -> dict[str, Any]:
    """The terms of D that a step is tried under."""
    override = (await redrive.api.run_of(run_id))["steps"][step]["retry_policy_override"]
    return {name: override[name] for name in D_DEFAULTS}


@pytest.mark.parametrize(
    ("override", "changed"),
    [
        ({}, {}),
        ({"maxRetries": 5}, {"max_retries": 5}),
        ({"jitterRatio": 0.1, "factor": 3}, {"jitter": 0.1, "factor": 3}),
        ({"baseDelayMs": 500}, {"base_s": 0.5}),
        ({"maxDelayMs": 60_000, "maxRetries": None}, {"cap_s": 60}),
    ],
)
async def test_d9_what_an_override_leaves_out_keeps_the_steps_value(
    redrive: Installation, receiver: HoldingReceiver, override: dict[str, Any], changed: dict[str, Any]
) -> None:
    run_id = await begun(redrive, receiver, 422)
    await replay(redrive, await letter_of(redrive, run_id), mode="STEP_ONLY", overrideRetryPolicy=override)
    assert await schedule_of(redrive, run_id) == D_DEFAULTS | changed  # the policy of workflows is D's


async def test_d9_an_override_keeps_the_classification_an_unknown_error_is_not_retried(redrive: Installation) -> None:
    tries: list[int] = []

    def pay(task: StepTask) -> None:
        tries.append(task.attempt)
        raise RuntimeError("nobody has classified this")

    await redrive.api.workflow("pay", {"name": "pay", "kind": "handler", "handler": "pay"})
    run_id = await redrive.api.run("pay", {"n": 7})
    await redrive.work({"pay": pay})
    await replay(redrive, await letter_of(redrive, run_id), overrideRetryPolicy={"baseDelayMs": 200, "jitterRatio": 0})
    await redrive.work({"pay": pay})
    letter = await letter_of(redrive, run_id)
    assert (letter["reason"], letter["category"], tries) == ("permanent", "unknown", [1, 1])
    rules = (await redrive.api.run_of(run_id))["steps"][0]["retry_policy_override"]["classify"]
    assert "unknown" in rules["fail"]
    # Who wants it otherwise says so; the other rules stay.
    override = {"classify": {"retry": ["unknown"]}}
    await redrive.api.post(f"/v1/dead-letters/{letter['id']}/replay", {"override_retry_policy": override})
    await redrive.work({"pay": pay})
    step = (await redrive.api.run_of(run_id))["steps"][0]
    assert step["status"] == "RETRYING"
    assert set(step["retry_policy_override"]["classify"]["fail"]) == {"client_error", "validation", "configuration"}


async def test_d9_an_override_of_a_manual_step_begins_with_the_defaults_of_d(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    await redrive.api.workflow("fulfil", call(receiver, "charge", policy={"kind": "manual"}))
    receiver.script(422, path="/hook/charge")
    run_id = await redrive.api.run("fulfil", {"n": 7})
    await redrive.work()
    await replay(redrive, await letter_of(redrive, run_id), overrideRetryPolicy={"baseDelayMs": 500})
    assert await schedule_of(redrive, run_id, 0) == D_DEFAULTS | {"base_s": 0.5}


async def test_d9_an_override_counts_for_every_step_that_the_replay_runs(
    redrive: Installation, receiver: HoldingReceiver, clock: ManualClock
) -> None:
    await redrive.api.workflow("fulfil", *(call(receiver, name) for name in ("a", "b", "c", "d")))
    receiver.usual = Answer(200, b"{}")
    receiver.script(422, path="/hook/c")
    run_id = await redrive.api.run("fulfil", {"n": 7})
    await redrive.work()
    # b succeeded before, c is the one that had died, d was never reached.
    for path in ("b", "c", "d"):
        receiver.script(503, path=f"/hook/{path}")
    override = {"baseDelayMs": 500, "jitterRatio": 0, "maxRetries": 1}
    letter = await letter_of(redrive, run_id)
    await replay(redrive, letter, mode="FROM_STEP", fromStepIndex=1, overrideRetryPolicy=override)
    steps = (await redrive.api.run_of(run_id))["steps"]
    assert [step["max_retries"] for step in steps] == [3, 1, 1, 1]
    assert [step["retry_policy_override"] is not None for step in steps] == [False, True, True, True]
    for _ in range(3):
        await redrive.work()
        clock.advance(0.5)
    await redrive.work()
    run = await redrive.api.run_of(run_id)
    assert statuses(run) == ("SUCCESS", ["SUCCESS"] * 4)
    assert called(receiver)[3:] == ["b", "b", "c", "c", "d", "d"]
    assert [step["policy"] for step in run["steps"]] == ["workflow", "override", "override", "override"]


async def test_the_books_balance_while_a_replay_has_yet_to_come_to_a_dead_step(
    redrive: Installation, receiver: HoldingReceiver, empty_url: str, clock: ManualClock
) -> None:
    run_id = await begun(redrive, receiver, 422)
    await replay(redrive, await letter_of(redrive, run_id), fromStepIndex=0)
    step = (await redrive.api.run_of(run_id))["steps"][1]
    assert (step["status"], step["attempt_count"], step["attempts_total"]) == ("PENDING", 0, 1)
    report = await check(empty_url, now=clock.now())
    (books,) = report.books
    assert (report.violations, books.balanced, books.dead, books.dead_parked) == ([], True, 1, 1)


async def test_d9_alone_a_step_leaves_the_others_their_policies(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    run_id = await begun(redrive, receiver, 422)
    letter = await letter_of(redrive, run_id)
    await replay(redrive, letter, mode="STEP_ONLY", overrideRetryPolicy={"maxRetries": 7})
    await redrive.work()
    await redrive.api.post(f"/v1/runs/{run_id}/replay", {"from_step_index": 2})
    await redrive.work()
    assert [step["max_retries"] for step in (await redrive.api.run_of(run_id))["steps"]] == [3, 7, 3]


async def test_d9_a_second_override_is_laid_over_the_steps_own_policy(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    run_id = await begun(redrive, receiver, 422, 422)
    await replay(redrive, await letter_of(redrive, run_id), overrideRetryPolicy={"baseDelayMs": 500})
    await redrive.work()
    await replay(redrive, await letter_of(redrive, run_id), overrideRetryPolicy={"maxRetries": 5})
    assert await schedule_of(redrive, run_id) == D_DEFAULTS | {"max_retries": 5}


@pytest.mark.parametrize(
    ("override", "field", "message"),
    [
        ({"baseDelayMs": -1}, "baseDelayMs", "must be between 0 and 2592000000, not -1"),
        ({"maxDelayMs": "x"}, "maxDelayMs", "must be a number, not 'x'"),
        ({"jitterRatio": 2}, "jitterRatio", "must be between 0 and 1, not 2"),
        ({"maxRetries": 1.5}, "maxRetries", "must be a whole number or null, not 1.5"),
        ({"baseDelay": 5}, "baseDelay", "unknown field; known here: baseDelayMs, "),
    ],
)
async def test_d9_errors_name_the_fields_that_the_client_sent(
    redrive: Installation, receiver: HoldingReceiver, override: dict[str, Any], field: str, message: str
) -> None:
    run_id = await begun(redrive, receiver, 422)
    letter = await letter_of(redrive, run_id)
    refused = await redrive.api.http.post(
        f"/api/v1/workflow-dlq/{letter['id']}/replay", {"overrideRetryPolicy": override}
    )
    (error,) = refused.json["errors"]
    assert (refused.status, error["loc"]) == (422, ["body", "overrideRetryPolicy", field])
    assert error["msg"].startswith(message)
    wrong = await redrive.api.http.post(f"/api/v1/workflow-dlq/{letter['id']}/replay", {"fromStepIndex": "1"})
    assert wrong.json["errors"][0]["loc"] == ["body", "fromStepIndex"]
    assert (await redrive.api.get(f"/v1/dead-letters/{letter['id']}"))["state"] == "open"


async def test_d9_a_replay_begins_at_once_whatever_its_first_delay(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    run_id = await begun(redrive, receiver, 422)
    override = {"baseDelayMs": 120_000, "maxDelayMs": 120_000}
    await replay(redrive, await letter_of(redrive, run_id), overrideRetryPolicy=override)
    await redrive.work()
    assert statuses(await redrive.api.run_of(run_id)) == ("SUCCESS", ["SUCCESS"] * 3)


async def replays_counted(redrive: Installation) -> list[int]:
    answer = await HttpClient(redrive.host, redrive.port, None).get("/metrics")
    values = dict(line.rsplit(" ", 1) for line in answer.body.decode().splitlines() if not line.startswith("#"))
    return [int(float(values[f"workflow_dlq_replays{name}_total"])) for name in ("", "_refused")]


async def actions(redrive: Installation, letter: dict[str, Any]) -> list[str]:
    """What people did with a dead letter, oldest first."""
    audit = (await redrive.api.get("/v1/audit", subject_id=letter["id"]))["data"]
    return [entry["action"] for entry in reversed(audit) if not entry["actor"].startswith("engine")]


async def test_d10_what_is_resolved_is_replayed_only_again(redrive: Installation, receiver: HoldingReceiver) -> None:
    run_id = await begun(redrive, receiver, 422)
    letter = await letter_of(redrive, run_id)
    path = f"/api/v1/workflow-dlq/{letter['id']}/replay"
    await replay(redrive, letter)
    await redrive.work()
    assert called(receiver) == ["charge", "ship", "ship", "tell"]
    refused = await redrive.api.http.post(path, {"because": "once more"})
    assert (refused.status, "again: true" in refused.json["detail"]) == (409, True)
    await redrive.work()
    assert called(receiver)[4:] == []
    assert await replays_counted(redrive) == [1, 1]
    for n in (2, 3):
        again = await replay(redrive, letter, again=True, mode="STEP_ONLY")
        assert again["state"] == "resolved"
        await redrive.work()
        assert called(receiver)[4:] == ["ship"] * (n - 1)
        assert await replays_counted(redrive) == [n, 1]
        assert (await redrive.api.get(f"/v1/dead-letters/{letter['id']}"))["replay"]["count"] == n
    replayed = "dead_letter.replay"
    assert await actions(redrive, letter) == [replayed, "dead_letter.replay_refused", replayed, replayed]
    assert statuses(await redrive.api.run_of(run_id)) == ("SUCCESS", ["SUCCESS"] * 3)


async def test_d10_what_a_person_resolved_without_a_try_is_replayed_only_again(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    run_id = await begun(redrive, receiver, 422)
    letter = await letter_of(redrive, run_id)
    await redrive.api.post(f"/v1/dead-letters/{letter['id']}/resolve", {})
    assert (await redrive.api.http.post(f"/v1/dead-letters/{letter['id']}/replay", {})).status == 409
    again = await replay(redrive, letter, again=True)
    assert again["state"] == "replaying"
    await redrive.work()
    assert statuses(await redrive.api.run_of(run_id)) == ("SUCCESS", ["SUCCESS"] * 3)
    assert await replays_counted(redrive) == [1, 1]
    wanted = ["dead_letter.resolve", "dead_letter.replay_refused", "dead_letter.replay"]
    assert await actions(redrive, letter) == wanted


async def test_d10_a_delivery_that_a_person_resolved_is_replayed_only_again(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    endpoint = await redrive.api.endpoint(receiver.url)
    receiver.script(422)
    await redrive.api.event(endpoint["id"], {"order": 7})
    await redrive.work()
    (letter,) = (await redrive.api.get("/v1/dead-letters", endpoint_id=endpoint["id"]))["data"]
    await redrive.api.post(f"/v1/dead-letters/{letter['id']}/resolve", {})
    assert (await redrive.api.http.post(f"/v1/dead-letters/{letter['id']}/replay", {})).status == 409
    assert (await redrive.api.post(f"/v1/dead-letters/{letter['id']}/replay", {"again": True}))["state"] == "replaying"
    assert await actions(redrive, letter) == [
        "dead_letter.resolve",
        "dead_letter.replay_refused",
        "dead_letter.replay",
    ]


async def test_d10_a_second_replay_is_told_that_this_one_is_being_replayed(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    run_id = await begun(redrive, receiver, 422)
    letter = await letter_of(redrive, run_id)
    await replay(redrive, letter)
    for path in (f"/api/v1/workflow-dlq/{letter['id']}/replay", f"/v1/dead-letters/{letter['id']}/retry"):
        refused = await redrive.api.http.post(path, {})
        assert (refused.status, refused.json["detail"][:31]) == (409, "It is being replayed already: i")


async def test_d10_the_counts_of_tries_agree_in_every_view(
    redrive: Installation, receiver: HoldingReceiver, clock: ManualClock
) -> None:
    run_id = await begun(redrive, receiver, *[503] * 7)

    async def tried(delays_s: tuple[float, ...]) -> None:
        for delay_s in delays_s:
            await redrive.work()
            clock.advance(delay_s)
        await redrive.work()

    async def seen() -> list[Any]:
        step = (await redrive.api.run_of(run_id))["steps"][1]
        letter = await redrive.api.get(f"/v1/dead-letters/{step['dead_letter_id']}")
        in_generation = [one for one in letter["attempts"] if one["generation"] == letter["attempts"][-1]["generation"]]
        numbers = [one["number"] for one in in_generation]
        assert numbers == list(range(1, len(numbers) + 1))
        return [step["status"], step["attempt_count"], step["attempts_total"], letter["retry_count"], len(numbers)]

    await tried((2, 4, 8))
    assert await seen() == ["DLQ", 4, 4, 3, 4]
    letter = await letter_of(redrive, run_id)
    await replay(redrive, letter, overrideRetryPolicy={"jitterRatio": 0, "maxRetries": 2})
    step = (await redrive.api.run_of(run_id))["steps"][1]
    assert (step["status"], step["attempt_count"], step["attempts_total"]) == ("PENDING", 0, 4)
    await tried((2, 4))
    assert await seen() == ["DLQ", 3, 7, 2, 3]  # one try and two retries, as the override has it
    sent = [request.headers["redrive-attempt"] for request in receiver.requests if request.path.endswith("ship")]
    assert sent == ["1", "2", "3", "4", "1", "2", "3"]


async def test_d8c_the_log_says_when_a_run_begins(redrive: Installation, receiver: HoldingReceiver) -> None:
    await redrive.api.workflow("fulfil", call(receiver, "charge"))
    with structlog.testing.capture_logs() as lines:
        run_id = await redrive.api.run("fulfil", {"n": 7}, X_Correlation_Id="c-7")
        await redrive.work()
        await redrive.api.post(f"/v1/runs/{run_id}/replay", {"from_step_index": 0})
        await redrive.work()
    moves = [line for line in lines if line["event"] == "run_transition" and line["run_id"] == run_id]
    assert [(line["old_status"], line["new_status"]) for line in moves] == [
        (None, "PENDING"),
        ("PENDING", "RUNNING"),
        ("RUNNING", "SUCCESS"),
        ("SUCCESS", "RUNNING"),
        ("RUNNING", "SUCCESS"),
    ]
    facts = {"workflow": "fulfil", "org_id": str(redrive.org_id), "correlation_id": "c-7"}
    assert {name: moves[1][name] for name in facts} == facts


async def test_d13_why_and_what_is_kept_of_an_act_hold_no_secret(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    run_id = await begun(redrive, receiver, 422, 422)
    letter = await letter_of(redrive, run_id)
    because = "the key sk_live_canary1 had ended, password=canary2"
    await replay(redrive, letter, because=because)
    await redrive.work()
    await redrive.api.post(f"/v1/dead-letters/{letter['id']}/ignore", {"because": because})
    endpoint = {"url": f"{receiver.url}?token=canary3", "headers": {"authorization": "Bearer canary4"}}
    await redrive.api.post("/v1/endpoints", {"name": "kept", **endpoint})
    shown = json.dumps([await redrive.api.get("/v1/audit"), await redrive.api.get(f"/v1/dead-letters/{letter['id']}")])
    assert "the key [redacted] had ended" in shown
    assert "canary" not in shown
    async with redrive.stores.engine.transaction() as session:
        kept = await session._connection.fetchval(  # as nobody reads it
            "SELECT concat((SELECT string_agg(concat(a.because, a.before, a.after), ' ') FROM redrive.audit a), "
            "(SELECT string_agg(concat(d.replayed_because, d.closed_because), ' ') FROM redrive.dead_letter d))"
        )
    assert ("[redacted]" in kept, "canary" in kept) == (True, False)


async def test_d11_rows_of_dead_letters_say_which_step_of_which_run_they_are(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    run_id = await begun(redrive, receiver, 422)
    endpoint = await redrive.api.endpoint(receiver.url)
    receiver.usual = 422
    await redrive.api.event(endpoint["id"], {"order": 7})
    await redrive.work()
    rows = (await redrive.api.get("/v1/dead-letters"))["data"]
    assert [(row["kind"], row["run_id"], row["step_index"]) for row in rows] == [
        ("http", None, None),
        ("step", run_id, 1),
    ]


SECRETS = {"card": {"password": "canary1", "note": "sk_live_canary2"}, "amount": 1.1}


async def died_of(redrive: Installation, receiver: HoldingReceiver, clock: ManualClock, how: str) -> str:
    """The run whose step, which is given secrets, died so; its dead letter is written by a path of its own."""
    policy = {"kind": "list", "delays_s": [60], "max_age_s": 30 if how == "expired" else None}
    await redrive.api.workflow("pay", call(receiver, "charge", body="{{ input }}", policy=policy))
    receiver.usual = 422 if how == "permanent" else 503
    run_id = await redrive.api.run("pay", SECRETS)
    await redrive.work()
    task_id = (await redrive.api.run_of(run_id))["steps"][0]["log_id"]
    match how:
        case "skipped":
            await redrive.api.post(f"/v1/retry-queue/{task_id}/skip", {})
        case "skipped in bulk":
            await redrive.api.post("/v1/retry-queue/bulk-skip?wait=true", {"ids": [task_id]})
        case "cancelled":
            await redrive.api.post(f"/v1/runs/{run_id}/cancel", {})
        case "expired":
            clock.advance(60)
            await redrive.work()
    return run_id


@pytest.mark.parametrize("how", ["permanent", "skipped", "skipped in bulk", "cancelled", "expired"])
async def test_d11_a_payload_snapshot_is_redacted_before_it_is_stored(
    redrive: Installation, receiver: HoldingReceiver, clock: ManualClock, how: str
) -> None:
    run_id = await died_of(redrive, receiver, clock, how)
    letter_id = (await redrive.api.run_of(run_id))["steps"][0]["dead_letter_id"]
    async with redrive.stores.engine.transaction() as session:
        row = await session._connection.fetchrow(
            "SELECT to_jsonb(d)::text AS kept, d.payload FROM redrive.dead_letter d"
        )
    assert row is not None
    assert "canary" not in row["kept"]
    assert row["payload"] == '{"card":{"password":"[redacted]","note":"[redacted]"},"amount":1.1}'
    letter = await redrive.api.get(f"/v1/dead-letters/{letter_id}")
    assert letter["payload_snapshot"] == json.loads(row["payload"])


async def test_d11_who_may_not_see_secrets_sees_none_through_the_event_either(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    await redrive.api.workflow("pay", call(receiver, "charge", body="{{ input }}"))
    receiver.usual = Answer(422, json.dumps(SECRETS).encode())
    run_id = await redrive.api.run("pay", SECRETS)
    await redrive.work()
    letter = await letter_of(redrive, run_id)
    await replay(redrive, letter, payload={**SECRETS, "edited": True}, because="password=canary3")
    await redrive.work()
    await redrive.api.post("/v1/events", {"event_type": "order.paid", "payload": SECRETS})
    event_id, letter_id = letter["event_id"], letter["id"]
    paths = [
        *(f"/v1/events/{event_id}", f"/v1/events/{event_id}/attempts", f"/v1/events/{event_id}/status", "/v1/events"),
        *(f"/v1/dead-letters/{letter_id}", "/v1/dead-letters", f"/v1/logs/{letter_id}"),
        *(f"/v1/runs/{run_id}", "/v1/inbox", "/v1/audit", "/v1/audit/export"),
    ]
    pages = [f"/events/{event_id}", f"/app/admin/dlq/{letter_id}", f"/runs/{run_id}", "/inbox", "/app/admin/dlq"]
    whole = await redrive.api.http.get(f"/v1/events/{event_id}")
    assert b"canary1" in whole.body  # of an ADMIN: what is sent again is kept
    for role in (Role.STAFF, Role.VIEWER):
        key = (await redrive.api.post("/v1/keys", {"name": role, "role": role}))["key"]
        client = HttpClient(redrive.host, redrive.port, key)
        browser = HttpClient(redrive.host, redrive.port, None)
        browser.cookies["redrive_session"] = await redrive.session_token(role)
        for path in paths:
            answer = await client.get(path)
            assert (answer.status, path, b"canary" in answer.body) == (200, path, False)
        for path in pages:
            answer = await browser.get(path, Accept="text/html")
            assert (answer.status, path, b"canary" in answer.body) == (200, path, False)
        for path in (f"/app/admin/dlq/{letter_id}/payload", f"/runs/{run_id}/steps/0/input"):
            answer = await browser.get(path)
            assert (answer.status in (403, 404), b"canary" in answer.body) == (True, False)
        client.close()
        browser.close()


async def test_a_replay_while_the_org_is_paused_is_refused_or_waits_if_it_need_not_begin_at_once(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    run_id = await begun(redrive, receiver, 422)
    letter = await letter_of(redrive, run_id)
    await redrive.api.post("/v1/retries/pause", {})
    for path, body in (
        (f"/v1/dead-letters/{letter['id']}/replay", {}),
        (f"/v1/runs/{run_id}/replay", {"from_step_index": 1}),
    ):
        refused = await redrive.api.http.post(path, body)
        assert refused.status == 409, path
    assert statuses(await redrive.api.run_of(run_id)) == ("DLQ_PENDING", ["SUCCESS", "DLQ", "PENDING"])
    assert (await replay(redrive, letter, now=False))["state"] == "replaying"


async def test_a_new_key_keeps_the_input_while_a_step_before_is_yet_to_run_again(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    outputs = {"before": "{{ steps.a.output ?? null }}"}
    await redrive.api.workflow("fulfil", call(receiver, "a"), call(receiver, "b", body=outputs))
    receiver.usual = Answer(200, b'{"id": "c-7"}')
    receiver.script(422, path="/hook/b")
    run_id = await redrive.api.run("fulfil", {"n": 7})
    await redrive.work()
    letter = await letter_of(redrive, run_id)
    receiver.script(422, path="/hook/a")
    await replay(redrive, letter, fromStepIndex=0)
    await redrive.work()
    await replay(redrive, letter, mode="STEP_ONLY", newIdempotencyKey=True)
    await redrive.work()
    assert called(receiver) == ["a", "b", "a", "b"]
    assert json.loads(receiver.requests[-1].body) == {"before": {"id": "c-7"}}
    assert receiver.requests[-1].headers["idempotency-key"] == f"{run_id}:1:r1"
