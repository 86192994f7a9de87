"""Which connections are used again, and what becomes of a request on a connection that turns out closed."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from redrive.destinations.client import FailureKind, Response, TransferError
from redrive.destinations.client import pool as pool_module

from .harness import OK, Reader, Writer, a_client, answering, on_both_loops, post, read_request, serving, until


@contextmanager
def blocking_server(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server in a thread: it goes on while the client's event loop stands still."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(5)


@on_both_loops
async def test_requests_in_turn_share_one_connection() -> None:
    async with answering(OK) as server, a_client() as client:
        first = await client.send(post(server.port), timeout_s=5)
        second = await client.send(post(server.port), timeout_s=5)
        assert server.connections == 1
        assert first.timings.connect_ms is not None
        assert second.timings.connect_ms is None
        assert second.timings.first_byte_ms >= 0


@on_both_loops
async def test_the_connection_used_last_is_used_first() -> None:
    async with answering(OK) as server, a_client() as client:
        await asyncio.gather(*(client.send(post(server.port), timeout_s=5) for _ in range(3)))
        assert client.stats().idle == 3
        for _ in range(10):
            await client.send(post(server.port), timeout_s=5)
        assert server.connections == 3


@on_both_loops
async def test_a_connection_closed_while_idle_is_forgotten_and_the_next_request_gets_a_new_one() -> None:
    async def one_each(reader: Reader, writer: Writer) -> None:
        await read_request(reader)
        writer.write(OK)
        await writer.drain()
        writer.close()

    async with serving(one_each) as server, a_client() as client:
        for _ in range(3):
            assert (await client.send(post(server.port), timeout_s=5)).status == 200
            await until(lambda: client.stats().open == 0)
        assert server.connections == 3


@on_both_loops
async def test_a_close_that_the_event_loop_has_not_seen_yet_is_found_before_writing() -> None:
    close_now, closed = threading.Event(), threading.Event()
    received: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        first, _ = listener.accept()
        received.append(first.recv(65536))
        first.sendall(OK)
        close_now.wait(5)
        first.close()
        closed.set()
        second, _ = listener.accept()
        received.append(second.recv(65536))
        second.sendall(OK)
        second.recv(1)
        second.close()

    with blocking_server(serve) as port:
        async with a_client() as client:
            await client.send(post(port), timeout_s=5)
            close_now.set()
            closed.wait(5)
            time.sleep(pool_module.PEEK_AFTER_S)  # the loop stands still: it cannot have seen the close
            assert client.stats().idle == 1
            assert (await client.send(post(port), timeout_s=5)).status == 200
    assert len(received) == 2


@on_both_loops
async def test_a_reused_connection_that_closes_after_the_write_is_not_tried_again() -> None:
    requests = 0

    async def second_unanswered(reader: Reader, writer: Writer) -> None:
        nonlocal requests
        await read_request(reader)
        requests += 1
        writer.write(OK)
        await read_request(reader)
        requests += 1

    async with serving(second_unanswered) as server, a_client() as client:
        await client.send(post(server.port), timeout_s=5)
        with pytest.raises(TransferError) as caught:
            await client.send(post(server.port), timeout_s=5)
        assert (caught.value.kind, caught.value.sent) == (FailureKind.RESET, True)
        assert (requests, server.connections) == (2, 1)


@on_both_loops
async def test_bytes_that_nobody_asked_for_end_the_connection() -> None:
    async def chatty(reader: Reader, writer: Writer) -> None:
        await read_request(reader)
        writer.write(OK)
        await speak.wait()
        writer.write(b"HTTP/1.1 500 Unasked\r\ncontent-length: 0\r\n\r\n")
        await reader.read()

    speak = asyncio.Event()
    async with serving(chatty) as server, a_client() as client:
        await client.send(post(server.port), timeout_s=5)
        assert client.stats().idle == 1
        speak.set()
        await until(lambda: client.stats().open == 0)
        assert (await client.send(post(server.port), timeout_s=5)).status == 200


@on_both_loops
async def test_idle_connections_are_closed_after_their_time() -> None:
    async with answering(OK) as server, a_client(idle_s=0.1) as client:
        await client.send(post(server.port), timeout_s=5)
        assert client.stats().idle == 1
        await until(lambda: client.stats().open == 0)


@on_both_loops
async def test_a_shorter_keep_alive_promised_by_the_server_is_respected() -> None:
    brief = b"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=1, max=100\r\ncontent-length: 0\r\n\r\n"
    async with answering(brief) as server, a_client(idle_s=60) as client:
        await client.send(post(server.port), timeout_s=5)
        await until(lambda: client.stats().open == 0)


@on_both_loops
async def test_an_old_connection_is_replaced_so_that_its_address_is_judged_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool_module, "MAX_CONNECTION_AGE_S", 0.0)
    async with answering(OK) as server, a_client() as client:
        for _ in range(3):
            await client.send(post(server.port), timeout_s=5)
        assert server.connections == 3


@on_both_loops
async def test_a_late_cancellation_does_not_end_the_next_request_on_the_connection() -> None:
    asked, answer_now, answered = threading.Event(), threading.Event(), threading.Event()
    later: list[asyncio.Task[Response]] = []

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        connection.recv(65536)
        asked.set()
        answer_now.wait(5)
        connection.sendall(OK)
        answered.set()
        while connection.recv(65536):
            connection.sendall(OK)
        connection.close()

    def start_another_and_cancel() -> None:
        later.append(asyncio.create_task(client.send(post(port), timeout_s=5)))
        first.cancel()

    with blocking_server(serve) as port:
        async with a_client(max_connections=2, max_per_origin=1) as client:
            first = asyncio.create_task(client.send(post(port), timeout_s=5))
            await until(asked.is_set)
            # The loop stands still until the answer is in the kernel, so that it is read right after the
            # cancellation: between that and the cancelled task the connection goes to the other request.
            answer_now.set()
            answered.wait(5)
            asyncio.get_running_loop().call_soon(start_another_and_cancel)
            await until(lambda: bool(later))
            assert (await later[0]).status == 200
