"""Deliveries through pauses and rotated secrets, with a worker that does as in production."""

import asyncio

import pytest

from redrive.core import sign
from redrive.engine.releaser import Releaser
from redrive.store.endpoints import Endpoints, EndpointSpec
from redrive.store.pausing import PauseScope
from redrive.store.tasks import Tasks
from support.engine import PERSON, Engine, ManualClock
from support.receiver import Received, open_receiver

OVERLAP_S = 3_600.0


@pytest.mark.parametrize("scope", PauseScope, ids=str)
async def test_a_retry_that_falls_due_in_a_pause_is_made_after_it_and_no_try_is_spent(
    engine: Engine, clock: ManualClock, scope: PauseScope
) -> None:
    async with open_receiver() as receiver:
        receiver.script(503, 200)
        endpoint_id = await engine.endpoint(url=receiver.url)
        event_id = await engine.accept()
        await engine.run_until_idle()
        await engine.pause(scope, endpoint_id)
        clock.advance(3_600)
        await engine.run_until_idle()
        assert len(receiver.requests) == 1
        await engine.resume(scope, endpoint_id)
        await engine.run_until_idle()
        assert [request.headers["redrive-attempt"] for request in receiver.requests] == ["1", "2"]
    task = await engine.task_of(event_id)
    assert (task["state"], task["attempts"]) == ("succeeded", 2)


async def test_a_running_worker_stops_with_a_pause_and_goes_on_with_its_end(live: Engine) -> None:
    async with open_receiver() as receiver:
        await live.endpoint(url=receiver.url)
        async with live.worker() as worker, live.running(worker):
            await live.accept()
            await receiver.wait_for(1)
            await live.pause(PauseScope.ORG)
            await live.accept_many(10)
            await live.until("SELECT count(*) = 10 FROM redrive.task WHERE state = 'held'")
            assert len(receiver.requests) == 1
            await live.resume(PauseScope.ORG)
            await receiver.wait_for(11)
            await live.until("SELECT count(*) = 11 FROM redrive.task WHERE state = 'succeeded'")


async def test_a_worker_goes_on_releasing_after_the_database_was_away(live: Engine) -> None:
    """The first look fails; a later one finds what nobody else has released."""
    await live.endpoint()
    event_id = await live.accept()
    await live.sql.execute("UPDATE redrive.task SET state = 'held'")
    store = FailsFirst(live.db, live.clock)
    releasing = asyncio.create_task(Releaser(store, every_s=0.01).run())
    try:
        await live.until("SELECT state = 'waiting' FROM redrive.task WHERE event_id = $1", event_id)
    finally:
        releasing.cancel()
    assert store.looks > 1


class FailsFirst(Tasks):
    looks = 0

    async def release_held(self, limit: int) -> int:
        self.looks += 1
        if self.looks == 1:
            raise ConnectionError("away")
        return await super().release_held(limit)


async def test_the_secret_before_signs_until_its_overlap_ends_by_the_database_s_clock(
    engine: Engine, clock: ManualClock
) -> None:
    async with open_receiver() as receiver:
        async with engine.app.tenant(engine.org_id) as session:
            spec = EndpointSpec("hook", receiver.url)
            row, old = await Endpoints(engine.sealer).create(session, spec, PERSON)
            rotated = await Endpoints(engine.sealer).rotate_secret(session, row["id"], OVERLAP_S, PERSON, clock)
        assert rotated is not None
        for passed_s, signs in ((OVERLAP_S - 0.5, [True, True]), (0.5, [False, True])):
            clock.advance(passed_s)
            await engine.accept()
            await engine.run_until_idle()
            assert [_signed_by(secret, receiver.requests[-1]) for secret in (old, rotated[1])] == signs


def _signed_by(secret: str, request: Received) -> bool:
    headers = request.headers
    sent_at = int(headers["webhook-timestamp"])
    key = sign.decode_secret(secret)
    return sign.verify([key], headers["webhook-id"], sent_at, request.body, headers["webhook-signature"], now=sent_at)
