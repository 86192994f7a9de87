"""Workflows and runs over HTTP: definitions with everything that can be wrong with them, runs begun once, cancelled."""

import json
from typing import Any

import asyncpg
import pytest

from redrive.store.db import Record

from .conftest import Api

WAIT = {"name": "first", "kind": "wait", "wait_s": 3600}


async def put(api: Api, name: str, *steps: dict[str, Any], **fields: Any) -> Any:
    return await api.owner.request("PUT", f"/v1/workflows/{name}", {"steps": list(steps), **fields})


async def seen(api: Api, statement: str) -> list[Record]:
    """As the engine, which sees all."""
    connection = await asyncpg.connect(api.url, server_settings={"role": "redrive_engine"})
    try:
        return await connection.fetch(statement)
    finally:
        await connection.close()


async def begun(api: Api, name: str = "waiting", **headers: str) -> Any:
    return await api.owner.post(f"/v1/workflows/{name}/runs", {"input": {"n": 1}}, **headers)


async def test_each_edit_is_a_version_and_the_same_again_is_none(api: Api) -> None:
    assert (await put(api, "waiting", WAIT)).json["version"] == 1
    assert (await put(api, "waiting", WAIT)).json["version"] == 1
    changed = await put(api, "waiting", WAIT | {"wait_s": 60}, description="shorter")
    assert (changed.json["version"], changed.json["description"], changed.json["in_force"]) == (2, "shorter", True)
    before = await api.owner.get("/v1/workflows/waiting?version=1")
    assert (before.json["steps"][0]["wait_s"], before.json["in_force"]) == (3600, False)
    listed = await api.owner.get("/v1/workflows")
    assert [(each["name"], each["version"]) for each in listed.json["data"]] == [("waiting", 2)]


async def test_what_is_read_can_be_saved_again_without_losing_its_secrets(api: Api) -> None:
    headers = {"Authorization": "Bearer sk-1234567890abcdef", "X-Run": "{{ run.id }}"}
    step = {"name": "call", "kind": "http", "url": "https://example.com/x", "headers": headers}
    assert (await put(api, "secretive", step)).status == 200
    read = (await api.owner.get("/v1/workflows/secretive")).json
    assert read["steps"][0]["headers"] == {"Authorization": "[redacted]", "X-Run": "{{ run.id }}"}
    same = await api.owner.request("PUT", "/v1/workflows/secretive", read)
    assert (same.status, same.json["version"]) == (200, 1)
    changed = await api.owner.request("PUT", "/v1/workflows/secretive", read | {"description": "now with a text"})
    assert changed.json["version"] == 2
    stored = await seen(api, "SELECT spec, shown, headers_sealed FROM redrive.workflow WHERE name = 'secretive'")
    assert len(stored) == 2
    assert all(b"sk-1234" not in bytes(row["headers_sealed"]) for row in stored)
    assert "sk-1234" not in "".join(row["spec"] + row["shown"] for row in stored)


async def test_a_name_that_cannot_be_names_nothing(api: Api) -> None:
    for name in ("a%00", "%ED%A0%80", "a%20b", "x" * 101):
        path = f"/v1/workflows/{name}"
        asked = [
            await api.owner.get(path),
            await api.owner.request("DELETE", path),
            await api.owner.post(f"{path}/runs"),
        ]
        assert [answer.status for answer in asked] == [404, 404, 404]
        given = await put(api, name, WAIT)
        assert (given.status, given.json["errors"][0]["loc"]) == (422, ["path", "name"])


async def test_a_step_cannot_be_sent_where_no_endpoint_could_be(api: Api) -> None:
    urls = ("http://169.254.169.254/latest/{{ input.x }}", "https://example.com/", "http://[::ffff:10.0.0.1]/")
    steps = [{"name": f"s{at}", "kind": "http", "url": url} for at, url in enumerate(urls)]
    answer = await put(api, "inward", *steps)
    assert answer.status == 422
    assert [error["loc"] for error in answer.json["errors"]] == [["body", "steps", at, "url"] for at in (0, 2)]
    assert "REDRIVE_ALLOW_NETWORKS=169.254.169.254" in answer.json["errors"][0]["msg"]


async def test_everything_that_is_wrong_with_a_definition_is_said_at_once(api: Api) -> None:
    answer = await put(
        api,
        "wrong",
        {"name": "a", "kind": "http", "url": "https://{{ input.host }}/x", "policy": "nope"},
        {"name": "a", "kind": "handler", "handler": "h", "input": "{{ steps.b.output }}"},
        {"name": "b", "kind": "teleport"},
    )
    assert answer.status == 422
    places = [tuple(error["loc"]) for error in answer.json["errors"]]
    assert ("body", "steps", 0, "url") in places
    assert ("body", "steps", 1, "name") in places
    assert ("body", "steps", 1, "input") in places
    assert ("body", "steps", 2, "kind") in places


@pytest.mark.parametrize(
    ("step", "place"),
    [
        ({"name": "a", "kind": "wait", "wait_s": 1, "policy": "nope"}, ["body", "steps", 0, "policy"]),
        ({"name": "a", "kind": "http", "endpoint": "nobody"}, ["body", "steps", 0, "endpoint"]),
    ],
)
async def test_what_a_step_names_must_be_there(api: Api, step: dict[str, Any], place: list[object]) -> None:
    answer = await put(api, "naming", step)
    assert (answer.status, [error["loc"] for error in answer.json["errors"]]) == (422, [place])


async def test_a_run_keeps_the_version_that_it_began_with(api: Api) -> None:
    await put(api, "waiting", WAIT)
    run_id = (await begun(api)).json["run_id"]
    await put(api, "waiting", WAIT | {"name": "other"})
    run = (await api.owner.get(f"/v1/runs/{run_id}")).json
    assert (run["version"], run["steps"][0]["name"]) == (1, "first")


async def test_a_run_is_begun_once_under_a_key(api: Api) -> None:
    await put(api, "waiting", WAIT)
    await put(api, "another", WAIT)
    first = await begun(api, Idempotency_Key="order-7")
    assert (first.status, first.json["status"]) == (202, "PENDING")
    assert (await begun(api, Idempotency_Key="order-7")).json == first.json
    other = await api.owner.post("/v1/workflows/waiting/runs", {"input": {"n": 2}}, Idempotency_Key="order-7")
    assert other.status == 409
    assert (await begun(api, "another", Idempotency_Key="order-7")).status == 409
    assert (await api.owner.get("/v1/runs?workflow=waiting")).json["pagination"]["total_count"] == 1


async def test_a_deleted_workflow_begins_no_runs_and_those_there_are_go_on(api: Api) -> None:
    await put(api, "waiting", WAIT)
    run_id = (await begun(api)).json["run_id"]
    assert (await api.owner.request("DELETE", "/v1/workflows/waiting")).status == 204
    assert (await begun(api)).status == 404
    assert (await api.owner.get(f"/v1/runs/{run_id}")).json["status"] == "PENDING"
    assert (await put(api, "waiting", WAIT)).json["version"] == 2


async def test_a_run_that_waits_is_cancelled_at_once(api: Api) -> None:
    await put(api, "waiting", WAIT, WAIT | {"name": "second"})
    run_id = (await begun(api)).json["run_id"]
    answer = await api.owner.post(f"/v1/runs/{run_id}/cancel", {"because": "ordered by mistake"})
    run = answer.json
    assert (run["status"], [step["status"] for step in run["steps"]]) == ("FAILED", ["FAILED", "PENDING"])
    assert run["cancelled"]["because"] == "ordered by mistake"
    assert (await api.owner.post(f"/v1/runs/{run_id}/cancel")).status == 409
    letter_id = run["steps"][0]["dead_letter_id"]
    letter = (await api.owner.get(f"/v1/dead-letters/{letter_id}")).json
    assert (letter["state"], letter["resolution"]["because"]) == ("ignored", "ordered by mistake")
    assert (await api.owner.get("/v1/dead-letters")).json["data"] == []


async def test_runs_are_listed_newest_first_by_workflow_status_and_time(api: Api) -> None:
    await put(api, "waiting", WAIT)
    await put(api, "another", WAIT)
    ids = [(await begun(api, name)).json["run_id"] for name in ("waiting", "another", "waiting", "waiting")]
    await api.owner.post(f"/v1/runs/{ids[2]}/cancel")

    async def listed(query: str) -> list[str]:
        answer = await api.owner.get(f"/v1/runs?{query}")
        assert answer.status == 200, answer.body
        return [run["run_id"] for run in answer.json["data"]]

    assert await listed("") == ids[::-1]
    assert await listed("workflow=waiting") == [ids[3], ids[2], ids[0]]
    assert await listed("workflow=waiting&status=PENDING") == [ids[3], ids[0]]
    assert await listed("status=FAILED") == [ids[2]]
    assert await listed("since=2100-01-01T00:00:00Z") == []
    first = (await api.owner.get("/v1/runs?limit=3")).json
    assert (first["pagination"]["has_more"], first["pagination"]["total_count"]) == (True, 4)
    rest = await listed(f"limit=3&cursor={first['pagination']['cursor']}")
    assert rest == [ids[0]]


async def test_a_run_under_way_is_not_replayed_and_a_step_must_exist(api: Api) -> None:
    await put(api, "waiting", WAIT)
    run_id = (await begun(api)).json["run_id"]
    assert (await api.owner.post(f"/v1/runs/{run_id}/replay", {"from_step_index": 0})).status == 409
    await api.owner.post(f"/v1/runs/{run_id}/cancel")
    beyond = await api.owner.post(f"/v1/runs/{run_id}/replay", {"from_step_index": 1})
    assert (beyond.status, beyond.json["errors"][0]["loc"]) == (422, ["body", "from_step_index"])
    again = await api.owner.post(f"/v1/runs/{run_id}/replay", {"from_step_index": 0})
    assert (again.status, again.json["status"], again.json["cancelled"]) == (200, "RUNNING", None)


async def test_the_input_of_a_step_is_kept_as_long_as_its_run(api: Api) -> None:
    await put(api, "waiting", WAIT)
    run_id = (await begun(api)).json["run_id"]
    await api.owner.post(f"/v1/runs/{run_id}/cancel")
    events = (await api.owner.get("/v1/events")).json["data"]
    assert [event["event_type"] for event in events] == ["waiting.first"]
    refused = await api.owner.request("DELETE", f"/v1/events/{events[0]['event_id']}")
    assert (refused.status, "run" in refused.json["detail"]) == (409, True)


async def test_an_input_is_kept_as_it_came(api: Api) -> None:
    await put(api, "waiting", WAIT)
    answer = await api.owner.request(
        "POST", "/v1/workflows/waiting/runs", body=b'{"input": {"amount": 1.10, "password": "p"}}'
    )
    assert answer.status == 202, answer.body
    (row,) = await seen(api, f"SELECT input FROM redrive.run WHERE id = '{answer.json['run_id']}'")
    assert row["input"] == b'{"amount": 1.10, "password": "p"}'
    shown = await api.owner.get(f"/v1/runs/{answer.json['run_id']}")
    assert b'"amount":1.10' in shown.body
    assert json.loads(shown.body)["input"]["password"] == "[redacted]"
