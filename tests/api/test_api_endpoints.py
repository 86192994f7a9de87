"""Endpoints over HTTP: secrets once, headers hidden, changes by field."""

import asyncio
from uuid import UUID

import pytest

from redrive.store.endpoints import Endpoints, get_endpoint

from .conftest import URL, Api


async def test_only_the_answer_that_makes_an_endpoint_shows_its_secret(api: Api) -> None:
    made = await api.endpoint(name="billing", headers={"Authorization": "Bearer canary"}, timeout_s=2.5)
    assert made["secret"].startswith("whsec_")
    assert made["headers"] == {"Authorization": "[redacted]"}
    assert made["event_types"] == ["*"]
    shown = await api.owner.get(f"/v1/endpoints/{made['id']}")
    assert "secret" not in shown.json
    assert shown.json == {key: value for key, value in made.items() if key != "secret"}
    listed = await api.owner.get("/v1/endpoints")
    assert listed.json["data"] == [shown.json]
    assert listed.json["pagination"] == {"limit": 50, "cursor": None, "has_more": False, "total_count": 1}
    assert "canary" not in (shown.body + listed.body).decode()


async def test_a_name_is_taken_once(api: Api) -> None:
    await api.endpoint(name="billing")
    other = await api.endpoint(name="other")
    assert (await api.owner.post("/v1/endpoints", {"name": "billing", "url": URL})).status == 409
    patched = await api.owner.request("PATCH", f"/v1/endpoints/{other['id']}", {"name": "billing"})
    assert patched.status == 409
    assert (await api.stranger.post("/v1/endpoints", {"name": "billing", "url": URL})).status == 201


async def test_a_change_touches_the_fields_given_and_no_other(api: Api) -> None:
    made = await api.endpoint(headers={"X-Token": "canary"}, policy="immediate", timeout_s=5)
    path = f"/v1/endpoints/{made['id']}"
    changed = await api.owner.request("PATCH", path, {"event_types": ["a.*"], "policy": None})
    assert changed.status == 200
    assert changed.json["event_types"] == ["a.*"]
    assert changed.json["policy"] is None
    assert changed.json["timeout_s"] == 5
    assert changed.json["headers"] == {"X-Token": "[redacted]"}
    async with api.context.app_db.tenant(api.org_id) as session:
        row = await get_endpoint(session, UUID(made["id"]))
    assert row is not None
    assert Endpoints(api.context.sealer).spec_of(row).headers == (("X-Token", "canary"),)


async def test_a_header_sent_back_as_it_was_shown_keeps_its_value(api: Api) -> None:
    made = await api.endpoint(headers={"Authorization": "Bearer canary", "X-Old": "old", "X-Gone": "gone"})
    path = f"/v1/endpoints/{made['id']}"
    shown = made["headers"]
    del shown["X-Gone"]
    changed = await api.owner.request("PATCH", path, {"headers": {**shown, "X-Old": "new", "X-New": "also"}})
    assert changed.json["headers"] == dict.fromkeys(("Authorization", "X-Old", "X-New"), "[redacted]")
    kept = (("Authorization", "Bearer canary"), ("X-Old", "new"), ("X-New", "also"))
    assert await _headers(api, made["id"]) == kept
    # Names are the same in any case of their letters.
    assert (await api.owner.request("PATCH", path, {"headers": {"authorization": "[redacted]"}})).status == 200
    assert await _headers(api, made["id"]) == (("authorization", "Bearer canary"),)


async def test_a_hidden_value_that_was_never_stored_is_refused(api: Api) -> None:
    path = f"/v1/endpoints/{(await api.endpoint(headers={'X-Token': 'canary'}))['id']}"
    refused = await api.owner.request("PATCH", path, {"headers": {"X-Token": "[redacted]", "X-New": "[redacted]"}})
    assert (refused.status, refused.errors[0][0]) == (422, ["body", "headers"])
    assert "X-New" in refused.errors[0][1]
    new = await api.owner.post("/v1/endpoints", {"name": "n", "url": URL, "headers": {"X-New": "[redacted]"}})
    assert (new.status, new.errors[0][0]) == (422, ["body", "headers"])
    big = {"X-Token": "[redacted]", "X-Big": "x" * 8_150}
    assert (await api.owner.request("PATCH", path, {"headers": big})).status == 200
    also_big = {"X-Big": "[redacted]", "X-More": "x" * 200}
    assert (await api.owner.request("PATCH", path, {"headers": also_big})).status == 422


async def test_a_url_is_whole_only_for_those_who_may_change_it(api: Api) -> None:
    made = await api.endpoint(url="https://receiver.example.com/in?key=canary")
    path = f"/v1/endpoints/{made['id']}"
    assert (await api.owner.get(path)).json["url"] == made["url"] == "https://receiver.example.com/in?key=canary"
    for client in (api.staff, api.viewer):
        for answer in (await client.get(path), await client.get("/v1/endpoints")):
            assert answer.status == 200
            assert b"canary" not in answer.body
            assert b'"https://receiver.example.com/in?[redacted]"' in answer.body


async def _headers(api: Api, endpoint_id: str) -> tuple[tuple[str, str], ...]:
    async with api.context.app_db.tenant(api.org_id) as session:
        row = await get_endpoint(session, UUID(endpoint_id))
    assert row is not None
    return Endpoints(api.context.sealer).spec_of(row).headers


async def test_a_change_is_judged_like_a_new_endpoint(api: Api) -> None:
    path = f"/v1/endpoints/{(await api.endpoint())['id']}"
    for given, field in (
        ({"url": "http://10.0.0.1/"}, "url"),
        ({"url": None}, "url"),
        ({"name": None}, "name"),
        ({"kind": "relay"}, "kind"),
        ({"policy": "nightly"}, "policy"),
        ({"headers": {"Host": "x"}}, "headers"),
    ):
        answer = await api.owner.request("PATCH", path, given)
        assert (answer.status, answer.errors[0][0]) == (422, ["body", field])


async def test_an_endpoint_can_be_disabled_and_enabled_again(api: Api) -> None:
    path = f"/v1/endpoints/{(await api.endpoint())['id']}"
    await api.event()
    disabled = await api.owner.request("PATCH", path, {"disabled": True})
    assert disabled.json["disabled"] is True
    assert disabled.json["disabled_at"].endswith("Z")
    assert await api.claim() == []  # held instead
    enabled = await api.owner.request("PATCH", path, {"disabled": False})
    assert (enabled.json["disabled"], enabled.json["disabled_at"]) == (False, None)
    assert len(await api.claim()) == 1


async def test_a_deleted_endpoint_is_gone_and_its_name_is_free(api: Api) -> None:
    made = await api.endpoint(name="billing")
    path = f"/v1/endpoints/{made['id']}"
    assert (await api.owner.request("DELETE", path)).status == 204
    assert (await api.owner.get(path)).status == 404
    assert (await api.owner.request("DELETE", path)).status == 404
    await api.endpoint(name="billing")


async def test_an_idempotency_key_makes_one_endpoint(api: Api) -> None:
    given = {"name": "billing", "url": URL}
    first = await api.owner.post("/v1/endpoints", given, Idempotency_Key="k1")
    again = await api.owner.post("/v1/endpoints", {"url": URL, "name": "billing"}, Idempotency_Key="k1")
    other = await api.owner.post("/v1/endpoints", {**given, "name": "b"}, Idempotency_Key="k1")
    foreign = await api.stranger.post("/v1/endpoints", given, Idempotency_Key="k1")
    assert (first.status, again.status, other.status, foreign.status) == (201, 201, 409, 201)
    assert again.json == {key: value for key, value in first.json.items() if key != "secret"}
    assert (await api.owner.get("/v1/endpoints")).json["pagination"]["total_count"] == 1
    await api.owner.request("DELETE", f"/v1/endpoints/{first.json['id']}")
    assert (await api.owner.post("/v1/endpoints", given, Idempotency_Key="k1")).status == 409


async def test_the_same_key_at_the_same_time_makes_one_endpoint(api: Api) -> None:
    clients = [api.client(api.owner.key) for _ in range(8)]
    given = {"name": "billing", "url": URL}
    answers = await asyncio.gather(*(c.post("/v1/endpoints", given, Idempotency_Key="k1") for c in clients))
    assert {answer.status for answer in answers} == {201}
    assert len({answer.json["id"] for answer in answers}) == 1
    assert sum("secret" in answer.json for answer in answers) == 1


async def test_a_failed_creation_leaves_its_key_free(api: Api) -> None:
    await api.endpoint(name="billing")
    assert (await api.owner.post("/v1/endpoints", {"name": "billing", "url": URL}, Idempotency_Key="k")).status == 409
    assert (await api.owner.post("/v1/endpoints", {"name": "free", "url": URL}, Idempotency_Key="k")).status == 201


@pytest.mark.parametrize("column", ["secret_sealed", "headers_sealed"])
async def test_an_endpoint_that_does_not_open_is_shown_with_its_problem_and_can_be_disabled(
    api: Api, column: str
) -> None:
    made = await api.endpoint(headers={"x-key": "canary"})
    assert made["problem"] is None
    async with api.context.engine_db.transaction() as session:
        await session._connection.execute(
            f"UPDATE redrive.endpoint SET {column} = 'short' WHERE id = $1", UUID(made["id"])
        )
    path = f"/v1/endpoints/{made['id']}"
    shown = (await api.owner.get(path)).json
    assert "REDRIVE_SECRET_KEY" in shown["problem"]
    assert shown["headers"] == ({} if column == "headers_sealed" else {"x-key": "[redacted]"})
    assert [one["id"] for one in (await api.owner.get("/v1/endpoints")).json["data"]] == [made["id"]]
    disabled = await api.owner.request("PATCH", path, {"disabled": True})
    assert (disabled.status, disabled.json["disabled"]) == (200, True)
    assert disabled.json["problem"] == shown["problem"]
