"""Webhooks on their way from a sender over an edge and a hub to a service, while those in between are killed."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from redrive.store.embedded import EmbeddedPostgres, running_url
from support.holding import open_holding
from support.hubs import hub
from support.oracle import all_succeed, assert_check_passes, assert_sound, counts, states
from support.processes import ADMIN_KEY, Program, Served, serve, until
from support.remote import QUICK, Remote

pytestmark = pytest.mark.faults


WEBHOOKS = 20  # while one of these is killed:
VICTIMS = ("hub", "edge", "postgres", "edge", "hub")
PAUSE_AFTER_TROUBLE_S = 0.05
TRY_S = 60  # how long a try may take; who stops does not wait for it


@dataclass(slots=True)
class Sender:
    """Sends one webhook after the other, each until it is answered with 202, as senders do."""

    relay: dict[str, Any]
    accepted: list[str] = field(default_factory=list)  # in the order of acceptance
    troubles: int = 0

    async def send(self, served: Served, count: int) -> None:
        remote = Remote(served.host, served.port, ADMIN_KEY)
        remote.http.key = None
        try:
            for number in range(count):
                self.accepted.append(await self._send(remote, f"msg-{len(self.accepted)}", b"%d" % number))
        finally:
            remote.close()

    async def _send(self, remote: Remote, sender_id: str, body: bytes) -> str:
        while True:
            try:
                answer = await remote.try_webhook(self.relay, body, webhook_id=sender_id)
            except (OSError, HTTPException):
                remote.close()  # the next request begins afresh
            else:
                if answer.status == 202:
                    event_id: str = answer.json["event_id"]
                    return event_id
                assert answer.status == 503, answer.body
            self.troubles += 1
            await asyncio.sleep(PAUSE_AFTER_TROUBLE_S)


@dataclass(frozen=True, slots=True)
class Run:
    """What was accepted and what arrived, each in its order."""

    accepted: list[str]
    received: list[str]


async def a_relay(served: Served, *, timeout_s: float = 2, **fields: object) -> dict[str, Any]:
    remote = Remote(served.host, served.port, ADMIN_KEY)
    await remote.policy("quick", **QUICK | {"max_retries": 1_000})
    relay = await remote.relay(policy="quick", timeout_s=timeout_s, **fields)
    remote.close()
    return relay


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def run(durable_dir: Path) -> AsyncIterator[Run]:
    """A hundred webhooks, while one after the other is killed under load, and comes back."""
    async with (
        open_holding() as receiver,
        serve("--no-worker", data_dir=durable_dir) as served,
        AsyncExitStack() as hubs,
    ):
        relay = await a_relay(served)
        sender = Sender(relay)
        edge = f"http://{served.host}:{served.port}"

        async def another_hub() -> Program:
            return await hubs.enter_async_context(hub(edge, relay["id"], receiver.url))

        running = await another_hub()
        for round, victim in enumerate(VICTIMS):
            sending = asyncio.create_task(sender.send(served, WEBHOOKS))
            await until(_more_than(sender, round * WEBHOOKS), why=lambda: (len(sender.accepted), sender.troubles))
            if victim == "edge":
                os.kill(await served.child_pid("api"), signal.SIGKILL)
            elif victim == "postgres":
                os.kill(served.postmaster_pid, signal.SIGKILL)
            else:
                running.send(signal.SIGKILL)
                running = await another_hub()
            await sending
        url = running_url(durable_dir)
        assert url is not None
        await all_succeed(url)
        assert len(sender.accepted) == len(VICTIMS) * WEBHOOKS
        await assert_sound(url, accepted=sender.accepted, received=receiver.ids)
        await assert_check_passes(REDRIVE_DATA_DIR=str(durable_dir))
        await until(lambda: len(served.program.lines("child_started")) >= 1 + VICTIMS.count("edge"))
        assert len(served.program.lines("postgres_died")) == 1
        await served.program.terminated()
    yield Run(sender.accepted, receiver.ids)


def _more_than(sender: Sender, count: int) -> Callable[[], bool]:
    return lambda: len(sender.accepted) > count


async def test_nothing_that_was_accepted_is_lost(run: Run) -> None:
    assert set(run.accepted) <= set(run.received)


async def test_what_arrives_twice_has_the_same_id_and_nothing_arrives_that_was_not_accepted(run: Run) -> None:
    assert set(run.received) == set(run.accepted)
    assert len(run.received) - len(run.accepted) <= 10 * len(VICTIMS)


async def test_first_arrivals_are_in_the_order_of_acceptance(run: Run) -> None:
    assert list(dict.fromkeys(run.received)) == run.accepted


async def test_told_to_stop_under_load_the_edge_ends_in_time_and_leaves_nothing_leased(durable_dir: Path) -> None:
    async with open_holding() as receiver, serve("--no-worker", data_dir=durable_dir) as served:
        relay = await a_relay(served, timeout_s=TRY_S)
        sender = Sender(relay)
        async with hub(f"http://{served.host}:{served.port}", relay["id"], receiver.url):
            await sender.send(served, 20)
            receiver.hold()  # one is under way, and will not end
            await sender.send(served, 20)
            await until(lambda: receiver.held > 0)
            assert await served.program.terminated() < TRY_S / 2
            receiver.release()
    postgres = await EmbeddedPostgres.start(durable_dir)
    try:
        url = running_url(durable_dir)
        assert url is not None
        assert "leased" not in await states(url)
        given_back = await counts(
            url, "SELECT possible_duplicate, count(*) FROM redrive.attempt WHERE result = 'released' GROUP BY 1"
        )
        assert given_back.get("True", 0) >= 1
        await assert_sound(url, accepted=sender.accepted, received=receiver.ids)
    finally:
        await postgres.stop()
