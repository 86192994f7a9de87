"""Groups of dead letters over HTTP: what went wrong, how often, since when, and one letter to look at."""

from typing import Any

import pytest

from redrive.core.decide import Die, Reason
from redrive.core.outcome import Category, Failure
from redrive.core.ports import NO_EXCHANGE
from redrive.store import groups
from redrive.store.dead_letters import DeadLetterFilter

from .conftest import Api

FIELDS = {
    "fingerprint", "count", "count_at_least", "first_at", "last_at", "kind", "category", "reason", "event_type",
    "external_system", "endpoint_id", "error_message", "sample_id",
}  # fmt: skip


async def deaths(api: Api, count: int, message: str, **fields: Any) -> list[str]:
    """So many letters of one cause, oldest first."""
    reason, category = fields.pop("reason", Reason.EXHAUSTED), fields.pop("category", Category.SERVER_ERROR)
    died = []
    for number in range(count):
        await api.event(**fields)
        for job in await api.claim():
            await api.settle(job, Failure(category, f"{message} {number}"), Die(reason, category), NO_EXCHANGE)
            died.append(str(job.id))
    return died


async def listed(api: Api, query: str = "") -> list[dict[str, Any]]:
    answer = await api.viewer.get(f"/v1/dead-letters/groups{query}")
    assert answer.status == 200, answer.body
    data: list[dict[str, Any]] = answer.json["data"]
    return data


async def test_letters_of_one_cause_are_one_group_and_the_biggest_comes_first(api: Api) -> None:
    endpoint = await api.endpoint(external_system="erp")
    few = await deaths(api, 1, "certificate expired")
    many = await deaths(api, 3, "order not taken:")
    answer = (await api.viewer.get("/v1/dead-letters/groups")).json
    first, second = answer["data"]
    assert set(first) == FIELDS
    assert (first["count"], first["count_at_least"], second["count"]) == (3, 3, 1)
    assert (first["sample_id"], first["error_message"]) == (many[-1], "order not taken: 2")
    assert second["sample_id"] == few[0]
    assert first["first_at"] < first["last_at"]
    assert (first["kind"], first["category"], first["reason"]) == ("http", "server_error", "exhausted")
    assert (first["endpoint_id"], first["external_system"]) == (endpoint["id"], "erp")
    assert answer["pagination"] == {"limit": 50, "cursor": None, "has_more": False, "total_count": 2}
    found = (await api.viewer.get(f"/v1/dead-letters?fingerprint={first['fingerprint']}")).json
    assert found["pagination"]["total_count"] == 3


async def test_filters_count_what_matches_and_leave_out_what_does_not(api: Api) -> None:
    endpoint = await api.endpoint()
    await deaths(api, 2, "busy", event_type="a")
    (last,) = await deaths(api, 1, "busy", event_type="b", reason=Reason.EXPIRED)
    (other,) = await deaths(api, 1, "bad field", event_type="b", category=Category.VALIDATION)
    busy = next(group for group in await listed(api) if group["count"] == 3)
    for query, expected in (
        ("?event_type=a", [2]),
        ("?event_type=b", [1, 1]),
        ("?event_type=*", [3, 1]),
        ("?event_type=b*", [1, 1]),
        ("?event_type=*c*", []),
        ("?reason=expired", [1]),
        ("?category=validation", [1]),
        ("?category=server_error", [3]),
        (f"?endpoint_id={endpoint['id']}", [3, 1]),
        ("?kind=handler", []),
        ("?external_system=erp", []),
        ("?state=resolved", []),
        (f"?since={busy['last_at']}", [1, 1]),
        (f"?until={busy['last_at']}", [2]),
        ("?until=2000-01-01T00:00:00Z", []),
    ):
        assert [group["count"] for group in await listed(api, query)] == expected, query
    (one,) = await listed(api, "?reason=expired")
    assert (one["sample_id"], one["first_at"]) == (last, one["last_at"])
    assert other in {group["sample_id"] for group in await listed(api, "?event_type=b")}


async def test_a_page_holds_the_biggest_groups_and_says_that_there_are_more(api: Api) -> None:
    await api.endpoint()
    await deaths(api, 2, "one cause")
    await deaths(api, 1, "another cause")
    answer = (await api.viewer.get("/v1/dead-letters/groups?limit=1")).json
    assert [group["count"] for group in answer["data"]] == [2]
    assert answer["pagination"] == {"limit": 1, "cursor": None, "has_more": True, "total_count": 2}


async def test_what_is_too_much_to_count_says_at_least_how_many(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await api.endpoint()
    died = await deaths(api, 4, "busy")
    await deaths(api, 1, "certificate expired")
    whole = (await listed(api))[0]
    monkeypatch.setattr(groups, "FIRST_COUNT", 2)
    monkeypatch.setattr(groups, "SECOND_COUNT", 3)
    assert (await listed(api))[0] == whole  # counted on write
    since = "?since=2000-01-01T00:00:00Z"
    big, small = await listed(api, since)
    assert (big["count"], big["count_at_least"], small["count"]) == (None, 3, 1)
    assert (big["first_at"], big["last_at"], big["sample_id"]) == (whole["first_at"], whole["last_at"], died[-1])
    monkeypatch.setattr(groups, "MAX_GROUPS_LOOKED", 1)
    async with api.context.app_db.tenant(api.org_id) as session:
        found = await groups.list_groups(session, DeadLetterFilter(), limit=1)
    assert (len(found.rows), found.total) == (1, None)


@pytest.mark.parametrize(
    "query", ["?cursor=x", "?limit=0", "?limit=251", "?state=gone", "?reason=x", "?endpoint_id=x", "?x=1", "?since=x"]
)
async def test_what_cannot_be_asked_is_refused(shared_api: Api, query: str) -> None:
    assert (await shared_api.viewer.get(f"/v1/dead-letters/groups{query}")).status == 400


async def test_everybody_with_a_key_reads_groups_of_their_own_org(api: Api) -> None:
    await api.endpoint()
    await deaths(api, 1, "busy")
    assert (await api.nobody.get("/v1/dead-letters/groups")).status == 401
    for client, count in ((api.viewer, 1), (api.staff, 1), (api.owner, 1), (api.stranger, 0)):
        assert len((await client.get("/v1/dead-letters/groups")).json["data"]) == count
