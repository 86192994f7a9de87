"""`store.check` on a database that is at work: one snapshot, so no false alarms."""

import asyncio
import itertools

from redrive.app import open_worker
from redrive.settings import load_settings
from redrive.store.check import check
from redrive.store.dead_letters import DeadLetterFilter, list_dead_letters
from support.receiver import RESET, Step, open_receiver

from .world import ACT, SECRET_KEY, World, endpoints

CHECKS, ROUNDS = 15, 6  # at least, whichever of them is quicker


async def test_work_that_goes_on_meanwhile_raises_no_false_alarm(world: World) -> None:
    done = asyncio.Event()
    all_rounds = 0

    async def work() -> None:
        nonlocal all_rounds
        rounds = 0
        while not done.is_set():
            rounds += 1
            all_rounds += 1
            for _ in range(3):
                await world.accept()
            jobs = await world.claim(10)
            for place, job in enumerate(jobs):
                await (world.succeed, world.fail, world.die)[(place + rounds) % 3](job)
            dead = [job.id for place, job in enumerate(jobs) if (place + rounds) % 3 == 2]
            for task_id in dead[:1]:
                await world.redrive(task_id)
            for task_id in dead[1:2]:
                await world.mark(task_id, "resolve")

    working = [asyncio.create_task(work()) for _ in range(2)]
    checks = 0
    try:
        async with asyncio.timeout(30):
            while checks < CHECKS or all_rounds < ROUNDS:
                report = await check(world.url)
                assert report.violations == []
                assert report.clean
                checks += 1
    finally:
        done.set()
        await asyncio.gather(*working)


async def test_a_worker_at_work_raises_no_false_alarm(world: World) -> None:
    """The real one, on a receiver that accepts, refuses and fails in turn, while people redrive what died."""
    stop = asyncio.Event()
    settings = load_settings(allow_networks="127.0.0.0/8", secret_key=SECRET_KEY)

    async def produce() -> int:
        produced = 0
        while not stop.is_set():
            produced += len([await world.accept() for _ in range(5)])
            async with world.app.tenant(world.org_id) as session:
                page = await list_dead_letters(session, DeadLetterFilter(), limit=3, after=None)
            for row in page.rows:
                await world.redrive(row["id"], at_once=True)
        return produced

    async with open_receiver() as receiver:
        steps: list[Step] = [200, 400, 200, 503, RESET]
        answers = itertools.cycle(steps)
        receiver.usual = lambda _: next(answers)
        async with world.app.tenant(world.org_id) as session:
            await endpoints().update(session, world.endpoint_id, {"url": receiver.url}, ACT)
        async with open_worker(settings, world.engine) as worker:
            working = asyncio.create_task(worker.run(stop))
            producing = asyncio.create_task(produce())
            try:
                await receiver.wait_for(20)
                for _ in range(10):
                    assert (await check(world.url)).violations == []
            finally:
                stop.set()
                produced = await producing
                await working
    report = await check(world.url)
    assert report.clean
    assert report.total.events == produced
    assert report.total.leased == 0
