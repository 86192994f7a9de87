"""Keys over HTTP: made and shown once, listed, revoked; nobody gives what is above themselves."""

import asyncio
from uuid import uuid4

import pytest

from redrive.api import auth
from redrive.store import keys

from .conftest import Api
from .people import audited, keyed, write

EVENT = {"event_type": "a", "payload": 1}
UNKNOWN = "01a1e05b-5ad1-7b81-bb4b-58a3eab6dc35"


async def test_a_key_is_shown_once_and_works_with_its_role(api: Api) -> None:
    made = await api.owner.post("/v1/keys", {"name": "shop", "role": "ORG_ADMIN"})
    assert made.status == 201
    key = made.json["key"]
    assert key.startswith("rdk_")
    assert (made.json["role"], made.json["scope"], made.json["hint"]) == ("ADMIN", None, key[:8] + "…")
    path = f"/v1/keys/{made.json['id']}"
    for shown in (await api.owner.get(path), await api.owner.get("/v1/keys")):
        assert shown.status == 200
        assert key not in shown.body.decode()
    assert (await api.client(key).get("/v1/keys")).status == 200
    (entry,) = [
        entry
        for entry in await audited(api, "key.create")
        if entry["subject_id"].hex in made.json["id"].replace("-", "")
    ]
    assert (entry["actor"].split(":")[0], entry["source"]) == ("key", "api 127.0.0.1")
    assert key not in str(entry)


async def test_a_key_may_be_limited_to_one_thing(api: Api) -> None:
    producer = await api.owner.post("/v1/keys", {"name": "p", "role": "IT_MANAGER", "scope": "produce"})
    reader = await api.owner.post("/v1/keys", {"name": "r", "role": "OWNER", "scope": "read"})
    producing, reading = api.client(producer.json["key"]), api.client(reader.json["key"])
    assert (await producing.post("/v1/events", EVENT)).status == 202
    assert (await producing.get("/v1/events")).status == 403
    assert (await reading.post("/v1/events", EVENT)).status == 403
    assert (await reading.get("/v1/events")).status == 200
    assert (await reading.get("/v1/keys")).status == 403


async def test_a_revoked_key_stays_in_the_list_and_opens_nothing(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "CALLER_TTL_S", 0.0)
    made = (await api.owner.post("/v1/keys", {"name": "shop", "role": "VIEWER"})).json
    client = api.client(made["key"])
    assert (await client.get("/v1/events")).status == 200
    for _ in range(2):  # revoked stays revoked
        assert (await api.owner.request("DELETE", f"/v1/keys/{made['id']}")).status == 204
    assert (await client.get("/v1/events")).status == 401
    assert (await api.owner.get(f"/v1/keys/{made['id']}")).json["revoked_at"] is not None
    assert len(await audited(api, "key.revoke")) == 1


async def test_an_admin_neither_makes_nor_revokes_keys_of_an_owner(api: Api) -> None:
    admin = await keyed(api, "ADMIN")
    for role in ("OWNER", "SUPER_ADMIN"):
        assert (await admin.post("/v1/keys", {"name": "x", "role": role})).status == 403
    assert (await admin.post("/v1/keys", {"name": "x", "role": "ADMIN"})).status == 201
    owner = (await api.owner.get("/v1/session")).json["id"]
    assert (await admin.request("DELETE", f"/v1/keys/{owner}")).status == 403
    assert (await api.owner.get("/v1/events")).status == 200


async def test_the_use_of_a_key_is_noted_once_a_minute(api: Api) -> None:
    made = (await api.owner.post("/v1/keys", {"name": "shop", "role": "VIEWER"})).json
    assert made["last_used_at"] is None
    client = api.client(made["key"])
    await client.get("/v1/events")

    async def last_used_at() -> str | None:
        used: str | None = (await api.owner.get(f"/v1/keys/{made['id']}")).json["last_used_at"]
        return used

    async with asyncio.timeout(5):
        while (first := await last_used_at()) is None:
            await asyncio.sleep(0.01)
    await client.get("/v1/events")
    assert await last_used_at() == first


async def test_a_key_ends_when_it_expires(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "CALLER_TTL_S", 0.0)
    made = await api.owner.post("/v1/keys", {"name": "x", "role": "VIEWER", "expires_at": "2999-01-01T00:00:00Z"})
    assert made.json["expires_at"] == "2999-01-01T00:00:00Z"
    client = api.client(made.json["key"])
    assert (await client.get("/v1/events")).status == 200
    await write(api, "UPDATE redrive.api_key SET expires_at = now() WHERE name = 'x' AND org_id = $1", api.org_id)
    assert (await client.get("/v1/events")).status == 401


async def test_the_same_idempotency_key_makes_one_key(api: Api) -> None:
    key = {"Idempotency-Key": uuid4().hex}
    value = {"name": "shop", "role": "STAFF"}
    first = await api.owner.request("POST", "/v1/keys", value, headers=key)
    again = await api.owner.request("POST", "/v1/keys", value, headers=key)
    other = await api.owner.request("POST", "/v1/keys", {**value, "role": "VIEWER"}, headers=key)
    assert (first.status, again.status, other.status) == (201, 201, 409)
    assert first.json["id"] == again.json["id"]
    assert "key" not in again.json


async def test_keys_are_listed_in_pages(api: Api) -> None:
    seen: list[str] = []
    cursor = ""
    while True:
        page = (await api.owner.get(f"/v1/keys?limit=2{cursor}")).json
        seen += [key["id"] for key in page["data"]]
        if not page["pagination"]["has_more"]:
            break
        cursor = f"&cursor={page['pagination']['cursor']}"
    assert len(seen) == len(set(seen)) == page["pagination"]["total_count"] == 3


@pytest.mark.parametrize(
    ("value", "place", "said"),
    [
        ({"role": "ADMIN"}, ["body", "name"], "needed"),
        ({"name": "", "role": "ADMIN"}, ["body", "name"], "at least 1"),
        ({"name": "a\u0000", "role": "ADMIN"}, ["body", "name"], "control"),
        ({"name": "a", "role": "KING"}, ["body", "role"], "OWNER, ADMIN, IT_MANAGER, STAFF, VIEWER"),
        ({"name": "a", "role": 7}, ["body", "role"], ""),
        ({"name": "a", "role": "ADMIN", "scope": "all"}, ["body", "scope"], "produce, read, relay"),
        ({"name": "a", "role": "VIEWER", "scope": "relay"}, ["body", "role"], "OWNER, ADMIN, IT_MANAGER"),
        (
            {"name": "a", "role": "ADMIN", "scope": "read", "endpoint_id": UNKNOWN},
            ["body", "endpoint_id"],
            "relay only",
        ),
        ({"name": "a", "role": "ADMIN", "scope": "relay", "endpoint_id": UNKNOWN}, ["body", "endpoint_id"], "a relay"),
        ({"name": "a", "role": "ADMIN", "scope": ["read"]}, ["body", "scope"], "produce, read, relay"),
        ({"name": "a", "role": "ADMIN", "expires_at": "2001-01-01T00:00:00Z"}, ["body", "expires_at"], "future"),
        ({"name": "a", "role": "ADMIN", "expires_at": 99999999999}, ["body", "expires_at"], "ISO 8601"),
        ({"name": "a", "role": "ADMIN", "expires_at": "soon"}, ["body", "expires_at"], ""),
        ({"name": "a", "role": "ADMIN", "key": "mine"}, ["body", "key"], "unknown field"),
    ],
)
async def test_a_key_that_cannot_be_made_is_told_where(
    shared_api: Api, value: object, place: list[str], said: str
) -> None:
    answer = await shared_api.owner.post("/v1/keys", value)
    assert answer.status == 422
    assert [loc for loc, _ in answer.errors] == [place]
    assert said in answer.errors[0][1]


async def test_an_org_has_no_more_live_keys_than_it_may(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    live = len([key for key in (await api.owner.get("/v1/keys")).json["data"] if key["revoked_at"] is None])
    monkeypatch.setattr(keys, "MAX_LIVE_KEYS", live + 1)
    given = {"name": "one more", "role": "VIEWER"}
    last = await api.owner.post("/v1/keys", given)
    refused = await api.owner.post("/v1/keys", given)
    assert (last.status, refused.status) == (201, 422)
    assert "Revoke one." in refused.errors[0][1]
    assert (await api.owner.request("DELETE", f"/v1/keys/{last.json['id']}")).status == 204
    assert (await api.owner.post("/v1/keys", given)).status == 201


async def test_who_may_not_is_told_who_may(api: Api) -> None:
    refused = await api.staff.get("/v1/keys")
    assert refused.json["detail"] == "The role STAFF may not do this: it takes OWNER or ADMIN."
    limited = await keyed(api, "OWNER", "produce")
    assert (await limited.get("/v1/keys")).json["detail"] == "This key is limited to one thing: produce."
