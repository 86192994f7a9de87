"""How lists are dated, filtered and sorted: A-19, A-22 and D-11, through the API."""

from collections.abc import AsyncIterator
from typing import Any
from typing import get_args as choices

import pytest

from redrive.api import queries
from redrive.store import dead_letters, logs, retry_queue
from support.engine import ManualClock
from support.holding import HoldingReceiver
from support.installation import Installation
from support.remote import at

from .conftest import Story

DAY_S = 86_400


async def _walk(redrive: Installation, path: str, **query: str) -> AsyncIterator[dict[str, Any]]:
    """Every row of a list, page by page."""
    cursor: dict[str, str] = {}
    while True:
        page = await redrive.api.get(path, limit="2", **query, **cursor)
        for row in page["data"]:
            yield row
        if not page["pagination"]["has_more"]:
            return
        cursor = {"cursor": page["pagination"]["cursor"]}


async def _listed(redrive: Installation, path: str, **query: str) -> list[dict[str, Any]]:
    return [row async for row in _walk(redrive, path, **query)]


async def test_a19_created_at_is_the_first_failure_and_no_redrive_moves_it(
    redrive: Installation, clock: ManualClock, dead: Story
) -> None:
    began = clock.now()
    first = await dead()
    clock.advance(60)
    second = await dead()
    assert (at(first["created_at"]), first["created_at"]) == (began, first["first_failed_at"])
    assert (at(first["failed_at"]) - began).total_seconds() == 335
    await redrive.api.post(f"/v1/dead-letters/{first['id']}/retry", {"now": True})
    await redrive.work()
    for delay_s in (5, 30, 300):
        clock.advance(delay_s)
        await redrive.work()
    again = await redrive.api.get(f"/v1/dead-letters/{first['id']}")
    assert (again["created_at"], again["state"]) == (first["created_at"], "open")
    assert at(again["failed_at"]) > at(second["failed_at"])
    ids = [letter["id"] for letter in await _listed(redrive, "/v1/dead-letters")]
    assert ids == [second["id"], first["id"]]  # by their first failures, not by their deaths
    assert [letter["id"] for letter in await _listed(redrive, "/v1/dead-letters", sort="-failed_at")] == ids[::-1]


async def test_a19_a_date_as_until_includes_that_day_and_both_ask_for_the_first_failure(
    redrive: Installation, clock: ManualClock, dead: Story
) -> None:
    clock.advance(DAY_S - clock.now().timestamp() % DAY_S - 60)  # it fails before midnight and dies after it
    failed_on = clock.now().date().isoformat()
    letter = await dead()
    died_on = clock.now().date().isoformat()
    assert died_on > failed_on
    for query, is_found in (
        ({"until": failed_on}, True),
        ({"since": failed_on}, True),
        ({"since": failed_on, "until": failed_on}, True),
        ({"since": died_on}, False),
        ({"failed_since": died_on, "failed_until": died_on}, True),
        ({"failed_until": failed_on}, False),
    ):
        found = (await redrive.api.get("/v1/dead-letters", **query))["data"]
        assert [each["id"] for each in found] == [letter["id"]] * is_found, query
    chosen = {"action": "ignore", "filter": {"until": failed_on}}
    assert (await redrive.api.post("/v1/dead-letters/bulk?wait=true", chosen))["succeeded"] == 1


@pytest.mark.parametrize("descends", [False, True])
@pytest.mark.parametrize("column", dead_letters.SORTS)
async def test_a22_dead_letters_are_sorted_by_any_column_page_by_page(
    redrive: Installation, clock: ManualClock, receiver: HoldingReceiver, column: str, descends: bool
) -> None:
    receiver.usual = 404
    for system, event_type in (("b", "x.2"), ("a", "x.3"), ("c", "x.1"), ("a", "x.3"), ("c", "x.2")):
        made = await redrive.api.endpoint(
            receiver.url, name=f"{event_type}{clock.now()}", external_system=system, event_types=[event_type]
        )
        given = {"event_type": event_type, "payload": 1, "endpoint_id": made["id"]}
        await redrive.api.post("/v1/events", given)
        await redrive.work()
        clock.advance(7)
    sort = f"-{column}" if descends else column
    rows = await _listed(redrive, "/v1/dead-letters", sort=sort)
    assert len({row["id"] for row in rows}) == 5
    name = {"error": "error_message"}.get(column, column)
    assert [row[name] for row in rows] == sorted((row[name] for row in rows), reverse=descends)
    filtered = await _listed(redrive, "/v1/dead-letters", sort=sort, external_system="a")
    assert [row["id"] for row in filtered] == [row["id"] for row in rows if row["external_system"] == "a"]


@pytest.mark.parametrize("descends", [False, True])
@pytest.mark.parametrize("column", retry_queue.SORTS)
async def test_a22_the_retry_queue_is_sorted_by_any_column(
    redrive: Installation, clock: ManualClock, receiver: HoldingReceiver, column: str, descends: bool
) -> None:
    receiver.usual = 503
    for number, policy in enumerate(("integration", "manual", "triggers")):
        made = await redrive.api.endpoint(
            receiver.url, name=policy, policy=policy, external_system=f"s{number % 2}", event_types=[f"x.{3 - number}"]
        )
        await redrive.api.event(made["id"])
        await redrive.work()
        clock.advance(5)
        await redrive.work()
    sort = f"-{column}" if descends else column
    rows = await _listed(redrive, "/v1/retry-queue", sort=sort)
    assert len({row["id"] for row in rows}) == 3
    keys = [row[column] or "9999" if column == "next_retry_at" else row[column] for row in rows]
    assert keys == sorted(keys, reverse=descends)


async def test_a22_beyond_so_many_rows_a_list_goes_by_time(
    redrive: Installation, clock: ManualClock, dead: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = []
    for _ in range(3):
        letters.append(await dead())
        clock.advance(1)
    for module in (dead_letters, retry_queue, logs):
        monkeypatch.setattr(module, "MAX_COUNTED", 2)
    newest_first = [letter["id"] for letter in letters[::-1]]
    for sort in ("event_type", "created_at", "-failed_at"):
        assert [row["id"] for row in await _listed(redrive, "/v1/dead-letters", sort=sort)] == newest_first
    assert [row["id"] for row in await _listed(redrive, "/v1/logs", sort="event_type")] == newest_first


def test_a22_the_api_offers_the_columns_that_the_store_sorts_by() -> None:
    for offered, columns in (
        (queries.SortOfQueue, retry_queue.SORTS),
        (queries.SortOfLetters, dead_letters.SORTS),
        (queries.SortOfLogs, logs.SORTS),
    ):
        assert set(choices(offered)) == {f"{sign}{column}" for column in columns for sign in ("", "-")}


async def test_a22_logs_are_listed_filtered_and_sorted(
    redrive: Installation, clock: ManualClock, receiver: HoldingReceiver, dead: Story
) -> None:
    letter = await dead(name="erp", event_types=["invoice.paid"])
    clock.advance(DAY_S)
    receiver.usual = 200
    good = await redrive.api.endpoint(receiver.url, name="crm", external_system="CRM", event_types=["order.*"])
    for number in range(3):
        await redrive.api.post("/v1/events", {"event_type": f"order.{number}", "payload": number})
        clock.advance(1)
    await redrive.work()
    await redrive.api.post(f"/v1/endpoints/{good['id']}/pause")
    waiting = (await redrive.api.post("/v1/events", {"event_type": "order.9", "payload": 9}))["event_id"]
    rows = await _listed(redrive, "/v1/logs")
    types = ["order.9", "order.2", "order.1", "order.0", "invoice.paid"]
    assert [row["event_type"] for row in rows] == types
    assert [row["status"] for row in rows] == ["pending", "success", "success", "success", "error"]
    assert (rows[-1]["log_id"], rows[-1]["attempt_count"]) == (letter["log_id"], 4)
    assert "503" in rows[-1]["error_message"]
    today = clock.now().date().isoformat()
    for query, expected in (
        ({"status": "error"}, types[4:]),
        ({"status": "success"}, types[1:4]),
        ({"event_type": "order.*"}, types[:4]),
        ({"event_type": "order.1"}, ["order.1"]),
        ({"external_system": "CRM"}, types[:4]),
        ({"endpoint_id": good["id"]}, types[:4]),
        ({"event_id": waiting}, ["order.9"]),
        ({"since": today}, types[:4]),
        ({"until": today}, types),
        ({"sort": "event_type"}, sorted(types)),
        ({"sort": "-attempt_count", "status": "error"}, ["invoice.paid"]),
        ({"sort": "created_at"}, types[::-1]),
    ):
        assert [row["event_type"] for row in await _listed(redrive, "/v1/logs", **query)] == expected, query
    other = await redrive.other_org("elsewhere")
    assert (await other.get("/v1/logs"))["data"] == []
    other.close()


async def test_a22_logs_of_one_event_with_many_receivers_are_walked_without_gap_or_double(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    for number in range(5):
        await redrive.api.endpoint(receiver.url, name=f"e{number}", event_types=["order.paid"])
    for _ in range(2):
        await redrive.api.post("/v1/events", {"event_type": "order.paid", "payload": 1})
    rows = await _listed(redrive, "/v1/logs")
    assert len(rows) == len({row["id"] for row in rows}) == 10


async def test_d11_rows_of_dead_letters_name_run_and_step(redrive: Installation, receiver: HoldingReceiver) -> None:
    receiver.usual = 422
    await redrive.api.workflow("fulfil", {"name": "charge", "kind": "http", "url": receiver.url, "body": {}})
    run_id = await redrive.api.run("fulfil")
    await redrive.work()
    (row,) = (await redrive.api.get("/v1/dead-letters", kind="step"))["data"]
    assert (row["run_id"], row["step_index"]) == (run_id, 0)
