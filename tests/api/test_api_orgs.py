"""Orgs over HTTP: an owner makes and limits them and acts in each; the others have one, and see no more."""

import asyncio
from uuid import UUID, uuid4

import pytest

from redrive.api import auth
from redrive.core.limits import DEFAULT_LIMITS
from support.http import HttpClient

from .conftest import URL, Api
from .people import OURS, audited, keyed, other_org, person, signed_in, write

EVENT = {"event_type": "a", "payload": {"n": 1}}


async def _limited(api: Api, monkeypatch: pytest.MonkeyPatch, **limits: int) -> None:
    monkeypatch.setattr(auth, "CALLER_TTL_S", 0.05)
    changed = await api.stranger.request("PATCH", f"/v1/orgs/{api.org_id}", {"limits": limits})
    assert changed.status == 200, changed.body


async def test_an_owner_makes_an_org_that_can_be_used_at_once(api: Api) -> None:
    name = f"acme {uuid4().hex}"
    made = await api.owner.post("/v1/orgs", {"name": name})
    assert made.status == 201
    assert made.json["limits"] == DEFAULT_LIMITS.to_spec()
    assert made.json["usage"] == {"stored_bytes": 0, "endpoints": 0}
    theirs = api.client(made.json["key"])
    who = (await theirs.get("/v1/session")).json
    assert (who["role"], who["org"]) == ("ADMIN", {"id": made.json["id"], "name": name})
    assert len((await theirs.get("/v1/policies")).json["data"]) == 7
    assert (await theirs.post("/v1/events", EVENT)).status == 202
    assert (await theirs.post("/v1/orgs", {"name": "another"})).status == 403
    assert (await api.owner.post("/v1/orgs", {"name": name})).status == 409
    org_id = UUID(made.json["id"])
    assert [len(await audited(api, action, org_id)) for action in ("org.create", "key.create")] == [1, 1]


async def test_the_same_idempotency_key_makes_one_org(api: Api) -> None:
    key = {"Idempotency-Key": uuid4().hex}
    value = {"name": uuid4().hex}
    first = await api.owner.request("POST", "/v1/orgs", value, headers=key)
    again = await api.owner.request("POST", "/v1/orgs", value, headers=key)
    other = await api.owner.request("POST", "/v1/orgs", {"name": uuid4().hex}, headers=key)
    assert (first.status, again.status, other.status) == (201, 201, 409)
    assert first.json["id"] == again.json["id"]
    assert "key" not in again.json


async def test_others_see_their_own_org_only(api: Api) -> None:
    other_id, _ = await other_org(api)
    admin = await keyed(api, "ADMIN")
    user = await signed_in(api, await person(api, "VIEWER"))
    for client in (admin, user, api.viewer):
        listed = (await client.get("/v1/orgs")).json
        assert [org["id"] for org in listed["data"]] == [str(api.org_id)]
        assert listed["pagination"]["total_count"] == 1
        assert (await client.get(f"/v1/orgs/{api.org_id}")).status == 200
        for unknown in (other_id, uuid4(), "seven"):
            assert (await client.get(f"/v1/orgs/{unknown}")).status == 404
        assert (await client.request("PATCH", f"/v1/orgs/{api.org_id}", {}, headers=OURS)).status == 403
    assert (await api.owner.get(f"/v1/orgs/{other_id}")).status == 200
    assert str(other_id) in await _all_orgs(api)


async def _all_orgs(api: Api) -> set[str]:
    """The ids of every org, page by page: other tests make them by the hundred."""
    seen: set[str] = set()
    cursor: str | None = ""
    while cursor is not None:
        page = (await api.owner.get(f"/v1/orgs?limit=250{f'&cursor={cursor}' if cursor else ''}")).json
        seen |= {org["id"] for org in page["data"]}
        cursor = page["pagination"]["cursor"]
    return seen


async def test_an_owner_renames_an_org_and_sets_its_limits(api: Api) -> None:
    org_id, old = await other_org(api)
    path = f"/v1/orgs/{org_id}"
    name = uuid4().hex
    changed = await api.owner.request("PATCH", path, {"name": name, "limits": {"max_endpoints": 3}})
    assert (changed.json["name"], changed.json["limits"]["max_endpoints"]) == (name, 3)
    changed = await api.owner.request("PATCH", path, {"limits": {"burst": 7}})
    assert changed.json["limits"] == DEFAULT_LIMITS.to_spec() | {"max_endpoints": 3, "burst": 7}
    assert changed.json == (await api.owner.get(path)).json
    _, taken = await other_org(api)
    assert (await api.owner.request("PATCH", path, {"name": taken})).status == 409
    assert (await api.owner.request("PATCH", f"/v1/orgs/{uuid4()}", {"name": "x"})).status == 404
    first, _second = await audited(api, "org.update", org_id)
    assert old in first["before"]
    assert name in first["after"]


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"limits": {"max_payload_bytes": 1_048_577}}, ["body", "limits", "max_payload_bytes"]),
        ({"limits": {"requests_per_s": 0}}, ["body", "limits", "requests_per_s"]),
        ({"limits": {"burst": 1.5}}, ["body", "limits", "burst"]),
        ({"limits": {"max_stored_bytes": -1}}, ["body", "limits", "max_stored_bytes"]),
        ({"limits": {"max_stored_bytes": 2**60}}, ["body", "limits", "max_stored_bytes"]),
        ({"limits": {"max_endpoints": True}}, ["body", "limits", "max_endpoints"]),
        ({"limits": {"max_users": 1}}, ["body", "limits", "max_users"]),
        ({"name": "x" * 101}, ["body", "name"]),
        ({"id": str(uuid4())}, ["body", "id"]),
    ],
)
async def test_limits_that_cannot_be_are_refused(shared_api: Api, value: object, place: list[str]) -> None:
    answer = await shared_api.owner.request("PATCH", f"/v1/orgs/{shared_api.org_id}", value)
    assert answer.status == 422
    assert [loc for loc, _ in answer.errors] == [place]


async def test_an_owner_acts_in_the_org_that_a_header_names_and_sees_nothing_of_their_own(api: Api) -> None:
    other_id, other = await other_org(api)
    mine = await api.event()
    link = await signed_in(api, await person(api, "OWNER"))
    for client, more in ((api.owner, {}), (link, OURS)):
        for called in (str(other_id), other):
            headers = {"X-Redrive-Org": called, **more}
            made = await client.request("POST", "/v1/events", EVENT, headers=headers)
            assert made.status == 202
            path = f"/v1/events/{made.json['event_id']}"
            assert (await client.request("GET", path, headers=headers)).status == 200
            assert (await client.get(path)).status == 404
            assert (await client.request("GET", f"/v1/events/{mine}", headers=headers)).status == 404
    batch = await api.owner.request("POST", "/v1/events/batch", [EVENT], headers={"X-Redrive-Org": other})
    assert batch.json["accepted"] == 1
    headers = {"X-Redrive-Org": other}
    assert (await api.owner.request("GET", "/v1/events", headers=headers)).json["pagination"]["total_count"] == 5
    endpoint = await api.owner.request("POST", "/v1/endpoints", {"name": "x", "url": URL}, headers=headers)
    assert endpoint.status == 201
    assert (await api.owner.get(f"/v1/endpoints/{endpoint.json['id']}")).status == 404
    assert len(await audited(api, "endpoint.create", other_id)) == 1


async def test_an_unknown_org_and_one_that_is_not_one_s_own_are_told_the_same(api: Api) -> None:
    other_id, other = await other_org(api)
    cases: list[tuple[HttpClient, dict[str, str], tuple[str, ...]]] = [
        (api.owner, {}, ("nothing", str(uuid4()), "", "x" * 200, "\xe9"))
    ]
    others = (str(other_id), other, "nothing", str(uuid4()))
    for client in (await keyed(api, "ADMIN"), api.viewer, await keyed(api, "OWNER", "produce")):
        cases.append((client, {}, others))
    cases.append((await signed_in(api, await person(api, "ADMIN")), OURS, others))
    for client, more, names in cases:
        for called in names:
            for method, path in (("POST", "/v1/events"), ("POST", "/v1/events/batch"), ("GET", "/v1/session")):
                answer = await client.request(method, path, None, headers={"X-Redrive-Org": called, **more})
                assert (answer.status, answer.json["detail"]) == (404, "There is no such org."), (called, path)
    own = {"X-Redrive-Org": str(api.org_id)}
    assert (await api.viewer.request("GET", "/v1/events", headers=own)).status == 200
    assert (await (await keyed(api, "ADMIN")).request("POST", "/v1/events", EVENT, headers=own)).status == 202


async def test_more_requests_than_an_org_may_make_are_told_when_to_come_back(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _limited(api, monkeypatch, requests_per_s=1, burst=3)
    status_path = f"/v1/events/{await api.event()}/status"
    for method, path, value in (("POST", "/v1/events", EVENT), ("GET", "/v1/events", None), ("GET", status_path, None)):
        client = await keyed(api, "ADMIN")
        async with asyncio.timeout(10):
            while (refused := await client.request(method, path, value)).status != 429:
                assert refused.status in (200, 202)
        assert refused.headers["retry-after"] == "1"
    assert "requests_per_s" in refused.json["detail"]
    assert (await api.stranger.post("/v1/events", EVENT)).status == 202  # another org's business


async def test_a_payload_above_the_org_s_limit_is_too_large(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await _limited(api, monkeypatch, max_payload_bytes=10)
    endpoint = await api.endpoint()
    letter = await api.dead_task()
    client = await keyed(api, "ADMIN")
    large = {"event_type": "a", "payload": "x" * 20}
    for _ in range(2):  # looked up, and remembered
        assert (await client.post("/v1/events", EVENT)).status == 202
        refused = await client.post("/v1/events", large)
        assert (refused.status, "10 bytes" in refused.json["detail"]) == (413, True)
    batch = (await client.post("/v1/events/batch", [EVENT, large])).json
    assert (batch["accepted"], [one["index"] for one in batch["rejected"]]) == (1, [1])
    for path in (f"/v1/endpoints/{endpoint['id']}/test", f"/v1/dead-letters/{letter['id']}/replay"):
        assert (await client.post(path, {"payload": "x" * 20})).status == 413, path
    cloud = {"specversion": "1.0", "id": "1", "source": "/here", "type": "a", "data": "x" * 20}
    structured = {"Content-Type": "application/cloudevents+json"}
    assert (await client.request("POST", "/v1/events", cloud, headers=structured)).status == 413
    binary = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/here", "ce-type": "a"}
    assert (await client.request("POST", "/v1/events", "x" * 20, headers=binary)).status == 413
    batched = {"Content-Type": "application/cloudevents-batch+json"}
    many = (await client.request("POST", "/v1/events/batch", [{**cloud, "data": 1}, cloud], headers=batched)).json
    assert (many["accepted"], [one["index"] for one in many["rejected"]]) == (1, [1])


async def test_tests_and_edits_are_held_to_the_org_s_limits_as_events_are(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"/v1/endpoints/{(await api.endpoint())['id']}/test"
    letter = (await api.dead_task(payload={"a": 1}))["id"]
    client = await keyed(api, "ADMIN")
    replay, large = f"/v1/dead-letters/{letter}/replay", {"payload": "x" * 40}
    patch = {"action": "retry", "ids": [letter], "patch": {"b": "x" * 40}}
    await _limited(api, monkeypatch, max_payload_bytes=40)
    assert [(await client.post(each, large)).status for each in (path, replay)] == [413, 413]
    assert (await client.post("/v1/dead-letters/bulk?wait=true", patch)).json == {"succeeded": 0, "failed": 1}
    await _limited(api, monkeypatch, max_payload_bytes=1_000, max_stored_bytes=0)
    client = await keyed(api, "ADMIN")
    for each, value in ((path, large), (path, None), (replay, large), ("/v1/dead-letters/bulk", patch)):
        refused = await client.post(each, value)
        assert (refused.status, "max_stored_bytes" in refused.json["detail"]) == (507, True), each
    await _limited(api, monkeypatch, max_stored_bytes=1_000_000)
    client = await keyed(api, "ADMIN")
    assert [(await client.post(each, large)).status for each in (path, replay)] == [202, 200]


async def test_an_org_that_stores_what_it_may_stores_no_more(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await _limited(api, monkeypatch, max_stored_bytes=1_000_000)
    endpoint = await api.endpoint()
    letter = await api.dead_task()
    client = await keyed(api, "ADMIN")
    assert (await client.post("/v1/events", EVENT)).status == 202
    await write(
        api,
        "INSERT INTO redrive.counter AS c VALUES ($1, 'event.bytes', 1, 1000000)"
        " ON CONFLICT (org_id, name, shard) DO UPDATE SET n = c.n + 1000000",
        api.org_id,
    )
    assert (await api.owner.get(f"/v1/orgs/{api.org_id}")).json["usage"]["stored_bytes"] >= 1_000_000
    async with asyncio.timeout(5):
        while (refused := await client.post("/v1/events", EVENT)).status == 202:
            await asyncio.sleep(0.02)
    assert (refused.status, refused.json["title"]) == (507, "Insufficient Storage")
    assert "max_stored_bytes" in refused.json["detail"]
    assert (await client.post("/v1/events/batch", [EVENT])).status == 507
    assert (await client.post(f"/v1/endpoints/{endpoint['id']}/test")).status == 507
    replay = f"/v1/dead-letters/{letter['id']}/replay"
    assert (await client.post(replay, {"payload": 1})).status == 507
    assert (await client.post(replay)).status == 200  # stores nothing
    assert (await client.get("/v1/events")).status == 200


async def test_what_runs_begin_with_takes_room(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = {"steps": [{"name": "rest", "kind": "wait", "wait_s": 3600}]}
    assert (await api.owner.request("PUT", "/v1/workflows/rest", steps)).status == 200
    assert (await api.owner.post("/v1/workflows/rest/runs", {"input": "x" * 5_000})).status == 202
    assert (await api.owner.get(f"/v1/orgs/{api.org_id}")).json["usage"]["stored_bytes"] >= 5_000
    await _limited(api, monkeypatch, max_stored_bytes=5_000)
    client = await keyed(api, "ADMIN")
    assert (await client.post("/v1/workflows/rest/runs", {"input": 1})).status == 507


async def test_an_org_that_has_its_endpoints_gets_no_more(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await _limited(api, monkeypatch, max_endpoints=1)
    client = await keyed(api, "ADMIN")
    first = await client.post("/v1/endpoints", {"name": "a", "url": URL})
    assert first.status == 201
    refused = await client.post("/v1/endpoints", {"name": "b", "url": URL})
    assert (refused.status, refused.errors[0][0]) == (422, ["body"])
    assert "max_endpoints" in refused.errors[0][1]
    assert (await client.request("DELETE", f"/v1/endpoints/{first.json['id']}")).status == 204
    assert (await client.post("/v1/endpoints", {"name": "b", "url": URL})).status == 201
