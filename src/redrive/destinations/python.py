"""Handlers: Python callables that a user registers, with the same retries, logs and dead letters as a webhook.

Called by engine.worker. Coroutine functions run in the loop; plain functions run in threads of their own.
"""

import asyncio
import inspect
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from json import dumps, loads
from typing import Any
from uuid import UUID

from redrive.core.classify import failure_of
from redrive.core.outcome import Category, Failure, Success
from redrive.core.ports import HANDLER_QUEUE_PREFIX, Exchange, Job, Try

MAX_THREADS = 64
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
    def __init__(self, handlers: Mapping[str, Handler], *, threads: int = MAX_THREADS) -> None:
        self._handlers = dict(handlers)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="redrive-handler")

    @property
    def queues(self) -> Sequence[str]:
        return tuple(HANDLER_QUEUE_PREFIX + name for name in self._handlers)

    async def prepare(self, jobs: Sequence[Job]) -> None:
        """Handlers need nothing."""

    async def attempt(self, job: Job, now: datetime) -> Try:
        name = job.queue.removeprefix(HANDLER_QUEUE_PREFIX)
        task = Task(job.id, name, job.body, job.attempts + 1, job.org_id, job.event_id, job.correlation_id)
        try:
            async with asyncio.timeout(job.timeout_s) as limit:
                result = await self._call(self._handlers[name], task)
        except TimeoutError as error:
            if not limit.expired():  # the handler's own
                return Try(failure_of(error, traceback.format_exc()))
            # A thread cannot be stopped: it may still act after this.
            message = f"The handler {name!r} did not finish within {job.timeout_s:g} s."
            return Try(Failure(Category.TIMEOUT, message, possible_duplicate=True))
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is classified
            return Try(failure_of(error, traceback.format_exc()))
        return Try(Success(), Exchange(response_body=_stored(result)))

    async def _call(self, handler: Handler, task: Task) -> Any:
        if inspect.iscoroutinefunction(handler):
            return await handler(task)
        context = copy_context()
        result = await asyncio.get_running_loop().run_in_executor(self._threads, partial(context.run, handler, task))
        return await result if inspect.isawaitable(result) else result

    async def aclose(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


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
