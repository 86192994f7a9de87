"""What a worker knows of steps that it is about to try."""

from typing import Any, cast
from uuid import UUID

from redrive.core.ports import Job
from redrive.core.step_ports import StepTerms
from redrive.destinations.steps import KEPT_S, Known


class Book:
    async def terms(self, jobs: list[Job]) -> list[StepTerms]:
        return [cast(StepTerms, Named(job.id)) for job in jobs]


class Named:
    def __init__(self, task_id: UUID) -> None:
        self.task_id = task_id


def job(n: int) -> Job:
    return cast(Job, cast(Any, Job)._make([*[None] * (len(Job._fields))])._replace(id=UUID(int=n), fence=1))


async def test_what_is_never_tried_is_not_remembered_for_ever() -> None:
    now = 0.0
    known = Known(cast(Any, Book()), now=lambda: now)
    await known.prepare([job(1), job(2)])
    assert known.take(job(1)) is not None
    now = KEPT_S - 1
    await known.prepare([job(3)])
    assert known.take(job(2)) is not None
    await known.prepare([job(2)])
    now = 2 * KEPT_S
    await known.prepare([job(4)])
    assert (known.take(job(2)), known.take(job(3))) == (None, None)
    assert known.take(job(4)) is not None
