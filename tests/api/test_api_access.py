"""Who may do what: keys, roles, tenants; and what every response carries."""

import asyncio
from uuid import uuid4

import pytest

from redrive.api import auth
from redrive.core.permissions import CHANGERS, ROLES, Action, Role
from redrive.store.audit import Act
from redrive.store.keys import new_key, revoke_key, store_key
from support.http import Answer, HttpClient

from .conftest import URL, Api

SOME_ID = "01890000-0000-7000-8000-000000000000"
READS = (
    "/v1/events",
    f"/v1/events/{SOME_ID}",
    f"/v1/events/{SOME_ID}/status",
    f"/v1/events/{SOME_ID}/attempts",
    "/v1/endpoints",
    f"/v1/endpoints/{SOME_ID}",
    "/v1/retry-queue",
    "/v1/dead-letters",
    f"/v1/dead-letters/{SOME_ID}",
    f"/v1/logs/{SOME_ID}",
    "/v1/policies",
    "/v1/policies/integration",
    "/v1/policies/integration/preview",
    "/v1/orgs",
    f"/v1/orgs/{SOME_ID}",
    "/v1/session",
)
CHANGES: tuple[tuple[str, str, object], ...] = (
    ("POST", "/v1/endpoints", {"name": "n", "url": URL}),
    ("PATCH", f"/v1/endpoints/{SOME_ID}", {}),
    ("DELETE", f"/v1/endpoints/{SOME_ID}", None),
    ("POST", f"/v1/retry-queue/{SOME_ID}/retry", None),
    ("POST", f"/v1/retry-queue/{SOME_ID}/skip", None),
    ("POST", f"/v1/dead-letters/{SOME_ID}/retry", None),
    ("POST", f"/v1/dead-letters/{SOME_ID}/resolve", None),
    ("POST", f"/v1/dead-letters/{SOME_ID}/ignore", None),
    ("POST", f"/v1/dead-letters/{SOME_ID}/reopen", None),
    ("DELETE", f"/v1/dead-letters/{SOME_ID}", None),
    ("PUT", "/v1/policies/mine", {"kind": "manual"}),
    ("GET", "/v1/keys", None),
    ("GET", f"/v1/keys/{SOME_ID}", None),
    ("POST", "/v1/keys", {"name": "n", "role": "VIEWER"}),
    ("DELETE", f"/v1/keys/{SOME_ID}", None),
    ("GET", "/v1/users", None),
    ("GET", f"/v1/users/{SOME_ID}", None),
    ("POST", "/v1/users", {"email": "a@example.com", "name": "n", "role": "VIEWER"}),
    ("PATCH", f"/v1/users/{SOME_ID}", {}),
    ("DELETE", f"/v1/users/{SOME_ID}", None),
    ("POST", "/v1/orgs", {"name": "n"}),
    ("PATCH", f"/v1/orgs/{SOME_ID}", {}),
)
EVENT = {"event_type": "a", "payload": 1}


@pytest.mark.parametrize("path", READS)
async def test_reading_needs_a_key_and_no_more(shared_api: Api, path: str) -> None:
    refused = await shared_api.nobody.get(path)
    assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert (await shared_api.viewer.get(path)).status in (200, 404)


@pytest.mark.parametrize(("method", "path", "value"), CHANGES)
async def test_changing_needs_a_role_that_may(shared_api: Api, method: str, path: str, value: object) -> None:
    assert (await shared_api.nobody.request(method, path, value)).status == 401
    for client in (shared_api.staff, shared_api.viewer):
        assert (await client.request(method, path, value)).status == 403


@pytest.mark.parametrize("path", ["/v1/events", "/v1/events/batch"])
async def test_staff_and_viewers_may_not_produce(shared_api: Api, path: str) -> None:
    value: object = EVENT if path == "/v1/events" else [EVENT]
    assert (await shared_api.nobody.post(path, value)).status == 401
    assert (await shared_api.viewer.post(path, value)).status == 403
    assert (await shared_api.staff.post(path, value)).status == 403
    assert (await shared_api.owner.post(path, value)).status == 202


def test_the_table_of_permissions_names_known_roles_for_every_action() -> None:
    assert set(ROLES) == set(Action)
    assert all(Role.OWNER in roles for roles in ROLES.values())
    assert all(
        roles <= CHANGERS for action, roles in ROLES.items() if action not in (Action.READ, Action.READ_PAYLOADS)
    )


@pytest.mark.parametrize(
    "headers",
    [
        {"X-API-Key": ""},
        {"X-API-Key": "rdk_wrong"},
        {"X-API-Key": "x" * 600},
        {"X-API-Key": "\xff\xfe"},
        {"Authorization": "Basic abc"},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer rdk_wrong"},
    ],
)
async def test_a_wrong_key_is_refused(shared_api: Api, headers: dict[str, str]) -> None:
    for method, path in (("POST", "/v1/events"), ("GET", "/v1/events")):
        answer = await shared_api.nobody.request(method, path, headers=headers)
        assert answer.status == 401
        assert "wrong" not in answer.body.decode()


async def test_a_key_may_come_as_a_bearer_token(shared_api: Api) -> None:
    bearer = {"Authorization": f"bearer {shared_api.owner.key}"}
    assert (await shared_api.nobody.request("POST", "/v1/events", EVENT, headers=bearer)).status == 202
    assert (await shared_api.nobody.request("GET", "/v1/events", headers=bearer)).status == 200


async def test_a_revoked_key_stops_working_once_it_is_forgotten(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    assert auth.CALLER_TTL_S <= 2  # the promise; shortened here so that nobody waits for it
    monkeypatch.setattr(auth, "CALLER_TTL_S", 0.05)
    key = new_key()
    key_id = await store_key(api.context.engine_db, api.org_id, key, name="soon gone", role="OWNER")
    client = api.client(key)
    assert (await client.post("/v1/events", EVENT)).status == 202
    async with api.context.app_db.tenant(api.org_id) as session:
        assert await revoke_key(session, key_id, Act("test"))
    async with asyncio.timeout(2):
        while (await client.post("/v1/events", EVENT)).status != 401:
            await asyncio.sleep(0.01)
    assert (await client.get("/v1/events")).status == 401


async def test_many_requests_with_a_new_key_look_it_up_once(api: Api) -> None:
    key = new_key()
    await store_key(api.context.engine_db, api.org_id, key, name="busy", role="IT_MANAGER")
    clients = [api.client(key) for _ in range(10)]
    answers = await asyncio.gather(*(client.post("/v1/events", EVENT) for client in clients))
    assert {answer.status for answer in answers} == {202}


async def test_another_orgs_things_answer_exactly_like_unknown_ones(api: Api) -> None:
    endpoint = await api.endpoint()
    letter = await api.dead_task()
    entry = await api.failed_task()
    key = (await api.owner.post("/v1/keys", {"name": "n", "role": "VIEWER"})).json
    paths = {
        ("GET", "/v1/events/{}"): entry["event_id"],
        ("GET", "/v1/events/{}/status"): entry["event_id"],
        ("GET", "/v1/events/{}/attempts"): entry["event_id"],
        ("GET", "/v1/endpoints/{}"): endpoint["id"],
        ("PATCH", "/v1/endpoints/{}"): endpoint["id"],
        ("DELETE", "/v1/endpoints/{}"): endpoint["id"],
        ("GET", "/v1/logs/{}"): entry["id"],
        ("POST", "/v1/retry-queue/{}/retry"): entry["id"],
        ("POST", "/v1/retry-queue/{}/skip"): entry["id"],
        ("GET", "/v1/dead-letters/{}"): letter["id"],
        ("POST", "/v1/dead-letters/{}/retry"): letter["id"],
        ("POST", "/v1/dead-letters/{}/resolve"): letter["id"],
        ("POST", "/v1/dead-letters/{}/ignore"): letter["id"],
        ("POST", "/v1/dead-letters/{}/reopen"): letter["id"],
        ("DELETE", "/v1/dead-letters/{}"): letter["id"],
        ("GET", "/v1/keys/{}"): key["id"],
        ("DELETE", "/v1/keys/{}"): key["id"],
    }
    for (method, path), known in paths.items():
        value: object = {} if method == "PATCH" else None
        answers = [await _asked(api.stranger, method, path.format(id_), value) for id_ in (known, uuid4(), "seven")]
        assert {answer.status for answer in answers} == {404}, path
        assert len({answer.body for answer in answers}) == 1, path
    assert (await api.stranger.get("/v1/retry-queue")).json["data"] == []
    assert (await api.stranger.get("/v1/dead-letters")).json["data"] == []
    assert (await api.stranger.get("/v1/events")).json["pagination"]["total_count"] == 0
    assert (await api.stranger.get("/v1/endpoints")).json["data"] == []
    assert (await api.owner.get(f"/v1/dead-letters/{letter['id']}")).json["state"] == "open"


async def _asked(client: HttpClient, method: str, path: str, value: object) -> Answer:
    return await client.request(method, path, value, headers={"X-Correlation-Id": "the-same"})


@pytest.mark.parametrize(
    ("method", "path", "value", "status"),
    [
        ("POST", "/v1/events", EVENT, 202),
        ("POST", "/v1/events", {}, 422),
        ("GET", "/v1/events", None, 200),
        ("GET", "/v1/nothing", None, 404),
        ("GET", "/v1/events?x=1", None, 400),
        ("GET", "/healthz", None, 200),
    ],
)
async def test_every_response_carries_a_correlation_id_and_safe_headers(
    shared_api: Api, method: str, path: str, value: object, status: int
) -> None:
    made = await shared_api.owner.request(method, path, value)
    assert made.status == status
    assert len(made.headers["x-correlation-id"]) == 32
    assert made.headers["x-content-type-options"] == "nosniff"
    assert made.headers["cache-control"] == "no-store"
    echoed = await shared_api.owner.request(method, path, value, headers={"X-Correlation-Id": "trace/7"})
    assert echoed.headers["x-correlation-id"] == "trace/7"
    for unusable in ("x" * 129, "with blank", "\xe9", ""):
        replaced = await shared_api.owner.request(method, path, value, headers={"X-Correlation-Id": unusable})
        assert len(replaced.headers["x-correlation-id"]) == 32
