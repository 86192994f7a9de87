"""A message that kills its consumer's process each time: it dies alone, and its neighbours succeed."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from redrive.sources.consumer import MAX_LOSSES
from support.broker_load import TESTS
from support.deadly import QUEUE
from support.foreign_service import QUORUM, Taken, assert_queue, publish, take
from support.processes import program, until

pytestmark = pytest.mark.faults

NEIGHBOURS = 59
DEADLY = "30"


@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_e9_a_message_that_kills_its_process_dies_alone(vhost_url: str, tmp_path: Path, kind: str) -> None:
    tries = tmp_path / "tries"
    tries.touch()
    arguments = QUORUM if kind == "quorum" else None
    assert await asyncio.to_thread(assert_queue, vhost_url, QUEUE, arguments) is None
    bodies = [b'{"is_deadly": %s}' % (b"true" if str(n) == DEADLY else b"false") for n in range(NEIGHBOURS + 1)]
    await asyncio.to_thread(publish, vhost_url, QUEUE, bodies)

    def tried() -> Counter[str]:
        return Counter(tries.read_text().split())

    env = {"REDRIVE_RABBITMQ_URL": vhost_url, "TRIES": str(tries)}
    deaths = 0
    while (dead := await dead_letter_of(vhost_url, env, tried)) is None:
        deaths += 1
        assert deaths <= MAX_LOSSES, tried()
    print(f"{kind}: {deaths} deaths, {tried()[DEADLY]} tries of it, at most {max_of_others(tried())} of a neighbour")
    assert (deaths, tried()[DEADLY]) == (MAX_LOSSES, MAX_LOSSES)
    assert max_of_others(tried()) <= 2
    assert dead.properties.message_id == DEADLY
    assert dead.json["error_details"]["error_type"] == "ConsumerLost"
    for queue in (QUEUE, f"{QUEUE}-dlq", f"{QUEUE}-suspects"):
        assert await asyncio.to_thread(take, vhost_url, queue, 1, within_s=0.5) == []


async def dead_letter_of(url: str, env: dict[str, str], tried: Callable[[], Counter[str]]) -> Taken | None:
    """What a consumer, run until nothing is left, gave up; None: it was killed before."""
    async with program("consume", "--app", "support.deadly:app", env=env, cwd=TESTS) as running:
        ended = asyncio.ensure_future(running.process.wait())
        await until(lambda: ended.done() or bool(running.lines("message_dead")), within_s=60)
        if ended.done():
            return None
        (dead,) = await asyncio.to_thread(take, url, f"{QUEUE}-dlq", 1)
        await until(lambda: len(tried()) == NEIGHBOURS + 1)
        await running.terminated()
        await ended
        return dead


def max_of_others(tried: Counter[str]) -> int:
    return max(count for name, count in tried.items() if name != DEADLY)
