"""Whatever interleaves, each lane delivers in the order of acceptance, and none stands still.

Hypothesis drives successes, failures, deaths, lost leases, late results, releases, skips, deaths of those that wait,
redrives, pauses and transactions that commit late against a real PostgreSQL. What a person sends behind the others, or
after them, is marked as such; of all the rest the order is checked. Each claimed one knows how many died before it.
"""

from collections.abc import Coroutine
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, TypeVar
from uuid import UUID

import asyncpg
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from redrive.core.decide import Reason
from redrive.core.ports import Job, Released
from redrive.core.presets import PRESETS
from redrive.store import dead_letters
from redrive.store.db import query
from redrive.store.dead_letters import Order
from redrive.store.orgs import DEFAULT_ORG, ensure_org
from redrive.store.pausing import PauseScope
from support.engine import PERSON, Connection, Engine, ManualClock, Shared, clear

from .walk import walk

EXAMPLES, STEPS = 20, 30
LANES = ["ordered", "halting", "key a", "key b"]
ENDINGS = ["succeeded", "failed", "died", "lost", "released"]
HEADS = """
  SELECT lane FROM redrive.task WHERE lane IS NOT NULL AND open AND behind IS NULL GROUP BY lane HAVING count(*) > 1"""
BEHIND = "SELECT id, event_id FROM redrive.task WHERE behind AND open ORDER BY id"
PUBLISH = "SELECT redrive.publish($1, '{}')"
picks = st.integers(0, 10**6)
T = TypeVar("T")


@dataclass(slots=True)
class Lane:
    span: dict[UUID, tuple[int, int]] = field(default_factory=dict)  # handed in, and committed
    delivered: list[UUID] = field(default_factory=list)  # the first time each, those out of order left out
    died_at: dict[int, datetime] = field(default_factory=dict)  # by place, until a delivery behind it told of it


class Lanes(RuleBasedStateMachine):
    shared: ClassVar[Shared]
    engine: ClassVar[Engine]
    callers: ClassVar[list[Connection]]  # who have no transaction open

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.lanes = {name: Lane() for name in LANES}
        self.lane_of: dict[UUID, str] = {}
        self.place_of: dict[UUID, int] = {}
        self.claimed_at: dict[UUID, datetime] = {}
        self.last_place = 0
        self.jobs: list[Job] = []
        self.dead: list[UUID] = []
        self.open: list[tuple[Connection, Any, UUID, int]] = []
        self.step = 0
        self.do(self._start())

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.shared.do(work)

    async def _start(self) -> None:
        engine = self.engine
        await clear(self.shared.owner)
        engine.clock = engine.tasks._clock = self.clock
        engine.org_id = await ensure_org(engine.db, DEFAULT_ORG, PRESETS, overridden=frozenset())
        self.ordered = await engine.endpoint("ordered", event_types=("ordered",), ordered=True)
        await engine.endpoint("halting", event_types=("halting",), ordered=True, on_block="halt")
        await engine.endpoint("keyed", event_types=("keyed",))

    # -- producers -------------------------------------------------------------------------------------------------

    @rule(names=st.lists(st.sampled_from(LANES), min_size=1, max_size=4))
    def accept(self, names: list[str]) -> None:
        """A batch, in this order."""
        events = []
        for name in names:
            key = name if name.startswith("key") else None
            events.append(self.engine.new_event("keyed" if key else name, ordering_key=key))
            self._note_place(events[-1].id)
        self.do(self.engine.accept_all(events))
        for name, event in zip(names, events, strict=True):
            self._note_accepted(name, event.id, self.step)

    @precondition(lambda self: len(self.open) < 2)
    @rule()
    def begin_a_transaction(self) -> None:
        """A caller hands in and does not commit yet."""

        async def begin() -> tuple[Connection, Any, UUID, int]:
            connection = self.callers.pop() if self.callers else await asyncpg.connect(self.engine.url)
            transaction = connection.transaction()
            await transaction.start()
            return connection, transaction, await connection.fetchval(PUBLISH, "ordered"), self._next_step()

        self.open.append(self.do(begin()))
        self._note_place(self.open[-1][2])

    @precondition(lambda self: self.open)
    @rule(pick=picks)
    def commit(self, pick: int) -> None:
        self._commit(self.open.pop(pick % len(self.open)))

    def _commit(self, begun: tuple[Connection, Any, UUID, int]) -> None:
        async def commit() -> None:
            await begun[1].commit()
            self.callers.append(begun[0])

        self.do(commit())
        self._note_accepted("ordered", begun[2], begun[3])

    def _note_accepted(self, name: str, event_id: UUID, handed_in: int) -> None:
        self.lanes[name].span[event_id] = (handed_in, self._next_step())
        self.lane_of[event_id] = name

    def _note_place(self, event_id: UUID) -> None:
        self.last_place += 1
        self.place_of[event_id] = self.last_place

    def _next_step(self) -> int:
        self.step += 1
        return self.step

    # -- workers ---------------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0, 5, 46]), endings=st.lists(st.sampled_from(ENDINGS), min_size=1, max_size=4))
    def work(self, seconds: int, endings: list[str]) -> None:
        self.clock.advance(seconds)
        jobs = self._claim(len(endings))
        for job, ending in zip(jobs, endings, strict=False):
            self._end(job, ending)

    @precondition(lambda self: self.jobs)
    @rule(pick=picks, ending=st.sampled_from(ENDINGS))
    def report_late(self, pick: int, ending: str) -> None:
        self._end(self.jobs[pick % len(self.jobs)], ending)

    def _end(self, job: Job, ending: str) -> None:
        engine = self.engine
        is_current = self.do(self._is_current(job))
        match ending:
            case "succeeded":
                # The receiver has it, whatever the books say.
                lane = self.lanes[self.lane_of[job.event_id]]
                if not job.out_of_order and job.event_id not in lane.delivered and is_current:
                    lane.delivered.append(job.event_id)
                self.do(engine.succeed(job))
                if is_current:
                    self._note_delivery(job)
            case "failed":
                self.do(engine.fail(job, 5))
            case "died":
                self.do(engine.kill(job, Reason.EXHAUSTED))
                if is_current:
                    self._note_death(job.id, job.event_id)
            case "released":
                self.do(engine.settle(job, None, Released("given back")))

    async def _is_current(self, job: Job) -> bool:
        """A worker that lost its lease stops sending before that: its late results are of tries that were in time."""
        task = await self.engine.task(job.id)
        return bool(task["fence"] == job.fence and task["state"] == "leased")

    # -- people ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.dead)
    @rule(pick=picks, order=st.sampled_from([None, "in_place", "tail"]))
    def redrive(self, pick: int, order: Order | None) -> None:
        task_id = self.dead.pop(pick % len(self.dead))

        async def redrive() -> None:
            async with self.engine.app.tenant(self.engine.org_id) as session:
                await dead_letters.redrive(session, task_id, PERSON, self.clock, roll=0.5, at_once=True, order=order)

        before = self.do(self.engine.task(task_id))["place"]
        self.do(redrive())
        task = self.do(self.engine.task(task_id))
        if task["place"] != before:
            self._note_place(task["event_id"])

    @precondition(lambda self: self.dead)
    @rule(pick=picks)
    def resolve(self, pick: int) -> None:
        self.do(self.engine.mark_letter(self.dead[pick % len(self.dead)], "resolved"))

    @precondition(lambda self: self.jobs)
    @rule(pick=picks)
    def skip(self, pick: int) -> None:
        job = self.jobs[pick % len(self.jobs)]
        if self.do(self.engine.skip(job.id)) is None:
            self._note_death(job.id, job.event_id)

    @rule()
    def pause_and_resume(self) -> None:
        self.do(self.engine.pause(PauseScope.ENDPOINT, self.ordered))
        assert all(self.lane_of[job.event_id] != "ordered" for job in self._claim(10))
        self.do(self.engine.resume(PauseScope.ENDPOINT, self.ordered))

    @rule(pick=picks)
    def end_one_that_waits(self, pick: int) -> None:
        waiting = self.do(self.engine.sql.fetch(BEHIND))
        if waiting:
            task = waiting[pick % len(waiting)]
            given = (self.clock.now(), self.engine.org_id, [task["id"]], ["unknown"], ["a cause"], ["skipped"])
            self.do(self.engine.sql.fetch(query("skip_many"), *given))
            self._note_death(task["id"], task["event_id"])

    def _claim(self, limit: int) -> list[Job]:
        jobs = self.do(self.engine.claim(limit))
        for job in jobs:
            died_at, place = self.lanes[self.lane_of[job.event_id]].died_at, self.place_of[job.event_id]
            assert job.gap == sum(one < place for one in died_at), "it tells of those that died before it"
            self.claimed_at[job.id] = self.clock.now()
        self.jobs += jobs
        return jobs

    def _note_death(self, task_id: UUID, event_id: UUID) -> None:
        self.dead.append(task_id)
        self.lanes[self.lane_of[event_id]].died_at.setdefault(self.place_of[event_id], self.clock.now())

    def _note_delivery(self, job: Job) -> None:
        """It told of those that had died before it when it was claimed."""
        died_at, place = self.lanes[self.lane_of[job.event_id]].died_at, self.place_of[job.event_id]
        for told in [one for one, at in died_at.items() if one <= place and at <= self.claimed_at[job.id]]:
            del died_at[told]

    # -- what holds ------------------------------------------------------------------------------------------------

    @invariant()
    def a_lane_has_one_head_at_most(self) -> None:
        assert self.do(self.engine.sql.fetch(HEADS)) == []

    @invariant()
    def each_lane_delivers_in_the_order_of_acceptance(self) -> None:
        """Of two that were handed in at the same time, in transactions that overlap, either may come first."""
        for lane in self.lanes.values():
            latest_begin = 0
            for handed_in, committed in (lane.span[event_id] for event_id in lane.delivered):
                assert committed > latest_begin, "it was accepted before one that was handed in later was delivered"
                latest_begin = max(latest_begin, handed_in)

    def teardown(self) -> None:
        """Everything commits, every lease ends, every letter that halts a lane is resolved: then all is delivered."""
        for begun in self.open:
            self._commit(begun)
        for task_id in self.dead:
            self.do(self.engine.mark_letter(task_id, "resolved"))
        self.clock.advance(3600)
        while jobs := self._claim(100):
            for job in jobs:
                self._end(job, "succeeded")
        self.each_lane_delivers_in_the_order_of_acceptance()
        left = self.do(self.engine.sql.fetch("SELECT id FROM redrive.task WHERE open"))
        assert left == [], "a lane stands still"


def test_each_lane_delivers_in_the_order_of_acceptance_whatever_interleaves(
    shared_database: Shared, live: Engine
) -> None:
    Lanes.shared, Lanes.engine, Lanes.callers = shared_database, live, []
    try:
        walk(Lanes, examples=EXAMPLES, steps=STEPS)
    finally:
        for caller in Lanes.callers:
            shared_database.do(caller.close())
