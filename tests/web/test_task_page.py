"""The pages of one task: as a dead letter, and as a log."""

import json
from datetime import timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from api.conftest import URL, Api
from redrive.core.decide import Die, Reason, RetryIn
from redrive.core.outcome import Category, Failure
from redrive.core.ports import NO_EXCHANGE, Exchange, Job, Released, Settlement
from redrive.web.timeline import MAX_TRIES_SHOWN
from support.page import Page, read

HOSTILE = "<img src=x onerror=alert(1)>\"'<script>alert(2)</script>"
BIG = 12345678901234567890123


def _letter_path(letter: dict[str, Any]) -> str:
    return f"/app/admin/dlq/{letter['id']}"


async def _job(api: Api, letter: dict[str, Any]) -> Job:
    """Redrive at once, and what a worker then gets."""
    answer = await api.owner.post(f"/v1/dead-letters/{letter['id']}/retry", {"now": True, "because": "it is mended"})
    assert answer.status == 200, answer.body
    (job,) = await api.claim()
    return job


async def _die_of(api: Api, *, body: bytes, message: str = "HTTP 500", headers: str | None = None, **event: Any) -> str:
    await api.event(**event)
    (job,) = await api.claim()
    failure = Failure(Category.SERVER_ERROR, message, status_code=500, stack=f"Traceback {message}")
    exchange = Exchange(URL, headers, 500, headers, body)
    await api.settle(job, failure, Die(Reason.EXHAUSTED, Category.SERVER_ERROR), exchange)
    return f"/app/admin/dlq/{job.id}"


async def test_a_dead_letter_tells_what_happened_and_what_may_be_done(api: Api) -> None:
    endpoint = await api.endpoint(name="billing", external_system="SAP")
    await api.event("invoice.paid", {"n": 1})
    for _ in range(3):
        (job,) = await api.claim()
        await api.fail(job, retry_in_s=0)
    (job,) = await api.claim()
    await api.die(job)
    page = await read(api.owner, f"/app/admin/dlq/{job.id}")
    assert page.one("h1").text == "invoice.paid"
    assert "Used up its retries after 3 / 3." in page.text
    names = [element.text for element in page.all("span", class_="try-name")]
    assert names == ["First try", "Retry 1", "Retry 2", "Retry 3"]
    assert page.has("a", href=f"/endpoints/{endpoint['id']}", text="billing")
    assert page.has("a", href=f"/integrations/logs/{job.id}", text="View Log")
    assert page.has("pre", text="Traceback: here")
    assert page.buttons == {"Manual Retry", "Retry now", "Mark Resolved", "Ignore", "Delete"}
    assert page.has("button", text="Edit and replay")
    delete = page.one("button", text="Delete").attributes
    assert (delete["data-ask"], delete["data-confirm"]) == ("Permanently delete this entry?", "Delete")
    assert (delete["data-done"], delete["data-method"]) == ("Entry deleted from DLQ.", "DELETE")
    unfolded = [each.text for each in page.all("details", open="") if each.text.startswith(("First try", "Retry"))]
    assert [text[: len("Retry 3 failed")] for text in unfolded] == ["Retry 3 failed"]  # the last, and no other


async def test_who_may_not_judge_is_offered_nothing(api: Api) -> None:
    await api.endpoint()
    letter, entry = await api.dead_task(), await api.failed_task()
    for client in (api.staff, api.viewer):
        for path in (_letter_path(letter), f"/integrations/logs/{letter['id']}", f"/integrations/logs/{entry['id']}"):
            page = await read(client, path)
            assert page.status == 200
            assert page.buttons == set()
            assert not page.has("button", text="Edit and replay")
            assert not page.has("textarea")


async def test_what_does_not_exist_is_a_page_that_says_so_and_so_is_another_org_s(api: Api) -> None:
    await api.endpoint()
    letter = await api.dead_task()
    unknown = str(uuid4())
    for base, known in (
        ("/app/admin/dlq/", letter["id"]),
        ("/integrations/logs/", letter["id"]),
        ("/events/", letter["event_id"]),
    ):
        assert (await read(api.stranger, base + known)).status == 404
        for path in (base + unknown, base + "no-id"):
            page = await read(api.owner, path)
            assert page.status == 404
            assert page.one("h1").text == "Nothing here"
    assert (await read(api.stranger, _letter_path(letter) + "/payload")).status == 404


async def test_hostile_text_is_text_wherever_it_stands(api: Api) -> None:
    await api.endpoint(name=HOSTILE[:40], external_system=HOSTILE[:40])
    headers = json.dumps({"x-note": HOSTILE})
    body = json.dumps({"html": HOSTILE}).encode()
    path = await _die_of(
        api, body=body, message=HOSTILE, headers=headers, event_type=HOSTILE, payload={"html": HOSTILE, HOSTILE: 1}
    )
    letter = (await api.owner.get(path.replace("/app/admin/dlq", "/v1/dead-letters"))).json
    edited = await api.owner.post(f"/v1/dead-letters/{letter['id']}/replay", {"payload": HOSTILE, "because": HOSTILE})
    assert edited.status == 200
    for shown in (path, f"/integrations/logs/{letter['id']}", f"/events/{letter['event_id']}"):
        page = await read(api.owner, shown)
        assert page.status == 200
        assert page.one("h1").text == HOSTILE
        assert not page.has("img")
        scripts = page.all("script")
        assert scripts
        assert all(script.attributes["src"].startswith("/static/") for script in scripts)


async def test_numbers_are_shown_with_every_digit(api: Api) -> None:
    await api.endpoint()
    sent = b'{"event_type": "n", "payload": {"price": 1.10, "big": %d}}' % BIG
    assert (await api.owner.request("POST", "/v1/events", body=sent)).status == 202
    (job,) = await api.claim()
    exchange = Exchange(URL, None, 500, None, b'{"answer": 2.50, "n": %d}' % BIG)
    failure = Failure(Category.SERVER_ERROR, "HTTP 500", status_code=500)
    await api.settle(job, failure, Die(Reason.EXHAUSTED, Category.SERVER_ERROR), exchange)
    page = await read(api.owner, f"/app/admin/dlq/{job.id}")
    assert f'"price": 1.10, "big": {BIG}' in page.one("pre", aria_label="Payload").text
    assert f'"answer": 2.50, "n": {BIG}' in page.one("pre", aria_label="Body received").text


async def test_a_generation_begins_with_who_and_why_and_what_was_edited(api: Api) -> None:
    await api.endpoint()
    letter = await api.dead_task(payload={"currency": "USD"})
    job = await _job(api, letter)
    await api.die(job)
    given = {"payload": {"currency": "EUR", "n": 1}, "now": True, "because": "wrong currency"}
    assert (await api.owner.post(f"/v1/dead-letters/{letter['id']}/replay", given)).status == 200
    (job,) = await api.claim()
    await api.fail(job)
    page = await read(api.owner, _letter_path(letter))
    first, second = page.all("li", class_="redriven")
    assert first.text.startswith("Redriven by you because “it is mended”, ")
    assert second.text.startswith("Edited and replayed by you because “wrong currency”, ")
    assert '/currency changed "USD" "EUR"' in second.text
    assert "/n added 1" in second.text
    assert '"EUR"' in page.one("pre", aria_label="Payload as it is sent now").text
    assert '"USD"' in page.one("pre", aria_label="Payload").text
    assert '"EUR"' in page.one("pre", aria_label="Edited payload").text
    sent = [element.text for element in page.all("pre", aria_label="Body sent")]
    assert ['"EUR"' in text for text in sent] == [False, False, True]
    told = page.one("ul", class_="done").text
    assert "You replayed it" in told
    assert "You redrove it" in told


async def test_a_policy_of_its_own_leads_nowhere_and_settings_are_those_of_the_time(api: Api) -> None:
    endpoint = await api.endpoint(name="billing", timeout_s=7)
    letter = await api.dead_task()
    page = await read(api.owner, _letter_path(letter))
    assert page.has("a", href="/policies/integration")
    assert '"timeout_s": 7' in page.one("pre", aria_label="Settings of the endpoint").text
    assert (await api.owner.request("PATCH", f"/v1/endpoints/{endpoint['id']}", {"timeout_s": 9})).status == 200
    given = {"override_retry_policy": {"kind": "list", "delays_s": [1]}}
    assert (await api.owner.post(f"/v1/dead-letters/{letter['id']}/replay", given)).status == 200
    page = await read(api.owner, _letter_path(letter))
    assert page.has("h2", text="A policy of its own")
    assert '"timeout_s": 7' in page.one("pre", aria_label="Settings of the endpoint").text


async def test_a_waiting_task_can_be_tried_now_or_skipped_from_its_log(api: Api) -> None:
    await api.endpoint()
    entry = await api.failed_task()
    page = await read(api.owner, f"/integrations/logs/{entry['log_id']}")
    assert page.has("span", class_="badge failed", text="error")
    assert page.buttons == {"Retry Now", "Skip"}
    assert page.one("button", text="Skip").attributes["data-ask"] == "Skip retry and move to Dead Letter Queue?"
    assert page.has("li", class_="next")
    assert "Next retry" in page.text


async def test_a_log_says_on_which_retry_it_succeeded_and_what_was_answered(api: Api) -> None:
    await api.endpoint()
    await api.event()
    for end in (api.fail, api.succeed):
        (job,) = await api.claim()
        await (api.fail(job, retry_in_s=0) if end == api.fail else api.succeed(job))
    page = await read(api.owner, f"/integrations/logs/{job.id}")
    assert page.has("span", class_="badge delivered", text="success")
    assert "Succeeded on retry attempt 1." in page.text
    assert page.buttons == set()
    (unfolded,) = [each for each in page.all("details", open="") if "Retry 1 succeeded" in each.text]
    assert '"ok": true' in unfolded.text


async def test_the_log_of_a_deleted_dead_letter_stays(api: Api) -> None:
    await api.endpoint()
    letter = await api.dead_task()
    assert (await api.owner.request("DELETE", f"/v1/dead-letters/{letter['id']}")).status == 204
    assert (await read(api.owner, _letter_path(letter))).status == 404
    page = await read(api.owner, f"/integrations/logs/{letter['id']}")
    assert "Its dead letter was deleted; this log stays." in page.text
    assert page.buttons == set()
    assert "You deleted the dead letter" in page.text


async def test_a_resolved_dead_letter_says_who_resolved_it_and_why(api: Api) -> None:
    await api.endpoint()
    letter = await api.dead_task()
    given = {"because": "booked by hand"}
    assert (await api.owner.post(f"/v1/dead-letters/{letter['id']}/resolve", given)).status == 200
    page = await read(api.owner, _letter_path(letter))
    assert page.has("dt", text="Resolved")
    assert any("by you because “booked by hand”" in fact.text for fact in page.all("dd"))
    assert page.buttons == {"Manual Retry", "Retry now", "Reopen", "Delete"}


async def test_a_replaying_letter_offers_what_its_waiting_task_offers(api: Api) -> None:
    await api.endpoint()
    letter = await api.dead_task()
    assert (await api.owner.post(f"/v1/dead-letters/{letter['id']}/retry")).status == 200
    page = await read(api.owner, _letter_path(letter))
    assert page.has("span", class_="badge waiting", text="replaying")
    assert page.buttons == {"Retry Now", "Skip"}
    (job,) = await _due(api, letter)
    assert (await read(api.owner, _letter_path(letter))).buttons == set()  # a try is under way
    assert "A try is under way." in (await read(api.owner, _letter_path(letter))).text
    await api.succeed(job)


async def _due(api: Api, letter: dict[str, Any]) -> list[Job]:
    await api.owner.post(f"/v1/retry-queue/{letter['id']}/retry")
    return await api.claim()


async def test_the_editor_begins_with_what_would_be_sent_and_only_for_those_who_may_send_it(api: Api) -> None:
    await api.endpoint()
    sent = b'{"event_type": "n", "payload": {"token": "whole", "price": 1.10}}'
    event_id = (await api.owner.request("POST", "/v1/events", body=sent)).json["event_id"]
    (job,) = await api.claim()
    await api.die(job)
    path = f"/app/admin/dlq/{job.id}/payload"
    original = b'{\n  "token": "whole",\n  "price": 1.10\n}'
    answer = await api.owner.get(path)
    assert (answer.status, answer.body) == (200, original)
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    for client in (api.staff, api.viewer):
        assert (await client.get(path)).status == 403
    await api.owner.post(f"/v1/dead-letters/{job.id}/replay", {"payload": {"price": 2}, "now": True})
    (job,) = [job for job in await api.claim() if str(job.event_id) == event_id]
    await api.die(job)
    assert (await api.owner.get(path)).body == b'{\n  "price": 2\n}'
    assert (await api.owner.get(f"{path}?original")).body == original


async def test_the_command_to_copy_holds_no_secret(api: Api) -> None:
    await api.endpoint()
    headers = json.dumps({"authorization": "[redacted]"})
    path = await _die_of(api, body=b"", headers=headers, payload={"password": "canary", "n": 1})
    page = await read(api.owner, path)
    command = page.one("pre", id="curl").text
    assert "canary" not in command
    assert f"--url {URL}" in command
    assert "webhook-signature: v1,SIGN-IT" in command
    assert "authorization: FILL-IN" in command
    assert '"n":1' in command


async def test_of_many_attempts_the_newest_are_told_and_the_rest_is_a_line_each(api: Api) -> None:
    await api.endpoint()
    await api.event()
    (job,) = await api.claim()
    for _ in range(MAX_TRIES_SHOWN + 2):
        await api.fail(job, retry_in_s=0)
        (job,) = await api.claim()
    page = await read(api.owner, f"/integrations/logs/{job.id}")
    assert len(page.all("span", class_="try-name")) == MAX_TRIES_SHOWN
    more = page.one("a", text="Show 3 earlier attempts")  # one more is under way
    whole = await read(api.owner, more.attributes["href"])
    assert len(whole.all("span", class_="try-name")) == MAX_TRIES_SHOWN + 3
    assert len(whole.all("p", class_="try-line")) == 3


async def test_what_is_special_about_an_attempt_is_explained(api: Api) -> None:
    await api.endpoint()
    await api.event()
    (job,) = await api.claim()
    failure = Failure(Category.TIMEOUT, "no answer in time", possible_duplicate=True)
    await api.settle(job, failure, RetryIn(timedelta(0)), Exchange(URL, None))
    await api.claim()
    page = await read(api.owner, f"/integrations/logs/{job.id}")
    assert "The receiver may have got it all the same" in page.text
    assert "There was no answer." in page.text
    assert page.has("span", class_="badge waiting", text="under way")
    await _lose(api, job)
    page = await read(api.owner, f"/integrations/logs/{job.id}")
    assert "The worker did not report before its lease ended." in page.text
    assert "Its result came after the lease had ended: succeeded." in page.text


async def _lose(api: Api, job: Job) -> None:
    """As the record stands where a worker vanished and reported later."""
    engine = await asyncpg.connect(api.url)
    try:
        await engine.execute("SET ROLE redrive_engine")
        await engine.execute(
            "UPDATE redrive.attempt SET result = 'lost', late_at = ended_at, late_result = 'succeeded'"
            " WHERE task_id = $1",
            job.id,
        )
    finally:
        await engine.close()


@pytest.mark.parametrize("count", [0, 1, 2])
async def test_where_a_task_stands_on_its_schedule_is_marked(api: Api, count: int) -> None:
    await api.endpoint()
    await api.event()
    (job,) = await api.claim()
    for _ in range(count):
        await api.fail(job, retry_in_s=0)
        (job,) = await api.claim()
    await api.fail(job)
    page = await read(api.owner, f"/integrations/logs/{job.id}")
    assert _stands(page) == ["made"] * count + ["next"] + [""] * (2 - count)
    assert page.has("path", class_="chart-here")


async def test_of_a_long_schedule_the_part_is_shown_where_the_task_stands(api: Api) -> None:
    spec = {"kind": "exponential", "base_s": 1, "factor": 2, "max_retries": 1_000}
    assert (await api.owner.request("PUT", "/v1/policies/endless", spec)).status == 200
    await api.endpoint(policy="endless")
    await api.event()
    (job,) = await api.claim()
    for _ in range(25):
        await api.fail(job, retry_in_s=0)
        (job,) = await api.claim()
    await api.fail(job)
    page = await read(api.owner, f"/integrations/logs/{job.id}")
    assert _stands(page) == ["made"] * 6 + ["next"] + [""] * 5
    assert page.has("li", class_="next", text="Retry 26 after 1 h next")
    assert page.has("path", class_="chart-here")


def _stands(page: Page) -> list[str]:
    listed = [element for element in page.all("li") if element.text.startswith("Retry") and " after " in element.text]
    return [element.attributes["class"] for element in listed]


async def test_idle_time_is_a_line_between_the_tries_and_before_the_first(api: Api) -> None:
    await api.endpoint()
    await api.event()
    (job,) = await api.claim()
    await api.fail(job, retry_in_s=0)
    (job,) = await api.claim()
    await api.fail(job)
    engine = await asyncpg.connect(api.url)
    try:
        await engine.execute("SET ROLE redrive_engine")
        await engine.execute(
            "UPDATE redrive.attempt SET started_at = started_at + later, ended_at = ended_at + later"
            "  FROM (VALUES (1, interval '2 h'), (2, interval '2 h 5 min')) AS shift (try, later)"
            " WHERE task_id = $1 AND number = try",
            job.id,
        )
    finally:
        await engine.close()
    page = await read(api.owner, f"/integrations/logs/{job.id}")
    assert [wait.text for wait in page.all("li", class_="wait")] == ["2 h of waiting", "5 min of waiting"]


async def test_a_letter_that_a_replay_delivered_offers_no_retry_and_no_reopening(api: Api) -> None:
    await api.endpoint()
    letter = await api.dead_task()
    given = {"now": True}
    assert (await api.owner.post(f"/v1/dead-letters/{letter['id']}/retry", given)).status == 200
    (job,) = await _due(api, letter)
    await api.succeed(job)
    assert (await read(api.owner, "/integrations/logs/dead-letter-queue?state=resolved")).buttons == {"Delete"}
    assert (await read(api.owner, _letter_path(letter))).buttons == {"Delete"}


async def test_what_a_worker_gave_back_is_no_try(api: Api) -> None:
    await api.endpoint()
    event_id = await api.event()
    for _ in range(2):
        (job,) = await api.claim()
        await api.tasks.settle([Settlement(job, None, Released("The worker stops."), NO_EXCHANGE, 0.01)])
        (job,) = await api.claim()
        await api.fail(job, retry_in_s=0)
    (entry,) = (await api.owner.get("/v1/retry-queue")).json["data"]
    for path in (f"/integrations/logs/{entry['id']}", f"/events/{event_id}"):
        names = [each.text for each in (await read(api.owner, path)).all("span", class_="try-name")]
        assert sorted(names) == ["First try", "No try", "No try", "Retry 1"]
