"""Steps of workflows that need nobody else: waiting, and handing in an event. And what all steps have in common.

Called by engine.worker. A wait is a task that falls due when it is over: to try it is to end it.
"""

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from json import dumps
from uuid import UUID

import msgspec

from redrive.core.json_depth import MAX_JSON_DEPTH, is_too_deep
from redrive.core.outcome import Category, Failure, Steer, Success
from redrive.core.ports import STEP_QUEUE, Job, Released, Try
from redrive.core.step_ports import StepBook, StepTerms
from redrive.core.workflow import StepKind

CANCELLED = "The run was cancelled."
KEPT_S = 60.0  # at most, what a try needs: it begins at once, if at all
UNREADABLE_S = 30.0  # for which a step is left to a worker that can read its workflow
UNREADABLE = Released("Not tried: this worker cannot read the step's workflow. See its log.", delay_s=UNREADABLE_S)


class Known:
    """The terms of steps that are about to be tried, each until it is taken."""

    def __init__(self, book: StepBook, *, now: Callable[[], float] = time.monotonic) -> None:
        self._book = book
        self._now = now
        self._terms: dict[tuple[UUID, int], tuple[StepTerms, float]] = {}

    async def prepare(self, jobs: Sequence[Job]) -> None:
        by_task = {terms.task_id: terms for terms in await self._book.terms(jobs)}
        now = self._now()
        self._forget(now - KEPT_S)
        for job in jobs:
            if job.id in by_task:
                self._terms[job.id, job.fence] = (by_task[job.id], now)

    def _forget(self, before: float) -> None:
        """What was prepared then and was not tried: it was too late, or too old. The oldest come first."""
        while self._terms:
            oldest = next(iter(self._terms))
            if self._terms[oldest][1] >= before:
                return
            del self._terms[oldest]

    def take(self, job: Job) -> StepTerms | None:
        terms, _ = self._terms.pop((job.id, job.fence), (None, 0.0))
        return terms


def not_to_be_tried(terms: StepTerms) -> Try | None:
    """What comes of a step that cannot be tried; None where it can."""
    if terms.is_cancelled:
        return Try(Failure(Category.UNKNOWN, CANCELLED, steer=Steer.GIVE_UP))
    if terms.problem is not None:
        return Try(Failure(Category.VALIDATION, terms.problem, steer=Steer.GIVE_UP))
    return None


def output_problem(output: bytes) -> str | None:
    """Why the steps behind could not read an output; None where they can. Templates fill it into other JSON, which
    must not become too deep of it, and what the run cannot decode it could not go on with.
    """
    try:
        msgspec.json.decode(output)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return str(error)
    return f"it is nested deeper than {MAX_JSON_DEPTH} levels" if is_too_deep(output) else None


class InnerSteps:
    def __init__(self, book: StepBook) -> None:
        self._book = book
        self._known = Known(book)

    @property
    def queues(self) -> Sequence[str]:
        return (STEP_QUEUE,)

    async def prepare(self, jobs: Sequence[Job]) -> None:
        await self._known.prepare(jobs)

    async def attempt(self, job: Job, now: datetime) -> Try | Released:
        terms = self._known.take(job)
        if terms is None:
            return UNREADABLE
        instead = not_to_be_tried(terms)
        if instead is not None:
            return instead
        if terms.spec.kind is StepKind.WAIT:
            return Try(Success(), output=b"null")
        emitted = await self._book.emit(job, terms)
        if isinstance(emitted, str):
            return Try(Failure(Category.VALIDATION, emitted, steer=Steer.GIVE_UP))
        return Try(Success(), output=dumps({"event_id": str(emitted)}).encode())

    async def aclose(self) -> None:
        """Nothing to close."""
