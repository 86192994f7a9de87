"""Handlers: Python callables that a user registers, with the same retries, logs and dead letters as a webhook.

Called by engine.worker. Coroutine functions run in the loop; plain functions run in daemon threads.
"""

import asyncio
import inspect
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from json import dumps, loads
from typing import Any
from uuid import UUID

from redrive.core.classify import failure_of
from redrive.core.outcome import Category, Failure, Success
from redrive.core.ports import HANDLER_QUEUE_PREFIX, Exchange, Job, Released, Try
from redrive.destinations.threads import DaemonThreads

MAX_THREADS = 64
SLOT_WAIT_S = 3.0  # for a thread to come free: a fifth of a lease's margin, unless that is set
MAX_RESULT_BYTES = 65_536

Handler = Callable[["Task"], Awaitable[Any] | Any]


@dataclass(frozen=True, slots=True)
class Task:
    """What a handler gets. `idempotency_key` is the same for every try: hand it on to whatever must act once."""

    id: UUID
    name: str
    body: bytes
    attempt: int
    org_id: UUID
    event_id: UUID
    correlation_id: str | None

    @property
    def payload(self) -> Any:
        """The body as JSON."""
        return loads(self.body)

    @property
    def idempotency_key(self) -> str:
        return str(self.event_id)


class HandlerDestination:
    """`slot_wait_s` comes on top of a try's time-out, and the lease must outlast both: give it a part of the margin."""

    def __init__(
        self, handlers: Mapping[str, Handler], *, threads: int = MAX_THREADS, slot_wait_s: float = SLOT_WAIT_S
    ) -> None:
        self._handlers = dict(handlers)
        self._threads = DaemonThreads(threads, name="redrive-handler")
        self._slot_wait_s = slot_wait_s

    @property
    def queues(self) -> Sequence[str]:
        return tuple(HANDLER_QUEUE_PREFIX + name for name in self._handlers)

    async def prepare(self, jobs: Sequence[Job]) -> None:
        """Handlers need nothing."""

    async def attempt(self, job: Job, now: datetime) -> Try | Released:
        name = job.queue.removeprefix(HANDLER_QUEUE_PREFIX)
        handler = self._handlers[name]
        task = Task(job.id, name, job.body, job.attempts + 1, job.org_id, job.event_id, job.correlation_id)
        if inspect.iscoroutinefunction(handler):
            return await _tried(partial(handler, task), name, job.timeout_s)
        wait_s = min(job.timeout_s, self._slot_wait_s)
        if not await self._threads.take(wait_s):
            return Released(f"Not tried: no thread came free for the handler {name!r} within {wait_s:g} s.")
        return await _tried(partial(self._in_thread, handler, task), name, job.timeout_s)

    async def _in_thread(self, handler: Handler, task: Task) -> Any:
        result = await self._threads.run(partial(copy_context().run, handler, task))
        return await result if inspect.isawaitable(result) else result

    async def aclose(self) -> None:
        """Nothing to close: a handler still in its thread ends with the process at the latest."""


async def _tried(call: Callable[[], Awaitable[Any]], name: str, timeout_s: float) -> Try:
    """Call a handler within its time. Whatever it raises is a failed try, even SystemExit: that would end the loop."""
    try:
        async with asyncio.timeout(timeout_s) as limit:
            result = await call()
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and _told_to_stop():
            raise
        if isinstance(error, TimeoutError) and limit.expired():
            # A thread cannot be stopped: it may still act after this.
            message = f"The handler {name!r} did not finish within {timeout_s:g} s."
            return Try(Failure(Category.TIMEOUT, message, possible_duplicate=True))
        return Try(failure_of(error, traceback.format_exc()))
    return Try(Success(), Exchange(response_body=_stored(result)))


def _told_to_stop() -> bool:
    """Whether this try itself is being cancelled. Else a CancelledError comes from something the handler waited for."""
    this = asyncio.current_task()
    return this is not None and this.cancelling() > 0


def _stored(result: object) -> bytes | None:
    """A handler's result, kept where it can be shown: JSON, or its text."""
    if result is None:
        return None
    try:
        text = dumps(result)
    except (TypeError, ValueError, RecursionError):
        text = _text(result)
    return text.encode("utf-8", "replace")[:MAX_RESULT_BYTES]


def _text(result: object) -> str:
    try:
        return str(result)
    except Exception:  # noqa: BLE001 - a foreign __str__ may raise anything; the handler has succeeded all the same
        return f"<{type(result).__qualname__}>"
