"""Drive each rule of alerts over its threshold, and back, on a real database under a clock in the test's hands.

    async with driven(engine, clock) as drive:      # the clock: now_clock()
        trouble = drive.of("failure_rate")
        await trouble.begin()
        assert await drive.look() == 1
        await trouble.end()
        assert await drive.look() == 1

`look` is a round of the evaluator; time passes between two, so that each is a round of its own. Some troubles make
other rules fire as well (what dies also arrives among the dead letters): `drive.set(rule, enabled=False)` leaves those
out.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

import asyncpg

from redrive.core.alerts import RULES, read_terms
from redrive.core.breaker import BreakerState
from redrive.core.jobs import HERALD, JobReport
from redrive.core.ports import WorkerCard
from redrive.store.alert_rounds import AlertRounds
from redrive.store.alerts import put_rule
from redrive.store.db import Record
from redrive.store.endpoint_states import BreakerStates
from redrive.store.jobs import JobRows
from redrive.store.orgs import new_id
from redrive.store.workers import Workers
from support.engine import PERSON, Engine, ManualClock

EVERY_S = 10.0
BILLING = "billing"


@dataclass(slots=True)
class Trouble:
    begin: Callable[[], Awaitable[None]]
    end: Callable[[], Awaitable[None]]


@dataclass(slots=True)
class Drive:
    """Troubles of an engine's org. `job` and `transaction` need the org to be "default", as an engine's is."""

    engine: Engine
    clock: ManualClock
    every_s: float = EVERY_S
    kept: list[asyncpg.Connection] = field(default_factory=list)

    @property
    def rounds(self) -> AlertRounds:
        return AlertRounds(self.engine.db, self.clock, every_s=self.every_s)

    async def look(self) -> int | None:
        """A round, after so much time that there is one. How many incidents began or ended."""
        self.clock.advance(self.every_s)
        return await self.rounds.look()

    async def looks(self, seconds: float) -> int:
        """As many rounds as there are in so long."""
        return sum([await self.look() or 0 for _ in range(round(seconds / self.every_s))])

    async def incidents(self, rule: str | None = None) -> list[Record]:
        return await self.engine.sql.fetch(
            "SELECT * FROM redrive.alert WHERE rule = coalesce($1, rule) ORDER BY opened_at, id", rule
        )

    async def firing(self) -> dict[str, int]:
        """How many incidents are not over, by rule."""
        return {row["rule"]: row["n"] for row in await self.engine.db.fetch("alerts_everywhere")}

    async def notices(self) -> list[Record]:
        """Of alerts, in the order that they were written."""
        return await self.engine.sql.fetch(
            "SELECT * FROM redrive.notice WHERE kind LIKE 'alert.%' ORDER BY at, kind DESC, id"
        )

    async def set(self, rule: str, **given: object) -> None:
        async with self.engine.app.tenant(self.engine.org_id) as session:
            await put_rule(session, RULES[rule], read_terms(RULES[rule], given), PERSON, self.clock)

    def of(self, rule: str) -> Trouble:
        """What makes the rule fire, with its defaults, and what ends that. Each is to be called once."""
        troubles: Mapping[str, Callable[[], Trouble]] = {
            "failure_rate": self._failures,
            "dead_letters_open": lambda: self._letters(51),
            "dead_letter_arrived": lambda: self._letters(1),
            "oldest_due": self._lateness,
            "slow_delivery": self._slowness,
            "endpoint_open": self._open_breaker,
            "endpoint_disabled": self._disabling,
            "no_worker": self._no_worker,
            "job_stale": self._stale_job,
            "long_transaction": self._transaction,
        }
        return troubles[rule]()

    # -- of an org ---------------------------------------------------------------------------------------------------

    async def deliver(self, count: int, *, dying: int = 0, after_s: float = 0) -> list[UUID]:
        """So many tasks end; the ids of those that die."""
        await self.engine.accept_many(count)
        self.clock.advance(after_s)
        jobs = await self.engine.claim(count)
        assert len(jobs) == count
        for n, job in enumerate(jobs):
            await (self.engine.kill(job) if n < dying else self.engine.succeed(job))
        return [job.id for job in jobs[:dying]]

    async def endpoint(self) -> UUID:
        """One that takes everything; made where it is not there."""
        found = await self.engine.sql.fetchval("SELECT id FROM redrive.endpoint WHERE name = $1", BILLING)
        return found or await self.engine.endpoint(BILLING)

    def _failures(self) -> Trouble:
        async def begin() -> None:
            await self.endpoint()
            await self.deliver(20, dying=2)

        async def end() -> None:
            await self.deliver(100)

        return Trouble(begin, end)

    def _letters(self, count: int) -> Trouble:
        dead: list[UUID] = []

        async def begin() -> None:
            await self.endpoint()
            dead.extend(await self.deliver(count, dying=count))

        async def end() -> None:
            for task_id in dead[: max(1, count // 4)]:  # as many as are needed
                assert await self.engine.mark_letter(task_id, "resolved") is None

        return Trouble(begin, end)

    def _lateness(self) -> Trouble:
        async def begin() -> None:
            await self.endpoint()
            await self.engine.accept()
            self.clock.advance(3_601)

        async def end() -> None:
            await self.engine.succeed(await self.engine.claim_one())

        return Trouble(begin, end)

    def _slowness(self) -> Trouble:
        async def begin() -> None:
            await self.endpoint()
            await self.deliver(20, after_s=200)

        async def end() -> None:
            self.clock.advance(16 * 60)
            await self.deliver(20)

        return Trouble(begin, end)

    def _open_breaker(self) -> Trouble:
        states = BreakerStates(self.engine.db, self.clock)

        async def begin() -> None:
            assert await states.open_breaker(
                self.engine.org_id,
                await self.endpoint(),
                taken_for=BreakerState.CLOSED,
                reason="9 of 10 failed",
            )

        async def end() -> None:
            endpoint_id = await self.endpoint()
            self.clock.advance(1)
            assert await states.begin_ramp(self.engine.org_id, endpoint_id)
            assert await states.close_breaker(self.engine.org_id, endpoint_id)

        return Trouble(begin, end)

    def _disabling(self) -> Trouble:
        async def begin() -> None:
            endpoint_id = await self.endpoint()
            url = await self.engine.sql.fetchval("SELECT url FROM redrive.endpoint WHERE id = $1", endpoint_id)
            org_id = self.engine.org_id
            assert await self.engine.tasks.disable_endpoint(org_id, endpoint_id, "It answered 410 Gone.", tried_url=url)

        async def end() -> None:
            await self.engine.change_endpoint(await self.endpoint(), disabled=False)

        return Trouble(begin, end)

    # -- of the installation -----------------------------------------------------------------------------------------

    def _no_worker(self) -> Trouble:
        workers = Workers(self.engine.db, self.clock)
        card = WorkerCard(new_id(), "here", 1, "1", ("http",), 1)

        async def begin() -> None:
            await workers.beat(card)
            await self.looks(60)

        async def end() -> None:
            self.clock.advance(self.every_s)
            await workers.beat(card)
            self.clock.advance(-self.every_s)

        return Trouble(begin, end)

    def _stale_job(self) -> Trouble:
        jobs = JobRows(self.engine.db, self.clock)

        def report(age_s: float) -> JobReport:
            return JobReport(HERALD.name, HERALD.every_s, age_s, age_s, age_s, None, None)

        async def begin() -> None:
            await jobs.report([report(0)])
            await self.looks(60)
            await jobs.report([report(60)])

        async def end() -> None:
            await jobs.report([report(0)])

        return Trouble(begin, end)

    def _transaction(self) -> Trouble:
        """The database says since when it is open. So the clock must have begun at the real time, as now_clock does."""

        async def begin() -> None:
            other = await asyncpg.connect(self.engine.url, server_settings={"application_name": "a long report"})
            self.kept.append(other)
            await other.execute("BEGIN; SELECT 1")
            ahead = datetime.now(UTC) + timedelta(seconds=1_801)
            self.clock.advance((ahead - self.clock.now()).total_seconds())

        async def end() -> None:
            await self.close()

        return Trouble(begin, end)

    async def close(self) -> None:
        """End what was kept open."""
        await asyncio.gather(*(connection.close() for connection in self.kept))
        self.kept.clear()


def now_clock() -> ManualClock:
    return ManualClock(datetime.now(UTC))


@asynccontextmanager
async def driven(engine: Engine, clock: ManualClock) -> AsyncIterator[Drive]:
    """A drive that has been looking for long enough to miss somebody."""
    drive = Drive(engine, clock)
    await drive.rounds.look()
    try:
        yield drive
    finally:
        await drive.close()
