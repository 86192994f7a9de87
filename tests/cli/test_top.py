"""`redrive top` itself: from one org to the next, and under a database that does not answer."""

import asyncpg
import pytest

from redrive.cli.top import _chosen, _Screen
from redrive.store import db
from redrive.store.db import Database

from .world import World, make_org

MANY = 60


async def test_of_however_many_orgs_each_is_found_by_its_name_and_reached_by_its_key(world: World) -> None:
    names = [f"org {number:02}" for number in range(MANY)]
    for name in names:
        await make_org(world.engine, name)
    last = await _chosen(world.engine, names[-1])
    assert last is not None
    screen, shown = _Screen(world.engine, None, 2.0), []
    for _ in range(MANY + 3):
        screen._turn()
        await screen._look()
        shown.append(screen._org)
    assert shown[MANY] == last
    assert [org and org[1] for org in shown] == ["default", *names, None, "default"]


async def test_why_the_database_does_not_answer_is_told_under_what_was_seen_last(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(db, "COMMAND_TIMEOUT_S", 0.3)
    engine = await Database.open(world.url, role="redrive_engine", size=1)
    blocker = await asyncpg.connect(world.url)
    screen = _Screen(engine, None, 2.0)
    try:
        await screen._try_to_look()
        async with blocker.transaction():
            await blocker.execute("LOCK TABLE redrive.task IN ACCESS EXCLUSIVE MODE")
            await screen._try_to_look()
            assert screen._trouble == "no answer in time (TimeoutError)"
        await screen._try_to_look()
        assert screen._trouble is None
    finally:
        await blocker.close()
        await engine.close()
