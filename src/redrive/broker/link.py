"""Connections to RabbitMQ: one of the nodes that can be reached, and what went wrong in words without secrets.

Used by broker.publisher and by the sources. A connection that is lost is not mended: whoever has it ends with it, and
asks for another.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from aiormq.abc import AbstractChannel, AbstractConnection, ExceptionType, TimeoutType
from aiormq.connection import Connection
from aiormq.exceptions import (
    AMQPConnectionError,
    AMQPError,
    ChannelInvalidStateError,
    InvalidFrameError,
    ProbableAuthenticationError,
)
from yarl import URL

import redrive.broker.wire  # noqa: F401 - before anything is read

CONNECT_TIMEOUT_S = 10.0
CLOSE_TIMEOUT_S = 1.0
HEARTBEAT_S = 10  # what is silent for three of them is gone
FIRST_WAIT_S = 0.2
LONGEST_WAIT_S = 10.0

logging.getLogger("aiormq").setLevel(logging.CRITICAL)  # all that it would say is said by those who use it

# What the library raises where a connection or channel is gone. A RuntimeError: the channel was closed before the call.
LOST = (AMQPError, OSError, RuntimeError, TimeoutError)


class BrokerDown(Exception):
    """RabbitMQ cannot be reached, or went away. `possible_duplicate`: it may have taken what was published."""

    def __init__(self, message: str, *, possible_duplicate: bool = False) -> None:
        super().__init__(message)
        self.possible_duplicate = possible_duplicate


class _Connection(Connection):
    """Whatever ends it, whoever waits for it hears of an error of AMQP.

    The library raises a bare Exception where the broker hangs up right behind a frame, and whatever it stumbled over in
    one; and cancels where nothing came for long: nobody could tell that from being told to stop.
    """

    async def close(
        self,
        exc: ExceptionType | None = asyncio.CancelledError,
        timeout: TimeoutType = None,  # noqa: ASYNC109 - the library's
    ) -> None:
        if self.connected.is_set() and not isinstance(exc, AMQPError):
            exc = AMQPConnectionError(said(exc) if isinstance(exc, Exception) else "it was closed")
        await super().close(exc, timeout)


async def connect(urls: Sequence[str], *, name: str) -> AbstractConnection:
    """A connection to one of the nodes, whichever answers first in a random order."""
    problems: list[str] = []
    for url in random.sample(list(urls), len(urls)):
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                connection = _Connection(_named(url, name))
                await connection.connect()
                return connection
        except LOST as problem:
            problems.append(f"{_place(url)}: {said(problem)}")
    raise BrokerDown("RabbitMQ cannot be reached. " + "; ".join(problems))


async def close(open_one: AbstractConnection | AbstractChannel) -> None:
    """Also where it is lost already."""
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await open_one.close()
    except LOST:
        return


@asynccontextmanager
async def scratch(connection: AbstractConnection) -> AsyncIterator[AbstractChannel]:
    """A channel for questions whose answer may be that it is closed."""
    channel = await connection.channel(publisher_confirms=False)
    try:
        yield channel
    finally:
        await close(channel)


def said(problem: BaseException) -> str:
    """What the library says, for a person. It names no password: those are in URLs, which are not repeated."""
    if isinstance(problem, ProbableAuthenticationError):
        return "the user or password is refused, or may not use this vhost"
    if isinstance(problem, InvalidFrameError):
        return "it does not open this vhost: there is none of this name, or the user may not use it"
    if isinstance(problem, TimeoutError):
        return "no answer in time"
    if isinstance(problem, ChannelInvalidStateError | RuntimeError):
        return "it was closed"  # the library's words name the object
    if isinstance(problem, OSError) and problem.strerror:
        return problem.strerror
    words = " ".join(str(part) for part in problem.args if part is not None)
    return words or type(problem).__name__


class Patience:
    """How long to wait before the next try to reach the broker: doubled from time to time, never quite the same."""

    def __init__(self) -> None:
        self._wait_s = FIRST_WAIT_S

    def next_s(self) -> float:
        wait_s, self._wait_s = self._wait_s, min(self._wait_s * 2, LONGEST_WAIT_S)
        return wait_s * random.uniform(0.5, 1.0)  # noqa: S311

    def restore(self) -> None:
        self._wait_s = FIRST_WAIT_S


def _named(url: str, name: str) -> URL:
    """What the URL says itself wins."""
    parsed = URL(url)
    return parsed.update_query({"heartbeat": str(HEARTBEAT_S), "name": name} | dict(parsed.query))


def _place(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
