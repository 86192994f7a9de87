"""Runs with a real worker: what steps send and leave to each other, what stops them, what people do meanwhile."""

import asyncio
import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
import structlog
from standardwebhooks import Webhook

from redrive import Redrive, StepTask, step
from redrive.app import open_sweeper
from redrive.destinations.python import Handler
from redrive.store.audit import Act
from support.engine import ManualClock, until
from support.holding import HoldingReceiver
from support.installation import Installation
from support.receiver import Answer

DAY_S = 86_400.0


def call(receiver: HoldingReceiver, name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "kind": "http", "url": f"{receiver.url}/{name}", **fields}


async def has_failed(redrive: Installation, run_id: str) -> None:
    """Wait until a run has."""

    async def ended() -> bool:
        return bool((await redrive.api.run_of(run_id))["status"] == "FAILED")

    await until(ended)


async def dead_step(redrive: Installation, name: str, handler: Handler) -> dict[str, Any]:
    """The one step of a run, whose handler has failed for good."""
    await redrive.api.workflow(name, {"name": name, "kind": "handler", "handler": name})
    run_id = await redrive.api.run(name)
    await redrive.work({name: handler})
    (failed,) = (await redrive.api.run_of(run_id))["steps"]
    assert (failed["status"], failed["category"]) == ("DLQ", "validation")
    step: dict[str, Any] = failed
    return step


def states(run: dict[str, Any]) -> list[str]:
    return [run["status"], *(each["status"] for each in run["steps"])]


async def test_what_one_step_answers_the_next_one_may_use_and_ids_go_out_with_every_call(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    await redrive.api.workflow(
        "order",
        call(receiver, "open", body={"who": "{{ input.who }}"}, headers={"X-Key": "k-1"}),
        call(
            receiver,
            "pay",
            method="PUT",
            url=f"{receiver.url}/orders/{{{{ steps.open.output.id }}}}",
            headers={"X-Token": "{{ steps.open.output.token }}"},
            body={"lines": "{{ steps.open.output.lines }}", "text": "for {{ input.who }}"},
        ),
        call(receiver, "ask", method="GET"),
    )
    receiver.script(Answer(200, b'{"id": "a/b", "token": "t-9", "lines": [1, 2.50]}'), path="/hook/open")
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    run_id = await redrive.api.run("order", {"who": "Ada"}, X_Correlation_Id="c-7", traceparent=parent)
    await redrive.work()
    opened, paid, asked = receiver.requests
    assert (opened.method, json.loads(opened.body), opened.headers["x-key"]) == ("POST", {"who": "Ada"}, "k-1")
    assert (paid.method, paid.path) == ("PUT", "/hook/orders/a%2Fb")
    assert json.loads(paid.body) == {"lines": [1, 2.5], "text": "for Ada"}
    assert paid.headers["x-token"] == "t-9"
    assert (asked.method, asked.body, "content-type" in asked.headers) == ("GET", b"", False)
    for index, request in enumerate(receiver.requests):
        sent = request.headers
        assert sent["idempotency-key"] == f"{run_id}:{index}"
        assert (sent["x-correlation-id"], sent["redrive-run-id"], sent["redrive-attempt"]) == ("c-7", run_id, "1")
        assert sent["traceparent"].startswith("00-4bf92f3577b34da6a3ce929d0e0e4736-")
        assert sent["user-agent"].startswith("Redrive/")
    assert len({request.headers["traceparent"] for request in receiver.requests}) == 3


async def test_a_run_without_a_trace_has_one_of_its_own(redrive: Installation, receiver: HoldingReceiver) -> None:
    await redrive.api.workflow("order", call(receiver, "one"), call(receiver, "two"))
    run_id = await redrive.api.run("order")
    await redrive.work()
    assert [request.headers["traceparent"].split("-")[1] for request in receiver.requests] == [UUID(run_id).hex] * 2


async def test_a_step_that_calls_an_endpoint_is_signed_limited_and_paused_with_it(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    endpoint = await redrive.api.endpoint(receiver.url, headers={"X-Own": "o"})
    await redrive.api.workflow(
        "order", {"name": "call", "kind": "http", "endpoint": endpoint["name"], "body": {"n": 1}}
    )
    await redrive.api.post(f"/v1/endpoints/{endpoint['id']}/pause")
    run_id = await redrive.api.run("order")
    await redrive.work()
    assert receiver.requests == []
    await redrive.api.post(f"/v1/endpoints/{endpoint['id']}/resume")
    await redrive.work()
    (request,) = receiver.requests
    assert (request.headers["x-own"], request.headers["webhook-id"]) == ("o", f"{run_id}:0")
    signed_at = datetime.fromtimestamp(int(request.headers["webhook-timestamp"]), UTC)
    signature = Webhook(endpoint["secret"]).sign(f"{run_id}:0", signed_at, request.body.decode())
    assert request.headers["webhook-signature"] == signature
    assert states(await redrive.api.run_of(run_id)) == ["SUCCESS", "SUCCESS"]


async def test_a_step_whose_endpoint_is_gone_dies_of_its_configuration(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    endpoint = await redrive.api.endpoint(receiver.url)
    await redrive.api.workflow("order", {"name": "call", "kind": "http", "endpoint": endpoint["id"]})
    assert (await redrive.api.http.request("DELETE", f"/v1/endpoints/{endpoint['id']}")).status == 204
    run_id = await redrive.api.run("order")
    await redrive.work()
    (failed,) = (await redrive.api.run_of(run_id))["steps"]
    assert (failed["status"], failed["category"]) == ("DLQ", "configuration")
    assert "was deleted" in failed["error_message"]


async def test_a_wait_is_over_in_its_time_and_not_before(redrive: Installation, clock: ManualClock) -> None:
    until_then = clock.now().replace(hour=18).isoformat()
    await redrive.api.workflow(
        "slow",
        {"name": "some", "kind": "wait", "wait_s": "{{ input.s }}"},
        {"name": "then", "kind": "wait", "until": "{{ input.at }}"},
    )
    run_id = await redrive.api.run("slow", {"s": 90, "at": until_then})
    await redrive.work()
    clock.advance(89.9)
    await redrive.work()
    assert states(await redrive.api.run_of(run_id)) == ["PENDING", "PENDING", "PENDING"]
    clock.advance(0.1)
    await redrive.work()
    run = await redrive.api.run_of(run_id)
    assert states(run) == ["RUNNING", "SUCCESS", "PENDING"]
    assert run["steps"][1]["due_at"] == until_then.replace("+00:00", "Z")
    clock.advance(6 * 3600 - 90)
    await redrive.work()
    assert states(await redrive.api.run_of(run_id)) == ["SUCCESS", "SUCCESS", "SUCCESS"]


async def test_an_answer_that_is_too_large_is_not_kept_and_whoever_needs_it_says_so(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    await redrive.api.workflow("big", call(receiver, "one"), call(receiver, "two", body="{{ steps.one.output }}"))
    receiver.script(Answer(200, b'"' + b"x" * 70_000 + b'"'), path="/hook/one")
    run_id = await redrive.api.run("big")
    await redrive.work()
    one, two = (await redrive.api.run_of(run_id))["steps"]
    assert (one["status"], one["output_is_cut"], one["output"]) == ("SUCCESS", True, None)
    assert (two["status"], two["category"]) == ("DLQ", "validation")
    assert "larger than 65536 bytes" in two["error_message"]
    # A person may give it an input of its own.
    await redrive.api.post(f"/v1/dead-letters/{two['dead_letter_id']}/replay", {"payload": {"n": 1}, "now": True})
    await redrive.work()
    assert states(await redrive.api.run_of(run_id)) == ["SUCCESS", "SUCCESS", "SUCCESS"]
    assert json.loads(receiver.requests[-1].body) == {"n": 1}


async def test_a_handler_that_returns_what_is_not_json_has_failed(redrive: Installation) -> None:
    async def odd(task: StepTask) -> object:
        return {1, 2}

    failed = await dead_step(redrive, "odd", odd)
    assert "not JSON" in failed["error_message"]


async def test_a_run_that_is_cancelled_in_mid_try_ends_with_that_try(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    await redrive.api.workflow("order", call(receiver, "one"), call(receiver, "two"))
    receiver.usual = 503
    receiver.hold()
    run_id = await redrive.api.run("order")
    async with redrive.working():
        await receiver.wait_for(1)
        run = await redrive.api.post(f"/v1/runs/{run_id}/cancel", {"because": "not wanted"})
        assert (states(run), run["cancelled"]["because"]) == (["RUNNING", "RUNNING", "PENDING"], "not wanted")
        receiver.release()
        await has_failed(redrive, run_id)
    run = await redrive.api.run_of(run_id)
    assert states(run) == ["FAILED", "FAILED", "PENDING"]
    assert len(receiver.requests) == 1
    assert (await redrive.api.get("/v1/dead-letters"))["data"] == []


async def test_a_try_that_succeeds_after_the_run_was_cancelled_is_not_followed(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    await redrive.api.workflow("order", call(receiver, "one"), call(receiver, "two"))
    receiver.hold()
    run_id = await redrive.api.run("order")
    async with redrive.working():
        await receiver.wait_for(1)
        await redrive.api.post(f"/v1/runs/{run_id}/cancel")
        receiver.release()
        await has_failed(redrive, run_id)
    assert states(await redrive.api.run_of(run_id)) == ["FAILED", "SUCCESS", "PENDING"]


async def test_many_dead_steps_are_redriven_at_once_and_of_one_run_the_first(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    await redrive.api.workflow("order", *(call(receiver, name) for name in ("one", "two", "three")))
    receiver.script(422, 422, path="/hook/three")
    runs = [await redrive.api.run("order") for _ in range(2)]
    await redrive.work()
    # The second step of one of them dies in a replay: then two of its steps are dead.
    receiver.script(422, path="/hook/two")
    await redrive.api.post(f"/v1/runs/{runs[0]}/replay", {"from_step_index": 1})
    await redrive.work()
    assert states(await redrive.api.run_of(runs[0])) == ["DLQ_PENDING", "SUCCESS", "DLQ", "DLQ"]
    begun = await redrive.api.post("/v1/dead-letters/bulk", {"action": "retry", "filter": {"kind": "step"}})
    for _ in range(3):
        await redrive.work()
        redrive.clock.advance(3)  # type: ignore[attr-defined]
    assert [states(await redrive.api.run_of(run_id))[0] for run_id in runs] == ["SUCCESS", "SUCCESS"]
    operation = await redrive.api.get(f"/v1/operations/{begun['operation_id']}")
    assert (operation["succeeded"], operation["failed"]) == (2, 1)


async def test_a_step_that_succeeded_is_not_run_again_when_an_earlier_letter_is_redriven(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    await redrive.api.workflow("order", *(call(receiver, name) for name in ("one", "two")))
    receiver.script(422, path="/hook/one")
    run_id = await redrive.api.run("order")
    await redrive.work()
    letter_id = (await redrive.api.run_of(run_id))["steps"][0]["dead_letter_id"]
    await redrive.api.post(f"/v1/dead-letters/{letter_id}/resolve", {"because": "done by hand"})
    await redrive.api.post(f"/v1/runs/{run_id}/replay", {"from_step_index": 1})
    await redrive.work()
    assert states(await redrive.api.run_of(run_id)) == ["PARTIAL", "FAILED", "SUCCESS"]
    await redrive.api.post(f"/v1/dead-letters/{letter_id}/retry", {"now": True})
    await redrive.work()
    assert states(await redrive.api.run_of(run_id)) == ["SUCCESS", "SUCCESS", "SUCCESS"]
    assert [request.path for request in receiver.requests] == ["/hook/one", "/hook/two", "/hook/one"]


async def test_while_a_run_is_under_way_no_other_step_of_it_is_redriven(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    await redrive.api.workflow("order", call(receiver, "one"), {"name": "rest", "kind": "wait", "wait_s": 60})
    receiver.script(422, path="/hook/one")
    run_id = await redrive.api.run("order")
    await redrive.work()
    letter_id = (await redrive.api.run_of(run_id))["steps"][0]["dead_letter_id"]
    await redrive.api.post(f"/v1/dead-letters/{letter_id}/resolve")
    await redrive.api.post(f"/v1/runs/{run_id}/replay", {"from_step_index": 1})
    refused = await redrive.api.http.post(f"/v1/dead-letters/{letter_id}/retry")
    assert (refused.status, "under way" in refused.json["detail"]) == (409, True)


async def test_ended_runs_go_when_their_workflow_says_so_and_others_stay(
    redrive: Installation, receiver: HoldingReceiver, clock: ManualClock
) -> None:
    await redrive.api.workflow("kept", call(receiver, "one"))
    await redrive.api.workflow("brief", call(receiver, "one"), call(receiver, "two"), retention_s=DAY_S)
    kept, gone = await redrive.api.run("kept"), await redrive.api.run("brief")
    await redrive.work()
    receiver.script(422, path="/hook/two")
    waiting = await redrive.api.run("brief")
    await redrive.work()

    async def sweep() -> dict[str, int]:
        async with open_sweeper(redrive.settings, redrive.url, Act("engine"), clock=clock) as sweeper:
            (org,) = await sweeper.orgs(0)
            batch = await sweeper.batch(org, None)
            assert batch is not None
            return batch.swept.removed()

    clock.advance(DAY_S - 1)
    assert (await sweep())["runs"] == 0
    clock.advance(2)
    removed = await sweep()
    assert (removed["runs"], removed["events"], removed["tasks"], removed["attempts"]) == (1, 2, 2, 2)
    assert (await redrive.api.http.get(f"/v1/runs/{gone}")).status == 404
    assert states(await redrive.api.run_of(kept)) == ["SUCCESS", "SUCCESS"]
    assert (await redrive.api.run_of(waiting))["status"] == "DLQ_PENDING"  # nobody has dealt with it yet


async def test_a_workflow_in_python_runs_on_the_same_engine(redrive: Installation, receiver: HoldingReceiver) -> None:
    app = Redrive(redrive.url)

    @app.workflow("greet")
    class Greet:
        """Says hello, and to whom."""

        @step(max_retries=1)
        async def name(self, task: StepTask) -> dict[str, str]:
            return {"name": task.input["who"].title()}

        tell = step.http(f"{receiver.url}/tell", body={"text": "Hello {{ steps.name.output.name }}"})

        @step
        def count(self, task: StepTask) -> int:
            return len(task.outputs["name"]["name"])

    workflow = app.workflows["greet"]
    assert [each.name for each in workflow.steps] == ["name", "tell", "count"]
    answer = await redrive.api.http.request("PUT", "/v1/workflows/greet", workflow.to_spec())
    assert (answer.status, answer.json["description"]) == (200, "Says hello, and to whom.")
    run_id = await app.start("greet", {"who": "ada"}, idempotency_key="hello-1", correlation_id="c-1")
    assert await app.start("greet", {"who": "ada"}, idempotency_key="hello-1") == run_id
    with pytest.raises(ValueError, match="used for another"):
        await app.start("greet", {"who": "bob"}, idempotency_key="hello-1")
    with pytest.raises(LookupError, match="no workflow 'nothing'"):
        await app.start("nothing")
    await redrive.work(app.handlers)
    run = await redrive.api.run_of(str(run_id))
    assert states(run) == ["SUCCESS", "SUCCESS", "SUCCESS", "SUCCESS"]
    assert (run["steps"][2]["output"], run["correlation_id"]) == (3, "c-1")
    assert json.loads(receiver.requests[0].body) == {"text": "Hello Ada"}
    await app.close()


async def test_two_workers_at_once_do_an_effect_of_a_step_once(redrive: Installation) -> None:
    """Both came to it before either had kept what came of it: what counts is the first."""
    given = asyncio.Event()
    results: list[object] = []

    async def pay(task: StepTask) -> None:
        async def act(n: int) -> int:
            await given.wait()
            return n

        both = asyncio.gather(*(task.once("pay", lambda n=n: act(n)) for n in (1, 2)))  # type: ignore[misc]
        await asyncio.sleep(0)
        given.set()
        results.extend(await both)

    await redrive.api.workflow("pay", {"name": "pay", "kind": "handler", "handler": "pay"})
    await redrive.api.run("pay")
    await redrive.work({"pay": pay})
    assert results in ([1, 1], [2, 2])


@pytest.mark.parametrize(
    ("name", "size", "said"), [("a\0b", 1, "printable"), ("", 1, "1 to 200"), ("pay", 1_048_575, "1048577 bytes")]
)
async def test_an_effect_that_cannot_be_kept_says_why(redrive: Installation, name: str, size: int, said: str) -> None:
    async def pay(task: StepTask) -> None:
        await task.once(name, lambda: "x" * size)

    await redrive.api.workflow("pay", {"name": "pay", "kind": "handler", "handler": "pay"})
    run_id = await redrive.api.run("pay")
    await redrive.work({"pay": pay})
    [failed] = (await redrive.api.run_of(run_id))["steps"]
    assert (failed["status"], said in failed["error_message"]) == ("DLQ", True)


async def test_the_log_follows_a_run_by_its_correlation_id_from_the_first_request_to_the_last_step(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    await redrive.api.workflow("order", call(receiver, "one"), call(receiver, "two"))
    receiver.script(422, path="/hook/two")
    with structlog.testing.capture_logs() as lines:
        run_id = await redrive.api.run("order", {"password": "p-canary"}, X_Correlation_Id="c-7")
        await redrive.work()
        letter_id = (await redrive.api.run_of(run_id))["steps"][1]["dead_letter_id"]
        await redrive.api.post(f"/v1/dead-letters/{letter_id}/replay", {"now": True})
        await redrive.work()
    ours = [line for line in lines if line.get("correlation_id") == "c-7"]
    moves = [(line["old_status"], line["new_status"]) for line in ours if line["event"] == "run_transition"]
    assert moves == [
        (None, "PENDING"),
        ("PENDING", "RUNNING"),
        ("RUNNING", "DLQ_PENDING"),
        ("DLQ_PENDING", "RUNNING"),
        ("RUNNING", "SUCCESS"),
    ]
    steps = [line for line in ours if line["event"] in ("status_transition", "event_failed") and "step_index" in line]
    assert [(line["run_id"], line["step_index"]) for line in steps] == [(run_id, n) for n in (0, 1, 1, 1)]
    assert "canary" not in str(lines)


async def test_a_first_step_that_a_producer_rendered_otherwise_takes_no_secret_elsewhere(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    elsewhere = {"name": "one", "kind": "http", "url": "http://127.0.0.1:9/x", "headers": {"X-Key": "k-secret"}}
    await redrive.api.workflow("order", elsewhere)
    run_id = await redrive.api.run("order")
    async with redrive.stores.engine.transaction() as session:
        sql = "UPDATE redrive.step SET url = $1 WHERE run_id = $2"
        await session._connection.execute(sql, f"{receiver.url}/x", UUID(run_id))
    await redrive.work()
    (failed,) = (await redrive.api.run_of(run_id))["steps"]
    assert (failed["status"], failed["category"], receiver.requests) == ("DLQ", "configuration", [])


async def test_a_step_that_died_goes_out_with_headers_of_what_the_steps_before_it_answer_now(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    await redrive.api.workflow(
        "order", call(receiver, "log-in"), call(receiver, "pay", headers={"X-Pass": "{{ steps.log-in.output.pass }}"})
    )
    receiver.script(Answer(200, b'{"pass": "old"}'), Answer(200, b'{"pass": "new"}'), path="/hook/log-in")
    receiver.script(422, path="/hook/pay")
    run_id = await redrive.api.run("order")
    await redrive.work()
    await redrive.api.post(f"/v1/runs/{run_id}/replay", {"from_step_index": 0})
    await redrive.work()
    assert states(await redrive.api.run_of(run_id)) == ["SUCCESS", "SUCCESS", "SUCCESS"]
    assert [request.headers.get("x-pass") for request in receiver.requests] == [None, "old", None, "new"]


async def test_a_wait_that_could_not_be_told_is_waited_once_it_can(
    redrive: Installation, receiver: HoldingReceiver, clock: ManualClock
) -> None:
    await redrive.api.workflow(
        "order", call(receiver, "ask"), {"name": "rest", "kind": "wait", "wait_s": "{{ steps.ask.output.s }}"}
    )
    receiver.script(Answer(200, b"{}"), Answer(200, b'{"s": 60}'), path="/hook/ask")
    run_id = await redrive.api.run("order")
    await redrive.work()
    assert states(await redrive.api.run_of(run_id)) == ["DLQ_PENDING", "SUCCESS", "DLQ"]
    await redrive.api.post(f"/v1/runs/{run_id}/replay", {"from_step_index": 0})
    await redrive.work()
    assert states(await redrive.api.run_of(run_id)) == ["RUNNING", "SUCCESS", "PENDING"]
    clock.advance(60)
    await redrive.work()
    assert states(await redrive.api.run_of(run_id)) == ["SUCCESS", "SUCCESS", "SUCCESS"]


async def test_a_wait_that_was_cancelled_is_waited_in_full_when_it_is_replayed(
    redrive: Installation, clock: ManualClock
) -> None:
    await redrive.api.workflow("slow", {"name": "rest", "kind": "wait", "wait_s": 60})
    run_id = await redrive.api.run("slow")
    await redrive.work()
    await redrive.api.post(f"/v1/runs/{run_id}/cancel")
    await redrive.api.post(f"/v1/runs/{run_id}/replay", {"from_step_index": 0})
    clock.advance(59)
    await redrive.work()
    assert states(await redrive.api.run_of(run_id)) == ["RUNNING", "PENDING"]
    clock.advance(1)
    await redrive.work()
    assert states(await redrive.api.run_of(run_id)) == ["SUCCESS", "SUCCESS"]


@pytest.mark.parametrize(
    "change",
    [
        """spec = '{"steps": [{"name": "one", "kind": "of a newer version"}]}'""",
        "headers_sealed = 'sealed with another key'",
    ],
)
async def test_a_workflow_that_a_worker_cannot_read_is_left_alone_and_keeps_nothing_else_from_being_done(
    redrive: Installation, receiver: HoldingReceiver, change: str
) -> None:
    await redrive.api.workflow("odd", call(receiver, "one", headers={"X-Key": "k"}))
    async with redrive.stores.engine.transaction() as session:
        await session._connection.execute(f"UPDATE redrive.workflow SET {change}")
    await redrive.api.workflow("plain", call(receiver, "two"))
    odd, plain = await redrive.api.run("plain"), await redrive.api.run("plain")
    async with redrive.stores.engine.transaction() as session:
        sql = "UPDATE redrive.run SET workflow_id = (SELECT id FROM redrive.workflow WHERE name = 'odd') WHERE id = $1"
        await session._connection.execute(sql, UUID(odd))
    await redrive.work()
    assert [request.path for request in receiver.requests] == ["/hook/two"]
    assert states(await redrive.api.run_of(plain)) == ["SUCCESS", "SUCCESS"]
    assert (await redrive.api.run_of(odd))["steps"][0]["attempt_count"] == 0


async def test_what_came_of_an_effect_is_kept_only_up_to_a_size(redrive: Installation) -> None:
    async def pay(task: StepTask) -> None:
        await task.once("pay", lambda: "x" * 65_536)

    failed = await dead_step(redrive, "pay", pay)
    assert "'pay' came to 65538 bytes, of which at most 65536 are kept" in failed["error_message"]


async def test_the_log_does_not_say_of_a_cancelled_run_that_it_waits_for_a_person(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    await redrive.api.workflow("order", call(receiver, "one"))
    receiver.usual = 422
    receiver.hold()
    run_id = await redrive.api.run("order")
    with structlog.testing.capture_logs() as lines:
        async with redrive.working():
            await receiver.wait_for(1)
            await redrive.api.post(f"/v1/runs/{run_id}/cancel")
            receiver.release()

            async def ended() -> bool:
                return bool((await redrive.api.run_of(run_id))["status"] == "FAILED")

            await until(ended)
    assert [line["new_status"] for line in lines if line["event"] == "run_transition"] == ["RUNNING", "FAILED"]
