"""Who is at work: heard of while they beat, silent when they do not, forgotten after a day."""

from datetime import timedelta

import asyncpg
import pytest

from redrive.core.alerts import RULES
from redrive.core.ports import WorkerCard
from redrive.store.audit import Act
from redrive.store.db import Database
from redrive.store.orgs import new_id
from redrive.store.retention import Retention
from redrive.store.workers import SILENT_AFTER_S, Workers, last_seen, list_workers
from support.engine import START, Engine, ManualClock


def card(host: str = "here") -> WorkerCard:
    return WorkerCard(new_id(), host, 4711, "1.2.3", ("handler:a", "http"), 500)


async def test_a_worker_is_known_from_its_first_beat_and_heard_of_by_its_last(
    engine: Engine, clock: ManualClock
) -> None:
    workers, mine = Workers(engine.db, clock), card()
    await workers.beat(mine)
    clock.advance(15)
    await workers.beat(mine)
    clock.advance(5)
    (seen,) = await list_workers(engine.db, clock)
    assert (seen.id, seen.host, seen.pid, seen.version, seen.queues, seen.concurrency) == mine
    assert (seen.started_at, seen.seen_at) == (START, START + timedelta(seconds=15))
    assert seen.silent_s == 5


async def test_the_one_heard_of_last_comes_first(engine: Engine, clock: ManualClock) -> None:
    workers = Workers(engine.db, clock)
    assert await last_seen(engine.db, clock) is None
    for host in ("old", "new"):
        await workers.beat(card(host))
        clock.advance(15)
    assert [seen.host for seen in await list_workers(engine.db, clock)] == ["new", "old"]
    newest = await last_seen(engine.db, clock)
    assert newest is not None
    assert newest.host == "new"


async def test_a_worker_that_was_killed_is_silent_as_soon_as_alerts_miss_it(engine: Engine, clock: ManualClock) -> None:
    await Workers(engine.db, clock).beat(card())
    assert [parameter.default for parameter in RULES["no_worker"].parameters] == [SILENT_AFTER_S]
    clock.advance(SILENT_AFTER_S - 1)
    assert [seen.is_silent for seen in await list_workers(engine.db, clock)] == [False]
    clock.advance(1)
    assert [seen.is_silent for seen in await list_workers(engine.db, clock)] == [True]


async def test_a_worker_that_leaves_is_gone_and_the_others_stay(engine: Engine, clock: ManualClock) -> None:
    workers, one, other = Workers(engine.db, clock), card("one"), card("other")
    await workers.beat(one)
    await workers.beat(other)
    await workers.leave(one.worker_id)
    assert [seen.host for seen in await list_workers(engine.db, clock)] == ["other"]


@pytest.mark.parametrize(("dry_run", "left"), [(False, ["new"]), (True, ["new", "old"])])
async def test_the_janitor_forgets_those_that_were_silent_for_a_day(
    engine: Engine, clock: ManualClock, dry_run: bool, left: list[str]
) -> None:
    workers = Workers(engine.db, clock)
    await workers.beat(card("old"))
    clock.advance(2)
    await workers.beat(card("new"))
    clock.advance(86_400 - 1)
    db = await Database.open(engine.url, role="redrive_janitor", size=1)
    await Retention(db, clock, Act("engine"), dry_run=dry_run).forget_workers()
    await db.close()
    assert [seen.host for seen in await list_workers(engine.db, clock)] == left


async def test_the_app_reads_who_is_at_work_and_changes_nothing(engine: Engine, clock: ManualClock) -> None:
    await Workers(engine.db, clock).beat(card())
    async with engine.app.tenant(engine.org_id) as session:
        assert len(await list_workers(session, clock)) == 1
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await Workers(engine.app, clock).beat(card())
