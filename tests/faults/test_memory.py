"""Memory does not grow with what waits, nor with what passed through."""

from contextlib import AsyncExitStack

import pytest

from support.holding import open_holding
from support.installation import installation
from support.oracle import all_succeed, assert_sound
from support.processes import ADMIN_KEY, memory_mb, serve, until, worker
from support.remote import Remote

pytestmark = pytest.mark.faults

WORKER_MB = 150
API_MB = 150
API_GROWTH_MB = 15


async def test_a_worker_with_500_deliveries_in_flight_stays_small(database_url: str) -> None:
    async with AsyncExitStack() as stack, installation(database_url) as redrive:
        # Many endpoints at three places: none may take all the room, nor one place all connections, nor the org.
        receivers = [await stack.enter_async_context(open_holding()) for _ in range(3)]
        running = await stack.enter_async_context(worker(database_url, "--concurrency", "625", anew=True))
        accepted: list[str] = []
        for receiver in receivers:
            receiver.hold()
        for n in range(60):
            endpoint = await redrive.api.endpoint(receivers[n % 3].url)
            accepted += await redrive.api.batch(endpoint["id"], 10, {"text": "x" * 500})
        await until(
            lambda: sum(receiver.held for receiver in receivers) == 500,
            why=lambda: [receiver.held for receiver in receivers],
        )
        assert memory_mb(running.pid) < WORKER_MB
        for receiver in receivers:
            receiver.release()
        await all_succeed(database_url)
        assert memory_mb(running.pid) < WORKER_MB
        received = [id for receiver in receivers for id in receiver.ids]
    assert sorted(received) == sorted(accepted)
    await assert_sound(database_url, accepted=accepted, received=received)


async def test_an_api_process_does_not_grow_with_what_it_accepts(database_url: str) -> None:
    async with serve("--no-worker", env={"REDRIVE_DATABASE_URL": database_url}, anew=True) as served:
        remote = Remote(served.host, served.port, ADMIN_KEY)
        batch = [{"event_type": "nobody.listens", "payload": {"text": "x" * 500}} for _ in range(1_000)]
        measured_mb = []
        for count in range(1, 21):
            assert (await remote.post("/v1/events/batch", batch))["accepted"] == 1_000
            if count in (5, 20):
                measured_mb.append(memory_mb(await served.child_pid("api")))
        remote.close()
    assert measured_mb[1] - measured_mb[0] < API_GROWTH_MB
    assert measured_mb[1] < API_MB
    await assert_sound(database_url)
