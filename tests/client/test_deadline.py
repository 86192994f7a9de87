"""One deadline over everything: no phase and no trickle of bytes can stretch it."""

import asyncio
import socket
from collections.abc import Sequence
from contextlib import closing
from time import monotonic

import pytest

from redrive.core.address import Ip
from redrive.destinations.client import Client, FailureKind, Request, TransferError

from .harness import OK, Authority, Reader, Writer, a_client, answering, on_both_loops, post, read_request, serving

TIMEOUT_S = 0.2
SLACK_S = 1.0


async def hang(reader: Reader, writer: Writer) -> None:
    await reader.read()


async def late(
    client: Client, request: Request, timeout_s: float = TIMEOUT_S, kind: FailureKind = FailureKind.TIMEOUT
) -> TransferError:
    """The error of a request that must fail by its deadline and not before."""
    started = monotonic()
    with pytest.raises(TransferError) as caught:
        await client.send(request, timeout_s=timeout_s)
    assert timeout_s <= monotonic() - started < timeout_s + SLACK_S
    assert caught.value.kind is kind
    assert "s3cret" not in caught.value.message
    return caught.value


@on_both_loops
async def test_a_destination_that_never_answers_times_out_and_may_have_seen_the_request() -> None:
    async def read_and_hang(reader: Reader, writer: Writer) -> None:
        await read_request(reader)
        await asyncio.sleep(30)

    async with serving(read_and_hang) as server, a_client() as client:
        error = await late(client, post(server.port))
        assert error.sent
        assert client.stats().open == 0


@on_both_loops
async def test_dripping_header_bytes_do_not_extend_the_deadline() -> None:
    async def drip(reader: Reader, writer: Writer) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nx: ")
        while True:
            writer.write(b"y")
            await writer.drain()
            await asyncio.sleep(0.02)

    async with serving(drip) as server, a_client() as client:
        assert (await late(client, post(server.port))).sent


@on_both_loops
async def test_interim_answers_do_not_extend_the_deadline() -> None:
    async def drip(reader: Reader, writer: Writer) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 102 Processing\r\n\r\n")
        await reader.read()

    async with serving(drip) as server, a_client() as client:
        assert (await late(client, post(server.port))).sent


@on_both_loops
async def test_a_deadline_inside_the_body_gives_the_answer_of_the_status_line() -> None:
    async def drip(reader: Reader, writer: Writer) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 503 Busy\r\nretry-after: 7\r\ncontent-length: 1000\r\n\r\n")
        while True:
            writer.write(b"y")
            await writer.drain()
            await asyncio.sleep(0.02)

    async with serving(drip) as server, a_client() as client:
        started = monotonic()
        response = await client.send(post(server.port), timeout_s=TIMEOUT_S)
        assert TIMEOUT_S <= monotonic() - started < TIMEOUT_S + SLACK_S
        assert (response.status, response.header(b"retry-after")) == (503, b"7")
        assert "deadline" in (response.body_error or "")
        assert 1 <= len(response.body) < 1000
        assert client.stats().open == 0


@on_both_loops
async def test_a_destination_that_does_not_read_times_out() -> None:
    async def deaf(reader: Reader, writer: Writer) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(30)

    async with serving(deaf) as server, a_client() as client:
        assert (await late(client, post(server.port, b"x" * 32_000_000), timeout_s=0.6)).sent


@on_both_loops
async def test_a_connect_that_hangs_times_out_before_anything_was_sent() -> None:
    # A listener whose queue is full lets further connects wait without an answer.
    with closing(socket.socket()) as listener, closing(socket.socket()) as first, closing(socket.socket()) as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for filler in (first, second):
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        async with a_client() as client:
            error = await late(client, post(listener.getsockname()[1]))
            assert not error.sent
            assert client.stats().open == 0


@on_both_loops
async def test_a_tls_handshake_that_hangs_times_out_before_anything_was_sent() -> None:
    authority = Authority.create()
    async with serving(hang) as server, a_client() as client:
        url = f"https://127.0.0.1:{server.port}/"
        error = await late(client, post(0, url=url, ca_pem=authority.pem))
        assert not error.sent
        assert client.stats().open == 0


@on_both_loops
async def test_a_lookup_that_hangs_times_out_before_anything_was_sent() -> None:
    class SilentNames:
        async def resolve(self, host: str, port: int) -> Sequence[Ip]:
            await asyncio.sleep(30)
            return []

    async with a_client(resolver=SilentNames()) as client:
        assert not (await late(client, post(0, url="http://hooks.example/"))).sent


@on_both_loops
async def test_the_wait_for_a_free_connection_counts_too() -> None:
    async with serving(hang) as server, a_client(max_connections=2, max_per_origin=1) as client:
        busy = asyncio.create_task(client.send(post(server.port), timeout_s=5))
        await asyncio.sleep(0)
        error = await late(client, post(server.port), kind=FailureKind.BUSY)
        assert not error.sent
        busy.cancel()


@on_both_loops
async def test_an_answer_after_the_deadline_does_not_reach_the_next_request() -> None:
    release = asyncio.Event()
    turns = 0

    async def slow_once(reader: Reader, writer: Writer) -> None:
        nonlocal turns
        turns += 1
        await read_request(reader)
        if turns == 1:
            await release.wait()
            writer.write(b"HTTP/1.1 500 Late\r\ncontent-length: 0\r\n\r\n")
        else:
            writer.write(OK)
        await reader.read()

    async with serving(slow_once) as server, a_client() as client:
        assert (await late(client, post(server.port))).sent
        release.set()
        assert (await client.send(post(server.port), timeout_s=5)).status == 200


@on_both_loops
async def test_an_origin_that_hangs_does_not_delay_the_others() -> None:
    async with (
        serving(hang) as stuck,
        answering(OK) as healthy,
        a_client(max_connections=5, max_per_origin=4) as client,
    ):
        hanging = [asyncio.create_task(client.send(post(stuck.port), timeout_s=5)) for _ in range(20)]
        await asyncio.sleep(0)
        for _ in range(50):
            assert (await client.send(post(healthy.port), timeout_s=1)).status == 200
        assert client.stats().waiting == 16
        for task in hanging:
            task.cancel()
        await asyncio.wait(hanging)
