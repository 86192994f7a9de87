"""Limits, turns, cancellation and the end: no connection is lost, none is handed to two."""

import asyncio
import random
from contextlib import suppress
from pathlib import Path

import pytest

from redrive.destinations.client import Client, ClientStats, FailureKind, Response, TransferError
from redrive.destinations.client import pool as pool_module

from .harness import (
    LOOPBACK,
    OK,
    Reader,
    Writer,
    a_client,
    answering,
    on_both_loops,
    post,
    read_request,
    serving,
    until,
)

NOTHING = ClientStats(open=0, idle=0, in_use=0, waiting=0)


class Gate:
    """A server that answers only when told, and counts who is inside."""

    def __init__(self) -> None:
        self.inside = 0
        self.peak = 0
        self.bodies: list[bytes] = []
        self.turns = asyncio.Semaphore(0)

    async def handle(self, reader: Reader, writer: Writer) -> None:
        while True:
            _, body = await read_request(reader)
            self.inside += 1
            self.peak = max(self.peak, self.inside)
            self.bodies.append(body)
            await self.turns.acquire()
            self.inside -= 1
            writer.write(OK)
            await writer.drain()

    def open(self, count: int = 1) -> None:
        for _ in range(count):
            self.turns.release()


def open_sockets() -> int:
    count = 0
    for entry in list(Path("/proc/self/fd").iterdir()):
        with suppress(FileNotFoundError):  # the folder's own descriptor is gone by now
            count += str(entry.readlink()).startswith("socket:")
    return count


def sending(client: Client, port: int, body: bytes = b"", timeout_s: float = 10) -> asyncio.Task[Response]:
    return asyncio.create_task(client.send(post(port, body), timeout_s=timeout_s))


@on_both_loops
async def test_an_origin_gets_no_more_connections_than_its_limit() -> None:
    gate = Gate()
    async with serving(gate.handle) as server, a_client(max_connections=10, max_per_origin=3) as client:
        tasks = [sending(client, server.port) for _ in range(9)]
        await until(lambda: gate.inside == 3)
        assert client.stats() == ClientStats(open=3, idle=0, in_use=3, waiting=6)
        gate.open(9)
        assert [answer.status for answer in await asyncio.gather(*tasks)] == [200] * 9
        assert (gate.peak, server.connections) == (3, 3)
        assert client.stats() == ClientStats(open=3, idle=3, in_use=0, waiting=0)


@on_both_loops
async def test_requests_to_one_origin_go_out_in_the_order_they_came() -> None:
    gate = Gate()
    async with serving(gate.handle) as server, a_client(max_connections=2, max_per_origin=1) as client:
        tasks = [sending(client, server.port, b"%d" % number) for number in range(8)]
        gate.open(8)
        await asyncio.gather(*tasks)
        assert gate.bodies == [b"%d" % number for number in range(8)]


@on_both_loops
async def test_the_total_is_bounded_and_idle_connections_make_room() -> None:
    async with (
        answering(OK) as a,
        answering(OK) as b,
        answering(OK) as c,
        a_client(max_connections=2, max_per_origin=1) as client,
    ):
        for server in (a, b, c, a):
            assert (await client.send(post(server.port), timeout_s=5)).status == 200
            assert client.stats().open <= 2
        assert (a.connections, b.connections, c.connections) == (2, 1, 1)


@on_both_loops
async def test_origins_take_turns_when_the_total_is_used_up() -> None:
    greedy, modest = Gate(), Gate()
    async with (
        serving(greedy.handle) as first,
        serving(modest.handle) as second,
        a_client(max_connections=3, max_per_origin=2) as client,
    ):
        many = [sending(client, first.port) for _ in range(10)]
        few = [sending(client, second.port) for _ in range(3)]
        await until(lambda: greedy.inside == 2 and modest.inside == 1)
        modest.open(3)
        await asyncio.gather(*few)
        assert len(greedy.bodies) == 2
        greedy.open(10)
        await asyncio.gather(*many)
        assert client.stats().open <= 3


@on_both_loops
async def test_a_connection_given_back_goes_to_the_origin_that_waited_longest_for_the_total() -> None:
    gates = [Gate(), Gate(), Gate()]
    async with (
        serving(gates[0].handle) as a,
        serving(gates[1].handle) as b,
        serving(gates[2].handle) as c,
        a_client(max_connections=2, max_per_origin=1) as client,
    ):
        held = [sending(client, a.port), sending(client, b.port)]
        await until(lambda: gates[0].inside == gates[1].inside == 1)
        starved = sending(client, c.port)
        await asyncio.sleep(0)
        later = sending(client, a.port)
        await asyncio.sleep(0)
        gates[0].open()
        await until(lambda: gates[2].inside == 1)
        assert len(gates[0].bodies) == 1
        for gate in gates:
            gate.open(5)
        await asyncio.gather(*held, starved, later)


@on_both_loops
async def test_a_cancelled_request_closes_its_connection_and_frees_its_place() -> None:
    gate = Gate()
    async with serving(gate.handle) as server, a_client(max_connections=2, max_per_origin=1) as client:
        busy = sending(client, server.port)
        await until(lambda: gate.inside == 1)
        waiting, next_one = sending(client, server.port, b"gone"), sending(client, server.port, b"next")
        await until(lambda: client.stats().waiting == 2)
        waiting.cancel()
        busy.cancel()
        gate.open(2)
        assert (await next_one).status == 200
        assert b"gone" not in gate.bodies
        assert client.stats() == ClientStats(open=1, idle=1, in_use=0, waiting=0)


@on_both_loops
async def test_a_request_cancelled_at_the_moment_of_its_turn_passes_the_turn_on() -> None:
    gate = Gate()
    async with serving(gate.handle) as server, a_client(max_connections=2, max_per_origin=1) as client:

        async def send_then_cancel_the_next() -> None:
            await client.send(post(server.port), timeout_s=10)
            first.cancel()  # it was given the connection, but its task has not run yet

        busy = asyncio.create_task(send_then_cancel_the_next())
        await until(lambda: gate.inside == 1)
        first, second = sending(client, server.port, b"first"), sending(client, server.port, b"second")
        await until(lambda: client.stats().waiting == 2)
        gate.open(2)
        assert (await second).status == 200
        await busy
        assert gate.bodies == [b"{}", b"second"]
        assert client.stats() == ClientStats(open=1, idle=1, in_use=0, waiting=0)


@on_both_loops
async def test_the_queue_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "MAX_WAITING", 1)
    gate = Gate()
    async with serving(gate.handle) as server, a_client(max_connections=2, max_per_origin=1) as client:
        tasks = [sending(client, server.port), sending(client, server.port)]
        await until(lambda: client.stats().waiting == 1)
        with pytest.raises(TransferError) as caught:
            await client.send(post(server.port), timeout_s=5)
        assert (caught.value.kind, caught.value.sent) == (FailureKind.BUSY, False)
        gate.open(2)
        await asyncio.gather(*tasks)


@on_both_loops
async def test_a_refused_connect_frees_its_place() -> None:
    async with answering(OK) as server:
        port = server.port
    async with a_client(max_connections=2, max_per_origin=1) as client:
        for _ in range(5):
            with pytest.raises(TransferError) as caught:
                await client.send(post(port), timeout_s=5)
            assert (caught.value.kind, caught.value.sent) == (FailureKind.CONNECT, False)
            assert "s3cret" not in caught.value.message
        assert client.stats() == NOTHING


@on_both_loops
async def test_closing_ends_requests_in_every_phase_and_refuses_new_ones() -> None:
    gate = Gate()
    async with serving(gate.handle) as server:
        client = Client(rules=LOOPBACK, max_connections=3, max_per_origin=1)
        tasks = [sending(client, server.port) for _ in range(2)]
        await until(lambda: gate.inside == 1)

        async def handshake(reader: Reader, writer: Writer) -> None:
            await reader.read()

        async with serving(handshake) as silent:
            request = post(0, url=f"https://127.0.0.1:{silent.port}/")
            tasks.append(asyncio.create_task(client.send(request, timeout_s=10)))
            await until(lambda: silent.connections == 1)
            await client.aclose()
            errors = await asyncio.gather(*tasks, return_exceptions=True)
        assert [(error.kind, error.sent) for error in errors if isinstance(error, TransferError)] == [
            (FailureKind.CLOSED, True),
            (FailureKind.CLOSED, False),
            (FailureKind.CLOSED, False),
        ]
        with pytest.raises(TransferError) as caught:
            await client.send(post(server.port), timeout_s=5)
        assert (caught.value.kind, caught.value.sent) == (FailureKind.CLOSED, False)
        assert client.stats() == NOTHING


@pytest.mark.parametrize(("total", "per_origin"), [(1, 1), (5, 5), (5, 6), (5, 0)])
def test_one_origin_may_never_take_all_connections(total: int, per_origin: int) -> None:
    with pytest.raises(ValueError, match="max_per_origin"):
        Client(rules=LOOPBACK, max_connections=total, max_per_origin=per_origin)


@on_both_loops
async def test_under_random_faults_every_request_ends_and_no_place_or_socket_is_lost() -> None:
    chance = random.Random(7)

    async def moody(reader: Reader, writer: Writer) -> None:
        while True:
            _, body = await read_request(reader)
            match chance.randrange(8):
                case 0:
                    return
                case 1:
                    await asyncio.sleep(0.5)
                case 2:
                    writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
                    await writer.drain()
                    return
                case 3:
                    writer.write(b"nonsense\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()

    sockets_before = open_sockets()
    async with serving(moody) as a, serving(moody) as b, serving(moody) as c:
        async with a_client(max_connections=6, max_per_origin=3) as client:

            async def one(number: int) -> None:
                port = chance.choice([a.port, b.port, c.port])
                body = b"%d" % number
                task = sending(client, port, body, timeout_s=chance.choice([0.1, 0.3, 5]))
                if chance.random() < 0.1:
                    await asyncio.sleep(chance.random() * 0.05)
                    task.cancel()
                (answer,) = await asyncio.gather(task, return_exceptions=True)
                if isinstance(answer, Response):
                    assert answer.body in (body, b"")
                else:
                    assert isinstance(answer, TransferError | asyncio.CancelledError)
                assert client.stats().open <= 6

            await asyncio.gather(*(one(number) for number in range(400)))
            stats = client.stats()
            assert (stats.in_use, stats.waiting) == (0, 0)
        assert client.stats() == NOTHING
    await until(lambda: open_sockets() <= sockets_before)
