"""The short way of single events: the same answers as the long one, in the right order, and only where it is safe."""

import asyncio
import gc
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from conftest import Eventually
from redrive.api import committer as committer_module
from redrive.api import short_way
from redrive.api.auth import Authenticator
from redrive.api.front_door import FrontDoor, OneEvent
from redrive.api.server import Api as Application

from .conftest import Api, populated, running_server

GOOD = {"event_type": "a", "payload": {"n": 1}}


@pytest.fixture
def long_way(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of requests that went uvicorn's way."""
    paths: list[str] = []
    answer = Application._answer

    async def noted(self: Application, scope: Any, receive: Any, send: Any) -> None:
        paths.append(scope["path"])
        await answer(self, scope, receive, send)

    monkeypatch.setattr(Application, "_answer", noted)
    return paths


class Wire:
    """One connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str) -> None:
        self._reader = reader
        self._writer = writer
        self._key = key

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    def request(self, given: object, *lines: str, method: str = "POST", path: str = "/v1/events") -> bytes:
        body = given if isinstance(given, bytes) else json.dumps(given).encode()
        head = [f"{method} {path} HTTP/1.1", "host: test", f"x-api-key: {self._key}", f"content-length: {len(body)}"]
        return "\r\n".join([*head, *lines, "", ""]).encode() + body

    def chunked(self, given: object, *lines: str) -> bytes:
        """The same request, but the long way."""
        body = json.dumps(given).encode()
        head = ["POST /v1/events HTTP/1.1", "host: test", f"x-api-key: {self._key}", "transfer-encoding: chunked"]
        return "\r\n".join([*head, *lines, "", ""]).encode() + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)

    async def answer(self) -> tuple[int, bytes, bytes]:
        """Status, head without its date, body."""
        async with asyncio.timeout(10):
            head = await self._reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head)
            body = await self._reader.readexactly(int(length.group(1)) if length else 0)
        assert head.count(b"\r\ndate: ") <= 1
        return int(head[9:12]), re.sub(rb"date: [^\r]+\r\n", b"", head), body

    async def ended(self) -> bool:
        async with asyncio.timeout(10):
            return await self._reader.read(1) == b""

    def leave(self) -> None:
        self._writer.close()


@asynccontextmanager
async def wire(api: Api, key: str | None = None, first: object = GOOD) -> AsyncIterator[Wire]:
    """A connection whose caller is remembered: it has sent a request before."""
    opened = Wire(*await asyncio.open_connection(api.host, api.port), key or str(api.owner.key))
    opened.send(opened.request(first))
    await opened.answer()
    yield opened
    opened.leave()


@asynccontextmanager
async def locked(api: Api) -> AsyncIterator[None]:
    """Nobody can insert events meanwhile."""
    connection = await asyncpg.connect(api.url)
    try:
        async with connection.transaction():
            await connection.execute("LOCK TABLE redrive.event IN ACCESS EXCLUSIVE MODE")
            yield
    finally:
        await connection.close()


async def test_an_event_that_arrives_whole_goes_the_short_way(shared_api: Api, long_way: list[str]) -> None:
    async with wire(shared_api) as connection:
        long_way.clear()
        for _ in range(3):
            connection.send(connection.request(GOOD))
            status, _, body = await connection.answer()
            assert (status, json.loads(body)["deduplicated"]) == (202, False)
    assert long_way == []


async def test_a_cloud_event_goes_the_long_way(shared_api: Api, long_way: list[str]) -> None:
    attributes = {"id": uuid4().hex, "source": "/s", "type": "a", "specversion": "1.0"}
    in_headers = [f"CE-{name}: {value}" for name, value in attributes.items()]
    async with wire(shared_api) as connection:
        long_way.clear()
        connection.send(connection.request(attributes, "Content-Type: Application/CloudEvents+JSON; charset=utf-8"))
        connection.send(connection.request(b"", *in_headers))
        assert [(await connection.answer())[0] for _ in range(2)] == [202, 202]
    assert long_way == ["/v1/events"] * 2


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"payload": {"n": 2}},  # a conflict
        {"endpoint_id": str(uuid4()), "event_id": str(uuid4())},
        {"policy": "none such", "event_id": str(uuid4())},
        {"payload": float("nan")},
        {"event_type": ""},
        {"event_type": "a\x00"},
        {"colour": "red"},
    ],
    ids=["duplicate", "conflict", "no endpoint", "no policy", "NaN", "no type", "control character", "unknown field"],
)
async def test_both_ways_answer_alike(shared_api: Api, long_way: list[str], changed: dict[str, object]) -> None:
    known = {**GOOD, "event_id": str(uuid4())}
    async with wire(shared_api) as connection:
        connection.send(connection.request(known))
        assert (await connection.answer())[0] == 202
        long_way.clear()
        given = {**known, **changed}
        connection.send(connection.request(given, "x-correlation-id: the-same"))
        short = await connection.answer()
        connection.send(connection.chunked(given, "x-correlation-id: the-same"))
        assert await connection.answer() == short
        assert b"x-correlation-id: the-same\r\n" in short[1]
        # What can be refused without the database is refused by one piece of code alone.
        assert len(long_way) == (1 if short[0] in (202, 409) or "event_id" in changed else 2)


async def test_who_must_be_looked_up_goes_the_long_way(shared_api: Api, long_way: list[str]) -> None:
    async with wire(shared_api, shared_api.viewer.key) as viewer, wire(shared_api, "rdk_unknown") as stranger:
        for connection, status in ((viewer, 403), (stranger, 401)):
            long_way.clear()
            connection.send(connection.request(GOOD))
            assert (await connection.answer())[0] == status
            assert long_way == ["/v1/events"]


async def test_a_query_another_method_and_an_old_client_go_the_long_way(shared_api: Api, long_way: list[str]) -> None:
    async with wire(shared_api) as connection:
        long_way.clear()
        connection.send(connection.request(GOOD, path="/v1/events?a=1"))
        assert (await connection.answer())[0] == 400
        connection.send(connection.request(b"", method="GET"))
        assert (await connection.answer())[0] == 200
        connection.send(connection.request(b"", method="PUT"))
        assert (await connection.answer())[0] == 405
        connection.send(connection.request(GOOD).replace(b"HTTP/1.1", b"HTTP/1.0"))
        status, head, _ = await connection.answer()
        assert (status, b"connection: close" in head) == (202, True)
        assert await connection.ended()
        assert long_way == ["/v1/events"] * 4


async def test_a_client_that_wants_no_other_request_is_let_go(shared_api: Api) -> None:
    async with wire(shared_api) as connection:
        connection.send(connection.request(GOOD, "connection: close"))
        assert (await connection.answer())[0] == 202
        assert await connection.ended()


async def test_a_head_request_gets_no_body(shared_api: Api) -> None:
    async with wire(shared_api) as connection:
        connection.send(connection.request(b"", method="HEAD"))
        connection.send(connection.request(GOOD, "x-correlation-id: next"))
        head = await asyncio.wait_for(connection._reader.readuntil(b"\r\n\r\n"), 5)
        assert head.startswith(b"HTTP/1.1 405 ")
        status, head, _ = await connection.answer()
        assert (status, b"x-correlation-id: next" in head) == (202, True)


async def test_who_expects_leave_to_send_is_given_it(shared_api: Api) -> None:
    async with wire(shared_api) as connection:
        head, _, body = connection.request(GOOD, "expect: 100-continue").partition(b"\r\n\r\n")
        connection.send(head + b"\r\n\r\n")
        assert (await connection.answer())[0] == 100
        connection.send(body)
        assert (await connection.answer())[0] == 202


async def test_a_request_in_pieces_is_put_together(shared_api: Api, long_way: list[str]) -> None:
    async with wire(shared_api) as connection:
        long_way.clear()
        whole = connection.request(GOOD)
        for at in range(0, len(whole), 7):
            connection.send(whole[at : at + 7])
            await asyncio.sleep(0)
        assert (await connection.answer())[0] == 202
        head, _, body = whole.partition(b"\r\n\r\n")  # as the standard library's client sends it
        connection.send(head + b"\r\n\r\n")
        await asyncio.sleep(0.02)
        connection.send(body)
        assert (await connection.answer())[0] == 202
    assert long_way == []


async def test_a_slow_body_is_left_to_those_who_can_wait(
    shared_api: Api, long_way: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(short_way, "PATIENCE_S", 0.01)
    async with wire(shared_api) as connection:
        long_way.clear()
        whole = connection.request(GOOD)
        connection.send(whole[:-5])
        async with asyncio.timeout(5):
            while not long_way:
                await asyncio.sleep(0.005)
        connection.send(whole[-5:-2])
        await asyncio.sleep(0.02)
        connection.send(whole[-2:])
        assert (await connection.answer())[0] == 202


async def test_a_large_body_goes_the_long_way_whole(shared_api: Api, long_way: list[str]) -> None:
    async with wire(shared_api) as connection:
        long_way.clear()
        connection.send(connection.request({"event_type": "a", "payload": "x" * short_way.MAX_SHORT_BYTES}))
        assert (await connection.answer())[0] == 202
    assert long_way == ["/v1/events"]


async def test_answers_keep_the_order_of_their_requests(shared_api: Api, long_way: list[str]) -> None:
    async with wire(shared_api) as connection:
        long_way.clear()
        sent = []
        for number in range(60):
            line = f"x-correlation-id: number-{number}"
            match number % 3:
                case 0:
                    sent.append((connection.request(GOOD, line), 202))
                case 1:
                    sent.append((connection.request({}, line), 422))
                case _:
                    sent.append((connection.request(b"", line, method="GET", path="/healthz"), 200))
        connection.send(b"".join(request for request, _ in sent))
        for number, (_, status) in enumerate(sent):
            answered, head, _ = await connection.answer()
            assert (answered, f"x-correlation-id: number-{number}\r\n".encode() in head) == (status, True)
    assert 40 <= len(long_way) < 60


async def test_an_answer_follows_its_commit(api: Api) -> None:
    async with wire(api) as connection:
        async with locked(api):
            connection.send(connection.request(GOOD, "x-correlation-id: first"))
            connection.send(connection.request(b"", "x-correlation-id: second", method="GET", path="/healthz"))
            answer = asyncio.create_task(connection.answer())
            await asyncio.wait([answer], timeout=0.1)
            assert not answer.done()
        assert b"x-correlation-id: first\r\n" in (await answer)[1]
        assert b"x-correlation-id: second\r\n" in (await connection.answer())[1]


async def test_nothing_is_stored_of_a_request_that_breaks_off(api: Api) -> None:
    async with wire(api) as connection:
        connection.send(connection.request(GOOD)[:-1])
        await asyncio.sleep(0.02)
    assert len((await api.owner.get("/v1/events")).json["data"]) == 1  # the one that made us known
    assert (await api.owner.post("/v1/events", GOOD)).status == 202


async def test_an_event_is_stored_though_its_sender_has_left(api: Api) -> None:
    async with locked(api), wire(api, first={}) as connection:
        connection.send(connection.request(GOOD))
        await asyncio.sleep(0.05)
    async with asyncio.timeout(5):
        while not (await api.owner.get("/v1/events")).json["data"]:
            await asyncio.sleep(0.02)


async def test_no_more_is_taken_in_than_may_wait(shared_api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async with wire(shared_api) as connection:
        monkeypatch.setattr(committer_module, "MAX_WAITING_EVENTS", 0)
        connection.send(connection.request(GOOD))
        status, head, _ = await connection.answer()
        assert (status, b"retry-after: 1\r\n" in head) == (503, True)


async def test_a_database_that_stays_away_is_told(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committer_module, "RETRY_FOR_S", 0.1)
    monkeypatch.setattr(committer_module, "COMMIT_TIMEOUT_S", 0.1)
    async with wire(api) as connection, locked(api):
        connection.send(connection.request(GOOD, "x-correlation-id: lost"))
        status, head, body = await connection.answer()
        assert (status, b"retry-after: 1\r\n" in head) == (503, True)
        assert b"content-type: application/problem+json\r\n" in head
        assert json.loads(body)["correlation_id"] == "lost"


async def test_a_fault_of_ours_is_a_500_and_spares_the_others(
    shared_api: Api, monkeypatch: pytest.MonkeyPatch, long_way: list[str]
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    async with wire(shared_api) as connection:
        monkeypatch.setattr("redrive.api.front_door.read_event", broken)
        long_way.clear()
        connection.send(connection.request(GOOD))
        assert (await connection.answer())[0] == 500
        assert long_way == ["/v1/events"]  # it is met again there, and logged


async def test_what_is_no_http_is_told_so(shared_api: Api) -> None:
    async with wire(shared_api) as connection:
        connection.send(b"BREW /coffee\r\n\r\n")
        assert (await connection.answer())[0] == 400
        assert await connection.ended()


async def test_a_server_that_stops_answers_what_it_has_begun(database_url: str, long_way: list[str]) -> None:
    serving = running_server(database_url)
    async with populated(await serving.__aenter__()) as api, wire(api) as connection, wire(api) as begun:
        long_way.clear()
        async with locked(api):
            connection.send(connection.request(GOOD))
            begun.send(begun.request(GOOD)[:-1])
            await asyncio.sleep(0.05)
            stopping = asyncio.create_task(serving.__aexit__(None, None, None))
            await asyncio.sleep(0.15)
            assert long_way == ["/v1/events"]  # the one that is not whole; the other waits for its commit
            begun.send(begun.request(GOOD)[-1:])
        for each in (connection, begun):
            status, head, _ = await each.answer()
            assert (status, b"connection: close\r\n" in head) == (202, True)
            assert await each.ended()
        await asyncio.wait_for(stopping, 20)


async def test_who_does_not_read_is_not_written_to_without_end(shared_api: Api) -> None:
    async with wire(shared_api) as connection:
        number = 400
        connection.send(b"".join(connection.request(GOOD) for _ in range(number)))
        await asyncio.sleep(0.1)
        assert [(await connection.answer())[0] for _ in range(number)] == [202] * number


def test_a_caller_is_only_at_hand_with_a_key() -> None:
    nobody_known = Authenticator(None)  # type: ignore[arg-type]
    assert FrontDoor(nobody_known, None, None).at_hand({}, b"", "c") is None  # type: ignore[arg-type]


async def test_an_idle_connection_holds_no_event(shared_api: Api, eventually: Eventually) -> None:
    """A thousand producers that keep their connections open must not keep their last events in memory."""
    async with wire(shared_api) as connection:
        connection.send(connection.request({**GOOD, "payload": "held" * 1000}))
        assert (await connection.answer())[0] == 202
        answered = [one for one in gc.get_objects() if type(one) is short_way._UnderWay]  # there may be dead proxies
        assert answered
        # The answer is here a moment before the server lets go of what it answered.
        await eventually(lambda: not any(one.response_complete and hasattr(one, "_one") for one in answered))


async def test_a_bug_behind_the_commit_is_told(shared_api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async with wire(shared_api) as connection:

        def broken(self: OneEvent, receipt: object) -> bytes:
            raise ZeroDivisionError

        with monkeypatch.context() as patch:
            patch.setattr(OneEvent, "answer", broken)
            connection.send(connection.request(GOOD))
            status, head, body = await connection.answer()
        assert (status, b"application/problem+json" in head, b"ZeroDivision" in body) == (500, True, False)
        connection.send(connection.request(GOOD))
        assert (await connection.answer())[0] == 202
