"""Reading request bodies within limits: of one body, of all that are being read, and of time.

A body that is too large is refused while it streams in; the rest of it is not kept. Used by front_door and guard.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from redrive.api.problems import Problem, too_large, unavailable

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

BODY_TIMEOUT_S = 30.0
MAX_READING_BYTES = 64 * 1024 * 1024


class Disconnected(Exception):
    """The client went away before its request was whole: nobody is left to answer."""


class BodyRefused(Problem):
    """The rest of the body is not wanted: the connection ends with the answer."""

    @classmethod
    def of(cls, problem: Problem) -> "BodyRefused":
        return cls(problem.status, problem.detail, headers=problem.headers)


class BodyReader:
    """Counts what all requests together have read and not yet used."""

    def __init__(self) -> None:
        self._reading_bytes = 0

    async def read(self, receive: Receive, declared_bytes: bytes | None, limit_bytes: int) -> bytes:
        if declared_bytes is not None and declared_bytes.isdigit() and int(declared_bytes[:20]) > limit_bytes:
            raise BodyRefused.of(too_large(limit_bytes))
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                return await self._read(receive, limit_bytes)
        except TimeoutError:
            raise BodyRefused(408, f"The body did not arrive within {BODY_TIMEOUT_S:.0f} s.") from None

    async def _read(self, receive: Receive, limit_bytes: int) -> bytes:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        body: bytes = message.get("body", b"")
        if message.get("more_body", False):
            return await self._read_on(receive, body, limit_bytes)
        if len(body) > limit_bytes:
            raise BodyRefused.of(too_large(limit_bytes))
        return body

    async def _read_on(self, receive: Receive, first: bytes, limit_bytes: int) -> bytes:
        parts = [first]
        size = len(first)
        self._reading_bytes += size
        try:
            while True:
                if size > limit_bytes:
                    raise BodyRefused.of(too_large(limit_bytes))
                if self._reading_bytes > MAX_READING_BYTES:
                    raise BodyRefused.of(unavailable("Too many large requests are being read. Try again."))
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Disconnected
                part: bytes = message.get("body", b"")
                parts.append(part)
                size += len(part)
                self._reading_bytes += len(part)
                if not message.get("more_body", False):
                    break
        finally:
            self._reading_bytes -= size
        if size > limit_bytes:
            raise BodyRefused.of(too_large(limit_bytes))
        return b"".join(parts)
