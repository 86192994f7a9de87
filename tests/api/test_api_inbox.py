"""The inbox: fetched oldest first with payloads, acknowledged once; and events that are removed for good."""

import hashlib
import json
from typing import Any
from uuid import uuid4

import pytest

from redrive.core.decide import Reason
from redrive.store.check import check

from .conftest import Api

SECRET = {"order": 7, "password": "hunter2"}


async def inbox(api: Api, query: str = "") -> dict[str, Any]:
    listed = await api.owner.get(f"/v1/inbox{query}")
    assert listed.status == 200, listed.body
    shape: dict[str, Any] = listed.json
    return shape


async def audited(api: Api, action: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = (await api.owner.get(f"/v1/audit?action={action}")).json["data"]
    return entries


async def test_what_nobody_subscribes_to_waits_oldest_first_with_its_payload(api: Api) -> None:
    ids = [await api.event("stock.low", {"n": n}, timestamp="2026-01-31T09:00:00Z") for n in range(3)]
    first = await inbox(api, "?limit=2")
    assert [event["event_id"] for event in first["events"]] == ids[:2]
    assert first["events"][0] == {
        "event_id": ids[0],
        "event_type": "stock.low",
        "timestamp": "2026-01-31T09:00:00Z",
        "payload": {"n": 0},
    }
    assert first["pagination"]["total_count"] == 3
    rest = await inbox(api, f"?limit=2&cursor={first['pagination']['cursor']}")
    assert [event["event_id"] for event in rest["events"]] == ids[2:]
    assert rest["pagination"] == {"limit": 2, "cursor": None, "has_more": False, "total_count": 3}


async def test_an_acknowledged_event_is_delivered_and_gone_from_the_inbox(api: Api) -> None:
    event_id, other = await api.event("stock.low"), await api.event("stock.low")
    acked = await api.owner.post(f"/v1/events/{event_id}/ack", {"because": "fetched"})
    assert (acked.status, acked.json["event_id"], acked.json["status"]) == (200, event_id, "delivered")
    listed = await inbox(api)
    assert ([event["event_id"] for event in listed["events"]], listed["pagination"]["total_count"]) == ([other], 1)
    event = (await api.owner.get(f"/v1/events/{event_id}")).json
    assert (event["status"], event["delivered_at"] is not None) == ("delivered", True)
    (entry,) = await audited(api, "event.ack")
    assert (entry["subject_id"], entry["because"]) == (event_id, "fetched")


async def test_acknowledging_again_changes_nothing(api: Api) -> None:
    event_id = await api.event("stock.low")
    for _ in range(2):
        assert (await api.owner.post(f"/v1/events/{event_id}/ack")).json["status"] == "delivered"
    assert len(await audited(api, "event.ack")) == 1


async def test_an_event_that_endpoints_get_is_not_acknowledged(api: Api) -> None:
    await api.endpoint()
    event_id = await api.event()
    refused = await api.owner.post(f"/v1/events/{event_id}/ack")
    assert refused.status == 409
    assert "this one is queued" in refused.json["detail"]
    (job,) = await api.claim()
    await api.die(job)
    assert "this one is failed" in (await api.owner.post(f"/v1/events/{event_id}/ack")).json["detail"]


async def test_failed_events_are_listed_once_oldest_first(api: Api) -> None:
    for _ in range(2):
        await api.endpoint()
    failed = [(await api.dead_task(payload={"n": n}))["event_id"] for n in range(3)]
    await api.event()  # still queued
    seen, query = [], "?status=failed&limit=1"
    while True:
        page = await inbox(api, query)
        seen += [event["event_id"] for event in page["events"]]
        assert page["pagination"]["total_count"] == 3
        if not page["pagination"]["has_more"]:
            break
        query = f"?status=failed&limit=1&cursor={page['pagination']['cursor']}"
    assert seen == failed
    assert (await inbox(api))["events"] == []


async def test_a_type_can_be_asked_for(api: Api) -> None:
    await api.event("stock.low")
    wanted = await api.event("stock.out")
    page = await inbox(api, "?event_type=stock.out")
    assert [event["event_id"] for event in page["events"]] == [wanted]
    assert page["pagination"]["total_count"] is None


async def test_a_page_of_large_payloads_ends_early_and_nothing_is_left_out(api: Api) -> None:
    ids = [await api.event("big", "x" * 1_000_000) for _ in range(10)]
    first = await inbox(api)
    assert [event["event_id"] for event in first["events"]] == ids[:8]
    assert first["pagination"]["has_more"] is True
    rest = await inbox(api, f"?cursor={first['pagination']['cursor']}")
    assert [event["event_id"] for event in rest["events"]] == ids[8:]
    assert rest["pagination"]["has_more"] is False
    redacted = (await api.viewer.get("/v1/inbox")).json
    assert (len(redacted["events"]), redacted["pagination"]["has_more"]) == (1, True)


async def test_d11_only_who_may_change_things_sees_what_looks_secret(api: Api) -> None:
    event_id = await api.event("stock.low", SECRET)
    for path in ("/v1/inbox", f"/v1/events/{event_id}"):
        for client, shown in ((api.owner, True), (api.staff, False), (api.viewer, False)):
            listed = await client.get(path)
            assert listed.status == 200
            assert (b"hunter2" in listed.body) == shown
            assert b'"order":7' in listed.body.replace(b" ", b"")


@pytest.mark.parametrize(
    "query",
    ["?status=queued", "?status=", "?limit=0", "?limit=251", "?cursor=abc", "?stat=failed", "?event_type=a%00b"],
)
async def test_a_query_that_makes_no_sense_is_refused(shared_api: Api, query: str) -> None:
    assert (await shared_api.owner.get(f"/v1/inbox{query}")).status == 400


async def test_a_cursor_of_one_list_is_not_good_for_the_other(api: Api) -> None:
    for _ in range(2):
        await api.event("stock.low")
    cursor = (await inbox(api, "?limit=1"))["pagination"]["cursor"]
    assert (await api.owner.get(f"/v1/inbox?status=failed&cursor={cursor}")).status == 400
    assert (await api.owner.get(f"/v1/events?cursor={cursor}")).status == 400


async def test_a_removed_event_is_gone_with_all_that_belongs_to_it(api: Api) -> None:
    await api.endpoint()
    letter = await api.dead_task(payload=SECRET)
    event_id = letter["event_id"]
    assert (await api.owner.request("DELETE", f"/v1/events/{event_id}")).status == 204
    for path in (f"/v1/events/{event_id}", f"/v1/dead-letters/{letter['id']}", f"/v1/logs/{letter['log_id']}"):
        assert (await api.owner.get(path)).status == 404
    assert (await api.owner.get("/v1/dead-letters")).json["pagination"]["total_count"] == 0
    assert (await api.owner.get("/v1/events")).json["pagination"]["total_count"] == 0
    assert (await api.owner.request("DELETE", f"/v1/events/{event_id}")).status == 404
    (entry,) = await audited(api, "event.delete")
    digest = hashlib.sha256(json.dumps(SECRET).encode()).hexdigest()
    assert entry["before"] == {"event_type": "invoice.paid", "status": "failed", "sha256": digest}
    assert "hunter2" not in str(entry)


async def test_an_event_that_is_being_delivered_is_not_removed(api: Api) -> None:
    await api.endpoint()
    event_id = await api.event()
    waiting = await api.owner.request("DELETE", f"/v1/events/{event_id}")
    (job,) = await api.claim()
    leased = await api.owner.request("DELETE", f"/v1/events/{event_id}")
    for refused in (waiting, leased):
        assert refused.status == 409
        assert "being delivered" in refused.json["detail"]
    await api.die(job, reason=Reason.PERMANENT)
    assert (await api.owner.request("DELETE", f"/v1/events/{event_id}")).status == 204


async def test_events_of_the_inbox_are_removed_and_the_books_balance(own_api: Api) -> None:
    waiting, acked, gone = [await own_api.event("stock.low", "x" * n) for n in (10, 20, 30)]
    await own_api.owner.post(f"/v1/events/{acked}/ack")
    for event_id in (acked, gone):
        assert (await own_api.owner.request("DELETE", f"/v1/events/{event_id}")).status == 204
    assert [event["event_id"] for event in (await inbox(own_api))["events"]] == [waiting]
    report = await check(own_api.url)
    assert report.violations == []
    assert (report.total.events, report.total.received) == (1, 1)


@pytest.mark.parametrize(("method", "path"), [("POST", "/v1/events/{}/ack"), ("DELETE", "/v1/events/{}")])
async def test_who_may_not_and_what_is_not_there_is_refused(api: Api, method: str, path: str) -> None:
    event_id = await api.event("stock.low")
    assert (await api.nobody.request(method, path.format(event_id))).status == 401
    for client in (api.staff, api.viewer):
        assert (await client.request(method, path.format(event_id))).status == 403
    answers = [await api.stranger.request(method, path.format(id_)) for id_ in (event_id, uuid4(), "seven")]
    assert [answer.status for answer in answers] == [404] * 3
    wrong: tuple[object, ...] = ({"why": "x"}, {"because": 7}, {"because": "x" * 1001}, {"because": "\x00"}, [])
    for value in wrong:
        assert (await api.owner.request(method, path.format(event_id), value)).status == 422
    assert (await api.owner.request(method, path.format(event_id) + "?x=1")).status == 400
    assert len((await inbox(api))["events"]) == 1
