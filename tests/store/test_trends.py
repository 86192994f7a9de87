"""When dead letters came: counted over a span of time, and honest where only the newest were counted."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from redrive.core.outcome import Category, Failure
from redrive.store import dead_letters, groups
from redrive.store.dead_letters import DeadLetterFilter
from redrive.store.trends import Trend
from support.engine import START, Engine, ManualClock

HOUR = timedelta(hours=1)
UNTIL = START + 4 * HOUR


async def _deaths(engine: Engine, clock: ManualClock, *after_min: float, message: str = "busy", **fields: Any) -> str:
    """A letter so many minutes after the start, each; the fingerprint that they share."""
    died: list[UUID] = []
    for minutes in after_min:
        clock.advance((START + timedelta(minutes=minutes) - clock.now()).total_seconds())
        await engine.accept(**fields)
        job = await engine.claim_one()
        await engine.kill(job, failure=Failure(Category.SERVER_ERROR, message))
        died.append(job.id)
    letter = await engine.letter(died[0])
    assert letter is not None
    return str(letter["fingerprint"])


async def _trends(engine: Engine, *fingerprints: str, buckets: int = 4, **about: Any) -> dict[str, Trend]:
    async with engine.app.tenant(engine.org_id) as session:
        return await groups.trends(session, fingerprints, since=START, until=UNTIL, buckets=buckets, **about)


async def _arrivals(engine: Engine, buckets: int = 4, until: datetime = UNTIL, **chosen: Any) -> Trend:
    async with engine.app.tenant(engine.org_id) as session:
        return await dead_letters.arrivals(
            session, DeadLetterFilter(**chosen), since=START, until=until, buckets=buckets
        )


async def test_each_group_has_its_letters_where_they_fell(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    busy = await _deaths(engine, clock, -1, 0, 59.999, 60, 239.999, 240)
    clock.advance(-4 * 3600)
    gone = await _deaths(engine, clock, 130, message="gone")
    found = await _trends(engine, gone, busy, "unknown")
    assert list(found) == [gone, busy, "unknown"]
    assert found[busy] == Trend(START, UNTIL, (2, 1, 0, 1))  # neither before the span nor behind it
    assert found[gone].counts == (0, 0, 1, 0)
    assert found["unknown"].counts == (0, 0, 0, 0)
    assert {trend.is_whole for trend in found.values()} == {True}
    assert (await _trends(engine, busy, state="resolved"))[busy].total == 0
    assert (await _trends(engine)) == {}


async def test_of_a_big_group_the_newest_are_counted_and_it_says_since_when(
    engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "FIRST_TREND_COUNT", 2)
    monkeypatch.setattr(groups, "SECOND_TREND_COUNT", 3)
    await engine.endpoint()
    small = await _deaths(engine, clock, 10, message="gone")
    big = await _deaths(engine, clock, 20, 90, 100, 150)
    found = await _trends(engine, small, big)
    assert found[small] == Trend(START, UNTIL, (1, 0, 0, 0))
    assert found[big] == Trend(START, UNTIL, (0, 2, 1, 0), False, START + timedelta(minutes=90))
    monkeypatch.setattr(groups, "SECOND_TREND_COUNT", 5)
    assert (await _trends(engine, small, big))[big].counts == (1, 2, 1, 0)


async def test_arrivals_are_those_that_the_filter_matches(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    await _deaths(engine, clock, 5, 70, 235)
    clock.advance(-4 * 3600)
    await _deaths(engine, clock, 190, event_type="order.placed", message="gone")
    assert await _arrivals(engine) == Trend(START, UNTIL, (1, 1, 0, 2))
    for chosen, counts in (
        ({"event_type": "order.placed"}, (0, 0, 0, 1)),
        ({"event_type": "inv*"}, (1, 1, 0, 1)),
        ({"q": "gone"}, (0, 0, 0, 1)),
        ({"q": "absent"}, (0, 0, 0, 0)),
        ({"state": "resolved"}, (0, 0, 0, 0)),
        ({"since": START + HOUR}, (0, 1, 0, 2)),
        ({"until": START + HOUR}, (1, 0, 0, 0)),
        ({"category": "server_error", "reason": "permanent"}, (1, 1, 0, 2)),
    ):
        found = await _arrivals(engine, **chosen)
        assert (found.counts, found.is_whole, found.known_since) == (counts, True, None), chosen


@pytest.mark.parametrize(("q", "counts"), [("busy", (0, 1, 1, 0)), ("absent", (0, 0, 0, 0))])
async def test_of_too_many_arrivals_the_newest_are_counted_and_it_says_since_when(
    engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, q: str, counts: tuple[int, ...]
) -> None:
    """Also where none of those looked at matches: it is not known what the older ones are."""
    monkeypatch.setattr(dead_letters, "MAX_ARRIVALS", 2)
    await engine.endpoint()
    await _deaths(engine, clock, 5, 70, 130)
    assert await _arrivals(engine, q=q) == Trend(START, UNTIL, counts, False, START + timedelta(minutes=70))


async def test_an_odd_span_loses_no_letter_to_rounding(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    until = START + timedelta(seconds=7, microseconds=1)
    clock.advance(7)
    await engine.accept()
    await engine.kill(await engine.claim_one())
    found = await _arrivals(engine, buckets=3, until=until)
    assert found.counts == (0, 0, 1)
