"""The pages of workflows and runs, and what the pages of tasks say of steps."""

import json
from typing import Any
from uuid import UUID

import pytest

from api.conftest import URL, Api
from redrive.core.decide import Die, Reason, Succeed
from redrive.core.outcome import Category, Failure, Success
from redrive.core.ports import HTTP_STEP_QUEUE, Exchange, Job, Settlement
from redrive.web.pages import runs as runs_page
from redrive.web.run_detail import MAX_STEP_BODY_BYTES
from support.engine import claim_due
from support.page import Page, read

NOBODY = UUID(int=7)
HOSTILE = "<img src=x onerror=alert(1)>\"'<script>alert(2)</script>"


def step(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "kind": "http", "url": f"https://example.com/{name}", "body": "{{ input }}", **fields}


async def define(api: Api, name: str = "fulfil", *steps: dict[str, Any], **fields: Any) -> None:
    given = {"steps": list(steps) or [step("charge"), step("ship"), step("tell")], **fields}
    answer = await api.owner.request("PUT", f"/v1/workflows/{name}", given)
    assert answer.status == 200, answer.body


async def begin(api: Api, name: str = "fulfil", given: object = None, **fields: str) -> str:
    answer = await api.owner.post(f"/v1/workflows/{name}/runs", {"input": given, **fields})
    assert answer.status == 202, answer.body
    run_id: str = answer.json["run_id"]
    return run_id


async def claim(api: Api) -> Job:
    claimed = await claim_due(api.tasks, 1_000, queues=(HTTP_STEP_QUEUE,), margin_s=5.0)
    (job,) = [job for job in claimed.jobs if job.org_id == api.org_id]
    return job


async def succeed(api: Api, output: object = None) -> None:
    given = Settlement(await claim(api), Success(200), Succeed(), Exchange(URL), 0.1, json.dumps(output).encode())
    (settled,) = await api.tasks.settle([given])
    assert settled.held_lease


async def die(api: Api, message: str = "HTTP 422") -> str:
    job = await claim(api)
    failure = Failure(Category.CLIENT_ERROR, message, status_code=422)
    await api.settle(job, failure, Die(Reason.PERMANENT, Category.CLIENT_ERROR), Exchange(URL, None, 422, None, b"no"))
    return str(job.id)


def ids(page: Page) -> list[str]:
    return [each.attributes["data-id"] for each in page.all("tr") if "data-id" in each.attributes]


def _dialog(page: Page) -> bool:
    return any("data-replay-dialog" in each.attributes for each in page.all("dialog"))


async def test_without_workflows_it_is_told_how_to_make_one(api: Api) -> None:
    page = await read(api.viewer, "/workflows")
    assert "No workflows yet" in page.text
    assert "PUT /v1/workflows/fulfil" in page.text
    page = await read(api.viewer, "/runs")
    assert "No runs yet" in page.text


async def test_a_workflow_in_the_list_is_drawn_with_its_runs_and_leads_to_them(api: Api) -> None:
    await define(api, "fulfil", step("charge"), step("ship"))
    await define(api, "long", *(step(f"s{number}") for number in range(11)), description=HOSTILE)
    await begin(api)
    await begin(api)
    page = await read(api.viewer, "/workflows")
    assert [each.text for each in page.all("a", class_="strong-link")] == ["fulfil", "long"]
    names = [each.text for each in page.all("span", class_="chain-name")]
    assert names == ["charge", "ship", *(f"s{number}" for number in range(8))]
    assert "3 more steps" in page.text
    assert page.has("a", href="/runs?workflow=fulfil&status=PENDING", text="2 PENDING")
    assert "none yet" in page.text
    assert not page.has("img")
    assert (await read(api.stranger, "/workflows")).all("a", class_="strong-link") == []


async def test_a_workflow_s_page_shows_what_it_sends_without_what_is_secret(api: Api) -> None:
    secret = {"authorization": "Bearer sk-1234567890", "x-run": "{{ run.id }}"}
    charge = step("charge", headers=secret, body={"note": HOSTILE}, timeout_s=15)
    await define(api, "fulfil", step("old"))
    await define(api, "fulfil", charge, description=HOSTILE)
    run_id = await begin(api)
    page = await read(api.owner, "/workflows/fulfil")
    assert page.one("h1").text == "fulfil"
    assert "sk-1234567890" not in page.answer.body.decode()
    assert not page.has("img")
    headers, body = (each.text for each in page.all("pre"))
    assert '"x-run": "{{ run.id }}"' in headers
    assert HOSTILE[:20] in body
    assert page.has("a", href="/policies/workflow", text="workflow")
    assert page.has("a", href="/workflows/fulfil?version=1", text="Version 1")
    assert page.has("a", href=f"/runs/{run_id}")
    assert page.buttons == {"Delete"}
    assert page.has("button", text="Start run")
    before = await read(api.owner, "/workflows/fulfil?version=1")
    assert "This version is not in force any more." in before.text
    for client in (api.staff, api.viewer):
        page = await read(client, "/workflows/fulfil")
        assert page.buttons == set()
        assert not page.has("button", text="Start run")
        assert not page.has("dialog")


async def test_a_deleted_workflow_is_still_there_for_its_runs(api: Api) -> None:
    await define(api)
    assert (await api.owner.request("DELETE", "/v1/workflows/fulfil")).status == 204
    page = await read(api.owner, "/workflows/fulfil")
    assert "It was deleted: no run begins with it any more." in page.text
    assert page.buttons == set()
    assert not page.has("button", text="Start run")


@pytest.mark.parametrize(
    "path",
    [
        "/workflows/nothing",
        "/workflows/fulfil?version=2",
        "/workflows/fulfil?version=x",
        "/workflows/fulfil?version=99999999999",
        "/workflows/%00",
        "/workflows/" + "a" * 300,
        "/runs/no-id",
        f"/runs/{NOBODY}",
        f"/runs/{NOBODY}/steps/0/input",
    ],
)
async def test_what_does_not_exist_is_a_page_that_says_so(api: Api, path: str) -> None:
    await define(api)
    assert (await read(api.owner, path)).status == 404


async def test_runs_are_listed_newest_first_filtered_and_found_by_id(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await define(api)
    await define(api, "other", step("only"))
    first, second = await begin(api, correlation_id="checkout-7"), await begin(api)
    third = await begin(api, "other")
    assert ids(await read(api.viewer, "/runs")) == [third, second, first]
    assert ids(await read(api.viewer, "/runs?workflow=fulfil")) == [second, first]
    assert ids(await read(api.viewer, "/runs?workflow=fulfil&status=SUCCESS")) == []
    assert ids(await read(api.stranger, "/runs")) == []
    assert "checkout-7" in (await read(api.viewer, "/runs")).text
    unclear = await read(api.viewer, "/runs?status=lost")
    assert "status:lost is not known" in unclear.text
    for asked, way in ((first, f"/runs/{first}"), ("other", "/runs?workflow=other"), ("status:FAILED", None)):
        answer = await api.viewer.get(f"/runs?q={asked}", Accept="text/html")
        assert (answer.status, answer.headers["location"]) == (303, way or "/runs?status=FAILED")
    monkeypatch.setattr(runs_page, "PAGE_ROWS", 2)
    page = await read(api.viewer, "/runs")
    assert ids(page) == [third, second]
    assert ids(await read(api.viewer, page.one("a", rel="next").attributes["href"])) == [first]
    broken = await read(api.viewer, "/runs?cursor=x")
    assert broken.status == 400


async def test_a_run_tells_of_each_step_how_it_stands_and_what_may_be_done(api: Api) -> None:
    await define(api)
    run_id = await begin(api, given={"card": {"api_key": "sk_live_1234567890"}, "note": HOSTILE})
    await succeed(api, {"id": "c-7", "password": "hush"})
    letter = await die(api, HOSTILE)
    page = await read(api.owner, f"/runs/{run_id}")
    steps = [page.one("li", id=f"step-{index}").text for index in range(3)]
    assert "0 charge SUCCESS" in steps[0]
    assert "1 / 4 tries" in steps[0]
    assert "c-7" in steps[0]
    assert "1 ship DLQ Client error" in steps[1]
    assert HOSTILE in steps[1]
    assert "2 tell PENDING" in steps[2]
    assert "0 / 4 tries" in steps[2]
    assert not page.has("img")
    text = page.answer.body.decode()
    assert "sk_live_1234567890" not in text
    assert "hush" not in text
    assert page.has("a", href=f"/integrations/logs/{letter}")
    assert page.has("a", href=f"/app/admin/dlq/{letter}")
    assert page.has("a", href="/workflows/fulfil?version=1", text="fulfil")
    assert f"{run_id}:1" in steps[1]
    assert page.buttons == {"Cancel run"}
    assert len([each for each in page.all("button") if "data-replay" in each.attributes]) == 3
    assert _dialog(page)
    assert (await read(api.stranger, f"/runs/{run_id}")).status == 404
    for client in (api.staff, api.viewer):
        page = await read(client, f"/runs/{run_id}")
        assert page.buttons == set()
        assert not page.has("dialog")
        assert not [each for each in page.all("button") if "data-replay" in each.attributes]


async def test_a_run_that_is_under_way_is_not_replayed_and_one_that_was_cancelled_says_by_whom(api: Api) -> None:
    await define(api)
    run_id = await begin(api)
    page = await read(api.owner, f"/runs/{run_id}")
    assert "data-active" in page.one("p", id="run-status").attributes
    assert not [each for each in page.all("button") if "data-replay" in each.attributes]
    assert (await api.owner.post(f"/v1/runs/{run_id}/cancel", {"because": "sold twice"})).status == 200
    page = await read(api.owner, f"/runs/{run_id}")
    assert "by you because “sold twice”" in page.text
    assert "FAILED cancelled" in page.one("p", id="run-status").text
    assert "data-active" not in page.one("p", id="run-status").attributes
    assert page.buttons == set()


async def test_steps_that_were_run_again_keep_their_earlier_executions(api: Api) -> None:
    await define(api, "fulfil", step("charge"), step("ship"))
    run_id = await begin(api)
    await succeed(api)
    await succeed(api)
    replayed = {"from_step_index": 1, "new_idempotency_key": True, "because": "lost on the way"}
    assert (await api.owner.post(f"/v1/runs/{run_id}/replay", replayed)).status == 200
    page = await read(api.owner, f"/runs/{run_id}")
    assert "1 earlier execution" in page.one("li", id="step-1").text
    assert f"{run_id}:1:r1" in page.one("li", id="step-1").text
    assert "earlier" not in page.one("li", id="step-0").text
    assert "You replayed it from step 1 on" in page.text


async def test_long_inputs_and_outputs_are_left_out_of_a_run_s_page(api: Api) -> None:
    await define(api)
    long = "x" * MAX_STEP_BODY_BYTES
    run_id = await begin(api, given={"text": long})
    await succeed(api, {"text": long})
    page = await read(api.owner, f"/runs/{run_id}")
    assert page.one("li", id="step-0").text.count("kB are left out here. The API has them.") == 2
    assert "The first 16,000 of" in page.text  # of the run's own input
    assert page.answer.body.decode().count("x" * 1_000) <= 16


async def test_the_editor_s_text_is_for_those_who_may_replay_and_read_payloads(api: Api) -> None:
    await define(api)
    run_id = await begin(api, given={"n": 12345678901234567890123, "api_key": "sk_live_1234567890"})
    path = f"/runs/{run_id}/steps/0/input"
    text = (await api.owner.get(path)).body.decode()
    assert text == '{\n  "n": 12345678901234567890123,\n  "api_key": "sk_live_1234567890"\n}'
    assert (await api.owner.get(f"/runs/{run_id}/steps/1/input")).body == b""
    for index in ("x", "-1", "99999999999"):
        assert (await api.owner.get(f"/runs/{run_id}/steps/{index}/input", Accept="text/html")).status == 404
    for client, status in ((api.staff, 403), (api.viewer, 403), (api.stranger, 404)):
        assert (await client.get(path, Accept="text/html")).status == status


async def test_a_step_s_dead_letter_leads_to_its_run_and_is_replayed_from_there_or_before(api: Api) -> None:
    await define(api, "fulfil", step("charge"), step("ship", headers={"authorization": "Bearer sk-1234567890"}))
    run_id = await begin(api)
    await succeed(api)
    letter = await die(api)
    for path in (f"/app/admin/dlq/{letter}", f"/integrations/logs/{letter}"):
        page = await read(api.owner, path)
        assert page.has("a", href=f"/runs/{run_id}", text="a run of fulfil")
        assert "1 ship" in page.text
        assert "sk-1234567890" not in page.answer.body.decode()
    page = await read(api.owner, f"/app/admin/dlq/{letter}")
    assert any('"url": "https://example.com/ship"' in each.text for each in page.all("pre"))
    assert page.has("button", text="Replay")
    assert not page.has("button", text="Edit and replay")
    chosen = [each.text for each in page.all("option") if each.text[0].isdigit()]
    assert chosen == ["0 charge", "1 ship"]
    for client in (api.staff, api.viewer):
        assert not _dialog(await read(client, f"/app/admin/dlq/{letter}"))
    listed = await read(api.owner, "/integrations/logs/dead-letter-queue")
    assert page.one("h1").text == "fulfil.ship"
    assert listed.has("span", class_="badge", text="step")
    found = await api.owner.get(f"/integrations/logs/dead-letter-queue?q={run_id}", Accept="text/html")
    assert (found.status, found.headers["location"]) == (303, f"/runs/{run_id}")


async def test_a_letter_whose_run_begins_again_before_it_is_not_offered_again(api: Api) -> None:
    await define(api, "fulfil", step("charge"), step("ship"))
    run_id = await begin(api)
    await succeed(api)
    letter = await die(api)
    assert (await api.owner.post(f"/v1/runs/{run_id}/replay", {"from_step_index": 0})).status == 200
    page = await read(api.owner, f"/app/admin/dlq/{letter}")
    assert "It is tried again when its run comes to it." in page.text
    assert page.buttons == set()
    assert not _dialog(page)


async def test_the_audit_leads_to_workflows_and_runs(api: Api) -> None:
    await define(api)
    run_id = await begin(api)
    assert (await api.owner.post(f"/v1/runs/{run_id}/cancel")).status == 200
    page = await read(api.owner, "/audit")
    assert page.has("a", href="/workflows/fulfil", text="fulfil")
    assert page.has("a", href=f"/runs/{run_id}")
