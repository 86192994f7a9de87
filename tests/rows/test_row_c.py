"""Row C: events in, their status out."""

import asyncio
import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from support.engine import ManualClock
from support.holding import HoldingReceiver
from support.installation import Installation, installation
from support.processes import worker
from support.remote import Remote, at

DOCS = Path(__file__).parents[2] / "docs"


async def _sent(redrive: Installation, receiver: HoldingReceiver, answer: int, policy: str = "triggers") -> str:
    """An event whose first try got this answer."""
    receiver.usual = answer
    endpoint = await redrive.api.endpoint(receiver.url, policy=policy)
    event_id = await redrive.api.event(endpoint["id"])
    await redrive.work()
    return event_id


async def _dead(redrive: Installation, clock: ManualClock, receiver: HoldingReceiver) -> str:
    event_id = await _sent(redrive, receiver, 503)
    for delay_s in (60, 300, 900):
        clock.advance(delay_s)
        await redrive.work()
    return event_id


async def _inbox_event(api: Remote, payload: object = None, **fields: object) -> str:
    """An event that no endpoint takes."""
    made = await api.post("/v1/events", {"event_type": f"nobody.{uuid4().hex}", "payload": payload, **fields})
    assert made["status"] == "received"
    event_id: str = made["event_id"]
    return event_id


async def test_c1_an_event_has_its_fields_and_moves_only_as_it_may(
    redrive: Installation, clock: ManualClock, receiver: HoldingReceiver
) -> None:
    waiting = await _inbox_event(redrive.api, {"a": 1}, timestamp="2026-03-01T10:00:00Z")
    event = await redrive.api.get(f"/v1/events/{waiting}")
    fields = (
        "event_id",
        "event_type",
        "timestamp",
        "payload",
        "status",
        "retry_attempts",
        "last_retry_at",
        "failed_at",
    )
    assert set(fields) <= set(event)
    assert (event["payload"], event["timestamp"]) == ({"a": 1}, "2026-03-01T10:00:00Z")
    acked = await redrive.api.post(f"/v1/events/{waiting}/ack")
    assert acked["status"] == "delivered"

    failed = await _dead(redrive, clock, receiver)
    assert (await redrive.api.status(failed))["status"] == "failed"
    (letter,) = (await redrive.api.get("/v1/dead-letters"))["data"]
    await redrive.api.post(f"/v1/dead-letters/{letter['id']}/retry")
    assert (await redrive.api.status(failed))["status"] == "queued"
    receiver.usual = 200
    clock.advance(66)  # the first delay, with all of its jitter
    await redrive.work()
    assert (await redrive.api.status(failed))["status"] == "delivered"

    connection = await asyncpg.connect(redrive.url, server_settings={"role": "redrive_engine"})
    refused = asyncpg.CheckViolationError
    impossible = {
        "UPDATE redrive.task SET state = 'waiting' WHERE state = 'succeeded'": refused,
        "UPDATE redrive.task SET state = 'dead', reason = 'skipped' WHERE state = 'succeeded'": refused,
        "UPDATE redrive.event SET tasks = 0": refused,
        "UPDATE redrive.event SET body = ''": asyncpg.InsufficientPrivilegeError,
    }
    try:
        for statement, refusal in impossible.items():
            with pytest.raises(refusal):
                await connection.execute(statement)
    finally:
        await connection.close()
    again = await redrive.api.http.post(f"/v1/events/{failed}/ack")
    assert again.status == 200  # delivered already: nothing changes


async def test_c2_retry_attempts_rise_with_each_failure_up_to_the_policy_s_number(
    redrive: Installation, clock: ManualClock, receiver: HoldingReceiver
) -> None:
    receiver.usual = 503
    endpoint = await redrive.api.endpoint(receiver.url, policy="triggers")
    event_id = await redrive.api.event(endpoint["id"])
    seen = [(await redrive.api.status(event_id))["retry_attempts"]]
    for delay_s in (0, 60, 300, 900, 10_000):
        clock.advance(delay_s)
        await redrive.work()
        seen.append((await redrive.api.status(event_id))["retry_attempts"])
    assert seen == [0, 1, 2, 3, 3, 3]
    connection = await asyncpg.connect(redrive.url, server_settings={"role": "redrive_engine"})
    try:
        with pytest.raises(asyncpg.CheckViolationError):
            await connection.execute("UPDATE redrive.task SET attempts = -1")
    finally:
        await connection.close()


async def test_c3_below_the_cap_it_is_queued_again_and_at_the_cap_it_has_failed(
    redrive: Installation, clock: ManualClock, receiver: HoldingReceiver
) -> None:
    event_id = await _sent(redrive, receiver, 503)
    status = await redrive.api.status(event_id)
    assert (status["status"], at(status["last_retry_at"]), status["failed_at"]) == ("queued", clock.now(), None)
    for delay_s in (60, 300, 900):
        clock.advance(delay_s)
        await redrive.work()
    status = await redrive.api.status(event_id)
    assert (status["status"], at(status["failed_at"])) == ("failed", clock.now())
    assert status["next_retry_at"] is None
    clock.advance(86_400)
    await redrive.work()
    assert await redrive.api.status(event_id) == status  # terminal: the engine never leaves it
    (letter,) = (await redrive.api.get("/v1/dead-letters"))["data"]
    assert (letter["event_id"], letter["reason"]) == (event_id, "exhausted")
    await redrive.api.post(f"/v1/dead-letters/{letter['id']}/retry", {"because": "fixed"})
    (entry,) = (await redrive.api.get("/v1/audit", action="dead_letter.retry"))["data"]
    assert (entry["subject_id"], entry["because"]) == (letter["id"], "fixed")


async def test_c4_delays_are_60_300_and_900_seconds_give_or_take_a_tenth(
    redrive: Installation, clock: ManualClock, receiver: HoldingReceiver
) -> None:
    preview = await redrive.api.get("/v1/policies/triggers/preview")
    assert [retry["delay_s"] for retry in preview["retries"]] == [60, 300, 900]
    for retry in preview["retries"]:
        assert retry["min_s"] == pytest.approx(0.9 * retry["delay_s"])
        assert retry["max_s"] == pytest.approx(1.1 * retry["delay_s"])
    event_id = await _sent(redrive, receiver, 503)
    for delay_s in (60, 300, 900):  # the test's dice show the middle
        status = await redrive.api.status(event_id)
        assert at(status["next_retry_at"]) == clock.now() + timedelta(seconds=delay_s)
        clock.advance(delay_s)
        await redrive.work()


async def test_c5_the_status_has_six_fields_and_another_tenant_s_event_is_unknown(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    event_id = await _sent(redrive, receiver, 503)
    path = f"/v1/events/{event_id}/status"
    fields = {"event_id", "status", "retry_attempts", "last_retry_at", "failed_at", "next_retry_at"}
    assert set(await redrive.api.get(path)) == fields
    stranger = await redrive.other_org("another")
    same = {"X-Correlation-Id": "one"}
    answers = [
        await stranger.http.get(path, **same),
        await stranger.http.get(f"/v1/events/{uuid4()}/status", **same),
        await redrive.api.http.get(f"/v1/events/{uuid4()}/status", **same),
        await redrive.api.http.get("/v1/events/seven/status", **same),
    ]
    assert {answer.status for answer in answers} == {404}
    assert len({answer.body for answer in answers}) == 1
    stranger.http.key = None
    assert (await stranger.http.get(path)).status == 401
    stranger.close()


async def test_c6_the_inbox_holds_what_nobody_takes_oldest_first_until_acknowledged_or_deleted(
    redrive: Installation, clock: ManualClock, receiver: HoldingReceiver
) -> None:
    events = []
    for number in range(3):
        events.append(await _inbox_event(redrive.api, {"n": number}))
        clock.advance(1)
    first = await redrive.api.get("/v1/inbox", limit="2")
    assert [event["event_id"] for event in first["events"]] == events[:2]
    assert set(first["events"][0]) == {"event_id", "event_type", "timestamp", "payload"}
    assert first["events"][0]["payload"] == {"n": 0}
    pagination = first["pagination"]
    assert (pagination["limit"], pagination["has_more"], pagination["total_count"]) == (2, True, 3)
    rest = await redrive.api.get("/v1/inbox", limit="2", cursor=pagination["cursor"])
    assert [event["event_id"] for event in rest["events"]] == events[2:]
    assert (await redrive.api.post(f"/v1/events/{events[0]}/ack"))["status"] == "delivered"
    assert (await redrive.api.http.request("DELETE", f"/v1/events/{events[1]}")).status == 204
    left = await redrive.api.get("/v1/inbox")
    assert [event["event_id"] for event in left["events"]] == events[2:]
    assert (await redrive.api.http.get(f"/v1/events/{events[1]}/status")).status == 404

    failed = await _dead(redrive, clock, receiver)
    found = await redrive.api.get("/v1/inbox", status="failed")
    assert [event["event_id"] for event in found["events"]] == [failed]
    assert (await redrive.api.http.get("/v1/inbox?status=queued")).status == 400


async def test_c7_every_transition_is_one_line_of_json_without_payloads(
    database_url: str, receiver: HoldingReceiver
) -> None:
    """By real processes: what they write is what an operator reads."""
    canary = "canary-5f3a"
    async with installation(database_url) as redrive, worker(database_url) as program:
        api = redrive.api
        await api.policy("hasty", kind="list", delays_s=[0.05], max_retries=1)
        endpoint = await api.endpoint(receiver.url, policy="hasty")
        receiver.usual = 503
        event_id = await api.event(endpoint["id"], {"password": canary}, X_Correlation_Id="trace-7")
        await api.failed(event_id)
        failed = await program.said("event_failed", event_id=event_id)
        assert {"failed_at", "last_error", "org_id", "task", "correlation_id", "@timestamp", "service"} <= set(failed)
        assert failed["correlation_id"] == "trace-7"
        failure = await program.said("delivery_failure", event_id=event_id)
        assert {"error", "error_type", "next_retry_at", "retry_in_ms"} <= set(failure)
        assert failure["retry_in_ms"] == 50
        assert await program.said("retry_attempted", event_id=event_id)
        moved = await program.said("status_transition", event_id=event_id, new_status="failed")
        assert (moved["old_status"], moved["retry_attempts"]) == ("queued", 1)
        receiver.usual = 200
        other = await api.event(endpoint["id"], {"password": canary})
        await api.delivered(other)
        moved = await program.said("status_transition", event_id=other, new_status="delivered")
        assert (moved["old_status"], moved["retry_attempts"]) == ("queued", 0)
        assert canary not in json.dumps(program.log)


async def test_c11_the_api_describes_itself_with_examples_and_the_docs_show_how(redrive: Installation) -> None:
    document = await redrive.api.get("/openapi.json")
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            body = operation.get("requestBody", {}).get("content", {})
            assert all(_has_example(document, content) for content in body.values()), (method, path)
    page = await redrive.api.http.get("/docs")
    assert (page.status, page.headers["content-type"].partition(";")[0]) == (200, "text/html")
    assert not re.search(rb"(src|href)=.?(https?:)?//|url\(|@import", page.body)
    text = (DOCS / "api.md").read_text()
    for language in ("sh", "python", "javascript"):
        assert f"```{language}" in text
    assert "stateDiagram" in (DOCS / "concepts.md").read_text()
    assert "next_retry_at" in (DOCS / "concepts.md").read_text()


def _has_example(document: dict[str, Any], content: dict[str, Any]) -> bool:
    schema = content.get("schema", {})
    for _ in range(3):
        if any("example" in name for name in {**content, **schema}):
            return True
        schema = schema.get("items", schema)
        name = schema.get("$ref", next((one["$ref"] for one in schema.get("anyOf", ()) if "$ref" in one), ""))
        schema = document["components"]["schemas"].get(name.rpartition("/")[2], {})
    return False


@pytest.mark.parametrize("pausing", ["org", "installation", "endpoint"])
async def test_c12_pausing_holds_what_falls_due_and_resuming_lets_it_go(
    redrive: Installation, clock: ManualClock, receiver: HoldingReceiver, pausing: str
) -> None:
    event_id = await _sent(redrive, receiver, 503)
    entry = (await redrive.api.get("/v1/retry-queue"))["data"][0]
    path = f"/v1/endpoints/{entry['endpoint_id']}" if pausing == "endpoint" else "/v1/retries"
    given: dict[str, object] = {"because": "the receiver is on fire"}
    if pausing != "endpoint":
        given["scope"] = pausing
    await redrive.api.post(f"{path}/pause", given)
    receiver.usual = 200
    clock.advance(60)
    await redrive.work()
    assert len(receiver.requests) == 1
    held = (await redrive.api.get("/v1/retry-queue"))["data"][0]
    assert (held["held"], held["status"], held["retry_count"]) == (True, "pending", 0)
    assert (await redrive.api.get("/v1/stats"))["tasks"]["held"] == 1
    given.pop("because")
    await redrive.api.post(f"{path}/resume", given or None)
    await redrive.work()
    assert (await redrive.api.status(event_id))["status"] == "delivered"
    assert len(receiver.requests) == 2
    assert (await redrive.api.get("/v1/stats"))["tasks"]["held"] == 0


async def test_c22_totals_count_events_add_up_and_are_what_the_log_says(
    database_url: str, receiver: HoldingReceiver
) -> None:
    """Events for one, two and three endpoints, one of which fails, and one that is redriven: by real processes."""
    receiver.usual = lambda request: 503 if request.path == "/down" else 200
    async with installation(database_url) as redrive, worker(database_url) as program:
        api = redrive.api
        await api.policy("hasty", kind="list", delays_s=[0.05], max_retries=1)
        for path, types in (("/up", ["one", "two", "three"]), ("/down", ["two", "three"]), ("/too", ["three"])):
            await api.endpoint(receiver.url_of(path), name=path[1:], policy="hasty", event_types=types)
        ids = {kind: [await _event(api, kind) for _ in range(3)] for kind in ("one", "two", "three")}
        inbox = await _inbox_event(api)
        for event_id in ids["one"]:
            await api.delivered(event_id)
        for event_id in (*ids["two"], *ids["three"]):
            await api.failed(event_id)
        receiver.usual = 200
        again = ids["three"][0]
        letters = (await api.get("/v1/dead-letters"))["data"]
        (letter,) = [each for each in letters if each["event_id"] == again]
        await api.post(f"/v1/dead-letters/{letter['id']}/retry", {})
        await api.delivered(again)
        await api.post(f"/v1/events/{inbox}/ack")
        await program.said("status_transition", event_id=again, new_status="delivered", retry_attempts=1)
        counted = await _metrics(api)

        logged = _ends_in(program.lines("status_transition"), {"one": 1, "two": 2, "three": 3})
        assert logged == {"delivered": 4, "failed": 6}
        assert counted["events_delivered_total"] == logged["delivered"] + 1  # acknowledged, which no worker logs
        assert counted["events_failed_total"] == logged["failed"]
        assert (counted["events_created_total"], counted["redrive_events_redriven_total"]) == (10, 1)
        assert (counted["events_queued"], counted["events_received"]) == (0, 0)
        ended = counted["events_delivered_total"] + counted["events_failed_total"]
        assert ended == counted["events_created_total"] + counted["redrive_events_redriven_total"]
        assert counted['redrive_deliveries_total{result="succeeded"}'] == 3 + 3 + 6 + 1
        assert counted['redrive_deliveries_total{result="failed"}'] == 6
        analytics = (await api.get("/v1/stats", window="1h", by="event_type"))["analytics"]
        assert (analytics["whole"]["events_delivered"], analytics["whole"]["events_failed"]) == (5, 6)
        assert analytics["whole"]["success_rate"] == pytest.approx(5 / 11)
        failed = {key["key"]: key["events_failed"] for key in analytics["keys"]}
        assert {kind: failed[kind] for kind in ids} == {"one": 0, "two": 3, "three": 3}
        numbers = (await api.get("/v1/stats"))["events"]
        assert (numbers["queued"], numbers["delivered"], numbers["failed"]) == (0, 5, 5)


async def _event(api: Remote, event_type: str) -> str:
    made = await api.post("/v1/events", {"event_type": event_type, "payload": 1})
    event_id: str = made["event_id"]
    return event_id


async def _metrics(api: Remote) -> dict[str, float]:
    """Once this server is the one that reports the installation."""
    async with asyncio.timeout(30):
        while True:
            text = (await api.http.get("/metrics")).body.decode()
            if "\nevents_created_total " in text:
                break
            await asyncio.sleep(0.1)
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def _ends_in(lines: list[dict[str, Any]], tasks_of: dict[str, int]) -> dict[str, int]:
    """How many events ended so, by the lines of their tasks: with the last one, and again after a redrive."""
    found = {"delivered": 0, "failed": 0}
    seen: dict[str, dict[str, str]] = {}
    for line in lines:
        if line["new_status"] in found:
            tasks = seen.setdefault(line["event_id"], {})
            tasks[line["task"]] = line["new_status"]
            if len(tasks) == tasks_of[line["event_type"]]:
                found["failed" if "failed" in tasks.values() else "delivered"] += 1
    return found
