"""What happens is tallied as it is written and rolled up afterwards: nothing twice, nothing missed, at any moment."""

from redrive.core.decide import Reason
from redrive.store.rollups import Death, Roller, totals
from support.engine import UNAVAILABLE, Engine, ManualClock


async def test_totals_are_the_same_before_and_after_they_are_rolled(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint("a")
    await engine.accept_many(5)
    jobs = await engine.claim()
    await engine.succeed(jobs[0])
    await engine.fail(jobs[1], delay_s=0)
    await engine.kill(jobs[2])
    await engine.redrive(jobs[2].id, at_once=True)
    assert await engine.skip(jobs[3].id) is not None  # somebody has it in hand
    for job in await engine.claim():
        await engine.kill(job, Reason.EXHAUSTED, UNAVAILABLE)
    before = await totals(engine.db)
    assert before.created == 5
    assert (before.delivered, before.failed, before.redriven) == (1, 3, 1)
    assert (before.attempts, before.retries) == (5, 2)
    assert before.deaths == {Death("exhausted", "server_error"): 2, Death("permanent", "client_error"): 1}
    assert before.ended_after[:3] == (2, 2, 0)
    assert before.retried == 2
    assert sum(before.waits) == 1
    roller = Roller(engine.db, clock)
    assert await roller.roll(3) == 3
    assert await totals(engine.db) == before
    assert await roller.roll() > 0
    assert await roller.roll() == 0
    assert await totals(engine.db) == before
    assert await engine.sql.fetchval("SELECT count(*) FROM redrive.tally") == 0
