"""Relay endpoints and what comes in at their addresses: stored byte for byte, verified, once."""

import asyncio
import hashlib
import hmac
import json
import time
from typing import Any
from uuid import UUID, uuid4

import pytest

from redrive.store.hooks import find_hook
from support.http import Answer

from .conftest import URL, Api

SECRET = "chosen with the sender"


async def relay(api: Api, **fields: object) -> dict[str, Any]:
    made = await api.owner.post("/v1/endpoints", {"name": f"relay {uuid4().hex[:8]}", "kind": "relay", **fields})
    assert made.status == 201, made.body
    shape: dict[str, Any] = made.json
    return shape


def path_of(endpoint: dict[str, Any]) -> str:
    return "/v1/hooks/" + str(endpoint["hook_url"]).rpartition("/")[2]


async def send(api: Api, endpoint: dict[str, Any], body: bytes = b"{}", **headers: str) -> Answer:
    return await api.nobody.request("POST", path_of(endpoint), body=body, headers=headers)


async def stored(api: Api, event_id: str) -> Any:
    async with api.context.engine_db.transaction() as session:
        return await session._connection.fetchrow("SELECT * FROM redrive.event WHERE id = $1", UUID(event_id))


def github(body: bytes, secret: str = SECRET) -> dict[str, str]:
    return {"X_Hub_Signature_256": "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}


def slack(body: bytes, at: int) -> dict[str, str]:
    signature = hmac.new(SECRET.encode(), f"v0:{at}:".encode() + body, hashlib.sha256).hexdigest()
    return {"X_Slack_Request_Timestamp": str(at), "X_Slack_Signature": f"v0={signature}"}


# -- the endpoint ------------------------------------------------------------------------------------------------------


async def test_a_relay_has_an_address_instead_of_a_url_and_keeps_order(api: Api) -> None:
    made = await relay(api)
    assert made["url"] is None
    assert made["hook_url"].startswith(f"http://{api.host}:{api.port}/v1/hooks/")
    assert len(made["hook_url"].rpartition("/")[2]) == 43  # 256 bits
    assert (made["ordered"], made["policy"], made["event_types"]) == (True, "relay", [])
    assert made["secret"].startswith("whsec_")
    shown = (await api.owner.get(f"/v1/endpoints/{made['id']}")).json
    assert shown["hook_url"] == made["hook_url"]
    assert (await api.endpoint())["hook_url"] is None


async def test_what_is_said_wins_over_what_is_usual_of_a_relay(api: Api) -> None:
    made = await relay(api, ordered=False, policy="integration", event_types=["invoice.*"])
    assert (made["ordered"], made["policy"], made["event_types"]) == (False, "integration", ["invoice.*"])


async def test_an_event_of_our_own_does_not_go_to_a_relay_that_names_no_types(api: Api) -> None:
    await relay(api)
    event_id = await api.event("invoice.paid")
    assert (await api.owner.get(f"/v1/events/{event_id}/status")).json["status"] == "received"


async def test_who_may_not_change_a_relay_does_not_see_its_token(api: Api) -> None:
    made = await relay(api)
    for client in (api.staff, api.viewer):
        for shown in (
            (await client.get(f"/v1/endpoints/{made['id']}")).json,
            (await client.get("/v1/endpoints")).json["data"][0],
        ):
            assert shown["hook_url"].endswith("/v1/hooks/[redacted]")


async def test_the_address_begins_as_the_settings_say(api: Api) -> None:
    made = await relay(api)
    object.__setattr__(api.context, "public_url", "https://edge.example.com/redrive")
    try:
        shown = (await api.owner.get(f"/v1/endpoints/{made['id']}")).json
    finally:
        object.__setattr__(api.context, "public_url", None)
    assert shown["hook_url"] == "https://edge.example.com/redrive" + path_of(made)


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"url": URL}, ["body", "url"]),
        ({"ca_pem": "x"}, ["body", "ca_pem"]),
        ({"verify": {"scheme": "carrier pigeon", "secret": "x"}}, ["body", "verify", "scheme"]),
        ({"verify": {"scheme": "github"}}, ["body", "verify", "secret"]),
        ({"verify": {"scheme": "github", "secret": ""}}, ["body", "verify", "secret"]),
        ({"verify": {"scheme": "standard", "secret": "whsec_short"}}, ["body", "verify", "secret"]),
        ({"verify": {"scheme": "github", "secret": "[redacted]"}}, ["body", "verify", "secret"]),
        ({"verify": "github"}, ["body", "verify"]),
    ],
)
async def test_what_a_relay_cannot_have_is_refused(api: Api, given: dict[str, object], place: list[str]) -> None:
    made = await relay(api)
    for answer in (
        await api.owner.post("/v1/endpoints", {"name": "another", "kind": "relay", **given}),
        await api.owner.request("PATCH", f"/v1/endpoints/{made['id']}", given),
    ):
        assert (answer.status, answer.errors[0][0]) == (422, place)


async def test_another_address_takes_the_place_of_the_one_before_at_once(api: Api) -> None:
    made = await relay(api)
    assert (await send(api, made)).status == 202
    rotated = await api.owner.post(f"/v1/endpoints/{made['id']}/rotate-hook")
    assert rotated.status == 200
    assert rotated.json["hook_url"] != made["hook_url"]
    assert (await send(api, made)).status == 404
    assert (await send(api, rotated.json)).status == 202
    entry = (await api.owner.get("/v1/audit?limit=1")).json["data"][0]
    assert (entry["action"], entry["subject_id"]) == ("endpoint.rotate_hook", made["id"])
    http = await api.endpoint()
    assert (await api.owner.post(f"/v1/endpoints/{http['id']}/rotate-hook")).status == 409


# -- what comes in -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b'{"n": 1e5, "n": 2}', "application/json"),
        (b"\x00\xff not utf-8", "application/octet-stream"),
        (b"payload=%7B%7D", "application/x-www-form-urlencoded"),
        (b"", "text/plain; charset=latin1"),
    ],
)
async def test_a_webhook_is_stored_byte_for_byte_with_its_headers(api: Api, body: bytes, content_type: str) -> None:
    made = await relay(api)
    answer = await send(
        api, made, body, Content_Type=content_type, X_Custom="kept", Authorization="Basic canary", Cookie="canary=1"
    )
    assert (answer.status, answer.json["status"], answer.json["deduplicated"]) == (202, "queued", False)
    row = await stored(api, answer.json["event_id"])
    assert (bytes(row["body"]), row["content_type"], row["event_type"]) == (body, content_type, "webhook")
    assert row["endpoint_id"] == UUID(made["id"])
    kept = json.loads(row["headers"])
    assert kept["x-custom"] == "kept"
    assert "canary" not in row["headers"]
    assert not kept.keys() & {"host", "content-length", "content-type", "authorization", "cookie", "accept-encoding"}


async def test_a_github_event_says_its_type_and_is_known_by_its_delivery(api: Api) -> None:
    made = await relay(api)
    headers = {"X_GitHub_Event": "push", "X_GitHub_Delivery": "72d3162e"}
    first = await send(api, made, b"1", **headers, X_Request_Id="a")
    again = await send(api, made, b"1", **headers, X_Request_Id="b")
    assert (first.json["deduplicated"], again.json["deduplicated"]) == (False, True)
    assert first.json["event_id"] == again.json["event_id"]
    assert (await stored(api, first.json["event_id"]))["event_type"] == "github.push"
    assert (await send(api, made, b"2", **headers)).status == 409
    other = await relay(api)
    assert (await send(api, other, b"2", **headers)).json["deduplicated"] is False


@pytest.mark.parametrize("name", ["webhook_id", "Idempotency_Key"])
async def test_the_same_webhook_at_the_same_time_is_one(api: Api, name: str) -> None:
    made = await relay(api)
    clients = [api.client(None) for _ in range(8)]
    answers = await asyncio.gather(
        *(
            client.request("POST", path_of(made), body=b"1", headers={name: "msg_1", "X_Try": str(number)})
            for number, client in enumerate(clients)
        )
    )
    assert {answer.status for answer in answers} == {202}
    assert len({answer.json["event_id"] for answer in answers}) == 1
    assert sum(not answer.json["deduplicated"] for answer in answers) == 1


async def test_without_an_id_every_webhook_is_another(api: Api) -> None:
    made = await relay(api)
    ids = {(await send(api, made, b"1")).json["event_id"] for _ in range(3)}
    assert len(ids) == 3


async def test_an_address_that_is_not_known_answers_as_one_of_a_deleted_relay(api: Api) -> None:
    made = await relay(api)
    await api.owner.request("DELETE", f"/v1/endpoints/{made['id']}")
    same = {"X_Correlation_Id": "same"}
    answers = [
        await api.nobody.request("POST", path, body=b"{}", headers=same)
        for path in (path_of(made), "/v1/hooks/nobody", "/v1/hooks/", f"/v1/hooks/{'x' * 500}", "/v1/hooks/a/b")
    ]
    assert {answer.status for answer in answers} == {404}
    assert len({answer.body for answer in answers}) == 1


async def test_a_relay_that_is_paused_or_disabled_takes_webhooks_all_the_same(api: Api) -> None:
    made = await relay(api)
    for act in ("pause", "disable"):
        assert (await api.owner.post(f"/v1/endpoints/{made['id']}/{act}")).status == 200
        assert (await send(api, made)).status == 202


async def test_webhooks_are_sent_by_post_and_no_larger_than_an_event(api: Api) -> None:
    made = await relay(api)
    refused = await api.nobody.get(path_of(made))
    assert (refused.status, refused.headers["allow"]) == (405, "POST")
    assert (await send(api, made, b"x" * 1_048_576)).status == 202
    assert (await send(api, made, b"x" * 1_048_577)).status == 413
    assert (await send(api, made, b"x", X_Large="y" * 17_000)).status == 431
    assert (await send(api, made, b"x", Content_Type="y" * 201)).status == 431


async def test_the_org_s_limits_hold_for_webhooks(api: Api) -> None:
    made = await relay(api)
    limits = f"/v1/orgs/{api.org_id}"
    assert (await api.owner.request("PATCH", limits, {"limits": {"max_payload_bytes": 1_024}})).status == 200
    assert (await send(api, made, b"x" * 1_025)).status == 413
    assert (await send(api, made, b"x" * 1_024)).status == 202
    assert (await api.owner.request("PATCH", limits, {"limits": {"requests_per_s": 1, "burst": 1}})).status == 200
    assert 429 in [(await send(api, made)).status for _ in range(4)]


# -- signatures --------------------------------------------------------------------------------------------------------


async def test_a_relay_that_verifies_takes_only_what_its_sender_signed(api: Api) -> None:
    made = await relay(api, verify={"scheme": "github", "secret": SECRET})
    assert made["verify"] == {"scheme": "github", "secret": "[redacted]"}
    assert (await send(api, made, b"1", **github(b"1"))).status == 202
    for refused in (await send(api, made, b"2", **github(b"1")), await send(api, made, b"1")):
        assert refused.status == 401
        assert "x-hub-signature-256" in refused.json["detail"]
        assert SECRET not in refused.body.decode()


async def test_the_secret_is_kept_when_it_is_sent_back_as_shown_and_removed_with_null(api: Api) -> None:
    made = await relay(api, verify={"scheme": "github", "secret": SECRET})
    path = f"/v1/endpoints/{made['id']}"
    for given in ({"verify": made["verify"]}, {"name": "renamed"}, {"verify": made["verify"], "headers": {"x-a": "b"}}):
        assert (await api.owner.request("PATCH", path, given)).json["verify"] == made["verify"]
        assert (await send(api, made, b"1", **github(b"1"))).status == 202
        assert (await send(api, made, b"1")).status == 401
    other = {"verify": {"scheme": "stripe", "secret": "[redacted]"}}
    assert (await api.owner.request("PATCH", path, other)).status == 422
    changed = await api.owner.request("PATCH", path, {"verify": {"scheme": "github", "secret": "another"}})
    assert changed.status == 200
    assert (await send(api, made, b"1", **github(b"1", "another"))).status == 202
    removed = await api.owner.request("PATCH", path, {"verify": None})
    assert removed.json["verify"] is None
    assert (await send(api, made, b"1")).status == 202


async def test_slack_s_question_is_answered_where_its_signature_holds_and_not_stored(api: Api) -> None:
    made = await relay(api, verify={"scheme": "slack", "secret": SECRET})
    question = json.dumps({"type": "url_verification", "challenge": "3eZbrw1aB"}).encode()
    answer = await send(api, made, question, **slack(question, int(time.time())))
    assert (answer.status, answer.body, answer.headers["content-type"]) == (
        200,
        b"3eZbrw1aB",
        "text/plain; charset=utf-8",
    )
    assert (await send(api, made, question, **slack(question, int(time.time()) - 1_000))).status == 401
    assert (await api.owner.get(f"/v1/endpoints/{made['id']}/deliveries")).json["data"] == []
    assert (await send(api, made, b"{}", **slack(b"{}", int(time.time())))).status == 202


async def test_secrets_and_tokens_stay_out_of_answers_and_of_the_audit(api: Api) -> None:
    made = await relay(api, verify={"scheme": "github", "secret": "canary-secret"})
    await api.owner.request("PATCH", f"/v1/endpoints/{made['id']}", {"verify": {"scheme": "slack", "secret": "canary"}})
    token = path_of(made).rpartition("/")[2]
    for path in ("/v1/audit?limit=50", "/v1/audit/export?format=ndjson"):
        said = (await api.owner.get(path)).body.decode()
        assert "canary" not in said
        assert token not in said
    shown = (await api.owner.get(f"/v1/endpoints/{made['id']}")).body.decode()
    assert "canary" not in shown
    hook = await find_hook(api.context.engine_db, token, api.context.clock)
    assert "canary" not in repr(hook)


async def test_a_secret_that_does_not_open_is_an_outage_not_an_open_door(api: Api) -> None:
    made = await relay(api, verify={"scheme": "github", "secret": SECRET})
    async with api.context.engine_db.transaction() as session:
        await session._connection.execute(
            "UPDATE redrive.endpoint SET verify_sealed = 'short' WHERE id = $1", UUID(made["id"])
        )
    assert (await send(api, made, b"1", **github(b"1"))).status == 503
    assert "REDRIVE_SECRET_KEY" in (await api.owner.get(f"/v1/endpoints/{made['id']}")).json["problem"]
