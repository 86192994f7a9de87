"""Policies over HTTP: presets, edits, schedules."""

import asyncio

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
