"""The retry queue, the dead letters and the logs, as people and their scripts use them."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from redrive.core.decide import AwaitPerson, Reason
from redrive.core.outcome import Category, Failure
from redrive.core.ports import NO_EXCHANGE

from .conftest import Api

ENTRY_FIELDS = {
    "id", "log_id", "event_id", "kind", "event_type", "external_system", "endpoint_id", "status", "retry_count",
    "max_retries", "retry_policy", "policy", "next_retry_at", "last_retry_at", "in_dlq", "held", "blocked_by",
    "error_message", "error_stack", "correlation_id", "created_at", "updated_at",
}  # fmt: skip
LETTER_FIELDS = ENTRY_FIELDS | {
    "reason", "category", "fingerprint", "state", "first_failed_at", "failed_at", "generation",
    "run_id", "step_index",
}  # fmt: skip
DETAIL_FIELDS = LETTER_FIELDS | {
    "attempts", "payload_snapshot", "config_snapshot", "replay", "resolution",
    "edit", "edited_payload", "edits", "lane", "ordering_key", "out_of_order", "halts_lane", "broker",
}  # fmt: skip


def _at(text: str) -> datetime:
    assert text.endswith("Z")
    return datetime.fromisoformat(text)


async def _queue(api: Api, query: str = "") -> list[dict[str, Any]]:
    answer = await api.owner.get(f"/v1/retry-queue{query}")
    assert answer.status == 200, answer.body
    data: list[dict[str, Any]] = answer.json["data"]
    return data


async def test_a_first_failure_stands_in_the_queue_as_promised(api: Api) -> None:
    endpoint = await api.endpoint(external_system="SAP")
    assert await _queue(api) == []
    entry = await api.failed_task(correlation_id="trace-7")
    assert set(entry) == ENTRY_FIELDS
    assert entry["log_id"] == entry["id"]
    assert entry["endpoint_id"] == endpoint["id"]
    assert entry["external_system"] == "SAP"
    assert (entry["status"], entry["retry_count"], entry["max_retries"]) == ("pending", 0, 3)
    assert (entry["retry_policy"], entry["policy"]) == ("exponential", "integration")
    assert (entry["in_dlq"], entry["held"]) == (False, False)
    assert entry["error_message"] == "HTTP 503 Service Unavailable"
    assert entry["correlation_id"] == "trace-7"
    assert _at(entry["next_retry_at"]) - _at(entry["last_retry_at"]) == timedelta(seconds=5)


async def test_retry_now_is_due_at_once_and_in_progress_once_it_has_begun(api: Api) -> None:
    await api.endpoint()
    entry = await api.failed_task()
    answer = await api.owner.post(f"/v1/retry-queue/{entry['id']}/retry")
    assert (answer.status, answer.json["status"], answer.json["warning"]) == (200, "pending", "no_worker")
    assert [each["id"] for each in await _queue(api, "?status=pending")] == [entry["id"]]
    (job,) = await api.claim()
    (leased,) = await _queue(api, "?status=in_progress")
    assert (leased["status"], leased["next_retry_at"]) == ("in_progress", None)
    assert (await api.owner.post(f"/v1/retry-queue/{entry['id']}/retry")).status == 409
    assert (await api.owner.post(f"/v1/retry-queue/{entry['id']}/skip")).status == 409
    await api.succeed(job)
    assert await _queue(api) == []
    assert (await api.owner.post(f"/v1/retry-queue/{entry['id']}/retry")).status == 409
    assert (await api.owner.post(f"/v1/retry-queue/{entry['id']}/skip")).status == 409


async def test_what_will_be_held_says_so(api: Api) -> None:
    endpoint = await api.endpoint()
    entry = await api.failed_task()
    assert entry["held"] is False
    name = endpoint["name"]
    for action, why in (
        ("pause", f'It cannot be tried: its endpoint "{name}" is paused. Resume endpoint "{name}", then retry.'),
        ("resume", None),
        ("disable", f'It cannot be tried: its endpoint "{name}" is disabled. Enable endpoint "{name}", then retry.'),
    ):
        await api.owner.post(f"/v1/endpoints/{endpoint['id']}/{action}")
        (listed,) = (await api.owner.get("/v1/retry-queue")).json["data"]
        shown = (await api.owner.get(f"/v1/retry-queue/{entry['id']}")).json
        assert (listed["blocked_by"], shown["blocked_by"], listed["next_retry_at"]) == (
            why,
            why,
            entry["next_retry_at"],
        )
        assert listed["held"] is shown["held"] is False  # it is not due yet


async def test_one_entry_tells_how_it_went_on(api: Api) -> None:
    await api.endpoint()
    await api.event()
    (job,) = await api.claim()
    path = f"/v1/retry-queue/{job.id}"
    assert (await api.viewer.get(path)).status == 404  # it has not failed
    await api.fail(job, retry_in_s=0)
    (listed,) = await _queue(api)
    assert (await api.viewer.get(path)).json == listed
    (job,) = await api.claim()
    assert (await api.viewer.get(path)).json["status"] == "in_progress"
    await api.succeed(job)
    went = (await api.viewer.get(path)).json
    assert set(went) == ENTRY_FIELDS
    assert (went["status"], went["in_dlq"], went["next_retry_at"]) == ("succeeded", False, None)
    for unknown in ("01890000-0000-7000-8000-000000000000", "odd"):
        assert (await api.viewer.get(f"/v1/retry-queue/{unknown}")).status == 404
    assert (await api.stranger.get(path)).status == 404
    assert (await api.viewer.get(f"{path}?x=1")).status == 400


async def test_a_task_that_never_failed_has_no_entry_though_it_succeeded(api: Api) -> None:
    await api.endpoint()
    await api.event()
    (job,) = await api.claim()
    await api.succeed(job)
    assert (await api.viewer.get(f"/v1/retry-queue/{job.id}")).status == 404


async def test_the_entry_of_a_dead_letter_follows_what_a_person_does(api: Api) -> None:
    await api.endpoint()
    letter = await api.dead_task()
    path, letters = f"/v1/retry-queue/{letter['id']}", f"/v1/dead-letters/{letter['id']}"

    async def stands() -> tuple[str, bool]:
        entry = (await api.viewer.get(path)).json
        return entry["status"], entry["in_dlq"]

    assert await stands() == ("failed", True)
    await api.owner.post(f"{path}/retry")
    assert await stands() == ("pending", False)
    await api.owner.post(f"{path}/skip")
    assert await stands() == ("failed", True)
    await api.owner.post(f"{letters}/resolve")
    assert await stands() == ("failed", False)
    await api.owner.request("DELETE", letters)
    assert (await api.viewer.get(path)).status == 404


async def test_skip_moves_to_the_dead_letters(api: Api) -> None:
    await api.endpoint()
    entry = await api.failed_task()
    skipped = await api.owner.post(f"/v1/retry-queue/{entry['id']}/skip", {"because": "customer left"})
    assert skipped.status == 200
    assert (skipped.json["status"], skipped.json["in_dlq"], skipped.json["next_retry_at"]) == ("failed", True, None)
    assert await _queue(api) == []
    letter = (await api.owner.get("/v1/dead-letters")).json["data"][0]
    assert (letter["id"], letter["reason"], letter["status"]) == (entry["id"], "skipped", "failed")


async def test_a_task_that_has_not_failed_is_not_in_the_queue(api: Api) -> None:
    await api.endpoint()
    await api.event()
    (job,) = await api.claim()
    assert await _queue(api) == []
    assert (await api.owner.post(f"/v1/retry-queue/{job.id}/retry")).status == 404


async def test_the_queue_is_filtered_and_paged_soonest_first(api: Api) -> None:
    await api.endpoint()
    for number in range(5):
        await api.event(f"type.{number % 2}", number)
    for delay_s, job in enumerate(await api.claim(), start=10):
        await api.fail(job, retry_in_s=100 - delay_s)
    everything = await _queue(api)
    assert [each["next_retry_at"] for each in everything] == sorted(each["next_retry_at"] for each in everything)
    assert len(await _queue(api, "?event_type=type.0")) == 3
    assert await _queue(api, "?external_system=SAP") == []
    assert len(await _queue(api, "?event_type=type.*")) == 5
    assert len(await _queue(api, "?event_type=*.1")) == 2
    assert len(await _queue(api, "?category=server_error&q=503")) == 5
    assert await _queue(api, "?category=timeout") == []
    assert (await api.owner.get("/v1/retry-queue?category=odd")).status == 400
    first = (await api.owner.get("/v1/retry-queue?limit=3")).json
    assert first["pagination"]["total_count"] == 5
    second = (await api.owner.get(f"/v1/retry-queue?limit=3&cursor={first['pagination']['cursor']}")).json
    assert first["data"] + second["data"] == everything
    assert second["pagination"]["has_more"] is False


async def test_a_manual_policy_waits_for_a_person(api: Api) -> None:
    await api.endpoint(policy="manual")
    await api.event()
    (job,) = await api.claim()
    await api.settle(job, Failure(Category.TIMEOUT, "too slow"), AwaitPerson(), NO_EXCHANGE)
    (entry,) = await _queue(api)
    assert (entry["next_retry_at"], entry["retry_policy"], entry["max_retries"]) == (None, "manual", 3)
    page = (await api.owner.get("/v1/retry-queue?limit=1")).json
    assert page["pagination"]["has_more"] is False


async def test_pages_go_on_past_tasks_that_are_never_due(api: Api) -> None:
    await api.endpoint(policy="manual")
    for number in range(3):
        await api.event(payload=number)
    for job in await api.claim():
        await api.settle(job, Failure(Category.TIMEOUT, "too slow"), AwaitPerson(), NO_EXCHANGE)
    first = (await api.owner.get("/v1/retry-queue?limit=2")).json
    second = (await api.owner.get(f"/v1/retry-queue?limit=2&cursor={first['pagination']['cursor']}")).json
    assert len({each["id"] for each in first["data"] + second["data"]}) == 3


async def test_a_held_task_is_pending_and_cannot_be_hurried(api: Api) -> None:
    endpoint = await api.endpoint()
    await api.event()
    (job,) = await api.claim()
    await api.fail(job, retry_in_s=0)
    await api.owner.request("PATCH", f"/v1/endpoints/{endpoint['id']}", {"disabled": True})
    assert await api.claim() == []
    (entry,) = await _queue(api)
    assert (entry["status"], entry["held"]) == ("pending", True)
    assert (await api.owner.post(f"/v1/retry-queue/{entry['id']}/retry")).status == 409


async def test_a_dead_letter_has_the_promised_fields(api: Api) -> None:
    await api.endpoint()
    letter = await api.dead_task()
    assert set(letter) == LETTER_FIELDS
    assert (letter["state"], letter["reason"], letter["category"]) == ("open", "exhausted", "server_error")
    assert (letter["status"], letter["in_dlq"], letter["next_retry_at"]) == ("failed", True, None)
    assert letter["error_stack"] == "Traceback: here"
    status = (await api.owner.get(f"/v1/events/{letter['event_id']}/status")).json
    assert (status["status"], status["next_retry_at"]) == ("failed", None)
    assert _at(status["failed_at"]) == _at(letter["failed_at"])


async def test_the_detail_shows_attempts_and_redacted_snapshots(api: Api) -> None:
    await api.endpoint(
        url="https://receiver.example.com/hooks?token=canary-url", headers={"Authorization": "Bearer canary-header"}
    )
    letter = await api.dead_task(payload={"password": "canary-payload", "order": 12345678901234567890123})
    answer = await api.owner.get(f"/v1/dead-letters/{letter['id']}")
    detail = answer.json
    assert set(detail) == DETAIL_FIELDS
    assert detail["payload_snapshot"] == {"password": "[redacted]", "order": 12345678901234567890123}
    assert detail["config_snapshot"]["endpoint"]["url"] == "https://receiver.example.com/hooks?[redacted]"
    assert detail["config_snapshot"]["policy"]["delays_s"] == [5, 30, 300]
    assert detail["attempts"][0]["response"]["body"] == "base64:/wA="
    assert (detail["run_id"], detail["step_index"], detail["resolution"]) == (None, None, None)
    assert detail["replay"] == {"count": 0, "at": None, "by": None, "because": None, "outcome": None}
    assert "canary" not in answer.body.decode()


async def test_a_dead_letter_shows_its_endpoint_as_it_was_at_death(api: Api) -> None:
    endpoint = await api.endpoint(timeout_s=7)
    letter = await api.dead_task()
    await api.owner.request("PATCH", f"/v1/endpoints/{endpoint['id']}", {"name": "renamed", "timeout_s": 8})
    await api.owner.request("DELETE", f"/v1/endpoints/{endpoint['id']}")
    remembered = (await api.owner.get(f"/v1/dead-letters/{letter['id']}")).json["config_snapshot"]["endpoint"]
    assert (remembered["name"], remembered["timeout_s"], remembered["deleted"]) == (endpoint["name"], 7, False)


@pytest.mark.parametrize("path", ["/v1/dead-letters/{}/retry", "/v1/retry-queue/{}/retry"])
async def test_a_redrive_begins_again_with_the_first_delay(api: Api, path: str) -> None:
    await api.endpoint()
    letter = await api.dead_task()
    answer = await api.owner.post(path.format(letter["id"]), {"because": "fixed the receiver"})
    assert answer.status == 200
    (entry,) = await _queue(api)
    assert (entry["status"], entry["retry_count"], entry["max_retries"], entry["in_dlq"]) == ("pending", 0, 3, False)
    assert _at(entry["next_retry_at"]) - _at(entry["updated_at"]) == timedelta(seconds=5)
    assert await api.claim() == []
    detail = (await api.owner.get(f"/v1/dead-letters/{letter['id']}")).json
    assert (detail["state"], detail["in_dlq"]) == ("replaying", False)
    assert detail["replay"]["because"] == "fixed the receiver"
    assert detail["replay"]["by"].startswith("key:")
    assert (await api.owner.post(f"/v1/dead-letters/{letter['id']}/retry")).status == 409
    assert (await api.owner.post(f"/v1/dead-letters/{letter['id']}/resolve")).status == 409


async def test_a_redrive_at_once_that_succeeds_resolves_the_letter(api: Api) -> None:
    await api.endpoint()
    letter = await api.dead_task()
    assert (await api.owner.post(f"/v1/dead-letters/{letter['id']}/retry", {"now": True})).status == 200
    (job,) = await api.claim()
    await api.succeed(job)
    detail = (await api.owner.get(f"/v1/dead-letters/{letter['id']}")).json
    assert (detail["state"], detail["status"], detail["replay"]["outcome"]) == ("resolved", "succeeded", "succeeded")
    assert detail["resolution"]["state"] == "resolved"
    assert [attempt["generation"] for attempt in detail["attempts"]] == [0, 1]
    log = (await api.owner.get(f"/v1/logs/{letter['id']}")).json
    assert (log["status"], log["note"]) == ("success", "Succeeded on retry attempt 1")


async def test_a_letter_is_resolved_ignored_or_deleted_with_a_reason(api: Api) -> None:
    await api.endpoint()
    letter = await api.dead_task()
    path = f"/v1/dead-letters/{letter['id']}"
    ignored = await api.owner.post(f"{path}/ignore", {"because": "test data"})
    assert (ignored.json["state"], ignored.json["in_dlq"], ignored.json["status"]) == ("ignored", False, "failed")
    resolved = await api.owner.post(f"{path}/resolve", {"because": "sent by hand"})
    assert resolved.json["state"] == "resolved"
    assert (await api.owner.post(f"{path}/ignore")).status == 409
    resolution = (await api.owner.get(path)).json["resolution"]
    assert (resolution["because"], resolution["state"]) == ("sent by hand", "resolved")
    assert (await api.owner.get("/v1/dead-letters")).json["data"] == []
    assert len((await api.owner.get("/v1/dead-letters?state=resolved")).json["data"]) == 1
    reopened = await api.owner.post(f"{path}/reopen", {"because": "it was not sent after all"})
    assert (reopened.json["state"], reopened.json["in_dlq"]) == ("open", True)
    assert (await api.owner.get(path)).json["resolution"] is None
    assert len((await api.owner.get("/v1/dead-letters")).json["data"]) == 1
    assert (await api.owner.request("DELETE", path, {"because": "privacy"})).status == 204
    assert (await api.owner.get(path)).status == 404
    assert (await api.owner.request("DELETE", path)).status == 404
    assert (await api.owner.post(f"/v1/retry-queue/{letter['id']}/retry")).status == 404
    assert (await api.owner.get(f"/v1/logs/{letter['id']}")).status == 200


@pytest.mark.parametrize("value", [{"because": 7}, {"because": "x" * 1_001}, {"because": "\x00"}, {"why": "x"}, [1]])
async def test_a_reason_is_a_short_text(shared_api: Api, value: object) -> None:
    path = "/v1/dead-letters/01890000-0000-7000-8000-000000000000/resolve"
    assert (await shared_api.owner.post(path, value)).status == 422


async def test_dead_letters_are_filtered(api: Api) -> None:
    await api.endpoint(external_system="SAP")
    await api.event("order.placed", 1)
    await api.event("invoice.paid", 2)
    for job in await api.claim():
        reason = Reason.PERMANENT if job.event_type == "order.placed" else Reason.EXHAUSTED
        await api.die(job, reason=reason, message=f"no {job.event_type} today, 100%")
    filters = {
        "event_type=order.placed": 1,
        "event_type=order.*": 1,
        "event_type=*.p*": 2,
        "event_type=order*paid": 0,
        "reason=permanent": 1,
        "category=server_error": 2,
        "category=timeout": 0,
        "external_system=SAP": 2,
        "kind=http": 2,
        "q=order.placed": 1,
        "q=100%25": 2,
        "q=100_": 0,
        "since=2000-01-01": 2,
        "until=2000-01-01T00:00:00Z": 0,
        "state=open": 2,
        "sort=-created_at": 2,
    }
    for query, count in filters.items():
        answer = (await api.owner.get(f"/v1/dead-letters?{query}")).json
        assert len(answer["data"]) == count, query
        assert answer["pagination"]["total_count"] == count, query


async def test_dead_letters_are_paged_newest_first(api: Api) -> None:
    await api.endpoint()
    ids = [await api.event(payload=number) for number in range(5)]
    # They die in another order than they came in.
    for job in sorted(await api.claim(), key=lambda job: ids.index(str(job.event_id)) % 3):
        await api.die(job)
    everything = (await api.owner.get("/v1/dead-letters")).json["data"]
    assert [each["created_at"] for each in everything] == sorted((e["created_at"] for e in everything), reverse=True)
    paged: list[dict[str, Any]] = []
    cursor = ""
    for _ in range(3):
        page = (await api.owner.get(f"/v1/dead-letters?limit=2{cursor}")).json
        paged += page["data"]
        cursor = f"&cursor={page['pagination']['cursor']}"
    assert paged == everything


async def test_a_log_tells_the_story_of_its_task(api: Api) -> None:
    await api.endpoint()
    event_id = await api.event(payload={"token": "canary"})
    (job,) = await api.claim()
    untried = (await api.owner.get(f"/v1/logs/{job.id}")).json
    assert (untried["status"], untried["note"], untried["request"]) == ("pending", None, None)
    await api.fail(job, retry_in_s=0)
    failed = (await api.owner.get(f"/v1/logs/{job.id}")).json
    assert (failed["status"], failed["note"], failed["response"]["body"]) == ("error", None, "busy")
    (job,) = await api.claim()
    await api.succeed(job)
    answer = await api.owner.get(f"/v1/logs/{job.id}")
    log = answer.json
    assert log["event_id"] == event_id
    assert (log["status"], log["note"]) == ("success", "Succeeded on retry attempt 1")
    assert log["response"]["body"] == '{"ok": true}'
    assert log["request"]["body"] == {"token": "[redacted]"}
    assert [attempt["result"] for attempt in log["attempts"]] == ["failed", "succeeded"]
    assert "canary" not in answer.body.decode()


async def test_a_first_try_that_succeeds_needs_no_note(api: Api) -> None:
    await api.endpoint()
    await api.event()
    (job,) = await api.claim()
    await api.succeed(job)
    log = (await api.owner.get(f"/v1/logs/{job.id}")).json
    assert (log["status"], log["note"], log["error_message"]) == ("success", None, None)
