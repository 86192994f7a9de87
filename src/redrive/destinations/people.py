"""What mail and chat have in common: endpoints made ready, and calls in threads, a bounded number at once.

Used by destinations.mail and destinations.apprise, whose libraries block.
"""

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from redrive.core.ports import EndpointBook, EndpointTerms, Job, Released, Try
from redrive.destinations.answers import impossible
from redrive.destinations.plans import Plans
from redrive.destinations.threads import DaemonThreads

MAX_AT_ONCE = 8  # connections
SLOT_WAIT_S = 3.75  # for a thread to come free: a fourth of a lease's margin, unless that is set


class Plan(Protocol):
    """What an endpoint's deliveries need. `place` stands where others have a URL."""

    @property
    def problem(self) -> str | None: ...

    @property
    def place(self) -> str: ...


P = TypeVar("P", bound=Plan)
T = TypeVar("T")


class Counter(Generic[P]):
    """Where messages to people are handed in: `what` they are called, as many at once as there are threads.

    `slot_wait_s` comes on top of a try's time-out, and the lease must outlast both: give it a part of the margin.
    """

    def __init__(
        self,
        book: EndpointBook,
        make: Callable[[EndpointTerms], P],
        *,
        what: str,
        at_once: int,
        slot_wait_s: float,
    ) -> None:
        self._plans = Plans(book, make)
        self._threads = DaemonThreads(at_once, name=f"redrive-{what}")
        self._what = what
        self._at_once = at_once
        self._slot_wait_s = slot_wait_s

    async def prepare(self, jobs: Sequence[Job]) -> None:
        await self._plans.prepare(jobs)

    def plan_of(self, job: Job) -> P | Try:
        """Its endpoint; a try that could not be made where that is gone, or has a problem."""
        plan = self._plans.of(job)
        if plan is None:
            return impossible(None, None)
        return plan if plan.problem is None else impossible(plan.problem, plan.place)

    async def take(self, job: Job) -> Released | None:
        """A thread for the next `run`; where none came free in time, the job is given back."""
        wait_s = min(job.timeout_s, self._slot_wait_s)
        if await self._threads.take(wait_s):
            return None
        return Released(
            f"Not tried: {self._at_once} {self._what} were on their way, and none ended within {wait_s:g} s."
        )

    async def run(self, call: Callable[[], T]) -> T:
        return await self._threads.run(call)


def problem_of(terms: EndpointTerms) -> str | None:
    return f"The endpoint {terms.name!r} was deleted." if terms.deleted else terms.problem
