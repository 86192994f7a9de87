"""RabbitMQ, its consumers, the collector and PostgreSQL killed in turn under load: each message has one end.

`BROKER_MESSAGES=10000 make test ARGS="-s tests/faults/test_broker_faults.py"` takes more of them and kills more often.
"""

import os
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import asyncpg
import pytest

from redrive.store.embedded import running_url
from support.broker_load import Order, Producers, Span, Tries, orders, producing
from support.obedient import QUEUE
from support.oracle import assert_check_passes, assert_sound
from support.processes import Program, Served, altered, program, serve, until
from support.rabbitmq import RabbitServer

pytestmark = pytest.mark.faults

MESSAGES = int(os.environ.get("BROKER_MESSAGES", "1500"))
MESSAGES_OF_A_ROUND = 1_500
FEW = 300
SEED = 7
DEAD_QUEUE = f"{QUEUE}-dlq"
END_WITHIN_S = 60.0
TESTS = Path(__file__).parents[1]

_LETTERS = """
SELECT b.message_id, d.reason, d.category, d.state, e.body
  FROM redrive.broker_message b
  JOIN redrive.dead_letter d USING (org_id, task_id)
  JOIN redrive.event e ON e.org_id = d.org_id AND e.id = d.event_id
"""


class Letter(NamedTuple):
    message_id: str
    reason: str
    category: str
    state: str
    body: bytes


@asynccontextmanager
async def consumer(urls: Sequence[str], tries: Path, build: Mapping[str, str]) -> AsyncIterator[Program]:
    """`redrive consume`, at work."""
    env = {"REDRIVE_RABBITMQ_URL": ",".join(urls), "TRIES": str(tries), **build}
    async with program("consume", "--app", "support.obedient:app", env=env, cwd=TESTS) as running:
        await running.said("consumer_started", within_s=60)
        yield running


@dataclass(slots=True)
class Stage:
    """A broker, a consumer of its queue, and an installation that collects what died. All of them can be killed."""

    rabbitmq: RabbitServer
    vhost: str
    served: Served
    tries: Tries
    build: Mapping[str, str]
    stack: AsyncExitStack
    consumer: Program
    kills: list[Span] = field(default_factory=list)  # of consumers and brokers: from the kill to being at work again

    @property
    def url(self) -> str:
        return self.rabbitmq.url_of(self.vhost)

    @property
    def database_url(self) -> str:
        assert self.served.data_dir is not None
        url = running_url(self.served.data_dir)
        assert url is not None
        return url

    async def kill_consumer(self) -> None:
        began = time.monotonic()
        await self.consumer.kill()
        self.consumer = await self.stack.enter_async_context(consumer([self.url], self.tries.file, self.build))
        self.kills.append((began, time.monotonic()))

    async def kill_broker(self) -> None:
        began, starts = time.monotonic(), len(self.consumer.lines("consumer_started"))
        await self.rabbitmq.kill()
        await self.rabbitmq.restart()
        await until(lambda: len(self.consumer.lines("consumer_started")) > starts, why=lambda: self.consumer.log[-5:])
        self.kills.append((began, time.monotonic()))

    async def kill_database(self) -> None:
        deaths = len(self.served.program.lines("postgres_died"))
        os.kill(self.served.postmaster_pid, signal.SIGKILL)
        await until(lambda: len(self.served.program.lines("postgres_died")) > deaths)

    async def kill_collector(self) -> None:
        log = self.served.program
        # Where PostgreSQL was killed just before, it may be about to be started again.
        await until(lambda: len(log.lines("child_started")) > len(log.lines("child_died")) + 1)
        pid, deaths = await self.served.child_pid("worker-1"), len(log.lines("child_died"))
        os.kill(pid, signal.SIGKILL)
        await until(lambda: len(log.lines("child_died")) > deaths)

    async def letters(self) -> list[Letter]:
        connection = await asyncpg.connect(self.database_url, server_settings={"role": "redrive_engine"})
        try:
            return [Letter(*row) for row in await connection.fetch(_LETTERS)]
        finally:
            await connection.close()


async def settled(rabbitmq: RabbitServer, vhost: str, *, but: str | None = None) -> None:
    """Wait until no queue, but one, has a message any more: what has not ended by then never will."""
    left: dict[str, int] = {}
    empty, deadline = 0, time.monotonic() + END_WITHIN_S
    while empty < 2:  # a message may be missed that goes from one queue to another, but not twice
        assert time.monotonic() < deadline, f"not within {END_WITHIN_S} s: {left}"
        left = await rabbitmq.totals(vhost)
        assert left.keys() >= {QUEUE, DEAD_QUEUE}
        empty = 0 if any(total for queue, total in left.items() if queue != but) else empty + 1


@asynccontextmanager
async def stage(
    rabbitmq: RabbitServer, folder: Path, tries: Path, build: Mapping[str, str] = MappingProxyType({})
) -> AsyncIterator[Stage]:
    vhost = await rabbitmq.make_vhost()
    url = rabbitmq.url_of(vhost)
    collecting = {"REDRIVE_RABBITMQ_URL": url, "REDRIVE_RABBITMQ_COLLECT": DEAD_QUEUE, **build}
    async with AsyncExitStack() as stack:
        stack.push_async_callback(rabbitmq.delete_vhost, vhost)
        consuming = await stack.enter_async_context(consumer([url], tries, build))
        served = await stack.enter_async_context(serve("--workers", "1", data_dir=folder, env=collecting))
        yield Stage(rabbitmq, vhost, served, Tries(tries), build, stack, consuming)


async def run_with_kills(
    on: Stage, made: Sequence[Order], kills: Sequence[Callable[[], Awaitable[None]]]
) -> tuple[Producers, list[Letter]]:
    """Publish them, and kill once in each part of them. What is said of all this when nothing is left in the broker."""
    async with producing([on.url], made) as producers:
        for kill in kills:
            await producers.go_on(len(made) // len(kills))
            await kill()
    await settled(on.rabbitmq, on.vhost)
    ids = {order.id for order in made}
    return producers, [letter for letter in await on.letters() if letter.message_id in ids]


def lost(made: Sequence[Order], tries: Tries, died: Iterable[str]) -> list[str]:
    ended = tries.succeeded() | set(died)
    return [order.id for order in made if order.id not in ended]


async def test_each_message_has_one_end_whoever_is_killed(
    rabbitmq: RabbitServer, durable_dir: Path, tmp_path: Path
) -> None:
    made, began = orders("a", MESSAGES, random.Random(SEED)), time.monotonic()
    async with stage(rabbitmq, durable_dir, tmp_path / "tries") as on:
        rounds = max(MESSAGES // MESSAGES_OF_A_ROUND, 1)
        round = [on.kill_consumer, on.kill_database, on.kill_broker, on.kill_collector, on.kill_consumer]
        producers, letters = await run_with_kills(on, made, round * rounds)
        died = {letter.message_id: letter for letter in letters}
        assert lost(made, on.tries, died) == []
        assert on.tries.succeeded() == {order.id for order in made if order.death is None}
        assert len(died) == len(letters)
        for order in made:
            if order.death is not None:
                assert died.pop(order.id) == Letter(order.id, *order.death, "open", order.body)
            assert {one.attempt for one in on.tries.by_id.get(order.id, [])} == set(range(1, order.tries + 1)), order
        assert died == {}
        assert on.tries.unexplained(on.kills, producers.doubtful) == {}
        twice = sum(effects > 1 for effects in on.tries.effects().values())
        print(
            f"{len(made)} messages, {on.tries.count()} tries, {len(letters)} dead letters, {len(round) * rounds} kills,"
            f" {twice} effects twice, {len(producers.doubtful)} published in doubt, {time.monotonic() - began:.0f} s"
        )
        await assert_sound(on.database_url)
        await assert_check_passes(REDRIVE_DATA_DIR=str(durable_dir))
        assert await on.consumer.terminated() < 10
        assert await on.served.program.terminated() < 10


async def test_a_build_that_acknowledges_before_the_copy_is_confirmed_is_caught(
    rabbitmq: RabbitServer, durable_dir: Path, tmp_path: Path
) -> None:
    made = orders("b", FEW, random.Random(SEED))
    async with stage(rabbitmq, durable_dir, tmp_path / "tries", altered("early_acknowledgement")) as on:
        _, letters = await run_with_kills(on, made, [on.kill_consumer])
        assert len(lost(made, on.tries, (letter.message_id for letter in letters))) > 0


async def test_a_build_that_collects_before_the_commit_is_caught(
    rabbitmq: RabbitServer, durable_dir: Path, tmp_path: Path
) -> None:
    made = orders("c", FEW, random.Random(SEED))
    async with stage(rabbitmq, durable_dir, tmp_path / "tries", altered("early_collection")) as on:
        _, letters = await run_with_kills(on, made, [on.kill_collector])
        assert len(lost(made, on.tries, (letter.message_id for letter in letters))) > 0
