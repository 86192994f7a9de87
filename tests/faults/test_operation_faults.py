"""A bulk action under a real `redrive serve` that is killed in the middle, or told to stop while people watch."""

import asyncio
import contextlib
import os
import signal
from typing import Any

import pytest

from support.holding import HoldingReceiver
from support.load import volume
from support.oracle import assert_check_passes, assert_sound, counts
from support.processes import ADMIN_KEY, Served, serve, until
from support.remote import Remote, post_alone

pytestmark = pytest.mark.faults

ITEMS = volume(500, 1_000)
PER_S = ITEMS // 2
# The letters are made by failures, more than a breaker would let happen where they take some seconds.
MANY_MAY_FAIL = {"REDRIVE_BREAKER_MIN_TRIES": "100000"}
_DEAD = "SELECT state, count(*) FROM redrive.dead_letter GROUP BY state"


async def _dead_letters(api: Remote, url: str, receiver: HoldingReceiver, count: int) -> tuple[str, list[str]]:
    """The endpoint and the events of that many dead letters; the receiver is well again."""
    await api.policy("once", kind="list", delays_s=[0], max_retries=0)
    endpoint = await api.endpoint(receiver.url, policy="once", timeout_s=1)
    receiver.usual = 503
    ids = [id for _ in range(count // 500) for id in await api.batch(endpoint["id"], 500)]
    async with asyncio.timeout(60):
        while (await counts(url, _DEAD)).get("open") != count:
            await asyncio.sleep(0.05)
    receiver.usual = 200
    endpoint_id: str = endpoint["id"]
    return endpoint_id, ids


async def _watch(api: Remote, operation_id: str, *, until_done: int, within_s: float) -> dict[str, Any]:
    async with asyncio.timeout(within_s):
        while True:
            shape: dict[str, Any] = await api.get(f"/v1/operations/{operation_id}")
            if shape["done"] >= until_done:
                return shape
            await asyncio.sleep(0.02)


async def _kill_all(served: Served) -> None:
    """Every process of it, at once."""
    pids = [await served.child_pid(name) for name in ("api", "worker-1")]
    for pid in (served.program.pid, *pids):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    await served.program.process.wait()


async def test_a_large_operation_goes_on_after_everything_was_killed(
    database_url: str, receiver: HoldingReceiver
) -> None:
    env = {"REDRIVE_DATABASE_URL": database_url, **MANY_MAY_FAIL}
    async with serve(env=env) as served:
        api = Remote(served.host, served.port, ADMIN_KEY)
        endpoint_id, ids = await _dead_letters(api, database_url, receiver, ITEMS)
        chosen = {"action": "retry", "filter": {"endpoint_id": endpoint_id}, "now": True, "rate_per_s": PER_S}
        begun = await api.post("/v1/dead-letters/bulk", chosen)
        assert begun["total"] == ITEMS
        before = await _watch(api, begun["id"], until_done=ITEMS // 5, within_s=20)
        await _kill_all(served)
        api.close()
    assert before["state"] == "running"
    async with serve(env=env) as served:
        api = Remote(served.host, served.port, ADMIN_KEY)
        after = await _watch(api, begun["id"], until_done=ITEMS, within_s=30)
        api.close()
        assert await served.program.terminated() < 10
    assert (after["state"], after["total"], after["done"]) == ("completed", ITEMS, ITEMS)
    # What was being delivered when all died counts as lost, so as failed, and was delivered again.
    assert after["succeeded"] + after["failed"] == ITEMS
    assert after["failed"] < ITEMS // 2
    results = await counts(database_url, "SELECT state, count(*) FROM redrive.operation_item GROUP BY state")
    assert results == {name: after[name] for name in ("succeeded", "failed") if after[name]}
    await assert_sound(database_url, accepted=ids, received=receiver.ids)
    await assert_check_passes(REDRIVE_DATABASE_URL=database_url)


async def test_told_to_stop_it_ends_in_time_with_open_streams_and_people_who_wait(
    database_url: str, receiver: HoldingReceiver
) -> None:
    async with serve(env={"REDRIVE_DATABASE_URL": database_url, **MANY_MAY_FAIL}) as served:
        api = Remote(served.host, served.port, ADMIN_KEY)
        endpoint_id, _ = await _dead_letters(api, database_url, receiver, 500)
        receiver.hold()
        chosen = {"action": "retry", "filter": {"endpoint_id": endpoint_id}, "now": True, "rate_per_s": 1}
        path = "/v1/dead-letters/bulk?wait=true"
        waiting = asyncio.create_task(post_alone(served.host, served.port, ADMIN_KEY, path, chosen))
        async with asyncio.timeout(10):
            while not (listed := (await api.get("/v1/operations"))["data"]):
                await asyncio.sleep(0.02)
        reader, writer = await asyncio.open_connection(served.host, served.port)
        head = f"GET /v1/operations/{listed[0]['id']}/stream HTTP/1.1\r\nhost: t\r\nx-api-key: {ADMIN_KEY}\r\n\r\n"
        writer.write(head.encode())
        said = await reader.readuntil(b"event: progress")
        api.close()
        receiver.release()
        took_s = await served.program.terminated()
        rest = await asyncio.wait_for(reader.read(), 5)
        answer = await waiting
        writer.close()
    assert said.startswith(b"HTTP/1.1 200")
    assert rest.endswith(b"0\r\n\r\n")  # a whole answer: the stream was ended, not cut
    assert b"event: end" not in rest
    assert answer.status == 200
    assert answer.json["pending"] > 0
    assert took_s < 6
    await until(lambda: receiver.in_flight == 0)
    await assert_check_passes(REDRIVE_DATABASE_URL=database_url)
