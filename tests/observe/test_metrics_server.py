"""The small server of workers and consumers: three paths, little room, and an answer for whoever asks badly."""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from redrive.observe import metrics_server
from redrive.observe.metrics_server import (
    MAX_CONNECTIONS,
    MAX_HEAD_BYTES,
    SOCKET_VARIABLE,
    Refused,
    ask,
    serving_metrics,
)

HOST = "127.0.0.1"


def _write(accept: str) -> tuple[str, str]:
    return f"accepted {accept}\n", "text/plain"


@asynccontextmanager
async def _serving(why_not: str | None = None) -> AsyncIterator[int]:
    async def is_ready() -> str | None:
        return why_not

    with capture_logs() as lines:
        async with serving_metrics(_write, is_ready, host=HOST, port=0):
            (said,) = (line["url"] for line in lines if line["event"] == "metrics_at")
            found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/metrics", said)
            assert found is not None
            yield int(found[1])


async def _say(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(request)
    try:
        return await asyncio.wait_for(reader.read(), 5)
    except ConnectionResetError:  # it was closed with something unread
        return b""
    finally:
        writer.close()


def _get(path: str, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nhost: a\r\nAccept: something\r\n\r\n".encode()


async def test_it_serves_three_paths_and_says_so_on_others() -> None:
    async with _serving() as port:
        assert (await _say(port, _get("/metrics"))).endswith(b"\r\n\r\naccepted something\n")
        assert (await _say(port, _get("/healthz"))).startswith(b"HTTP/1.1 200 OK\r\n")
        assert (await _say(port, _get("/readyz"))).startswith(b"HTTP/1.1 200 OK\r\n")
        assert (await _say(port, _get("/metrics", "HEAD"))).endswith(b"nosniff\r\n\r\n")
        assert (await _say(port, _get("/")))[:12] == b"HTTP/1.1 404"
        assert (await _say(port, _get("/metrics", "POST")))[:12] == b"HTTP/1.1 405"


async def test_who_is_not_ready_lives_and_says_why() -> None:
    async with _serving("The last claim did not reach the database.") as port:
        assert (await _say(port, _get("/healthz")))[:12] == b"HTTP/1.1 200"
        answer = await _say(port, _get("/readyz"))
        assert answer[:12] == b"HTTP/1.1 503"
        assert answer.endswith(b"The last claim did not reach the database.\n")


async def test_nonsense_long_heads_and_those_who_say_nothing_keep_nobody_from_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics_server, "REQUEST_WITHIN_S", 0.2)
    async with _serving() as port:
        silent = [await asyncio.open_connection(HOST, port) for _ in range(MAX_CONNECTIONS)]
        assert await _say(port, b"GET / HTTP/1.1\r\nx: " + b"y" * MAX_HEAD_BYTES * 2) == b""
        for reader, writer in silent:
            assert await asyncio.wait_for(reader.read(), 5) == b""
            writer.close()
        assert (await _say(port, b"\xff\r\n\r\n"))[:12] == b"HTTP/1.1 405"
        assert (await _say(port, _get("/metrics")))[:12] == b"HTTP/1.1 200"


async def test_a_port_that_is_taken_is_refused_with_what_to_do() -> None:
    async with _serving() as port:
        with pytest.raises(Refused, match=f"port {port}.*--metrics-port"):
            async with serving_metrics(_write, metrics_server.always_ready, host=HOST, port=port):
                pass


async def test_a_child_answers_its_parent_on_a_socket_without_a_port(monkeypatch: pytest.MonkeyPatch) -> None:
    name = secrets.token_hex(16)
    monkeypatch.setenv(SOCKET_VARIABLE, name)
    with pytest.raises(OSError):  # noqa: PT011 - nobody is there yet
        await ask(name, "", within_s=1)
    async with serving_metrics(_write, metrics_server.always_ready, host=HOST, port=1):
        assert await ask(name, "anything", within_s=5) == "accepted anything\n"
    with pytest.raises(OSError):  # noqa: PT011
        await ask(name, "", within_s=1)
