"""Counts how the tries of endpoints go, and says so every few seconds. Run beside the worker, on the same loop.

The worker notes each batch that was settled: that must cost next to nothing. Meets the store through core.ports. Where
nothing can be written, what was noted is kept and comes with the next report; the worker does not depend on it.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from uuid import UUID

import structlog

from redrive.core.breaker import Verdict, delivery_verdict
from redrive.core.brief import brief
from redrive.core.jobs import HEALTH, JobRecord
from redrive.core.outcome import Success
from redrive.core.ports import HealthLedger, HealthReport, Settled
from redrive.engine.jobs import unreported
from redrive.observe.watch import Watched

REPORT_EVERY_S = 10.0
JUDGE_EVERY_S = 60.0  # which endpoints did nothing but fail for days
LAST_REPORT_WITHIN_S = 2.0  # a shutdown does not wait for a database that is away
MAX_ENDPOINTS = 20_000  # counted at a time; further ones are passed by until the next report
MAX_REPORTS = 2_000  # in one statement
MAX_MS = 2**31 - 1

log = Watched(structlog.get_logger("redrive.health"))


class _Tally:
    """What was noted of one endpoint and not reported yet. Times are the book's own."""

    __slots__ = (
        "endpoint_id",
        "failed",
        "failing_since",
        "failures",
        "last_failure_at",
        "last_success_at",
        "org_id",
        "slowest_s",
        "succeeded",
        "took_s",
    )

    def __init__(self, org_id: UUID, endpoint_id: UUID) -> None:
        self.org_id = org_id
        self.endpoint_id = endpoint_id
        self.succeeded = 0
        self.failed = 0
        self.took_s = 0.0
        self.slowest_s = 0.0
        self.last_success_at: float | None = None
        self.last_failure_at: float | None = None
        self.failing_since: float | None = None
        self.failures = 0  # since then

    def note_failure(self, at: float, took_s: float) -> None:
        self.failed += 1
        self.took_s += took_s
        self.slowest_s = max(self.slowest_s, took_s)
        self.last_failure_at = at
        if self.failing_since is None:
            self.failing_since = at
        self.failures += 1

    def precede(self, later: "_Tally") -> None:
        """Add what is older than another tally's to it."""
        later.succeeded += self.succeeded
        later.failed += self.failed
        later.took_s += self.took_s
        later.slowest_s = max(later.slowest_s, self.slowest_s)
        if later.last_success_at is None:
            later.last_success_at = self.last_success_at
            if self.failing_since is not None:
                later.failing_since = self.failing_since
            later.failures += self.failures
        if later.last_failure_at is None:
            later.last_failure_at = self.last_failure_at

    def report(self, now: float) -> HealthReport:
        return HealthReport(
            self.org_id,
            self.endpoint_id,
            self.succeeded,
            self.failed,
            round(self.took_s * 1_000),
            min(round(self.slowest_s * 1_000), MAX_MS),
            _age(self.last_success_at, now),
            _age(self.failing_since, now),
            _age(self.last_failure_at, now),
            min(self.failures, MAX_MS),
        )


class HealthBook:
    """`disable_after_s`: how long an endpoint may do nothing but fail; None: for ever."""

    def __init__(
        self,
        ledger: HealthLedger,
        *,
        disable_after_s: float | None,
        every_s: float = REPORT_EVERY_S,
        now: Callable[[], float] = time.monotonic,
        job: JobRecord | None = None,
    ) -> None:
        self._ledger = ledger
        self._disable_after_s = disable_after_s
        self._every_s = every_s
        self._now = now
        self._job = job or unreported(HEALTH)
        self._tallies: dict[UUID, _Tally] = {}
        self._judge_at = now()

    # -- noting ----------------------------------------------------------------------------------------------------

    def note_settled(self, settled: Iterable[Settled]) -> None:
        """A batch as the store answered it. Tries whose lease was lost were made all the same: they count."""
        at = self._now()
        tallies = self._tallies
        for result in settled:
            job, outcome, _, _, took_s, *_ = result.settlement
            endpoint_id = job.endpoint_id
            if endpoint_id is None:
                continue
            tally = tallies.get(endpoint_id) or self._begin(job.org_id, endpoint_id)
            if tally is None:
                continue
            if type(outcome) is Success:  # nearly all are: the short way
                tally.succeeded += 1
                tally.took_s += took_s
                if took_s > tally.slowest_s:
                    tally.slowest_s = took_s
                tally.last_success_at = at
                if tally.failures:
                    tally.failing_since, tally.failures = None, 0
            elif delivery_verdict(outcome) is Verdict.FAILED:
                tally.note_failure(at, took_s)

    def _begin(self, org_id: UUID, endpoint_id: UUID) -> _Tally | None:
        """None where there are too many."""
        if len(self._tallies) >= MAX_ENDPOINTS:
            return None
        tally = self._tallies[endpoint_id] = _Tally(org_id, endpoint_id)
        return tally

    # -- reporting -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled. Of many reports in a row that fail, the first is told."""
        is_heard = True
        while True:
            await asyncio.sleep(self._every_s)
            try:
                with self._job.run():
                    await self.report()
                    await self.judge()
            except Exception as error:  # noqa: BLE001 - the database may be away: the next report tries again
                if is_heard:
                    log.warning("health_report_failed", error=brief(error), again_in_s=self._every_s)
                is_heard = False
            else:
                is_heard = True

    async def report(self) -> None:
        """Write down what was noted. What cannot be written is kept, for the next time.

        Where the database wrote it and its answer was lost, it is counted twice: it is a statistic.
        """
        noted = [tally for tally in self._tallies.values() if tally.succeeded or tally.failed]
        self._tallies = {}
        try:
            while noted:
                now = self._now()
                await self._ledger.add([tally.report(now) for tally in noted[:MAX_REPORTS]])
                del noted[:MAX_REPORTS]
        finally:
            self._keep(noted)

    async def judge(self) -> None:
        """Disable endpoints that did nothing but fail for too long. Looked for once a minute."""
        if self._disable_after_s is None or self._now() < self._judge_at:
            return
        self._judge_at = self._now() + JUDGE_EVERY_S
        for org_id, endpoint_id, reason in await self._ledger.disable_failing(self._disable_after_s):
            log.warning("endpoint_disabled", org_id=str(org_id), endpoint_id=str(endpoint_id), why=reason)

    async def close(self) -> None:
        """The worker has drained: the last report."""
        try:
            async with asyncio.timeout(LAST_REPORT_WITHIN_S):
                await self.report()
        except Exception as error:  # noqa: BLE001 - nothing depends on it
            log.warning("health_report_failed", error=brief(error))

    def _keep(self, older: Iterable[_Tally]) -> None:
        for tally in older:
            later = self._tallies.get(tally.endpoint_id)
            if later is not None:
                tally.precede(later)
            elif len(self._tallies) < MAX_ENDPOINTS:
                self._tallies[tally.endpoint_id] = tally


def _age(at: float | None, now: float) -> float | None:
    return None if at is None else max(0.0, now - at)
