"""A broker in trouble: it hangs, takes no more messages for a while, or never takes this one."""

import asyncio
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
import structlog
from aiormq.abc import AbstractConnection
from aiormq.connection import Connection
from structlog.testing import capture_logs

from conftest import Eventually
from redrive import Message
from redrive.broker import publisher
from redrive.broker.topology import exists
from redrive.sources import onward
from redrive.sources.staying import stay_connected
from support.broker import DEAD, SOURCE, Broker, consuming
from support.proxy import tcp_proxy
from support.rabbitmq import RabbitServer

pytestmark = pytest.mark.filterwarnings("error")


async def test_after_a_connection_that_hangs_comes_another(vhost_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library then cancels what waits for an answer, as if whoever asked were to end."""
    monkeypatch.setattr(Connection, "HEARTBEAT_GRACE_MULTIPLIER", 0.5)
    parts = urlsplit(vhost_url)
    assert parts.port is not None
    sessions, stop = 0, asyncio.Event()
    async with tcp_proxy("127.0.0.1", parts.port) as (proxy, port):

        async def session(connection: AbstractConnection, began: Callable[[], None]) -> str:
            nonlocal sessions
            sessions += 1
            if sessions == 2:
                stop.set()
                return "it works again"
            proxy.go_silent()
            try:
                await exists(connection, "orders")
            finally:
                proxy.heal()
            return "it answered"

        url = vhost_url.replace(f":{parts.port}", f":{port}") + "?heartbeat=1"
        async with asyncio.timeout(20):
            await stay_connected([url], "one that hangs", stop, session, structlog.get_logger())
    assert sessions == 2


ALARM = "{resource_limit, memory, node()}"


async def test_a_message_waits_for_a_broker_that_is_short_of_memory_and_is_not_published_twice(
    rabbitmq: RabbitServer, vhost_url: str, broker: Broker, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written to a blocked connection lies there, and is taken once the alarm is over."""
    monkeypatch.setattr(onward, "CONFIRM_WITHIN_S", 0.1)
    monkeypatch.setattr(publisher, "REFUSED_WITHIN_S", 0.1)
    failed = asyncio.Event()

    async def act(message: Message) -> None:
        await failed.wait()
        raise ValueError("no such unit")

    with capture_logs() as lines:
        async with consuming(vhost_url, act):
            for n in range(5):
                await broker.publish(SOURCE, {"n": n}, message_id=str(n))
            await rabbitmq.ask(f"rabbit_alarm:set_alarm({{{ALARM}, []}})")
            try:
                failed.set()
                await eventually(lambda: sum(line["event"] == "message_not_confirmed_yet" for line in lines) == 5)
            finally:
                await rabbitmq.ask(f"rabbit_alarm:clear_alarm({ALARM})")
            dead = [(await broker.take(DEAD)).message_id for _ in range(5)]
    assert sorted(map(str, dead)) == list("01234")
    assert await broker.depth(DEAD) == 0


async def test_a_user_who_may_not_make_queues_consumes_those_that_are_there(
    rabbitmq: RabbitServer, vhost_url: str, broker: Broker, eventually: Eventually
) -> None:
    seen: list[Message] = []
    async with consuming(vhost_url, seen.append):
        pass  # it makes them
    name = vhost_url.rpartition("/")[2]
    await rabbitmq.ask(
        'rabbit_auth_backend_internal:add_user(<<"reader">>, <<"canary">>, <<"tests">>),'
        f' rabbit_auth_backend_internal:set_permissions(<<"reader">>, <<"{name}">>,'
        ' <<"">>, <<".*">>, <<".*">>, <<"tests">>)'
    )
    async with consuming(vhost_url.replace("guest:guest", "reader:canary"), seen.append):
        await broker.publish(SOURCE, {"n": 0})
        await eventually(lambda: len(seen) == 1)


@pytest.mark.parametrize("kind", ["quorum", "classic"])
async def test_a_message_that_cannot_grow_is_a_dead_letter_as_it_was_and_keeps_nobody_waiting(
    vhost_url: str, broker: Broker, kind: str
) -> None:
    """Its headers fill a frame: with ours, the broker would end the connection each time."""

    async def act(message: Message) -> None:
        raise ValueError if message.payload["n"] else ConnectionError

    full = {"filler": "x" * 130_900}
    await broker.channel.declare_queue(SOURCE, durable=True, arguments={"x-queue-type": kind})
    async with consuming(vhost_url, act, concurrency=1):
        for n in range(2):
            await broker.publish(SOURCE, {"n": n}, message_id=str(n), headers=dict(full))
        await broker.publish(SOURCE, {"n": 2}, message_id="2")
        dead = {message.message_id: message for message in [await broker.take(DEAD) for _ in range(3)]}
        assert await broker.depth(SOURCE) == 0
    for name in ("0", "1"):
        assert dead[name].body == b'{"n": %s}' % name.encode()
        assert dead[name].headers == full
    assert b"original_message" in dead["2"].body
