"""An endpoint's deliveries over HTTP, in the words of a webhook relay; and an org's numbers."""

from typing import Any
from uuid import uuid4

import pytest

from redrive.api.schemas.base import Page
from redrive.api.schemas.endpoint_actions import Delivery
from redrive.api.schemas.stats import StatsShown
from redrive.core.decide import Reason
from redrive.store import deliveries

from .conftest import Api


async def test_a_delivery_is_told_in_the_words_of_a_relay(api: Api) -> None:
    endpoint_id = (await api.endpoint())["id"]
    outcomes = ("delivered", "failed", "dead_letter", "pending", "untried")
    events = {outcome: await api.event(payload=outcome) for outcome in outcomes}
    for job in await api.claim():
        match next(name for name, event_id in events.items() if event_id == str(job.event_id)):
            case "delivered":
                await api.succeed(job)
            case "failed":
                await api.die(job, reason=Reason.PERMANENT, message="HTTP 404 Not Found")
            case "dead_letter":
                await api.die(job, reason=Reason.EXPIRED)
            case "pending":
                await api.fail(job, retry_in_s=60)
    listed = await _deliveries(api, endpoint_id)
    Page[Delivery].model_validate(listed)
    assert [row["event_id"] for row in listed["data"]] == list(events.values())[::-1]  # newest first
    untried, pending, dead_letter, failed, delivered = listed["data"]
    assert delivered["status"] == "delivered"
    assert delivered["attempts"] == 1
    assert delivered["delivered_at"] == delivered["last_attempt_at"] >= delivered["received_at"]
    assert (delivered["error_message"], delivered["next_retry_at"]) == (None, None)
    assert (failed["status"], failed["error_message"], failed["delivered_at"]) == ("failed", "HTTP 404 Not Found", None)
    assert (dead_letter["status"], dead_letter["next_retry_at"]) == ("dead_letter", None)
    assert (pending["status"], pending["attempts"]) == ("pending", 1)
    assert pending["next_retry_at"] > pending["last_attempt_at"]
    assert (untried["status"], untried["attempts"], untried["last_attempt_at"]) == ("pending", 0, None)
    assert pending["log_id"] == pending["id"]
    assert (await api.owner.get(f"/v1/logs/{pending['log_id']}")).json["event_id"] == events["pending"]
    for status in ("delivered", "failed", "dead_letter"):
        (only,) = (await _deliveries(api, endpoint_id, f"?status={status}"))["data"]
        assert only["event_id"] == events[status]
    assert len((await _deliveries(api, endpoint_id, "?status=pending"))["data"]) == 2


async def test_pages_go_on_where_the_last_one_ended(api: Api) -> None:
    endpoint_id = (await api.endpoint(event_types=["mine"]))["id"]
    await api.endpoint(event_types=["other"])
    events = [await api.event("mine") for _ in range(5)]
    await api.event("other")
    assert await _all_pages(api, endpoint_id, "?limit=2") == events[::-1]


async def test_a_filtered_page_looks_at_few_rows_and_leads_on(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint_id = (await api.endpoint())["id"]
    oldest = await api.event()
    (job,) = await api.claim()
    await api.succeed(job)
    for _ in range(7):
        await api.event()
    monkeypatch.setattr(deliveries, "MAX_ROWS_LOOKED_AT", 3)
    first = await _deliveries(api, endpoint_id, "?status=delivered")
    assert (first["data"], first["pagination"]["has_more"]) == ([], True)
    assert await _all_pages(api, endpoint_id, "?status=delivered") == [oldest]


async def test_deliveries_are_refused_for_what_is_not_there_and_for_what_is_not_known(api: Api) -> None:
    made = await api.endpoint()
    path = f"/v1/endpoints/{made['id']}/deliveries"
    for client in (api.staff, api.viewer):
        assert (await client.get(path)).status == 200
    assert (await api.nobody.get(path)).status == 401
    assert (await api.stranger.get(path)).status == 404
    for unknown in (str(uuid4()), "nonsense"):
        assert (await api.owner.get(f"/v1/endpoints/{unknown}/deliveries")).status == 404
    refused = await api.owner.get(f"{path}?status=lost")
    assert refused.status == 400
    assert "'pending', 'delivered', 'failed' or 'dead_letter'" in refused.errors[0][1]
    assert (await api.owner.get(f"{path}?since=1")).status == 400
    assert (await api.owner.get(f"{path}?cursor=nonsense")).status == 400
    await api.event()
    await api.event()
    cursor = (await api.owner.get(f"{path}?limit=1")).json["pagination"]["cursor"]
    other = await api.endpoint()
    assert (await api.owner.get(f"/v1/endpoints/{other['id']}/deliveries?cursor={cursor}")).status == 400


async def test_the_numbers_say_where_everything_stands(api: Api) -> None:
    empty = (await api.owner.get("/v1/stats")).json
    StatsShown.model_validate(empty)
    assert (empty["success_rate"], empty["oldest_due_at"], empty["events"]["total"]) == (None, None, 0)
    await api.event("for.nobody")
    made = await api.endpoint(event_types=["a"])
    await api.endpoint(event_types=["b"], disabled=True)
    for _ in range(3):
        await api.event("a")
    succeeded, died, failed = await api.claim()
    await api.succeed(succeeded)
    await api.die(died)
    await api.fail(failed, retry_in_s=600)
    await api.event("b")
    assert await api.claim() == []
    await api.owner.post(f"/v1/endpoints/{made['id']}/pause")
    numbers = (await api.viewer.get("/v1/stats")).json
    StatsShown.model_validate(numbers)
    counted = {"total": 5, "received": 1, "acknowledged": 0, "routed": 4, "payload_bytes": 5 * len(b"null")}
    counted |= {"queued": 2, "delivered": 1, "failed": 1}
    assert numbers["events"] == counted
    assert numbers["tasks"] == {"waiting": 1, "leased": 0, "held": 1, "succeeded": 1, "dead": 1}
    assert numbers["retry_queue"] == {"total": 1}
    assert numbers["dead_letters"] == {"open": 1, "replaying": 0, "resolved": 0, "ignored": 0}
    assert numbers["endpoints"] == {"total": 2, "disabled": 1, "paused": 1}
    assert numbers["paused"] == {"installation": False, "org": False, "endpoints": 1}
    assert (numbers["success_rate"], numbers["oldest_due_at"]) == (0.5, None)
    waiting = await api.event("a")
    event = (await api.owner.get(f"/v1/events/{waiting}")).json
    numbers = (await api.owner.get("/v1/stats")).json
    assert numbers["oldest_due_at"] == event["received_at"] <= numbers["as_of"]
    assert (await api.stranger.get("/v1/stats")).json["events"]["total"] == 0
    assert (await api.owner.get("/v1/stats?since=1")).status == 400
    assert (await api.nobody.get("/v1/stats")).status == 401


async def test_how_deliveries_went_is_told_over_time_and_by_what_they_went_to(api: Api) -> None:
    fine = await api.endpoint(event_types=["a"])
    await api.endpoint(event_types=["b"])
    for event_type in ("a", "a", "b", "nobody's"):
        await api.event(event_type)
    for job in await api.claim():
        await (api.die(job) if job.event_type == "b" else api.succeed(job))
    numbers = (await api.viewer.get("/v1/stats?window=24h&by=endpoint&limit=1")).json
    StatsShown.model_validate(numbers)
    went = numbers["analytics"]
    assert (went["window"], went["bucket_s"], len(went["over_time"])) == ("24h", 3600.0, 24)
    assert (went["whole"]["created"], went["whole"]["delivered"], went["whole"]["failed"]) == (4, 2, 1)
    (listed,) = went["keys"]
    assert (listed["key"], listed["name"]) == (fine["id"], fine["name"])
    assert (listed["delivered"], listed["success_rate"], listed["rescue_rate"]) == (2, 1.0, None)
    assert listed["retries_before_success"] == {"mean": 0.0, "distribution": [2] + [0] * 10}
    assert (went["others"]["failed"], went["others"]["success_rate"]) == (1, 0.0)
    by_type = (await api.owner.get("/v1/stats?by=event_type&sort=failures")).json["analytics"]
    assert [(key["key"], key["failed"]) for key in by_type["keys"]] == [("b", 1), ("a", 0), ("nobody's", 0)]
    assert by_type["others"] is None
    one = (await api.owner.get("/v1/stats?window=1h&by=event_type&key=a")).json["analytics"]
    assert (one["whole"]["delivered"], one["whole"]["failed"], one["keys"]) == (2, 0, [])
    assert sum(moment["created"] for moment in one["over_time"]) == 2
    assert (await api.stranger.get("/v1/stats?window=365d")).json["analytics"]["whole"]["created"] == 0
    for query in ("window=2h", "by=org", "key=a", "by=endpoint&limit=101", "sort=name"):
        assert (await api.owner.get(f"/v1/stats?{query}")).status == 400


async def _deliveries(api: Api, endpoint_id: str, query: str = "") -> dict[str, Any]:
    answer = await api.owner.get(f"/v1/endpoints/{endpoint_id}/deliveries{query}")
    assert answer.status == 200, answer.body
    shape: dict[str, Any] = answer.json
    return shape


async def _all_pages(api: Api, endpoint_id: str, query: str) -> list[str]:
    events: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = await _deliveries(api, endpoint_id, query + (f"&cursor={cursor}" if cursor else ""))
        events += [row["event_id"] for row in page["data"]]
        cursor = page["pagination"]["cursor"]
    return events
