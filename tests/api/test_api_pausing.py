"""The kill switch over HTTP: who may use it, what it answers, and that nothing is sent meanwhile (C-12)."""

from uuid import uuid4

import pytest

from redrive.api.schemas.pausing import EndpointPauseShown, PauseShown, PausesShown
from redrive.store import pausing
from redrive.store.audit import Act
from redrive.store.endpoints import EndpointSpec
from redrive.store.keys import new_key, store_key
from redrive.store.pausing import PauseScope
from support.receiver import open_receiver
from support.working import open_worker, running_worker

from .conftest import Api


@pytest.mark.parametrize("scope", ["installation", "org", "endpoint"])
async def test_c12_what_is_paused_sends_nothing_counts_what_it_holds_and_loses_nothing(
    own_api: Api, scope: str
) -> None:
    api = own_api
    async with open_receiver() as receiver:
        endpoint_id = await _loopback_endpoint(api, receiver.url)
        place = f"/v1/endpoints/{endpoint_id}" if scope == "endpoint" else "/v1/retries"
        given: dict[str, object] = {"because": "the receiver moves house"}
        if scope != "endpoint":
            given["scope"] = scope
        paused = await api.owner.post(f"{place}/pause", given)
        assert paused.status == 200, paused.body
        assert (paused.json["scope"], paused.json["paused"]) == (scope, True)
        assert (paused.json["because"], paused.json["held"]) == ("the receiver moves house", 0)
        assert paused.json["paused_by"].startswith("key:")
        events = [await api.event(payload=n) for n in range(5)]
        await _work(api)
        assert receiver.requests == []
        shown = (await api.owner.get("/v1/retries")).json
        state = shown["endpoints"][0] if scope == "endpoint" else shown[scope]
        assert (state["paused"], state["held"]) == (True, 5)
        assert (await api.owner.get("/v1/stats")).json["tasks"]["held"] == 5
        resumed = await api.owner.post(f"{place}/resume", {} if scope == "endpoint" else {"scope": scope})
        assert (resumed.status, resumed.json["paused"], resumed.json["held"]) == (200, False, 0)
        assert (resumed.json["paused_at"], resumed.json["paused_by"], resumed.json["because"]) == (None, None, None)
        await _work(api)
        assert sorted(request.headers["webhook-id"] for request in receiver.requests) == sorted(events)
        assert {request.headers["redrive-attempt"] for request in receiver.requests} == {"1"}  # no try was spent
    for event_id in events:
        assert (await api.owner.get(f"/v1/events/{event_id}/status")).json["status"] == "delivered"


async def test_c12_a_running_worker_goes_on_by_itself_with_what_the_one_who_resumed_left_behind(own_api: Api) -> None:
    """Whoever resumed died before anything was released."""
    api = own_api
    async with open_receiver() as receiver:
        await _loopback_endpoint(api, receiver.url)
        await api.owner.post("/v1/retries/pause")
        await api.event()
        assert await api.claim() == []
        async with api.context.app_db.tenant(api.org_id) as session:
            await pausing.resume(session, PauseScope.ORG, Act("a test"), api.context.clock)
        async with running_worker(api.context.engine_db, api.context.sealer, api.context.clock):
            await receiver.wait_for(1)


async def test_pausing_twice_keeps_the_first_reason_and_resuming_twice_is_no_error(api: Api) -> None:
    first = await api.owner.post("/v1/retries/pause", {"because": "first"})
    again = await api.owner.post("/v1/retries/pause", {"because": "second"})
    assert (first.status, again.status) == (200, 200)
    assert again.json == first.json
    assert again.json["because"] == "first"
    for _ in range(2):
        assert (await api.owner.post("/v1/retries/resume")).json["paused"] is False
    entries = [e for e in (await api.owner.get("/v1/audit")).json["data"] if e["subject_kind"] == "org"]
    assert [(e["action"], e["because"]) for e in entries] == [("org.resume", None), ("org.pause", "first")]


async def test_the_answers_are_as_described(api: Api) -> None:
    made = await api.endpoint()
    paused = await api.owner.post(f"/v1/endpoints/{made['id']}/pause", {"because": "moves"})
    EndpointPauseShown.model_validate(paused.json)
    PauseShown.model_validate((await api.owner.post("/v1/retries/pause")).json)
    shown = await api.owner.get("/v1/retries")
    PausesShown.model_validate(shown.json)
    assert shown.json["endpoints"] == [paused.json]
    assert shown.json["more_endpoints"] is False
    endpoint = (await api.owner.get(f"/v1/endpoints/{made['id']}")).json
    assert (endpoint["paused"], endpoint["paused_at"]) == (True, paused.json["paused_at"])


async def test_an_org_s_pause_concerns_nobody_else(api: Api) -> None:
    await api.owner.post("/v1/retries/pause", {"because": "secret plans"})
    theirs = await api.stranger.get("/v1/retries")
    assert theirs.json["org"]["paused"] is False
    assert b"secret plans" not in theirs.body


async def test_only_some_roles_pause_and_only_owners_the_installation(own_api: Api) -> None:
    api = own_api
    made = await api.endpoint()
    paths = ("/v1/retries/pause", "/v1/retries/resume", f"/v1/endpoints/{made['id']}/pause")
    for path in (*paths, f"/v1/endpoints/{made['id']}/resume"):
        for client in (api.staff, api.viewer):
            assert (await client.post(path)).status == 403
        assert (await api.nobody.post(path)).status == 401
    key = new_key()
    await store_key(api.context.engine_db, api.org_id, key, name="admin", role="ADMIN")
    admin = api.client(key)
    assert (await admin.post("/v1/retries/pause", {"scope": "installation"})).status == 403
    assert (await admin.post("/v1/retries/pause")).status == 200
    await api.owner.post("/v1/retries/pause", {"scope": "installation", "because": "maintenance"})
    assert (await admin.post("/v1/retries/resume", {"scope": "installation"})).status == 403
    seen = (await admin.get("/v1/retries")).json["installation"]
    assert (seen["paused"], seen["because"], seen["paused_by"], seen["held"]) == (True, "maintenance", None, None)
    for client in (api.staff, api.viewer):
        assert (await client.get("/v1/retries")).status == 200


async def test_what_cannot_be_paused_is_refused(api: Api) -> None:
    made = await api.endpoint()
    for action in ("pause", "resume"):
        for unknown in (str(uuid4()), "nonsense"):
            assert (await api.owner.post(f"/v1/endpoints/{unknown}/{action}")).status == 404
        assert (await api.stranger.post(f"/v1/endpoints/{made['id']}/{action}")).status == 404
        refused = await api.owner.post(f"/v1/retries/{action}", {"scope": "world"})
        assert (refused.status, refused.errors[0][0]) == (422, ["body", "scope"])
        assert "'org' or 'installation'" in refused.errors[0][1]
        assert (await api.owner.post(f"/v1/retries/{action}", {"why": "x"})).status == 422
        assert (await api.owner.post(f"/v1/retries/{action}", {"because": "x" * 1_001})).status == 422
        assert (await api.owner.post(f"/v1/retries/{action}?scope=org")).status == 400
        assert (await api.owner.post(f"/v1/endpoints/{made['id']}/{action}", {"scope": "org"})).status == 422
    assert (await api.owner.get("/v1/retries?limit=1")).status == 400
    assert (await api.stranger.get(f"/v1/endpoints/{made['id']}")).status == 404


async def test_a_retry_of_a_held_task_is_refused_with_what_holds_it(api: Api) -> None:
    made = await api.endpoint(name="billing")
    entry = await api.failed_task(policy="immediate")
    path = f"/v1/retry-queue/{entry['id']}/retry"
    await api.owner.post(path)  # due at once
    await api.owner.post(f"/v1/endpoints/{made['id']}/pause")
    assert await api.claim() == []
    refused = await api.owner.post(path)
    assert refused.status == 409
    assert 'its endpoint "billing" is paused' in refused.json["detail"]
    await api.owner.post("/v1/retries/pause")
    await api.owner.post(f"/v1/endpoints/{made['id']}/disable")
    refused = await api.owner.post(path)
    for cause in ("the org is paused", '"billing" is paused', '"billing" is disabled'):
        assert cause in refused.json["detail"]


async def _loopback_endpoint(api: Api, url: str) -> str:
    """The API itself refuses loopback addresses."""
    async with api.context.app_db.tenant(api.org_id) as session:
        row, _ = await api.context.endpoints.create(session, EndpointSpec("hook", url), Act("a test"))
    return str(row["id"])


async def _work(api: Api) -> None:
    """Carry out all that is due."""
    async with open_worker(api.context.engine_db, api.context.sealer, api.context.clock) as worker:
        await worker.run_until_idle()
