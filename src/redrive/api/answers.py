"""Writing responses: the headers that every one has, and an end to the connection where the request is not read.

Used by front_door and server on bare ASGI, and by the routes as `answer`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgspec
from fastapi import Response

from redrive.api.body import Message, Receive
from redrive.api.problems import PROBLEM_TYPE, Problem

Send = Callable[[Message], Awaitable[None]]

JSON_TYPE = b"application/json"
TEXT_TYPE = b"text/plain; charset=utf-8"
SAFETY_HEADERS = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))
LINGER_S = 2.0
MAX_LINGER_BYTES = 16 * 1024 * 1024


def answer(shape: object, status: int = 200) -> Response:
    """A JSON response. Times come out as ISO 8601 with Z, integers of any size as they are."""
    return Response(msgspec.json.encode(shape), status, media_type="application/json")


async def send_json(send: Send, status: int, body: bytes, correlation_id: str) -> None:
    await send(_start(status, JSON_TYPE, len(body), correlation_id, ()))
    await send({"type": "http.response.body", "body": body})


async def send_text(send: Send, status: int, text: str, correlation_id: str) -> None:
    body = text.encode("utf-8", "replace")
    await send(_start(status, TEXT_TYPE, len(body), correlation_id, ()))
    await send({"type": "http.response.body", "body": body})


async def send_problem(send: Send, problem: Problem, correlation_id: str) -> None:
    body = problem.body(correlation_id)
    extra = [(name.encode(), value.encode()) for name, value in problem.headers]
    await send(_start(problem.status, PROBLEM_TYPE.encode(), len(body), correlation_id, extra))
    await send({"type": "http.response.body", "body": body})


async def send_problem_and_close(receive: Receive, send: Send, problem: Problem, correlation_id: str) -> None:
    """Answer a request whose body is still coming, then end the connection.

    The answer goes out first; then what still comes is thrown away for a moment. A connection that is closed with
    unread data is reset, and a reset can overtake the answer.
    """
    body = problem.body(correlation_id)
    extra = [(name.encode(), value.encode()) for name, value in problem.headers]
    extra.append((b"connection", b"close"))
    await send(_start(problem.status, PROBLEM_TYPE.encode(), len(body), correlation_id, extra))
    await send({"type": "http.response.body", "body": body, "more_body": True})
    await _linger(receive)
    await send({"type": "http.response.body", "body": b""})


async def _linger(receive: Receive) -> None:
    seen = 0
    try:
        async with asyncio.timeout(LINGER_S):
            while seen < MAX_LINGER_BYTES:
                message = await receive()
                seen += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
    except TimeoutError:
        return


def whole_answer(
    status_line: bytes,
    content_type: bytes,
    body: bytes,
    correlation_id: str,
    *,
    first: Iterable[tuple[bytes, bytes]],
    extra: Iterable[tuple[bytes, bytes]],
) -> bytes:
    """The same answer as above, as uvicorn would write it, head and body in one piece."""
    return b"%b%bcontent-type: %b\r\ncontent-length: %d\r\nx-correlation-id: %b\r\n%b%b\r\n%b" % (
        status_line,
        _lines(first),
        content_type,
        len(body),
        correlation_id.encode("ascii"),
        _SAFETY_LINES,
        _lines(extra),
        body,
    )


def _lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join([b"%b: %b\r\n" % header for header in headers])


_SAFETY_LINES = _lines(SAFETY_HEADERS)


def _start(
    status: int, content_type: bytes, length: int, correlation_id: str, extra: Sequence[tuple[bytes, bytes]]
) -> dict[str, Any]:
    return {
        "type": "http.response.start",
        "status": status,
        "headers": [
            (b"content-type", content_type),
            (b"content-length", b"%d" % length),
            (b"x-correlation-id", correlation_id.encode("ascii")),
            *SAFETY_HEADERS,
            *extra,
        ],
    }
