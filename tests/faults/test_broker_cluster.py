"""A node of a RabbitMQ cluster killed under load: the others go on, and nothing is lost."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from redrive.broker import topology
from redrive.broker.publisher import Outgoing, Publisher, Unconfirmed
from redrive.broker.wire import Properties
from redrive.core.delay_queues import DelayQueue
from support.broker import connected
from support.broker_load import DEAD_QUEUE, Tries, consumer, lost, orders, producing, settled
from support.obedient import QUEUE
from support.processes import until
from support.rabbitmq import RabbitCluster, is_running, linked

pytestmark = pytest.mark.faults

MESSAGES = 300
SEED = 7


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def started(durable_dir: Path) -> AsyncIterator[RabbitCluster]:
    cluster = await RabbitCluster.start(durable_dir / "cluster")
    running = cluster.processes()
    yield cluster
    running |= cluster.processes()
    await cluster.stop()
    assert [pid for pid in running if is_running(pid)] == [], "some of its processes were left"


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(started: RabbitCluster) -> RabbitCluster:
    """With all its nodes: a test may leave one that it killed to whoever comes next, if anybody does."""
    for number, node in enumerate(started.nodes):
        if not node.is_running:
            await started.restart(number)
    return started


async def test_nothing_is_lost_when_the_node_that_leads_the_queue_is_killed(
    cluster: RabbitCluster, tmp_path: Path
) -> None:
    made, tries = orders("a", MESSAGES, random.Random(SEED)), Tries(tmp_path / "tries")
    at_once = {order.id for order in made if order.death is None and not order.fails}
    async with consumer(cluster.urls, tries.file, {}, "--queue-type", "quorum") as consuming:
        async with producing(cluster.urls, made) as producers:
            await producers.go_on(MESSAGES // 2)
            leader, began = await cluster.leader(QUEUE), time.monotonic()
            await cluster.kill(leader)
        # With RabbitMQ 3.10 retries may wait for that node. They keep nothing else from its end.
        await until(lambda: at_once <= tries.succeeded(), why=lambda: at_once - tries.succeeded())
        await cluster.restart(leader)
        kill = (began, time.monotonic())
        await settled(cluster.nodes[leader], "/", but=DEAD_QUEUE)
        assert await consuming.terminated() < 10
    async with connected(cluster.nodes[leader].url) as broker:
        died = {str(message.message_id) for message in await broker.taken(DEAD_QUEUE)}
    assert lost(made, tries, died) == []
    assert tries.succeeded() == {order.id for order in made if order.death is None}
    assert died == {order.id for order in made if order.death is not None}
    assert tries.unexplained([kill], producers.doubtful) == {}


async def test_who_was_refused_while_a_queue_had_no_leader_is_not_refused_once_it_has_another(
    cluster: RabbitCluster,
) -> None:
    """RabbitMQ 3.10 refuses it by the same channel as long as the node is gone."""
    async with linked(cluster.urls[0]) as connection:
        await topology.assert_delay_queue(connection, QUEUE, DelayQueue("letters", None))
    leader = await cluster.leader("letters")
    others = [url for n, url in enumerate(cluster.urls) if n != leader]
    message = Outgoing("", "letters", b"{}", Properties())

    async def newcomers() -> list[Publisher]:
        """Those that were refused. Each comes for the first time, so some do while there is no leader."""
        refused: list[Publisher] = []
        while not killing.done() or await cluster.leader("letters") == leader:
            publisher = Publisher(others, name="newcomer")
            try:
                await publisher.publish(message, 10)
            except Unconfirmed:
                refused.append(publisher)
            else:
                await publisher.close()
        return refused

    killing = asyncio.create_task(cluster.kill(leader))
    try:
        for publisher in await newcomers():
            async with asyncio.timeout(10):
                while True:
                    try:
                        await publisher.publish(message, 10)
                        break
                    except Unconfirmed:
                        await asyncio.sleep(0.1)
            await publisher.close()
    finally:
        await killing
        await cluster.restart(leader)  # the cluster is shared: it is left whole and empty
        async with linked(cluster.urls[leader]) as connection:
            channel = await connection.channel()
            await channel.queue_delete("letters")
