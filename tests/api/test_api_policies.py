"""Policies over HTTP: presets, edits, schedules."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from redrive.store import policies
from support.http import Answer

from .conftest import Api


async def test_the_presets_are_there(shared_api: Api) -> None:
    answer = (await shared_api.owner.get("/v1/policies")).json
    names = {policy["name"] for policy in answer["data"] if policy["preset"]}
    assert {"integration", "immediate", "manual", "relay", "triggers", "workflow", "transformer"} <= names
    integration = (await shared_api.owner.get("/v1/policies/integration")).json
    assert (integration["kind"], integration["delays_s"], integration["max_retries"]) == ("list", [5, 30, 300], 3)
    assert (await shared_api.owner.get("/v1/policies/nightly")).status == 404


async def test_a_policy_that_was_read_can_be_edited_and_put_back(api: Api) -> None:
    policy = (await api.owner.get("/v1/policies/integration")).json
    put = await api.owner.request("PUT", "/v1/policies/integration", {**policy, "delays_s": [1, 2.5]})
    assert put.status == 200
    assert (put.json["delays_s"], put.json["preset"]) == ([1, 2.5], True)
    assert (await api.owner.get("/v1/policies/integration")).json == put.json
    assert (await api.stranger.get("/v1/policies/integration")).json["delays_s"] == [5, 30, 300]


async def test_a_task_keeps_the_policy_it_was_accepted_under(api: Api) -> None:
    await api.endpoint()
    entry = await api.failed_task()
    await api.owner.request("PUT", "/v1/policies/integration", {"kind": "list", "delays_s": [1], "max_retries": 9})
    kept = (await api.owner.get("/v1/retry-queue")).json["data"][0]
    assert kept["max_retries"] == entry["max_retries"] == 3


async def test_a_new_policy_can_be_used_at_once(api: Api) -> None:
    spec = {"kind": "exponential", "base_s": 0.5, "factor": 3, "cap_s": 60, "max_retries": 4, "jitter": 0.5}
    assert (await api.owner.request("PUT", "/v1/policies/fast", spec)).status == 200
    await api.endpoint(policy="fast")
    entry = await api.failed_task()
    assert (entry["policy"], entry["retry_policy"], entry["max_retries"]) == ("fast", "exponential", 4)
    preview = (await api.owner.get("/v1/policies/fast/preview")).json
    assert (preview["policy"], preview["max_retries"]) == ("fast", 4)
    assert preview["retries"][2] == {"retry": 2, "delay_s": 4.5, "min_s": 2.25, "max_s": 6.75, "at_s": 6.5}
    assert len(preview["retries"]) == 4


async def test_the_audit_names_the_policy_that_was_put(api: Api) -> None:
    for delays_s in ([1], [2]):
        await api.owner.request("PUT", "/v1/policies/mine", {"kind": "list", "delays_s": delays_s})
    async with api.context.app_db.tenant(api.org_id) as session:
        rows = await session._connection.fetch(
            "SELECT before ->> 'name' AS old_name, before -> 'delays_s' AS old, after ->> 'name' AS name,"
            " after -> 'delays_s' AS new FROM redrive.audit WHERE action = 'policy.put' ORDER BY id"
        )
    assert [tuple(row) for row in rows] == [(None, None, "mine", "[1]"), ("mine", "[1]", "mine", "[2]")]


async def test_a_preview_shows_twenty_retries_at_most(shared_api: Api) -> None:
    relay = (await shared_api.owner.get("/v1/policies/relay/preview")).json
    assert (relay["max_retries"], len(relay["retries"])) == (None, 20)
    assert (await shared_api.owner.get("/v1/policies/manual/preview")).json["retries"] == []


async def test_edits_at_the_same_moment_leave_one_policy(api: Api) -> None:
    clients = [api.client(api.owner.key) for _ in range(6)]
    spec = {"kind": "list", "delays_s": [1]}
    answers = await asyncio.gather(*(c.request("PUT", "/v1/policies/mine", spec) for c in clients))
    assert {answer.status for answer in answers} <= {200, 409}
    assert 200 in {answer.status for answer in answers}
    listed = (await api.owner.get("/v1/policies")).json["data"]
    assert sum(policy["name"] == "mine" for policy in listed) == 1


QUICK = {"kind": "list", "delays_s": [1], "max_retries": 1}


async def _put(api: Api, name: str, **fields: object) -> Answer:
    return await api.owner.request("PUT", f"/v1/policies/{name}", {**QUICK, **fields})


async def test_a_policy_shows_which_events_it_is_for(api: Api) -> None:
    await api.endpoint(policy="relay")
    put = await _put(api, "mine", event_types=["invoice.*", "order.created"], default=True)
    assert (put.status, put.json["event_types"], put.json["default"]) == (200, ["invoice.*", "order.created"], True)
    assert (await api.owner.get("/v1/policies/mine")).json == put.json
    assert (await api.failed_task(event_type="order.created"))["policy"] == "mine"
    assert (await api.failed_task(event_type="order.paid"))["policy"] == "relay"
    again = await api.owner.request("PUT", "/v1/policies/mine", put.json)
    assert (again.json["event_types"], again.json["default"]) == (["invoice.*", "order.created"], True)
    replaced = await _put(api, "mine")
    assert (replaced.json["event_types"], replaced.json["default"]) == ([], False)


async def test_an_org_has_one_default(api: Api) -> None:
    await _put(api, "first", default=True)
    await _put(api, "second", default=True)
    listed = (await api.owner.get("/v1/policies")).json["data"]
    assert [policy["name"] for policy in listed if policy["default"]] == ["second"]
    assert (await api.stranger.get("/v1/policies/second")).status == 404


async def test_defaults_set_at_the_same_moment_leave_one(api: Api) -> None:
    clients = [api.client(api.owner.key) for _ in range(6)]
    spec = {**QUICK, "default": True}
    answers = await asyncio.gather(
        *(client.request("PUT", f"/v1/policies/p{n % 3}", spec) for n, client in enumerate(clients))
    )
    assert {answer.status for answer in answers} <= {200, 409}
    listed = (await api.owner.get("/v1/policies")).json["data"]
    assert sum(policy["default"] for policy in listed) == 1


@pytest.mark.parametrize(
    ("fields", "place", "message"),
    [
        ({"event_types": "invoice.*"}, ["event_types"], "a list"),
        ({"event_types": None}, ["event_types"], "a list"),
        ({"event_types": ["a", 5]}, ["event_types", 1], "1 to 200"),
        ({"event_types": [""]}, ["event_types", 0], "1 to 200"),
        ({"event_types": ["a" * 201]}, ["event_types", 0], "1 to 200"),
        ({"event_types": ["a\x00"]}, ["event_types", 0], "control"),
        ({"event_types": ["a", "a"]}, ["event_types", 1], "twice"),
        ({"event_types": [str(n) for n in range(101)]}, ["event_types"], "at most 100"),
        ({"default": "yes"}, ["default"], "true or false"),
        ({"default": None}, ["default"], "true or false"),
        ({"kind": "weekly"}, ["kind"], "list, exponential, immediate, manual"),
        ({"classify": {"retry": ["weather"]}}, ["classify", "retry", 0], "server_error"),
        ({"org_id": str(uuid4())}, ["org_id"], "unknown field"),
        ({"id": str(uuid4())}, ["id"], "unknown field"),
        ({"is_default": True}, ["is_default"], "unknown field"),
        ({"retired_at": None}, ["retired_at"], "unknown field"),
    ],
)
async def test_what_is_wrong_with_a_policy_is_named(
    shared_api: Api, fields: dict[str, Any], place: list[object], message: str
) -> None:
    for method, path in (("PUT", "/v1/policies/mine"), ("POST", "/v1/policies/preview")):
        answer = await shared_api.owner.request(method, path, {**QUICK, **fields})
        assert answer.status == 422, answer.body
        ((loc, said),) = answer.errors
        assert (loc, message in said) == (["body", *place], True), said


async def test_everything_that_is_wrong_is_named_at_once(shared_api: Api) -> None:
    answer = await _put(shared_api, "mine", jitter=7, event_types=5, default=5)
    assert {error[0][1] for error in answer.errors} == {"jitter", "event_types", "default"}


async def test_a_policy_is_deleted_and_its_tasks_keep_it(api: Api) -> None:
    endpoint = await api.endpoint()
    await _put(api, "mine", event_types=["*"])
    entry = await api.failed_task()
    assert (entry["policy"], entry["endpoint_id"]) == ("mine", endpoint["id"])
    assert (await api.owner.request("DELETE", "/v1/policies/mine")).status == 204
    assert (await api.owner.get("/v1/policies/mine")).status == 404
    assert (await api.owner.get("/v1/retry-queue")).json["data"][0]["policy"] == "mine"
    assert (await api.owner.request("DELETE", "/v1/policies/workflow")).status == 204


async def test_a_policy_that_is_needed_is_not_deleted_and_the_reason_is_said(api: Api) -> None:
    await _put(api, "mine", default=True)
    await api.endpoint(name="billing", policy="mine")
    refused = await api.owner.request("DELETE", "/v1/policies/mine")
    assert refused.status == 409
    assert '"billing"' in refused.json["detail"]
    assert "default" in refused.json["detail"]
    last_resort = await api.owner.request("DELETE", "/v1/policies/integration")
    assert (last_resort.status, "last resort" in last_resort.json["detail"]) == (409, True)


async def test_who_may_not_manage_may_not_change_policies(shared_api: Api) -> None:
    for client, status in ((shared_api.staff, 403), (shared_api.viewer, 403), (shared_api.nobody, 401)):
        assert (await client.request("DELETE", "/v1/policies/relay")).status == status
        assert (await client.request("PUT", "/v1/policies/relay", QUICK)).status == status
    assert (await shared_api.viewer.post("/v1/policies/preview", QUICK)).status == 403
    assert (await shared_api.nobody.post("/v1/policies/preview", QUICK)).status == 401


async def test_another_org_s_policy_is_unknown(api: Api) -> None:
    await _put(api, "mine")
    for name in ("mine", "never-was", "no%20name"):
        answer = await api.stranger.request("DELETE", f"/v1/policies/{name}")
        assert (answer.status, answer.json["detail"]) == (404, "There is no such policy.")
    assert (await api.owner.get("/v1/policies/mine")).status == 200
    assert (await api.owner.request("DELETE", "/v1/policies/mine?force=true")).status == 400


async def test_a_draft_is_previewed_and_not_stored(shared_api: Api) -> None:
    draft = {"kind": "exponential", "base_s": 2, "jitter": 0.5, "max_retries": 2, "event_types": ["x"]}
    preview = (await shared_api.owner.post("/v1/policies/preview", draft)).json
    assert (preview["policy"], preview["max_retries"]) == (None, 2)
    assert preview["retries"][1] == {"retry": 1, "delay_s": 4, "min_s": 2, "max_s": 6, "at_s": 6}
    named = await shared_api.owner.post("/v1/policies/preview", {**draft, "name": "drafted"})
    assert named.json["policy"] == "drafted"
    assert (await shared_api.owner.get("/v1/policies/drafted")).status == 404


async def test_an_org_has_no_more_policies_than_their_list_shows(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "MAX_POLICIES", len((await api.owner.get("/v1/policies")).json["data"]) + 1)
    given = {"kind": "immediate", "max_retries": 1}
    assert (await api.owner.request("PUT", "/v1/policies/last", given)).status == 200
    refused = await api.owner.request("PUT", "/v1/policies/beyond", given)
    assert (refused.status, refused.errors[0][0]) == (422, ["body"])
    assert (await api.owner.request("PUT", "/v1/policies/last", given)).status == 200, "an edit adds none"
    assert (await api.owner.request("DELETE", "/v1/policies/last")).status == 204
    assert (await api.owner.request("PUT", "/v1/policies/beyond", given)).status == 200
