"""Whatever happens in whatever order, the database holds what the model holds, and the conservation proof is clean.

Hypothesis drives accept, claim, settle, lost leases, late results and every action of a person against a real
PostgreSQL, and compares every row after every step.
"""

from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal, TypeVar
from uuid import UUID

from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from redrive.core.decide import Succeed
from redrive.core.outcome import Category, Failure, Success
from redrive.core.policy import Policy
from redrive.core.ports import NO_EXCHANGE, Job, Settlement
from redrive.core.presets import PRESETS
from redrive.store.check import check
from redrive.store.db import Database, Record
from redrive.store.orgs import DEFAULT_ORG, ensure_org
from support.engine import MARGIN_S, Engine, ManualClock, Shared, clear

from .model import DEAD, FOREVER, PAYLOAD, WAITING, Model, Task
from .walk import walk

EXAMPLES, STEPS = 25, 30
POLICIES: dict[str, dict[str, Any]] = {
    "usual": {"kind": "list", "delays_s": [5, 30, 300], "max_retries": 3},
    "short": {"kind": "immediate", "delays_s": [2], "max_retries": 1, "max_age_s": 600},
    "person": {"kind": "manual"},
}
TASKS = "SELECT *, due_at = 'infinity' AS forever FROM redrive.task"
TALLIES = """
  SELECT coalesce(sum(created), 0) AS created, coalesce(sum(opened), 0) AS opened,
         coalesce(sum(delivered), 0) AS delivered, coalesce(sum(failed), 0) AS failed,
         (SELECT count(*) FROM redrive.event) AS events,
         (SELECT coalesce(sum(n), 0) FROM redrive.tally, unnest(wait_counts) AS n) AS waited,
         (SELECT coalesce(sum(coalesce(delivered, failed)), 0) FROM redrive.tally WHERE tries IS NOT NULL) AS tried
    FROM redrive.pulse"""
GROUPS = "SELECT state || ' ' || fingerprint, count(*) FROM redrive.dead_letter GROUP BY 1"
GROUPS_KEPT = "SELECT state || ' ' || fingerprint, sum(n) FROM redrive.letter_count GROUP BY 1 HAVING sum(n) <> 0"
picks = st.integers(0, 10**6)
Ending = Category | Literal["succeeded", "lost", "released"]
endings: st.SearchStrategy[Ending] = st.sampled_from(
    ["succeeded", "lost", "released", Category.SERVER_ERROR, Category.TIMEOUT, Category.VALIDATION]
)
T = TypeVar("T")


class Books(RuleBasedStateMachine):
    shared: ClassVar[Shared]
    engine: ClassVar[Engine]
    janitor: ClassVar[Database]

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.model = Model(MARGIN_S)
        self.jobs: list[Job] = []
        self.endpoints: dict[UUID, Policy] = {}
        self.do(self._start())

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.shared.do(work)

    async def _start(self) -> None:
        engine = self.engine
        await clear(self.shared.owner)
        engine.clock = engine.tasks._clock = self.clock
        engine.org_id = await ensure_org(engine.db, DEFAULT_ORG, PRESETS, overridden=frozenset())
        for name, spec in POLICIES.items():
            await engine.policy(name, **spec)
            endpoint_id = await engine.endpoint(name, event_types=("all", name), policy=name)
            self.endpoints[endpoint_id] = Policy.from_spec(spec)

    def any_of(self, tasks: list[Task], pick: int) -> Task:
        """One of these, or of all when there is none: actions are mostly tried where they can do something."""
        chosen = tasks or list(self.model.tasks.values())
        assume(chosen)
        return chosen[pick % len(chosen)]

    # -- the engine ------------------------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        self.accept("all")
        self.accept("usual")

    @rule(event_type=st.sampled_from([*POLICIES, "all", "nobody"]))
    def accept(self, event_type: str) -> None:
        event_id = self.do(self.engine.accept(event_type, PAYLOAD))
        rows = self.do(self.engine.tasks_of(event_id))
        assert len(rows) == {"all": len(POLICIES), "nobody": 0}.get(event_type, 1)
        if not rows:
            self.model.inbox.add(event_id)
        for row in rows:
            now = self.clock.now()
            policy = self.endpoints[row["endpoint_id"]]
            self.model.tasks[row["id"]] = Task(row["id"], event_id, row["endpoint_id"], policy, due=now, begun=now)

    @rule(seconds=st.sampled_from([0, 5, 46, 301]), endings=st.lists(endings, min_size=1, max_size=5))
    def work(self, seconds: int, endings: list[Ending]) -> None:
        """Time passes: retries fall due, leases run out. A worker claims, and its tries end in these ways."""
        now = self.clock.advance(seconds)
        expected = self.model.claim(now, len(endings))
        jobs = self.do(self.engine.claim(len(endings)))
        assert {(job.id, job.fence, job.attempts) for job in jobs} == expected
        self.jobs += jobs
        self.settle([(job, ending) for job, ending in zip(jobs, endings, strict=False) if ending != "lost"])

    @precondition(lambda self: self.jobs)
    @rule(pick=picks, ending=endings)
    def report_late(self, pick: int, ending: Ending) -> None:
        """A lease may be open still, or lost, or settled before."""
        self.settle([(self.jobs[pick % len(self.jobs)], ending)])

    def settle(self, ended: list[tuple[Job, Ending]]) -> None:
        """All in one batch, as a worker does."""
        batch: list[Settlement] = []
        expected: list[bool] = []
        for job, ending in ended:
            now, in_time = self.clock.now(), self.model.holds(job)
            expected.append(in_time or self.model.settled_in_time(job))
            if ending == "succeeded":
                batch.append(Settlement(job, Success(200), Succeed(), NO_EXCHANGE, 0.1))
                if in_time:
                    self.model.succeed(job)
                continue
            failure = Failure(ending, f"It failed: {ending}") if isinstance(ending, Category) else None
            verdict = self.model.verdict(job, failure, now)
            batch.append(Settlement(job, failure, verdict, NO_EXCHANGE, 0.1))
            if in_time:
                self.model.fail(job, verdict, now, tried=failure is not None)
        assert [settled.held_lease for settled in self.do(self.engine.tasks.settle(batch))] == expected

    # -- people ----------------------------------------------------------------------------------------------------

    @rule(pick=picks)
    def retry_now(self, pick: int) -> None:
        task = self.any_of(
            [task for task in self.model.tasks.values() if task.state is WAITING and task.attempts], pick
        )
        assert self.do(self.engine.retry_now(task.id)) is self.model.retry_now(task, self.clock.now())

    @rule(pick=picks)
    def skip(self, pick: int) -> None:
        task = self.any_of(
            [task for task in self.model.tasks.values() if task.state is not DEAD and task.attempts], pick
        )
        assert self.do(self.engine.skip(task.id)) is self.model.skip(task)

    @rule(pick=picks, at_once=st.booleans())
    def redrive(self, pick: int, at_once: bool) -> None:
        task = self.any_of([task for task in self.model.tasks.values() if task.letter], pick)
        expected = self.model.redrive(task, self.clock.now(), at_once=at_once)
        assert self.do(self.engine.redrive(task.id, at_once=at_once)) is expected

    @rule(pick=picks, state=st.sampled_from(["resolved", "ignored", "deleted", "open"]))
    def mark(self, pick: int, state: str) -> None:
        task = self.any_of([task for task in self.model.tasks.values() if task.letter], pick)
        assert self.do(self.engine.mark_letter(task.id, state)) is self.model.mark(task, state)

    @rule(pick=picks, off=st.sampled_from([True, False, False]))
    def switch(self, pick: int, off: bool) -> None:
        endpoint_id = list(self.endpoints)[pick % len(self.endpoints)]
        if off:
            self.model.disabled.add(endpoint_id)
        else:
            self.model.enable(endpoint_id)
        self.do(self.engine.change_endpoint(endpoint_id, disabled=off))

    @rule(pick=picks)
    def acknowledge(self, pick: int) -> None:
        chosen = sorted(self.model.inbox) or sorted(self.model.events())
        if chosen:
            event_id = chosen[pick % len(chosen)]
            assert self.do(self.engine.acknowledge(event_id)) == self.model.acknowledge(event_id)

    @rule(pick=picks)
    def delete_event(self, pick: int) -> None:
        """A worker that still holds a lease of before finds nothing: it is told that it came too late."""
        stands = self.model.events()
        chosen = sorted(event_id for event_id, (status, *_) in stands.items() if status != "queued") or sorted(stands)
        if chosen:
            event_id = chosen[pick % len(chosen)]
            assert self.do(self.engine.delete_event(event_id)) is self.model.delete_event(event_id)
            self.jobs = [job for job in self.jobs if job.id in self.model.tasks]

    @rule()
    def fold(self) -> None:
        """The janitor's work beside removing: it changes nothing that anybody sees."""
        self.do(self.janitor.execute("fold_letter_counts", self.engine.org_id, 100))

    # -- what must hold --------------------------------------------------------------------------------------------

    @invariant()
    def every_row_is_as_the_model_says(self) -> None:
        self.do(self._compare())

    async def _compare(self) -> None:
        sql = self.engine.sql
        tasks = {row["id"]: _seen(row) for row in await sql.fetch(TASKS)}
        assert tasks == {
            task.id: (task.state, task.attempts, task.fence, task.generation, task.reason, task.due, task.lease_ends)
            for task in self.model.tasks.values()
        }
        letters = await sql.fetch("SELECT task_id, state FROM redrive.dead_letter")
        expected = {task.id: task.letter for task in self.model.tasks.values() if task.letter}
        assert {row["task_id"]: row["state"] for row in letters} == expected
        events = await sql.fetch("SELECT id, status, open_tasks, dead_tasks FROM redrive.event_entry")
        assert {
            row["id"]: (row["status"], row["open_tasks"], row["dead_tasks"]) for row in events
        } == self.model.events()
        attempts = await sql.fetch("SELECT task_id, fence, result FROM redrive.attempt")
        assert {(row["task_id"], row["fence"]): row["result"] for row in attempts} == {
            (task.id, fence): result for task in self.model.tasks.values() for fence, result in task.results.items()
        }
        kept = await self.engine.counts("SELECT name, sum(n) FROM redrive.counter GROUP BY 1 HAVING sum(n) <> 0")
        assert kept == self.model.counters()
        assert await self.engine.counts(GROUPS_KEPT) == await self.engine.counts(GROUPS)

    @invariant()
    def the_tallies_are_what_happened(self) -> None:
        self.do(self._compare_tallies())

    async def _compare_tallies(self) -> None:
        row = await self.engine.sql.fetchrow(TALLIES)
        assert row is not None
        states = [task.state.value for task in self.model.tasks.values()]
        ended = {state: states.count(state) for state in ("succeeded", "dead")}
        assert row["created"] >= row["events"]  # what was removed did happen
        assert row["delivered"] == row["waited"] >= ended["succeeded"]
        assert row["opened"] - row["delivered"] - row["failed"] == len(states) - sum(ended.values())
        assert row["tried"] == row["delivered"] + row["failed"]

    @invariant()
    def every_fence_but_an_open_one_has_ended(self) -> None:
        for task in self.model.tasks.values():
            is_open = task.state.value == "leased"
            assert sorted(task.results) == list(range(1, task.fence + (0 if is_open else 1)))
            assert (task.state is DEAD) == (task.reason is not None)

    def teardown(self) -> None:
        report = self.do(check(self.engine.url, now=self.clock.now(), grace_s=1e9))
        assert [(v.rule.name, v.offences) for v in report.violations] == []
        assert report.clean


def _seen(row: Record) -> tuple[str, int, int, int, str | None, datetime, datetime | None]:
    due = FOREVER if row["forever"] else row["due_at"].astimezone(UTC)
    ends = row["lease_ends_at"] and row["lease_ends_at"].astimezone(UTC)
    return row["state"], row["attempts"], row["fence"], row["generation"], row["reason"], due, ends


def test_the_database_holds_what_the_model_holds_whatever_happens(shared_database: Shared, live: Engine) -> None:
    Books.shared, Books.engine = shared_database, live
    Books.janitor = shared_database.do(live.janitor())
    walk(Books, examples=EXAMPLES, steps=STEPS)
