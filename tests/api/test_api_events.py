"""Handing events in and reading them back."""

import asyncio
import json
from uuid import UUID, uuid4

import pytest

from redrive.core.ids import id_of_key

from .conftest import Api

EXACT = (
    b'{ "event_type":"invoice.paid",\n "payload": {"b":1,  "a":[1.10, 12345678901234567890123, "\\u0000"], "b":2 } }'
)


async def test_an_accepted_event_is_answered_with_its_id_and_kept(api: Api) -> None:
    answer = await api.owner.post("/v1/events", {"event_type": "invoice.paid", "payload": {"n": 1}})
    assert answer.status == 202
    assert answer.json == {"event_id": answer.json["event_id"], "status": "received", "deduplicated": False}
    assert UUID(answer.json["event_id"]).version == 7
    event = (await api.owner.get(f"/v1/events/{answer.json['event_id']}")).json
    assert event["payload"] == {"n": 1}
    assert event["status"] == "received"
    assert event["timestamp"].endswith("Z")
    assert event["correlation_id"] == answer.headers["x-correlation-id"]


async def test_a_payload_is_stored_byte_for_byte(api: Api) -> None:
    answer = await api.owner.request("POST", "/v1/events", body=EXACT)
    assert answer.status == 202
    event_id = answer.json["event_id"]
    engine_sees = await api.context.engine_db.fetchrow("get_event", api.org_id, UUID(event_id))
    assert engine_sees is not None
    payload = b'{"b":1,  "a":[1.10, 12345678901234567890123, "\\u0000"], "b":2 }'
    assert engine_sees["body"] == payload
    shown = await api.owner.get(f"/v1/events/{event_id}")
    assert b'"payload":' + payload in shown.body


async def test_an_event_with_an_endpoint_is_queued(api: Api) -> None:
    await api.endpoint(event_types=["invoice.*"])
    queued = await api.owner.post("/v1/events", {"event_type": "invoice.paid", "payload": 1})
    waiting = await api.owner.post("/v1/events", {"event_type": "order.paid", "payload": 1})
    assert (queued.json["status"], waiting.json["status"]) == ("queued", "received")


async def test_the_same_event_id_again_is_the_same_event(api: Api) -> None:
    given = {"event_id": str(uuid4()), "event_type": "a", "payload": {"n": 1}}
    first = await api.owner.post("/v1/events", given)
    again = await api.owner.post("/v1/events", given)
    other = await api.owner.post("/v1/events", {**given, "payload": {"n": 2}})
    assert (first.status, first.json["deduplicated"]) == (202, False)
    assert (again.status, again.json["deduplicated"]) == (202, True)
    assert again.json["event_id"] == first.json["event_id"] == given["event_id"]
    assert other.status == 409


async def test_an_idempotency_key_makes_one_event_per_org(api: Api) -> None:
    given = {"event_type": "a", "payload": 1}
    first = await api.owner.post("/v1/events", given, Idempotency_Key="order-7")
    again = await api.owner.post("/v1/events", given, Idempotency_Key="order-7")
    other = await api.owner.post("/v1/events", {**given, "payload": 2}, Idempotency_Key="order-7")
    foreign = await api.stranger.post("/v1/events", given, Idempotency_Key="order-7")
    assert (first.json["deduplicated"], again.json["deduplicated"]) == (False, True)
    assert first.json["event_id"] == again.json["event_id"]
    assert other.status == 409
    assert foreign.json["deduplicated"] is False
    assert foreign.json["event_id"] != first.json["event_id"]


@pytest.mark.parametrize("key", ["k", "order-7", "~" * 255, "a b", "key\n12"])
async def test_a_key_becomes_the_same_id_in_python_and_in_sql(shared_api: Api, key: str) -> None:
    org = uuid4()
    (row,) = await shared_api.sql(
        "SELECT redrive.id_of_key($1, 'event', $2) AS event, redrive.id_of_key($1, 'handler', $2) AS handler", org, key
    )
    assert id_of_key(org, "event", key) == row["event"]
    assert id_of_key(org, "handler", key) == row["handler"]
    assert row["event"] != row["handler"]


async def test_the_same_id_or_key_under_other_terms_is_a_conflict(api: Api) -> None:
    endpoint = await api.endpoint()
    event_id = str(uuid4())
    given = {"event_type": "a", "payload": 1}
    own_id = {**given, "event_id": event_id}
    assert (await api.owner.post("/v1/events", own_id)).status == 202
    assert (await api.owner.post("/v1/events", given, Idempotency_Key="k")).status == 202
    for terms in (
        {"endpoint_id": endpoint["id"]},
        {"policy": "manual"},
        {"external_system": "SAP"},
        {"ordering_key": "7"},
    ):
        assert (await api.owner.post("/v1/events", own_id | terms)).status == 409, terms
        assert (await api.owner.post("/v1/events", given | terms, Idempotency_Key="k")).status == 409, terms
        batch = (await api.owner.post("/v1/events/batch", [own_id, own_id | terms])).json
        assert (batch["deduplicated"], [item["index"] for item in batch["rejected"]]) == (1, [1]), terms
    again = await api.owner.post("/v1/events", given | {"correlation_id": "another"}, Idempotency_Key="k")
    assert (again.status, again.json["deduplicated"]) == (202, True)


async def test_an_event_with_an_id_of_its_own_is_known_by_that_whatever_the_key(api: Api) -> None:
    given = {"event_type": "a", "payload": 1, "event_id": str(uuid4())}
    first = await api.owner.post("/v1/events", given, Idempotency_Key="k")
    again = await api.owner.post("/v1/events", given, Idempotency_Key="another")
    assert (first.status, again.status) == (202, 202)
    assert first.json["event_id"] == again.json["event_id"] == given["event_id"]
    assert (first.json["deduplicated"], again.json["deduplicated"]) == (False, True)
    assert (await api.owner.post("/v1/events", given | {"payload": 2}, Idempotency_Key="k")).status == 409
    batch = [{"event_type": "a", "payload": 1}, given]
    answer = (await api.owner.post("/v1/events/batch", batch, Idempotency_Key="k")).json
    assert (answer["accepted"], answer["deduplicated"], answer["rejected"]) == (1, 1, [])


async def test_an_event_for_an_unknown_endpoint_or_policy_is_refused(api: Api) -> None:
    given = {"event_type": "a", "payload": 1}
    no_endpoint = await api.owner.post("/v1/events", {**given, "endpoint_id": str(uuid4())})
    no_policy = await api.owner.post("/v1/events", {**given, "policy": "nightly"})
    foreign = await api.stranger.post("/v1/events", {**given, "endpoint_id": (await api.endpoint())["id"]})
    assert (no_endpoint.status, no_endpoint.errors[0][0]) == (422, ["body", "endpoint_id"])
    assert (no_policy.status, no_policy.errors[0][0]) == (422, ["body", "policy"])
    assert foreign.status == 422


async def test_the_status_of_an_event_has_exactly_the_promised_fields(api: Api) -> None:
    await api.endpoint()
    event_id = await api.event(policy="triggers")
    fresh = (await api.owner.get(f"/v1/events/{event_id}/status")).json
    assert fresh == {
        "event_id": event_id,
        "status": "queued",
        "retry_attempts": 0,
        "last_retry_at": None,
        "failed_at": None,
        "next_retry_at": None,
    }
    (job,) = await api.claim()
    await api.fail(job, retry_in_s=60)
    failed = (await api.owner.get(f"/v1/events/{event_id}/status")).json
    assert failed["retry_attempts"] == 1
    assert failed["last_retry_at"] < failed["next_retry_at"]
    assert set(failed) == set(fresh)


async def test_attempts_show_what_was_sent_and_what_came_back(api: Api) -> None:
    await api.endpoint()
    event_id = await api.event()
    (job,) = await api.claim()
    open_try = (await api.owner.get(f"/v1/events/{event_id}/attempts")).json["data"][0]
    assert (open_try["result"], open_try["ended_at"], open_try["duration_ms"]) == ("open", None, None)
    await api.fail(job)
    answer = (await api.owner.get(f"/v1/events/{event_id}/attempts")).json
    (attempt,) = answer["data"]
    assert answer["pagination"]["has_more"] is False
    assert attempt["number"] == 1
    assert attempt["result"] == "failed"
    assert attempt["category"] == "server_error"
    assert attempt["duration_ms"] == pytest.approx(125, abs=1)
    assert attempt["response"] == {"status": 503, "headers": {"server": "nginx"}, "body": "busy", "truncated": False}
    assert attempt["request"]["method"] == "POST"
    headers = attempt["request"]["headers"]
    assert headers["webhook-id"] == event_id
    assert headers["webhook-signature"] == "[redacted]"
    assert headers["redrive-attempt"] == "1"
    assert headers["x-tenant"] == "[redacted]"


async def test_events_are_listed_newest_first_in_pages(api: Api) -> None:
    ids = [await api.event(payload=n) for n in range(5)]
    seen: list[str] = []
    path = "/v1/events?limit=2"
    cursor = ""
    while True:
        page = (await api.owner.get(path + cursor)).json
        seen += [event["event_id"] for event in page["data"]]
        assert page["pagination"]["total_count"] == 5
        if not page["pagination"]["has_more"]:
            break
        cursor = f"&cursor={page['pagination']['cursor']}"
    assert seen == ids[::-1]
    assert (await api.owner.get("/v1/events?status=failed")).json["data"] == []
    assert (await api.owner.get("/v1/events?status=received")).json["pagination"]["total_count"] == 5


async def test_a_time_of_the_producers_own_is_kept_to_the_microsecond(api: Api) -> None:
    event_id = await api.event(timestamp="2024-02-29T23:59:59.123456+02:00")
    assert (await api.owner.get(f"/v1/events/{event_id}")).json["timestamp"] == "2024-02-29T21:59:59.123456Z"


async def test_a_batch_stores_what_is_valid_and_names_what_is_not(api: Api) -> None:
    await api.endpoint()
    known = str(uuid4())
    await api.event("a", 1, event_id=known)
    answer = await api.owner.post(
        "/v1/events/batch",
        [
            {"event_type": "a", "payload": {"n": 0}},
            {"event_type": "", "payload": 1},
            {"event_type": "a", "payload": 1, "event_id": known},
            {"event_type": "a", "payload": 2, "event_id": known},
            7,
            {"event_type": "a", "payload": 1, "policy": "nightly"},
            {"event_type": "a"},
        ],
    )
    assert answer.status == 202
    assert answer.json["accepted"] == 1
    assert answer.json["deduplicated"] == 1
    rejected = {item["index"]: item["errors"][0]["loc"] for item in answer.json["rejected"]}
    assert rejected == {
        1: ["body", 1, "event_type"],
        3: ["body", 3, "event_id"],
        4: ["body", 4],
        5: ["body", 5, "policy"],
        6: ["body", 6, "payload"],
    }


async def test_a_batch_is_one_transaction(api: Api) -> None:
    answer = await api.owner.post("/v1/events/batch", [{"event_type": "a", "payload": n} for n in range(1_000)])
    assert answer.json == {"accepted": 1_000, "deduplicated": 0, "rejected": []}
    async with api.context.app_db.tenant(api.org_id) as session:
        rows = await session._connection.fetch("SELECT DISTINCT xmin::text FROM redrive.event")
    assert len(rows) == 1


@pytest.mark.parametrize(
    "content_type", ["application/x-ndjson; charset=utf-8", "application/ndjson", "Application/JSONL"]
)
async def test_lines_of_json_are_a_batch_too(api: Api, content_type: str) -> None:
    lines = [json.dumps({"event_type": "a", "payload": n}) for n in range(3)]
    body = "\n".join([lines[0], "", lines[1], "{broken", lines[2], ""]).encode()
    answer = await api.owner.request("POST", "/v1/events/batch", body=body, headers={"Content-Type": content_type})
    assert answer.status == 202
    assert answer.json["accepted"] == 3
    assert [item["index"] for item in answer.json["rejected"]] == [2]


async def test_a_batch_under_an_idempotency_key_is_stored_once(api: Api) -> None:
    batch = [{"event_type": "a", "payload": n} for n in range(3)]
    first = await api.owner.post("/v1/events/batch", batch, Idempotency_Key="night-1")
    again = await api.owner.post("/v1/events/batch", batch, Idempotency_Key="night-1")
    assert (first.json["accepted"], first.json["deduplicated"]) == (3, 0)
    assert (again.json["accepted"], again.json["deduplicated"]) == (0, 3)


async def test_an_empty_batch_is_nothing_to_do(shared_api: Api) -> None:
    assert (await shared_api.owner.post("/v1/events/batch", [])).json["accepted"] == 0


async def test_a_batch_of_too_many_is_refused_whole(shared_api: Api) -> None:
    before = (await shared_api.owner.get("/v1/events?limit=1")).json["pagination"]["total_count"]
    events = [{"event_type": "a", "payload": n} for n in range(1_001)]
    assert (await shared_api.owner.post("/v1/events/batch", events)).status == 413
    assert (await shared_api.owner.post("/v1/events/batch", [*events, 5])).status == 413
    lines = b"\n".join(json.dumps(event).encode() for event in events)
    ndjson = {"Content-Type": "application/x-ndjson"}
    assert (await shared_api.owner.request("POST", "/v1/events/batch", body=lines, headers=ndjson)).status == 413
    assert (await shared_api.owner.get("/v1/events?limit=1")).json["pagination"]["total_count"] == before


async def test_questions_that_come_together_are_each_answered_for_themselves(api: Api) -> None:
    events = [await api.event() for _ in range(5)]
    asked = [*events, str(uuid4()), *events]
    clients = [api.client(api.owner.key) for _ in asked]
    answers = await asyncio.gather(
        *(client.get(f"/v1/events/{event}/status") for client, event in zip(clients, asked, strict=True))
    )
    assert [answer.status for answer in answers] == [200] * 5 + [404] + [200] * 5
    assert [answer.json["event_id"] for answer in answers if answer.status == 200] == events * 2
    strangers = await asyncio.gather(*(api.stranger.get(f"/v1/events/{event}/status") for event in events))
    assert {answer.status for answer in strangers} == {404}
