"""Actions on an endpoint over HTTP: disable and enable with a reason, rotate its secret, test it."""

import json
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import asyncpg
import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from redrive.api.schemas.endpoint_actions import SecretShown, SentTest
from redrive.api.schemas.endpoints import Endpoint
from redrive.store.audit import Act
from redrive.store.endpoints import EndpointSpec
from support.receiver import Answer as ReceiverAnswer
from support.receiver import Received, Receiver, open_receiver
from support.working import open_worker

from .conftest import Api


async def test_disabling_says_why_and_enabling_lets_held_tasks_go_on(api: Api) -> None:
    path = f"/v1/endpoints/{(await api.endpoint())['id']}"
    disabled = await api.owner.post(f"{path}/disable", {"because": "the receiver moves house"})
    Endpoint.model_validate(disabled.json)
    assert (disabled.status, disabled.json["disabled"]) == (200, True)
    assert disabled.json["disabled_reason"] == "the receiver moves house"
    again = await api.owner.post(f"{path}/disable", {"because": "another reason"})
    assert again.json == disabled.json
    await api.event()
    assert await api.claim() == []
    enabled = await api.owner.post(f"{path}/enable", {"because": "done"})
    assert (enabled.json["disabled"], enabled.json["disabled_reason"]) == (False, None)
    assert len(await api.claim()) == 1
    assert await _audited(api, path) == [("endpoint.enable", "done"), ("endpoint.disable", "the receiver moves house")]


async def test_a_rotated_secret_is_shown_once_and_both_sign_for_a_while(own_api: Api) -> None:
    api = own_api
    async with open_receiver() as receiver:
        async with api.context.app_db.tenant(api.org_id) as session:
            row, first = await api.context.endpoints.create(session, EndpointSpec("hook", receiver.url), Act("a test"))
        path = f"/v1/endpoints/{row['id']}"
        rotated = await api.owner.post(f"{path}/rotate-secret")
        SecretShown.model_validate(rotated.json)
        second = rotated.json["secret"]
        in_s = datetime.fromisoformat(rotated.json["previous_valid_until"]) - datetime.now(UTC)
        assert timedelta(hours=23) < in_s < timedelta(hours=25)
        assert b"secret" not in (await api.owner.get(path)).body
        request = await _delivery(api, receiver)
        assert len(request.headers["webhook-signature"].split()) == 2
        for secret in (first, second):
            assert _signed_by(secret, request)
        third = (await api.owner.post(f"{path}/rotate-secret", {"overlap_s": 60})).json["secret"]
        request = await _delivery(api, receiver)  # the newest and the one before it, none that is older
        assert [_signed_by(secret, request) for secret in (first, second, third)] == [False, True, True]
        alone = await api.owner.post(f"{path}/rotate-secret", {"overlap_s": 0})
        assert alone.json["previous_valid_until"] is None
        request = await _delivery(api, receiver)
        assert [_signed_by(secret, request) for secret in (third, alone.json["secret"])] == [False, True]
    audit = (await api.owner.get("/v1/audit")).body.decode()
    assert audit.count("endpoint.rotate_secret") == 3
    assert not any(secret in audit for secret in (first, second, third, "whsec_"))


async def test_a_new_secret_mends_an_endpoint_whose_old_one_does_not_open(own_api: Api) -> None:
    api = own_api
    made = await api.endpoint()
    engine = await asyncpg.connect(api.url, server_settings={"role": "redrive_engine"})
    try:
        await engine.execute("UPDATE redrive.endpoint SET secret_sealed = 'sealed with another key'::bytea")
    finally:
        await engine.close()
    path = f"/v1/endpoints/{made['id']}"
    assert (await api.owner.get(path)).json["problem"] is not None
    rotated = await api.owner.post(f"{path}/rotate-secret")
    assert (rotated.status, rotated.json["previous_valid_until"]) == (200, None)
    assert (await api.owner.get(path)).json["problem"] is None


@pytest.mark.parametrize("overlap_s", [-1, 604_801, "1", None, 1e400])
async def test_an_overlap_out_of_range_is_refused_and_nothing_is_rotated(api: Api, overlap_s: object) -> None:
    path = f"/v1/endpoints/{(await api.endpoint())['id']}"
    refused = await api.owner.post(f"{path}/rotate-secret", {"overlap_s": overlap_s})
    assert refused.status == 422
    assert await _audited(api, path) == []


async def test_a_test_is_an_event_for_this_endpoint_alone(api: Api) -> None:
    made = await api.endpoint(event_types=["never.*"])
    await api.endpoint(event_types=["*"])
    sent = await api.owner.post(f"/v1/endpoints/{made['id']}/test")
    SentTest.model_validate(sent.json)
    assert (sent.status, sent.json["status"]) == (202, "queued")
    (job,) = await api.claim()
    assert (str(job.endpoint_id), job.event_type, job.body) == (made["id"], "redrive.test", b'{"test": true}')
    await api.succeed(job)
    status = await api.owner.get(f"/v1/events/{sent.json['event_id']}/status")
    assert status.json["status"] == "delivered"
    assert await _audited(api, f"/v1/endpoints/{made['id']}") == [("endpoint.test", None)]


@pytest.mark.parametrize("policy", ["integration", "manual", "relay"])
async def test_a_test_is_tried_once_and_its_failure_is_nobody_s_work(own_api: Api, policy: str) -> None:
    api = own_api
    async with open_receiver() as receiver:
        receiver.usual = ReceiverAnswer(503)
        async with api.context.app_db.tenant(api.org_id) as session:
            spec = EndpointSpec("hook", receiver.url, policy=policy)
            row, _ = await api.context.endpoints.create(session, spec, Act("a test"))
        sent = await api.owner.post(f"/v1/endpoints/{row['id']}/test")
        async with open_worker(api.context.engine_db, api.context.sealer, api.context.clock) as worker:
            await worker.run_until_idle()
        assert len(receiver.requests) == 1
    assert (await api.owner.get(f"/v1/events/{sent.json['event_id']}/status")).json["status"] == "failed"
    assert (await api.owner.get("/v1/retry-queue")).json["data"] == []
    assert (await api.owner.get("/v1/dead-letters")).json["data"] == []
    (letter,) = (await api.owner.get("/v1/dead-letters?state=ignored")).json["data"]
    assert (letter["policy"], letter["max_retries"]) == ("override", 0)
    resolution = (await api.owner.get(f"/v1/dead-letters/{letter['id']}")).json["resolution"]
    assert (resolution["by"], resolution["because"]) == ("engine", "it was a test")
    assert (await api.owner.post(f"/v1/dead-letters/{letter['id']}/reopen")).json["state"] == "open"


@pytest.mark.parametrize("payload", [None, 12345678901234567890123, "é", [1.5, {"a": None}], {}])
async def test_a_test_carries_the_payload_and_type_given(api: Api, payload: object) -> None:
    made = await api.endpoint()
    given = {"event_type": "invoice.paid", "payload": payload}
    assert (await api.owner.post(f"/v1/endpoints/{made['id']}/test", given)).status == 202
    (job,) = await api.claim()
    assert (job.event_type, json.loads(job.body)) == ("invoice.paid", payload)


async def test_the_same_key_is_the_same_test(api: Api) -> None:
    path = f"/v1/endpoints/{(await api.endpoint())['id']}/test"
    first, again = [await api.owner.post(path, {"payload": 1}, Idempotency_Key="k") for _ in range(2)]
    assert (first.status, again.status) == (202, 202)
    assert again.json == first.json
    assert (await api.owner.post(path, {"payload": 2}, Idempotency_Key="k")).status == 409
    assert len(await api.claim()) == 1
    other = f"/v1/endpoints/{(await api.endpoint())['id']}/test"
    assert (await api.owner.post(other, {"payload": 2}, Idempotency_Key="k")).status == 202


async def test_a_test_of_a_disabled_endpoint_is_accepted_and_held(api: Api) -> None:
    made = await api.endpoint(disabled=True)
    assert (await api.owner.post(f"/v1/endpoints/{made['id']}/test")).json["status"] == "queued"
    assert await api.claim() == []


ACTIONS = ("pause", "resume", "enable", "disable", "rotate-secret", "test")


@pytest.mark.parametrize("action", ACTIONS)
async def test_an_action_is_refused_to_those_who_may_not_and_for_what_is_not_there(api: Api, action: str) -> None:
    made = await api.endpoint()
    path = f"/v1/endpoints/{made['id']}/{action}"
    for client in (api.staff, api.viewer):
        assert (await client.post(path)).status == 403
    assert (await api.nobody.post(path)).status == 401
    assert (await api.stranger.post(path)).status == 404
    for unknown in (str(uuid4()), "nonsense"):
        assert (await api.owner.post(f"/v1/endpoints/{unknown}/{action}")).status == 404
    assert (await api.owner.post(path, {"unknown": 1})).status == 422
    assert (await api.owner.post(f"{path}?now=true")).status == 400
    await api.owner.request("DELETE", f"/v1/endpoints/{made['id']}")
    assert (await api.owner.post(path)).status == 404


@pytest.mark.parametrize(
    "given", [{"event_type": ""}, {"event_type": "a\nb"}, {"event_type": 1}, {"event_type": "x" * 201}, [1]]
)
async def test_a_test_that_cannot_be_sent_is_refused(api: Api, given: object) -> None:
    path = f"/v1/endpoints/{(await api.endpoint())['id']}/test"
    assert (await api.owner.post(path, given)).status == 422
    assert await api.claim() == []


async def _delivery(api: Api, receiver: Receiver) -> Received:
    """An event, and the request that carries it. The worker is new: it knows no secret from before."""
    await api.event()
    async with open_worker(api.context.engine_db, api.context.sealer, api.context.clock) as worker:
        await worker.run_until_idle()
    return receiver.requests[-1]


def _signed_by(secret: str, request: Received) -> bool:
    try:
        Webhook(secret).verify(request.body.decode(), dict(request.headers))
    except WebhookVerificationError:
        return False
    return True


async def _audited(api: Api, path: str) -> list[tuple[str, str | None]]:
    """What was done to an endpoint after it was made, newest first."""
    entries = (await api.owner.get(f"/v1/audit?subject_id={path.rpartition('/')[2]}")).json["data"]
    return [(entry["action"], entry["because"]) for entry in entries if entry["action"] != "endpoint.create"]
