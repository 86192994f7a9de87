"""Deliveries to chat and the like, by apprise: an event is one message to the service that its endpoint's URL names.

Called by engine.worker. Needs the extra `notify`, which destinations.services loads with the first message. The URL is
a secret: neither it nor a part of it is in what is stored, logged or answered.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from importlib.util import find_spec
from json import dumps

from redrive.core.address import AddressRules
from redrive.core.channels import APPRISE_QUEUE, apprise_place, notice_queue, service_of
from redrive.core.notice_text import Told, told
from redrive.core.outcome import Category, Failure, Outcome
from redrive.core.ports import EndpointBook, EndpointTerms, Exchange, Job, Released, Try
from redrive.core.redact import redact_text
from redrive.destinations.guard import Watch
from redrive.destinations.people import SLOT_WAIT_S, Counter, problem_of
from redrive.destinations.threads import DaemonThreads

MAX_AT_ONCE = 16
JUDGE_WITHIN_S = 10.0


def is_installed() -> bool:
    return find_spec("apprise") is not None


@dataclass(frozen=True, slots=True)
class _Plan:
    problem: str | None
    service: str
    url: str = field(repr=False)

    @property
    def place(self) -> str:
        return apprise_place(self.service)


class AppriseDestination:
    def __init__(
        self,
        rules: AddressRules,
        book: EndpointBook,
        *,
        public_url: str | None = None,
        at_once: int = MAX_AT_ONCE,
        slot_wait_s: float = SLOT_WAIT_S,
    ) -> None:
        self._rules = rules
        self._public_url = public_url
        self._counter = Counter(book, _plan, what="messages", at_once=at_once, slot_wait_s=slot_wait_s)

    @property
    def queues(self) -> Sequence[str]:
        return (APPRISE_QUEUE, notice_queue(APPRISE_QUEUE))

    async def prepare(self, jobs: Sequence[Job]) -> None:
        await self._counter.prepare(jobs)

    async def attempt(self, job: Job, now: datetime) -> Try | Released:
        plan = self._counter.plan_of(job)
        if isinstance(plan, Try):
            return plan
        said = told(job.event_type, job.event_id, job.body, public_url=self._public_url)
        sent = Exchange(plan.place, dumps({"subject": redact_text(said.subject)}))
        given_back = await self._counter.take(job)
        if given_back is not None:
            return given_back
        return Try(await self._tried(job, plan.url, said), sent)

    async def _tried(self, job: Job, url: str, said: Told) -> Outcome:
        watch = Watch(self._rules, time.monotonic() + job.timeout_s)
        try:
            async with asyncio.timeout(job.timeout_s):
                return await self._counter.run(job, partial(_notify, url, said, watch))
        except TimeoutError:
            message = "The service did not take it in time."
            return Failure(Category.TIMEOUT, message, possible_duplicate=watch.has_connected)
        finally:
            watch.cut()

    async def aclose(self) -> None:
        """Nothing is kept open."""


def _plan(terms: EndpointTerms) -> _Plan:
    return _Plan(problem_of(terms), service_of(terms.apprise_url) or "unknown", terms.apprise_url)


def _notify(url: str, said: Told, watch: Watch) -> Outcome:
    from redrive.destinations.services import notify  # in the thread: to load apprise takes a second

    return notify(url, said, watch)


class ServiceJudge:
    """Whether apprise understands a URL, and may be sent there. For the API and the command line."""

    def __init__(self, rules: AddressRules) -> None:
        self._rules = rules
        self._threads: DaemonThreads | None = None

    async def __call__(self, url: str) -> str | None:
        """Why it cannot be used; None where it can. Never repeats it."""
        if self._threads is None:  # in the loop that asks
            self._threads = DaemonThreads(1, name="redrive-apprise-judge")
        if not await self._threads.take(JUDGE_WITHIN_S):
            return "could not be judged in time; try again"
        try:
            async with asyncio.timeout(JUDGE_WITHIN_S):
                return await self._threads.run(partial(_judge, url, self._rules))
        except TimeoutError:
            return "could not be judged in time; try again"


def _judge(url: str, rules: AddressRules) -> str | None:
    from redrive.destinations.services import problem_of

    watch = Watch(rules, time.monotonic() + JUDGE_WITHIN_S)
    try:
        return problem_of(url, watch)
    finally:
        watch.cut()
