"""How background jobs go: what a process notes of those it runs, and what it tells others. Pure.

A loop wraps each of its turns in `JobRecord.run`; engine.jobs reports the records, store.jobs keeps them. Many
processes run the same job: whichever of them succeeds, the job has.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from redrive.core.brief import brief


class JobKind(NamedTuple):
    """A job, how often it is expected to succeed, and what it does, as words behind "which"."""

    name: str
    every_s: float
    does: str


HEARTBEAT = JobKind("heartbeat", 15, "says that workers are there")
HEALTH = JobKind("health", 10, "counts how endpoints do, and disables those that only fail")
JANITOR = JobKind("janitor", 3600, "removes what the policies no longer keep, and lets die what is too old")
OPERATIONS = JobKind("operations", 5, "moves bulk actions on")
HERALD = JobKind("herald", 1, "tells people of dead letters, alerts and other notices")
RELEASER = JobKind("releaser", 2, "lets held tasks go on that nothing holds any more")
STATISTICS = JobKind("statistics", 2, "keeps the planner of the database informed")
CALLBACKS = JobKind("callbacks", 60, "calls what Python programs registered for dead letters")
COLLECTOR = JobKind("collector", 10, "empties dead-letter queues of RabbitMQ")
ALERTS = JobKind("alerts", 10, "looks whether an alert is due, or over")
KINDS = {
    kind.name: kind
    for kind in (HEARTBEAT, HEALTH, JANITOR, OPERATIONS, HERALD, RELEASER, STATISTICS, CALLBACKS, COLLECTOR, ALERTS)
}


class JobReport(NamedTuple):
    """How a job goes in one process. Ages are seconds; None: that never happened there."""

    name: str
    every_s: float
    began_age_s: float | None
    ended_age_s: float | None
    succeeded_age_s: float | None
    failed_age_s: float | None
    error: str | None


class JobBook(Protocol):
    """Where processes say how their jobs go."""

    async def report(self, reports: Sequence[JobReport]) -> None: ...

    async def leave(self, names: Sequence[str]) -> None:
        """This process runs them no more. Where no other does either, nobody expects them to run."""
        ...


class JobRecord:
    """A job as this process runs it; `every_s`: how often it is expected to succeed. `now`: the process's own clock.

    Noting costs two looks at the clock, so a loop may do it at every turn.
    """

    __slots__ = ("_now", "began_at", "ended_at", "error", "every_s", "failed_at", "name", "succeeded_at")

    def __init__(self, name: str, every_s: float, now: Callable[[], float]) -> None:
        self.name = name
        self.every_s = every_s
        self._now = now
        self.began_at: float | None = None
        self.ended_at: float | None = None
        self.succeeded_at: float | None = None
        self.failed_at: float | None = None
        self.error: str | None = None

    @contextmanager
    def run(self) -> Iterator[None]:
        """One turn. What it raises is noted and goes on; one that is cancelled has not ended."""
        self.begin()
        try:
            yield
        except Exception as error:
            self.fail(brief(error))
            raise
        self.succeed()

    def begin(self) -> None:
        self.began_at = self._now()

    def succeed(self) -> None:
        self.ended_at = self.succeeded_at = self._now()

    def fail(self, error: str) -> None:
        self.ended_at = self.failed_at = self._now()
        self.error = error

    def report(self) -> JobReport:
        now = self._now()
        return JobReport(
            self.name,
            self.every_s,
            _age(self.began_at, now),
            _age(self.ended_at, now),
            _age(self.succeeded_at, now),
            _age(self.failed_at, now),
            self.error,
        )


def _age(at: float | None, now: float) -> float | None:
    return None if at is None else max(0.0, now - at)
