"""A breaker slows an endpoint down and never replaces the schedule of what fails there: a dozen, and ten thousand."""

import asyncio
import re
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from redrive.core.breaker import DEFAULT_RULES, BreakerRules
from redrive.settings import Settings
from redrive.store.examinations.queue import QUEUE
from store.examined import made
from support.engine import START, ManualClock, until
from support.holding import HoldingReceiver
from support.installation import Installation
from support.page import read
from support.remote import at

DOZEN = 12
MANY = 10_000
SCHEDULE_S = (0, 5, 35, 335)
WATCHED_S = 3.0


@pytest.fixture(autouse=True)
def no_span(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test's clock leaps, and a breaker goes by the real one: to it all tries come at once."""
    monkeypatch.setattr(Settings, "breaker_rules", lambda _: BreakerRules(min_span_s=0.0))


async def breaker_of(redrive: Installation, endpoint_id: str) -> str:
    state: str = (await redrive.api.get(f"/v1/endpoints/{endpoint_id}/health"))["breaker"]["state"]
    return state


async def test_a17_a_dozen_failing_webhooks_keep_their_schedule_beside_an_open_breaker(
    redrive: Installation, receiver: HoldingReceiver, clock: ManualClock
) -> None:
    endpoint = await redrive.api.endpoint(receiver.url)
    receiver.usual = 503
    events = [await redrive.api.event(endpoint["id"], {"n": n}) for n in range(DOZEN)]

    async def are_tried(times: int) -> bool:
        rows = await redrive.api.deliveries(endpoint["id"])
        return [row["attempts"] for row in rows] == [times] * DOZEN

    async with redrive.working():
        for tries, due_s in enumerate(SCHEDULE_S, start=1):
            clock.advance(due_s - (clock.now() - START).total_seconds())
            await until(partial(are_tried, tries))
            assert len(receiver.requests) == tries * DOZEN
        assert await breaker_of(redrive, endpoint["id"]) == "open"
    letters = (await redrive.api.get("/v1/dead-letters", limit="50"))["data"]
    assert {letter["event_id"] for letter in letters} == set(events)
    assert {at(letter["failed_at"]) for letter in letters} == {START + timedelta(seconds=335)}
    for event_id in events:
        ended = [at(attempt["ended_at"]) for attempt in await redrive.api.attempts(event_id)]
        assert [(moment - START).total_seconds() for moment in ended] == list(SCHEDULE_S)


async def test_a17_ten_thousand_failing_webhooks_are_a_trickle_and_counted_the_same_everywhere(
    redrive: Installation, receiver: HoldingReceiver, clock: ManualClock
) -> None:
    endpoint = await redrive.api.endpoint(receiver.url)
    receiver.usual = 503
    for _ in range(MANY // 1_000):
        await redrive.api.batch(endpoint["id"], 1_000)
    async with redrive.working():
        await until(lambda: _is_open(redrive, endpoint["id"]))
        await asyncio.sleep(1)  # what was under way when it opened ends
        before = len(receiver.requests)
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(WATCHED_S)
        per_s = (len(receiver.requests) - before) / (asyncio.get_running_loop().time() - began)
    print(f"an open breaker let {per_s:.1f} requests per second through, of {MANY} webhooks that fail")
    assert 0 < per_s <= DEFAULT_RULES.trickle_per_s + 1 / WATCHED_S
    clock.advance(3)  # no retry is due yet
    assert MANY / 2 < await held_everywhere(redrive, clock, endpoint["id"]) < MANY
    clock.advance(60)
    assert await held_everywhere(redrive, clock, endpoint["id"]) == MANY


async def held_everywhere(redrive: Installation, clock: ManualClock, endpoint_id: str) -> int:
    """The one number that the stats, the retries, the endpoint's page, the lists and the doctor have."""
    stats = await redrive.api.get("/v1/stats")
    held: int = stats["tasks"]["held"]
    assert held + stats["tasks"]["waiting"] + stats["tasks"]["dead"] == MANY
    retries = await redrive.api.get("/v1/retries")
    assert (retries["org"]["held"], retries["installation"]["held"]) == (held, held)
    page = await read(redrive.api.http, f"/endpoints/{endpoint_id}")
    names, values = page.all("dt"), page.all("dd")
    (shown,) = [value.text for name, value in zip(names, values, strict=True) if name.text == "Held"]
    assert re.sub(r"\D", "", shown) == str(held)
    (seen,) = (await made(redrive.url, QUEUE[3:4], now=clock.now())).values()
    assert f"Breakers not closed: 1 ({held}" in (seen.saw or "")
    entries = await walked(redrive, "/v1/retry-queue")
    untried = [one for one in await walked(redrive, f"/v1/endpoints/{endpoint_id}/deliveries") if not one["attempts"]]
    assert sum(entry["held"] for entry in entries) + len(untried) == held
    assert len(entries) + len(untried) == MANY
    return held


async def walked(redrive: Installation, path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        page = await redrive.api.get(path, limit="250", **cursor)
        found += page["data"]
        if not page["pagination"]["has_more"]:
            return found
        cursor = {"cursor": page["pagination"]["cursor"]}


async def _is_open(redrive: Installation, endpoint_id: str) -> bool:
    return await breaker_of(redrive, endpoint_id) == "open"
