"""Requests begun without a task: their end is told once, and a cancelled one is never heard of again."""

import asyncio

import pytest

from redrive.destinations.client import Answer, Call, Client, ClientStats, FailureKind, Response, TransferError
from redrive.destinations.client import pool as pool_module

from .harness import OK, Reader, Writer, a_client, answering, on_both_loops, post, read_request, serving, until

NOTHING = ClientStats(open=0, idle=0, in_use=0, waiting=0)


async def hang(reader: Reader, writer: Writer) -> None:
    await read_request(reader)
    await reader.read()


def begin(client: Client, port: int, ends: list[Answer], body: bytes = b"", timeout_s: float = 5) -> Call:
    return client.begin(post(port, body), timeout_s=timeout_s, ended=ends.append)


@on_both_loops
async def test_the_end_is_told_once_whether_a_connection_is_opened_awaited_or_idle() -> None:
    async with answering(OK) as server, a_client(max_connections=3, max_per_origin=2) as client:
        ends: list[Answer] = []
        for number in range(6):
            begin(client, server.port, ends, b"%d" % number)
        assert ends == []  # never before the call that began it has returned
        await until(lambda: len(ends) == 6)
        begin(client, server.port, ends)
        assert client.stats().idle == 1
        await until(lambda: len(ends) == 7)
        assert {end.status for end in ends if isinstance(end, Response)} == {200}
        assert client.stats() == ClientStats(open=2, idle=2, in_use=0, waiting=0)
        assert len(server.requests) == 7


@on_both_loops
async def test_an_idle_connection_is_used_without_a_task() -> None:
    async with answering(OK) as server, a_client() as client:
        await client.send(post(server.port), timeout_s=5)
        tasks = asyncio.all_tasks()
        ends: list[Answer] = []
        begin(client, server.port, ends)
        assert asyncio.all_tasks() == tasks
        await until(lambda: len(ends) == 1)


@on_both_loops
async def test_a_cancelled_one_is_never_heard_of_and_leaves_its_place_in_every_phase() -> None:
    async with serving(hang) as server, a_client(max_connections=2, max_per_origin=1) as client:
        ends: list[Answer] = []
        written = begin(client, server.port, ends)
        await until(lambda: server.connections == 1 and client.stats().in_use == 1)
        waiting = begin(client, server.port, ends)
        assert client.stats().waiting == 1
        waiting.cancel()
        assert client.stats().waiting == 0
        written.cancel()
        await until(lambda: client.stats() == NOTHING)
        opening = begin(client, server.port, ends)
        opening.cancel()
        await until(lambda: client.stats() == NOTHING)
        for call in (written, waiting, opening):
            call.cancel()  # for the second time: nothing is left to cancel
        assert ends == []


@on_both_loops
async def test_cancelling_after_the_end_does_not_touch_the_next_request_on_the_connection() -> None:
    async with answering(OK) as server, a_client(max_connections=2, max_per_origin=1) as client:
        ends: list[Answer] = []
        first = begin(client, server.port, ends)
        await until(lambda: len(ends) == 1)
        begin(client, server.port, ends)
        first.cancel()
        await until(lambda: len(ends) == 2)
        assert server.connections == 1


@on_both_loops
async def test_what_cannot_even_wait_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "MAX_WAITING", 1)
    async with serving(hang) as server, a_client(max_connections=2, max_per_origin=1) as client:
        ends: list[Answer] = []
        calls = [begin(client, server.port, ends) for _ in range(2)]
        with pytest.raises(TransferError) as caught:
            begin(client, server.port, ends)
        assert (caught.value.kind, caught.value.sent) == (FailureKind.BUSY, False)
        for call in calls:
            call.cancel()
    with pytest.raises(TransferError) as caught:
        begin(client, server.port, ends)
    assert (caught.value.kind, caught.value.sent) == (FailureKind.CLOSED, False)


@on_both_loops
async def test_who_fails_to_handle_an_end_harms_no_other_request() -> None:
    reported: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
    bug = ZeroDivisionError("in a callback")

    def fail(answer: Answer) -> None:
        raise bug

    async with (
        answering(OK) as server,
        serving(hang) as silent,
        a_client(max_connections=3, max_per_origin=1) as client,
    ):
        ends: list[Answer] = []
        client.begin(post(server.port), timeout_s=5, ended=fail)
        client.begin(post(silent.port), timeout_s=0.1, ended=fail)
        begin(client, silent.port, ends, timeout_s=0.1)
        for _ in range(3):
            begin(client, server.port, ends)
        await until(lambda: len(ends) == 4)
        await until(lambda: reported == [bug, bug])
        assert server.connections == 1


@on_both_loops
async def test_the_end_of_one_may_cancel_another_that_ends_at_the_same_time() -> None:
    async with serving(hang) as server, a_client(max_connections=3, max_per_origin=2) as client:
        ends: list[Answer] = []
        calls: list[Call] = []

        def end_all(answer: Answer) -> None:
            ends.append(answer)
            for call in calls:
                call.cancel()

        calls += [client.begin(post(server.port), timeout_s=0.1, ended=end_all) for _ in range(6)]
        await until(lambda: client.stats() == NOTHING)
        assert len(ends) == 1
