"""What a filter can be set to is told from what is there, without reading all of it."""

from typing import Any

import pytest

from redrive.store import choices
from redrive.store.choices import Choices, event_types
from redrive.store.operations import DEAD_LETTERS, RETRY_QUEUE
from support.engine import Engine

TYPES = ("invoice.paid", "invoice.sent", "Invoice.paid", "in%oice", "order.placed", "order.placed")


async def _failed(engine: Engine, subject: str) -> None:
    """One task for each of TYPES."""
    for event_type in TYPES:
        await engine.accept(event_type)
    for job in await engine.claim():
        await (engine.kill(job) if subject == DEAD_LETTERS else engine.fail(job))


async def _asked(engine: Engine, subject: str, **about: Any) -> Choices:
    async with engine.app.tenant(engine.org_id) as session:
        return await event_types(session, subject, **about)


@pytest.mark.parametrize("subject", [DEAD_LETTERS, RETRY_QUEUE])
async def test_each_value_that_begins_so_is_offered_once(engine: Engine, subject: str) -> None:
    await engine.endpoint()
    assert await _asked(engine, subject) == Choices([], True)
    await _failed(engine, subject)
    for prefix, expected in (
        ("", set(TYPES)),
        ("invoice.", {"invoice.paid", "invoice.sent"}),
        ("in%", {"in%oice"}),
        ("order.placed", {"order.placed"}),
        ("order.placed.", set()),
        ("z", set()),
    ):
        found = await _asked(engine, subject, prefix=prefix)
        assert (sorted(found.values), found.is_whole) == (sorted(expected), True), prefix


@pytest.mark.parametrize("subject", [DEAD_LETTERS, RETRY_QUEUE])
async def test_no_more_are_offered_than_asked_for(engine: Engine, subject: str) -> None:
    await engine.endpoint()
    await _failed(engine, subject)
    everything = await _asked(engine, subject)
    assert await _asked(engine, subject, limit=5) == Choices(everything.values, True)
    assert await _asked(engine, subject, limit=2) == Choices(everything.values[:2], False)


async def test_closed_letters_offer_nothing_unless_asked(engine: Engine) -> None:
    await engine.endpoint()
    await engine.accept("invoice.paid")
    job = await engine.claim_one()
    await engine.kill(job)
    await engine.mark_letter(job.id, "resolved")
    assert await _asked(engine, DEAD_LETTERS) == Choices([], True)
    assert await _asked(engine, DEAD_LETTERS, state="resolved") == Choices(["invoice.paid"], True)


@pytest.mark.parametrize("subject", [DEAD_LETTERS, RETRY_QUEUE])
async def test_where_not_all_were_looked_at_it_says_so(
    engine: Engine, subject: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await engine.endpoint()
    await _failed(engine, subject)
    monkeypatch.setattr(choices, "MAX_STEPS", 3)
    monkeypatch.setattr(choices, "MAX_ENTRIES", 3)
    found = await _asked(engine, subject)
    assert (len(found.values), found.is_whole) == (3, False)


async def test_choices_are_those_of_the_own_org(engine: Engine) -> None:
    await engine.endpoint()
    await _failed(engine, DEAD_LETTERS)
    async with engine.app.tenant(await engine.org("other")) as session:
        assert (await event_types(session, DEAD_LETTERS)).values == []
        assert (await event_types(session, RETRY_QUEUE)).values == []
