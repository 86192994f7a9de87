"""Runs in corners where two things meet: a cancelled run and what waits behind, a result that comes twice."""

from redrive.store.check import check
from support.engine import Engine
from support.flows import Flow


async def assert_in_order(engine: Engine) -> None:
    report = await check(engine.url, now=engine.clock.now(), grace_s=1e9)
    assert [(one.rule.name, one.offences) for one in report.violations] == []


async def test_steps_behind_the_one_that_is_replayed_are_pending_though_they_had_died(engine: Engine) -> None:
    flow = await Flow.begun(engine, steps=3)
    await flow.succeed()
    await flow.die()
    assert await flow.statuses() == ("DLQ_PENDING", ["SUCCESS", "DLQ", "PENDING"])
    await flow.replay(0)
    assert await flow.statuses() == ("RUNNING", ["PENDING", "PENDING", "PENDING"])
    await flow.die()
    assert await flow.statuses() == ("DLQ_PENDING", ["DLQ", "DLQ", "PENDING"])
    await assert_in_order(engine)
