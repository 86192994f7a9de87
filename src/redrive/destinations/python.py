"""Handlers: Python callables that a user registers, with the same retries, logs and dead letters as a webhook.

Called by engine.worker. Coroutine functions run in the loop; plain functions run in daemon threads.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import copy_context
from datetime import datetime
from functools import partial
from json import dumps
from typing import Any

from redrive.core.outcome import Category, Failure, Success
from redrive.core.ports import HANDLER_QUEUE_PREFIX, STEP_HANDLER_PREFIX, Exchange, Job, Released, Try
from redrive.core.step_ports import StepBook
from redrive.core.steps import MAX_OUTPUT_BYTES
from redrive.core.trace import passed_on
from redrive.destinations.handler_calls import call_handler
from redrive.destinations.handler_tasks import StepTask, Task, json_of
from redrive.destinations.steps import UNREADABLE, Known, not_to_be_tried, output_problem
from redrive.destinations.threads import DaemonThreads
from redrive.observe import traces

MAX_THREADS = 64
SLOT_WAIT_S = 3.0  # for a thread to come free: a fifth of a lease's margin, unless that is set
MAX_RESULT_BYTES = 65_536
MAX_MESSAGE_CHARS = 500

Handler = Callable[[Any], Awaitable[Any] | Any]  # with a Task, or a StepTask


class HandlerDestination:
    """`slot_wait_s` comes on top of a try's time-out, and the lease must outlast both: give it a part of the margin."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        *,
        steps: StepBook | None = None,
        threads: int = MAX_THREADS,
        slot_wait_s: float = SLOT_WAIT_S,
    ) -> None:
        self._handlers = dict(handlers)
        self._book = steps
        self._known = Known(steps) if steps is not None else None
        self._threads = DaemonThreads(threads, name="redrive-handler")
        self._slot_wait_s = slot_wait_s

    @property
    def queues(self) -> Sequence[str]:
        prefixes = [HANDLER_QUEUE_PREFIX] if self._known is None else [HANDLER_QUEUE_PREFIX, STEP_HANDLER_PREFIX]
        return tuple(prefix + name for prefix in prefixes for name in self._handlers)

    async def prepare(self, jobs: Sequence[Job]) -> None:
        """Plain calls need nothing."""
        steps = [job for job in jobs if job.run_id is not None]
        if steps and self._known is not None:
            await self._known.prepare(steps)

    async def attempt(self, job: Job, now: datetime) -> Try | Released:
        name = job.queue.partition(":")[2]
        task = self._task(job, name)
        if isinstance(task, Try | Released):
            return task
        handler = self._handlers[name]
        if inspect.iscoroutinefunction(handler):
            return await _tried(partial(handler, task), task, job.timeout_s)
        wait_s = min(job.timeout_s, self._slot_wait_s)
        if not await self._threads.take(wait_s):
            return Released(f"Not tried: no thread came free for the handler {name!r} within {wait_s:g} s.")
        return await _tried(partial(self._in_thread, handler, task), task, job.timeout_s)

    def _task(self, job: Job, name: str) -> Task | Try | Released:
        traced = passed_on(job, tracing=traces.is_on())
        facts = (job.id, name, job.body, job.attempts + 1, job.org_id, job.event_id, job.correlation_id, traced)
        if job.run_id is None or self._known is None or self._book is None:
            return Task(*facts)
        terms = self._known.take(job)
        if terms is None:
            return UNREADABLE
        return not_to_be_tried(terms) or StepTask(*facts, terms=terms, book=self._book)

    async def _in_thread(self, handler: Handler, task: Task) -> Any:
        result = await self._threads.run(partial(copy_context().run, handler, task))
        return await result if inspect.isawaitable(result) else result

    async def aclose(self) -> None:
        """Nothing to close: a handler still in its thread ends with the process at the latest."""


async def _tried(call: Callable[[], Awaitable[Any]], task: Task, timeout_s: float) -> Try:
    with traces.current(task.traceparent):
        done = await call_handler(call, task.name, timeout_s)
    if isinstance(done, Failure):
        return Try(done)
    if isinstance(task, StepTask):
        return _step_done(task, done.value)
    return Try(Success(), Exchange(response_body=_stored(done.value)))


def _step_done(task: StepTask, result: object) -> Try:
    """What a step leaves to those behind it must be JSON: they would get something else than was given."""
    try:
        output = json_of(result)
    except (TypeError, ValueError, RecursionError) as error:
        return _unusable(task, f"is not JSON: {error}")
    wrong = output_problem(output)
    if wrong is not None:
        return _unusable(task, f"others cannot read: {wrong}")
    is_cut = len(output) > MAX_OUTPUT_BYTES
    shown = Exchange(response_body=None if result is None else output[:MAX_RESULT_BYTES], truncated=is_cut)
    return Try(Success(), shown, None if is_cut else output, is_cut)


def _unusable(task: StepTask, why: str) -> Try:
    message = f"The step {task.step!r} returned what {why}"
    return Try(Failure(Category.VALIDATION, message[:MAX_MESSAGE_CHARS], possible_duplicate=True))


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
