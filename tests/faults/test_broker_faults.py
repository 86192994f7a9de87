"""RabbitMQ, its consumers, the collector and PostgreSQL killed in turn under load: each message has one end.

`BROKER_MESSAGES=10000 .venv/bin/pytest -s tests/faults/test_broker_faults.py` takes more of them, kills more often, and
says what it saw.
"""

import os
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import asyncpg
import pytest

from redrive.store.embedded import running_url
from support.broker_load import (
    DEAD_QUEUE,
    Order,
    Producers,
    Span,
    Tries,
    consumer,
    lost,
    orders,
    producing,
    settled,
)
from support.oracle import assert_check_passes, assert_sound
from support.processes import Program, Served, altered, serve, until
from support.rabbitmq import RabbitServer

pytestmark = pytest.mark.faults

MESSAGES = int(os.environ.get("BROKER_MESSAGES", "400"))
MESSAGES_OF_A_ROUND = 1_000
FEW = 300
SEED = 7

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


@dataclass(slots=True)
class Stage:
    """A broker, a consumer of its queue, and an installation that collects what died. All of them can be killed."""

    rabbitmq: RabbitServer
    vhost: str
    served: Served
    tries: Tries
    build: Mapping[str, str]
    queue_type: str
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
        again = consumer([self.url], self.tries.file, self.build, "--queue-type", self.queue_type)
        self.consumer = await self.stack.enter_async_context(again)
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


@asynccontextmanager
async def stage(
    rabbitmq: RabbitServer,
    folder: Path,
    tries: Path,
    build: Mapping[str, str] = MappingProxyType({}),
    queue_type: str = "quorum",
) -> AsyncIterator[Stage]:
    vhost = await rabbitmq.make_vhost()
    url = rabbitmq.url_of(vhost)
    collecting = {"REDRIVE_RABBITMQ_URL": url, "REDRIVE_RABBITMQ_COLLECT": DEAD_QUEUE, **build}
    async with AsyncExitStack() as stack:
        stack.push_async_callback(rabbitmq.delete_vhost, vhost)
        consuming = await stack.enter_async_context(consumer([url], tries, build, "--queue-type", queue_type))
        served = await stack.enter_async_context(serve("--workers", "1", data_dir=folder, env=collecting))
        yield Stage(rabbitmq, vhost, served, Tries(tries), build, queue_type, stack, consuming)


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


@pytest.mark.parametrize("queue_type", ["quorum", "classic"])
async def test_each_message_has_one_end_whoever_is_killed(
    rabbitmq: RabbitServer, durable_dir: Path, tmp_path: Path, queue_type: str
) -> None:
    made, began = orders("a", MESSAGES, random.Random(SEED)), time.monotonic()
    async with stage(rabbitmq, durable_dir, tmp_path / "tries", queue_type=queue_type) as on:
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
        if queue_type == "quorum":  # a classic queue that is killed may forget what was acknowledged long before
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
