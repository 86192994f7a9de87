"""What steps of workflows need from the store, and the port through which destinations get it. Pure.

As core.ports, for what only steps have.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from redrive.core.ports import Job
from redrive.core.workflow import StepSpec


class StepTerms(NamedTuple):
    """What a try of a step needs to know besides its input. Secrets inside: never log it."""

    task_id: UUID
    run_id: UUID
    step: int
    workflow: str
    spec: StepSpec  # with its headers
    idempotency_key: str
    url: str | None
    problem: str | None  # why it cannot be tried, for a person to read
    traceparent: str | None  # of the request that began the run
    endpoint_id: UUID | None  # that an event is emitted to
    is_cancelled: bool
    headers: str | None = None  # JSON: rendered since the step was first come to

    def rendered_headers(self, job: Job) -> str:
        """As JSON: what the templates of the step's headers came to."""
        return self.headers or job.headers or "{}"

    def __repr__(self) -> str:
        return f"StepTerms(run_id={self.run_id}, step={self.step})"


class StepBook(Protocol):
    """Where destinations look steps up, and what steps leave behind."""

    async def terms(self, jobs: Sequence[Job]) -> list[StepTerms]:
        """Without those of workflows that cannot be read here."""
        ...

    async def emit(self, job: Job, terms: StepTerms) -> UUID | str:
        """Hand in an event once, however often it is asked for: its id; or why it cannot be, for a person to read."""
        ...

    async def effect(self, org_id: UUID, key: str) -> bytes | None:
        """What came of an effect of this key; None: it did not happen yet."""
        ...

    async def keep_effect(self, org_id: UUID, key: str, run_id: UUID, result: bytes) -> bytes:
        """Keep what came of it; answers what counts: that of whoever was first."""
        ...
