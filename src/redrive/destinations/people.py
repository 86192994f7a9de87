"""What mail and chat have in common: endpoints made ready, and calls in threads, a bounded number at once.

Used by destinations.mail and destinations.apprise, whose libraries block. One endpoint has a fourth of the threads at
most, and one org half of them: while a service hangs, others are told all the same.
"""

import asyncio
from collections import Counter as Tally
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar
from uuid import UUID

from redrive.core.ports import EndpointBook, EndpointTerms, Job, Released, Try
from redrive.destinations.answers import impossible
from redrive.destinations.plans import Plans
from redrive.destinations.threads import DaemonThreads

SLOT_WAIT_S = 3.75  # for a thread to come free: a fourth of a lease's margin, unless that is set


class Plan(Protocol):
    """What an endpoint's deliveries need. `place` stands where others have a URL."""

    @property
    def problem(self) -> str | None: ...

    @property
    def place(self) -> str: ...


_ALL = UUID(int=0)

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
        self._in_hand: Tally[UUID] = Tally()  # of all, of orgs, of endpoints
        self._freed = asyncio.Event()

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
        full = None
        try:
            async with asyncio.timeout(wait_s):
                while (full := self._full(job)) is not None:
                    self._freed.clear()
                    await self._freed.wait()
        except TimeoutError:
            return Released(f"Not tried: {full} were on their way, and none ended within {wait_s:g} s.")
        self._in_hand.update(key for key, _, _ in self._limits(job))
        await self._threads.take()  # one is free
        return None

    async def run(self, job: Job, call: Callable[[], T]) -> T:
        return await self._threads.run(call, ended=partial(self._give, job))

    def _limits(self, job: Job) -> Sequence[tuple[UUID, int, str]]:
        return (
            (_ALL, self._at_once, ""),
            (job.org_id, max(self._at_once // 2, 1), " of its org"),
            (job.endpoint_id or _ALL, max(self._at_once // 4, 1), " of its endpoint"),
        )

    def _full(self, job: Job) -> str | None:
        """What must end first; None where there is a thread for it."""
        for key, most, whose in self._limits(job):
            if self._in_hand[key] >= most:
                return f"{most} {self._what}{whose}"
        return None

    def _give(self, job: Job) -> None:
        self._in_hand.subtract(key for key, _, _ in self._limits(job))
        self._in_hand = +self._in_hand  # without those that have none
        self._freed.set()


def problem_of(terms: EndpointTerms) -> str | None:
    return f"The endpoint {terms.name!r} was deleted." if terms.deleted else terms.problem
