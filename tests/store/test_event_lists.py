"""Events by where they stand: the status is worked out from the tasks, so lists and totals are too."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from redrive.store.events import list_events
from redrive.store.paging import Page
from support.engine import Engine, ManualClock

FAN_OUT = ("a", "b")


async def listed(engine: Engine, status: str | None, limit: int = 50, after: Any = None, **chosen: Any) -> Page:
    filters = {"event_type": None, **chosen}
    async with engine.app.tenant(engine.org_id) as session:
        return await list_events(session, status=status, limit=limit, after=after, **filters)


async def all_of(engine: Engine, status: str | None) -> list[UUID]:
    """Every event of a status, one to a page."""
    seen: list[UUID] = []
    after = None
    while True:
        page = await listed(engine, status, limit=1, after=after)
        seen += [row["id"] for row in page.rows]
        after = page.next_key
        if after is None:
            assert page.total == len(seen)
            return seen


async def an_event(engine: Engine, clock: ManualClock, *ends: str) -> UUID:
    """An event for two endpoints whose tasks end so; for nobody where no end is given."""
    clock.advance(1)
    event_id = await engine.accept("paid" if ends else "unheard-of")
    for job, end in zip(await engine.claim(), ends, strict=True):
        match end:
            case "succeeded":
                await engine.succeed(job)
            case "dead":
                await engine.kill(job)
            case _:
                await engine.fail(job, delay_s=1e6)
    return event_id


@pytest.fixture
async def stand(engine: Engine, clock: ManualClock) -> dict[str | None, list[UUID]]:
    for name in FAN_OUT:
        await engine.endpoint(name, event_types=("paid",))
    made = [
        ("delivered", await an_event(engine, clock, "succeeded", "succeeded")),
        ("queued", await an_event(engine, clock, "dead", "waiting")),
        ("failed", await an_event(engine, clock, "dead", "dead")),
        ("received", await an_event(engine, clock)),
        ("failed", await an_event(engine, clock, "succeeded", "dead")),
        ("queued", await an_event(engine, clock, "waiting", "waiting")),
        ("delivered", await an_event(engine, clock, "succeeded", "succeeded")),
    ]
    found: dict[str | None, list[UUID]] = {None: [event_id for _, event_id in reversed(made)]}
    for status, event_id in reversed(made):
        found.setdefault(status, []).append(event_id)
    return found


async def test_each_event_is_listed_once_under_its_status_newest_first(
    engine: Engine, stand: dict[str | None, list[UUID]]
) -> None:
    for status, expected in stand.items():
        assert await all_of(engine, status) == expected, status


async def test_rows_say_the_status_they_were_asked_for(engine: Engine, stand: dict[str | None, list[UUID]]) -> None:
    for status in stand:
        if status is not None:
            rows = (await listed(engine, status)).rows
            assert {row["status"] for row in rows} == {status}
            assert all((row["delivered_at"] is not None) == (status == "delivered") for row in rows)
            assert all((row["failed_at"] is not None) == (status == "failed") for row in rows)


async def test_a_type_is_filtered_and_not_counted(engine: Engine, stand: dict[str | None, list[UUID]]) -> None:
    for status in ("queued", "failed", "delivered"):
        page = await listed(engine, status, event_type="paid")
        assert ([row["id"] for row in page.rows], page.total) == (stand[status], None)
        assert (await listed(engine, status, event_type="unpaid")).rows == []


async def test_no_list_shows_another_org_s_events(engine: Engine, stand: dict[str | None, list[UUID]]) -> None:
    engine.org_id = await engine.org("other")
    for status in stand:
        page = await listed(engine, status)
        assert (page.rows, page.total) == ([], 0), status


async def test_a_total_is_of_one_moment(live: Engine) -> None:
    """While events are accepted, fail and succeed, no count is negative and none is larger than what was accepted."""
    for name in FAN_OUT:
        await live.endpoint(name, event_types=("paid",))
    accepted = 0
    settling: list[asyncio.Task[object]] = []
    for _ in range(10):
        await live.accept_many(20, event_type="paid")
        accepted += 20
        settling += [asyncio.create_task(end(job)) for job in await live.claim() for end in (live.kill,)]
        totals = [(await listed(live, status, limit=1)).total for status in ("queued", "failed", "delivered")]
        assert all(total is not None and 0 <= total <= accepted for total in totals)
    await asyncio.gather(*settling)
    assert (await listed(live, "delivered")).total == 0
