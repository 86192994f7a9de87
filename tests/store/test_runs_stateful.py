"""Whatever interleaves, a run takes its steps one after the other, each once, and stands where its steps say.

Hypothesis drives tries, lost leases, late results and every action of a person against a real PostgreSQL, and compares
what people see of every run with a model after every step. A trigger keeps every change of a run's status, so that none
between two looks is missed. In the end the conservation proof is clean.
"""

from collections.abc import Coroutine, Sequence
from datetime import timedelta
from itertools import count
from typing import Any, ClassVar, TypeVar
from uuid import UUID

from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from redrive.api.run_shapes import status_of
from redrive.core.decide import Die, Reason, RetryIn, Succeed
from redrive.core.lifecycle import MARKS, DeadLetterState
from redrive.core.outcome import Success
from redrive.core.ports import HTTP_STEP_QUEUE, NO_EXCHANGE, STEP_HANDLER_PREFIX, STEP_QUEUE, Job, Released, Settlement
from redrive.core.presets import PRESETS
from redrive.core.run_states import RUN_ACTS, RUN_TRANSITIONS, STEP_ACTS, STEP_TRANSITIONS, RunStatus, StepStatus
from redrive.core.workflow import Workflow
from redrive.store import replays, runs, workflows
from redrive.store.check import check
from redrive.store.orgs import DEFAULT_ORG, ensure_org, new_id
from redrive.store.pausing import PauseScope
from redrive.store.replays import Mode, Replay
from redrive.store.retry_queue import Refusal
from redrive.store.runs import NewRun, RunRefusal
from redrive.store.workflows import Version, version_of
from support.engine import (
    MARGIN_S,
    NOWHERE,
    PERSON,
    REFUSED,
    UNAVAILABLE,
    Engine,
    ManualClock,
    Shared,
    clear,
)

from .run_model import DEAD, DELETED, HELD, LEASED, OPEN, REPLAYING, WAIT_S, WAITING, Run, Step, Task
from .walk import walk

EXAMPLES, STEPS = 20, 30
MAX_RUNS = 2
TIMEOUT_S = 30.0  # of a try under the policy `workflow`
QUEUES = (STEP_QUEUE, HTTP_STEP_QUEUE, f"{STEP_HANDLER_PREFIX}work")
FIELDS: dict[str, dict[str, Any]] = {
    "http": {"url": NOWHERE},
    "handler": {"handler": "work"},
    "emit": {"event_type": "told"},
    "wait": {"wait_s": WAIT_S},
}
BODY_OF = {"http": "body", "handler": "input", "emit": "payload"}
ENDINGS = ["succeeded", "succeeded", "succeeded", "failed", "died", "lost", "released", "used up"]
WATCH = """
CREATE TABLE public.run_change (n bigint GENERATED ALWAYS AS IDENTITY, run_id uuid, was text, became text);
CREATE FUNCTION public.note_run_change() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  INSERT INTO public.run_change (run_id, was, became) VALUES (NEW.id, OLD.status, NEW.status);
  RETURN NULL;
END $$;
CREATE TRIGGER note_run_change AFTER UPDATE ON redrive.run FOR EACH ROW
  WHEN (OLD.status <> NEW.status) EXECUTE FUNCTION public.note_run_change();
"""
UNWATCH = """
DROP TRIGGER note_run_change ON redrive.run;
DROP FUNCTION public.note_run_change;
DROP TABLE public.run_change;
"""
CHANGES = "DELETE FROM public.run_change RETURNING n, was, became"
UNDER_WAY = "SELECT run_id FROM redrive.task WHERE run_id IS NOT NULL AND open GROUP BY run_id HAVING count(*) > 1"
picks = st.integers(0, 10**6)
kinds = st.lists(st.sampled_from(["handler", "http", "handler", "http", "emit", "wait"]), min_size=1, max_size=4)
T = TypeVar("T")


class Runs(RuleBasedStateMachine):
    shared: ClassVar[Shared]
    engine: ClassVar[Engine]

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.runs: list[Run] = []
        self.jobs: list[tuple[Job, Run, Task]] = []
        self.paused = False
        self.steps_seen: dict[tuple[UUID, int], StepStatus] = {}
        self.outputs = count(1)
        self.do(self._start())

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.shared.do(work)

    async def _start(self) -> None:
        engine = self.engine
        await clear(self.shared.owner)
        await self.shared.owner.execute("DELETE FROM public.run_change")
        engine.clock = self.clock
        engine.tasks = type(engine.tasks)(engine.db, self.clock)
        engine.org_id = await ensure_org(engine.db, DEFAULT_ORG, PRESETS, overridden=frozenset())

    def all_tasks(self) -> list[tuple[Run, Task]]:
        return [(run, task) for run in self.runs for task in run.tasks]

    def any_task(self, pick: int, preferred: Sequence[tuple[Run, Task]]) -> tuple[Run, Task]:
        """One of these, or of all when there is none: actions are mostly tried where they can do something."""
        chosen = list(preferred) or self.all_tasks()
        return chosen[pick % len(chosen)]

    def tick(self, seconds: float = 1.0) -> None:
        """No two things happen at the same moment, as under a real clock."""
        self.clock.advance(seconds)

    # -- producers -------------------------------------------------------------------------------------------------

    @initialize(steps=kinds)
    def begin_first(self, steps: list[str]) -> None:
        self.begin(steps)

    @precondition(lambda self: len(self.runs) < MAX_RUNS)
    @rule(steps=kinds)
    def begin(self, steps: list[str]) -> None:
        self.tick()
        run = Run(new_id(), len(self.runs), [Step(kind) for kind in steps])

        async def begin() -> list[str]:
            version = await self._put(f"w{run.n}", steps)
            asked = NewRun(run.id, b'{"n":%d}' % run.n)
            verdicts = []
            for _ in range(2):
                async with self.engine.db.transaction() as session:
                    verdicts.append(await runs.begin_run(session, version, asked, PERSON, self.clock))
            return verdicts

        assert self.do(begin()) == ["accepted", "duplicate"]
        run.enqueue(0, self.clock.now())
        self.runs.append(run)
        self.look(by_a_person=False)

    async def _put(self, name: str, kinds: Sequence[str]) -> Version:
        steps = []
        for index, kind in enumerate(kinds):
            given = {"n": "{{ input.n }}", "before": [f"{{{{ steps.s{i}.output ?? null }}}}" for i in range(index)]}
            body = {BODY_OF[kind]: given} if kind in BODY_OF else {}
            steps.append({"name": f"s{index}", "kind": kind, **FIELDS[kind], **body})
        workflow = Workflow.from_spec(name, {"steps": steps})
        async with self.engine.app.tenant(self.engine.org_id) as session:
            row, _ = await workflows.put_workflow(session, workflow, PERSON, self.clock, self.engine.sealer)
        return version_of(row, self.engine.sealer)

    # -- workers ---------------------------------------------------------------------------------------------------

    @rule(
        seconds=st.sampled_from([0, 5, 46]),
        endings=st.lists(st.sampled_from(ENDINGS), min_size=1, max_size=8),
        meanwhile=st.sampled_from([None, None, "cancel", "pause", *MARKS]),
        pick=picks,
    )
    def work(self, seconds: int, endings: list[str], meanwhile: str | None, pick: int) -> None:
        """Time passes: retries fall due, leases run out. A worker claims, somebody acts while its tries are under way,
        and they end in these ways; what follows is claimed in its turn.
        """
        self.tick(1 + seconds)
        left = list(endings)
        while left and (claimed := self.claim()):
            ended = list(zip(claimed, left, strict=False))
            left = left[len(ended) :]
            if meanwhile == "cancel":
                self.cancel(pick)
            elif meanwhile == "pause":
                self.pause_or_resume()
            elif meanwhile is not None:
                self.handle_letter(pick, meanwhile)
            meanwhile = None
            self.tick()
            self.settle([(job, run, task, ending) for (job, run, task), ending in ended if ending != "lost"])

    def claim(self) -> list[tuple[Job, Run, Task]]:
        now = self.clock.now()
        ends = now + timedelta(seconds=TIMEOUT_S + MARGIN_S)
        expected = []
        for run, task in self.all_tasks():
            if task.is_due(now) and run.lease(task, ends, paused=self.paused):
                expected.append((task.id, task.fence, run.id, task.step, task.body))
        jobs = self.do(self.engine.claim(queues=QUEUES))
        found = [(job.id, job.fence, job.run_id, job.step, job.body) for job in jobs]
        assert sorted(found, key=str) == sorted(expected, key=str)
        known = {task.id: (run, task) for run, task in self.all_tasks()}
        claimed = [(job, *known[job.id]) for job in jobs]
        self.jobs += claimed
        self.look(by_a_person=False)
        return claimed

    @precondition(lambda self: self.jobs)
    @rule(pick=picks, ending=st.sampled_from([ending for ending in ENDINGS if ending != "lost"]))
    def report_late(self, pick: int, ending: str) -> None:
        """A lease may be open still, or lost, or settled before."""
        self.tick()
        held = [(job, run, task) for job, run, task in self.jobs if run.holds(task, job.fence)]
        reported = self.jobs if pick % 3 == 0 or not held else held
        self.settle([(*reported[pick % len(reported)], ending)])

    def settle(self, ended: Sequence[tuple[Job, Run, Task, str]]) -> None:
        """All in one batch, as a worker does."""
        batch = [self._settlement(*each) for each in ended]
        if batch:
            self.do(self.engine.tasks.settle(batch))
            self.look(by_a_person=False)

    def _settlement(self, job: Job, run: Run, task: Task, ending: str) -> Settlement:
        now, output, holds = self.clock.now(), next(self.outputs), run.holds(task, job.fence)
        match ending:
            case "succeeded":
                if holds:
                    run.succeed(task, output, now)
                return Settlement(job, Success(200), Succeed(), NO_EXCHANGE, 0.1, b"%d" % output)
            case "failed":
                if holds:
                    run.wait(task, now + timedelta(seconds=5), tried=True)
                return Settlement(job, UNAVAILABLE, RetryIn(timedelta(seconds=5)), NO_EXCHANGE, 0.1)
            case "released":
                if holds:
                    run.wait(task, now, tried=False)
                return Settlement(job, None, Released("given back"), NO_EXCHANGE, 0.1)
            case "used up":  # its retries, the last one lost with its worker: none is made
                if holds:
                    run.die(task)
                return Settlement(job, None, Die(Reason.EXHAUSTED, UNAVAILABLE.category), NO_EXCHANGE, 0.1)
            case _:
                if holds:
                    task.attempts += 1
                    run.die(task)
                return Settlement(job, REFUSED, Die(Reason.PERMANENT, REFUSED.category), NO_EXCHANGE, 0.1)

    # -- people ----------------------------------------------------------------------------------------------------

    @rule(pick=picks, act=st.sampled_from(["retry now", "skip"]))
    def handle_task(self, pick: int, act: str) -> None:
        self.tick()
        run, task = self.any_task(
            pick, [(run, task) for run, task in self.all_tasks() if task.is_open and task.has_failed]
        )
        if act == "skip":
            assert self.do(self.engine.skip(self.id_of(task))) is run.skip(task)
        else:
            assert self.do(self.engine.retry_now(self.id_of(task))) is run.retry_now(
                task, self.clock.now(), paused=self.paused
            )
        self.look()

    @rule(pick=picks, act=st.sampled_from(["redrive", "redrive at once", *MARKS]))
    def handle_letter(self, pick: int, act: str) -> None:
        self.tick()
        run, task = self.any_task(pick, self.letters())
        if act in MARKS:
            expected = run.mark(task, MARKS[act])
            assert self.do(self.engine.mark_letter(self.id_of(task), MARKS[act])) is expected
        else:
            at_once = act == "redrive at once"
            expected = run.redrive(task, self.clock.now(), at_once=at_once, paused=self.paused)
            assert self.do(self.engine.redrive(self.id_of(task), at_once=at_once)) is expected
        self.look()

    @rule(
        pick=picks,
        back=st.integers(0, 3),
        only=st.booleans(),
        new_key=st.booleans(),
        at_once=st.booleans(),
        again=st.booleans(),
    )
    def replay_letter(self, pick: int, back: int, only: bool, new_key: bool, at_once: bool, again: bool) -> None:
        self.tick()
        letters = [(run, task) for run, task in self.letters() if not run.is_under_way] or self.letters()
        assume(letters)
        run, task = letters[pick % len(letters)]
        mode: Mode = "STEP_ONLY" if only else "FROM_STEP"
        index = task.step if only else max(task.step - back, 0)
        asked = Replay(mode, new_key=new_key, at_once=at_once, again=again)
        is_current = run.steps[task.step].task is task

        async def replay() -> Refusal | None:
            async with self.engine.app.tenant(self.engine.org_id) as session:
                return await replays.replay_letter(
                    session, self.id_of(task), index, asked, PERSON, self.clock, roll=0.5
                )

        if task.letter is REPLAYING:
            assert self.do(replay()) is Refusal.REPLAYING
            return
        if task.letter is DeadLetterState.RESOLVED and not again:
            assert self.do(replay()) is Refusal.RESOLVED
            return
        if not is_current and task.letter is not DeadLetterState.RESOLVED:
            assert self.do(replay()) is Refusal.NOT_OPEN
            return
        how = {"new_key": new_key, "at_once": at_once, "paused": self.paused}
        refusal = run.replay(index, mode, self.clock.now(), **how)
        assert self.do(replay()) is (Refusal.RUN_UNDER_WAY if refusal is RunRefusal.UNDER_WAY else refusal)
        self.look()

    @rule(pick=picks, step=picks, only=st.booleans(), new_key=st.booleans())
    def replay_run(self, pick: int, step: int, only: bool, new_key: bool) -> None:
        self.tick()
        ended = [run for run in self.runs if not run.is_under_way] or self.runs
        run = ended[pick % len(ended)]
        index = step % len(run.steps)
        mode: Mode = "STEP_ONLY" if only else "FROM_STEP"
        asked = Replay(mode, new_key=new_key, at_once=True)

        async def replay() -> RunRefusal | Refusal | None:
            async with self.engine.app.tenant(self.engine.org_id) as session:
                return await replays.replay_run(session, run.id, index, asked, PERSON, self.clock, roll=0.5)

        expected = run.replay(index, mode, self.clock.now(), new_key=new_key, at_once=True, paused=self.paused)
        assert self.do(replay()) is expected
        self.look()

    @rule(pick=picks)
    def cancel(self, pick: int) -> None:
        self.tick()
        tried = [run for run, task in self.all_tasks() if task.state is LEASED]
        run = tried[pick % len(tried)] if tried else self.runs[pick % len(self.runs)]

        async def cancel() -> RunRefusal | None:
            async with self.engine.app.tenant(self.engine.org_id) as session:
                return await runs.cancel_run(session, run.id, PERSON, self.clock)

        expected = run.cancel()
        assert self.do(cancel()) is expected
        self.look()

    @rule()
    def pause_or_resume(self) -> None:
        self.tick()
        if self.paused:
            assert self.do(self.engine.resume(PauseScope.ORG))
            for _, task in self.all_tasks():
                task.state = WAITING if task.state is HELD else task.state
        else:
            assert self.do(self.engine.pause(PauseScope.ORG))
        self.paused = not self.paused
        self.look()

    def letters(self) -> list[tuple[Run, Task]]:
        return [(run, task) for run, task in self.all_tasks() if task.letter not in (None, DELETED)]

    def id_of(self, task: Task) -> UUID:
        assert task.id is not None
        return task.id

    # -- what holds ------------------------------------------------------------------------------------------------

    def look(self, *, by_a_person: bool = True) -> None:
        """After everything that happens: all is as the model says, and came to be so by moves that there are."""
        self.do(self._look(by_a_person))

    async def _look(self, by_a_person: bool) -> None:
        for change in await self.shared.owner.fetch(CHANGES):
            move = RunStatus(change["was"]), RunStatus(change["became"])
            assert move in RUN_TRANSITIONS, move
            assert by_a_person or move not in RUN_ACTS, move
        async with self.engine.app.tenant(self.engine.org_id) as session:
            for run in self.runs:
                row = await runs.get_run(session, run.id)
                assert row is not None
                assert (row["status"], row["stop_after"]) == (run.status, run.stop_after), run
                steps = await runs.get_steps(session, run.id)
                found = {
                    step["index"]: (
                        status_of(step), step["execution"], step["idempotency_key"], step["done_at"] is not None,
                        step["letter_state"],
                    )
                    for step in steps
                }  # fmt: skip
                assert found == run.seen(), run
                for step in steps:
                    self._note_id(run, step["index"], step["task_id"])
                    self._judge_move(run, step["index"], status_of(step), by_a_person)
        assert await self.engine.sql.fetch(UNDER_WAY) == [], "one step after the other"

    def _note_id(self, run: Run, index: int, task_id: UUID | None) -> None:
        task = run.steps[index].task
        assert (task is None) == (task_id is None)
        if task is not None:
            assert task.id in (None, task_id)
            task.id = task_id

    def _judge_move(self, run: Run, index: int, status: StepStatus, by_a_person: bool) -> None:
        was = self.steps_seen.get((run.id, index), StepStatus.PENDING)
        self.steps_seen[run.id, index] = status
        move = was, status
        if was is status:
            return
        assert move in STEP_TRANSITIONS, move
        if move in STEP_ACTS and not by_a_person:
            # A run comes to what had died behind the step that a person asked for. What had succeeded stays so.
            assert was is not StepStatus.SUCCESS, move
            assert run.asked_from is not None, move
            assert run.asked_from < index, move

    def teardown(self) -> None:
        """Everything that is left to do succeeds: then every run has ended, or waits for a person."""
        if self.paused:
            self.pause_or_resume()
        self.tick(3600)
        while claimed := self.claim():
            self.tick()
            self.settle([(*each, "succeeded") for each in claimed])
            self.tick(WAIT_S)
        for run in self.runs:
            assert not run.is_under_way, run
            letters = [task for task in run.tasks if task.state is DEAD and task.letter is OPEN]
            assert (run.status is RunStatus.DLQ_PENDING) <= bool(letters)
        report = self.do(check(self.engine.url, now=self.clock.now(), grace_s=1e9))
        assert [(one.rule.name, one.offences) for one in report.violations] == []


def test_a_run_takes_each_step_once_and_stands_where_its_steps_say_whatever_interleaves(
    shared_database: Shared, live: Engine
) -> None:
    Runs.shared, Runs.engine = shared_database, live
    shared_database.do(shared_database.owner.execute(WATCH))
    try:
        walk(Runs, examples=EXAMPLES, steps=STEPS)
    finally:
        shared_database.do(shared_database.owner.execute(UNWATCH))
