"""What should be in the database after anything that can happen to runs of workflows: a model in plain Python.

Used by test_runs_stateful. It knows nothing of SQL: a step has a task, a task may have a dead letter, a run follows.
"""

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from redrive.core.lifecycle import DeadLetterState, TaskState
from redrive.core.run_states import UNDER_WAY, RunStatus, StepStatus, step_key, step_status
from redrive.store.dead_letters import refusal_to_mark
from redrive.store.replays import Mode
from redrive.store.retry_queue import Refusal
from redrive.store.runs import ENDED, RunRefusal

WAITING, LEASED, HELD = TaskState.WAITING, TaskState.LEASED, TaskState.HELD
SUCCEEDED, DEAD = TaskState.SUCCEEDED, TaskState.DEAD
OPEN, REPLAYING, IGNORED = DeadLetterState.OPEN, DeadLetterState.REPLAYING, DeadLetterState.IGNORED
DELETED = DeadLetterState.DELETED
WAIT_S = 5.0  # of the steps that wait
FIRST_DELAY = timedelta(seconds=2)  # of a redrive under the policy `workflow`, without jitter
Seen = tuple[StepStatus, int, str, bool, str | None]


@dataclass(slots=True, eq=False)
class Task:
    """One execution of a step."""

    step: int
    body: bytes
    due: datetime
    id: UUID | None = None  # known once it was seen in the database
    state: TaskState = WAITING
    attempts: int = 0
    fence: int = 0
    generation: int = 0
    tried: bool = False  # a try of this generation has failed
    letter: DeadLetterState | None = None
    lease_ends: datetime | None = None
    original: bytes = b""

    def __post_init__(self) -> None:
        self.original = self.body

    @property
    def is_open(self) -> bool:
        return self.state in (WAITING, LEASED, HELD)

    @property
    def can_be_redriven(self) -> bool:
        return self.state is DEAD and self.letter is not DELETED

    @property
    def has_failed(self) -> bool:
        return self.attempts > 0 or self.generation > 0 or self.state in (DEAD, SUCCEEDED)

    def is_due(self, now: datetime) -> bool:
        return (self.state is WAITING and self.due <= now) or (self.lease_ends is not None and self.lease_ends <= now)

    def revive(self, due: datetime) -> None:
        self.state, self.generation, self.attempts, self.tried = WAITING, self.generation + 1, 0, False
        self.letter, self.due = REPLAYING, due


@dataclass(slots=True)
class Step:
    kind: str
    came: bool = False  # the run has come to it before
    task: Task | None = None
    execution: int = 0
    renewal: int = 0
    output: int | None = None
    done: bool = False

    def reset(self) -> None:
        self.task, self.output, self.done = None, None, False


@dataclass(slots=True)
class Run:
    id: UUID
    n: int
    steps: list[Step]
    status: RunStatus = RunStatus.PENDING
    cancelled: bool = False
    stop_after: int | None = None
    asked_from: int | None = None  # the step from which a person last asked for all that follows
    tasks: list[Task] = field(default_factory=list)  # of all executions

    @property
    def is_under_way(self) -> bool:
        return self.status in UNDER_WAY

    def seen(self) -> dict[int, Seen]:
        """What people see of the steps that it has come to."""
        found: dict[int, Seen] = {}
        for index, step in enumerate(self.steps):
            if step.came:
                task = step.task
                status = step_status(task.state, task.letter, task.tried) if task else StepStatus.PENDING
                key = step_key(str(self.id), index, step.renewal)
                found[index] = (status, step.execution, key, step.done, task.letter if task else None)
        return found

    def holds(self, task: Task, fence: int) -> bool:
        return task.state is LEASED and task.fence == fence

    # -- the engine ------------------------------------------------------------------------------------------------

    def enqueue(self, index: int, now: datetime) -> None:
        """A task for a step that has none, or none that could go on."""
        step = self.steps[index]
        step.execution += step.came
        step.came = True
        step.task = Task(index, self._body(index), self._due(index, now))
        step.done, step.output = False, None
        self.tasks.append(step.task)

    def _due(self, index: int, now: datetime) -> datetime:
        return now + timedelta(seconds=WAIT_S if self.steps[index].kind == "wait" else 0)

    def _body(self, index: int) -> bytes:
        if self.steps[index].kind == "wait":
            return b"{}"
        given = {"n": self.n, "before": [step.output for step in self.steps[:index]]}
        return json.dumps(given, separators=(",", ":")).encode()

    def lease(self, task: Task, ends: datetime, *, paused: bool) -> bool:
        """False where the task is held instead."""
        if task.state is LEASED:  # from a worker that did not report
            task.attempts += 1
            task.tried = True
        if paused:
            task.state, task.lease_ends = HELD, None
            return False
        task.state, task.fence, task.lease_ends = LEASED, task.fence + 1, ends
        if self.status is RunStatus.PENDING:
            self.status = RunStatus.RUNNING
        return True

    def succeed(self, task: Task, output: int, now: datetime) -> None:
        step = self.steps[task.step]
        task.state, task.attempts, task.lease_ends = SUCCEEDED, task.attempts + 1, None
        if task.letter is not None:
            task.letter = DeadLetterState.RESOLVED
        step.done, step.output = True, output
        behind = range(task.step + 1, len(self.steps))
        following = next((index for index in behind if not self.steps[index].done), None)
        if following is None or self.stop_after == task.step:
            self.status, self.stop_after = self._end(), None
        elif self.cancelled:
            self.status, self.stop_after = RunStatus.FAILED, None
            self._end_parked(task.step, IGNORED)
        else:
            self._come_to(following, now)

    def _come_to(self, index: int, now: datetime) -> None:
        step = self.steps[index]
        if step.task is not None and step.task.can_be_redriven:
            step.task.revive(self._due(index, now))
            step.task.body = self._body(index)
        else:
            self.enqueue(index, now)

    def wait(self, task: Task, due: datetime, *, tried: bool) -> None:
        """A retry, or a lease that was given back. Of a cancelled run nothing is tried again."""
        task.state, task.due, task.lease_ends = WAITING, due, None
        task.attempts += tried
        task.tried |= tried
        if self.cancelled:
            self.die(task)

    def die(self, task: Task) -> None:
        task.state, task.lease_ends = DEAD, None
        task.letter = IGNORED if self.cancelled else OPEN
        self.status = RunStatus.FAILED if self.cancelled else RunStatus.DLQ_PENDING
        self._end_parked(task.step, task.letter)

    def _end_parked(self, index: int, letter: DeadLetterState) -> None:
        """Letters of later steps, whose turn would have come: it does not."""
        for step in self.steps[index + 1 :]:
            if step.task is not None and step.task.state is DEAD and step.task.letter is REPLAYING:
                step.task.letter = letter

    # -- people ----------------------------------------------------------------------------------------------------

    def retry_now(self, task: Task, now: datetime, *, paused: bool) -> Refusal | None:
        if not task.has_failed:
            return Refusal.UNKNOWN
        if task.state is WAITING and not paused:
            task.due = now
            return None
        return {WAITING: Refusal.HELD, LEASED: Refusal.IN_PROGRESS, HELD: Refusal.HELD}.get(
            task.state, Refusal.NOT_OPEN
        )

    def skip(self, task: Task) -> Refusal | None:
        if not task.has_failed:
            return Refusal.UNKNOWN
        if task.state in (WAITING, HELD):
            self.die(task)
            return None
        return Refusal.IN_PROGRESS if task.state is LEASED else Refusal.NOT_OPEN

    def mark(self, task: Task, wanted: DeadLetterState) -> Refusal | None:
        refusal = refusal_to_mark(task.letter, wanted, task.state)
        if refusal is not None or task.letter is wanted:
            return refusal
        task.letter = wanted
        if wanted is OPEN and self.status in (RunStatus.FAILED, RunStatus.PARTIAL):
            self.status, self.cancelled = RunStatus.DLQ_PENDING, False
        elif wanted is not OPEN and self.status is RunStatus.DLQ_PENDING and task.state is DEAD:
            self._fail_unless_open()
        return None

    def _end(self) -> RunStatus:
        if all(step.done for step in self.steps):
            return RunStatus.SUCCESS
        return RunStatus.DLQ_PENDING if any(task.letter is OPEN for task in self.tasks) else RunStatus.PARTIAL

    def _fail_unless_open(self) -> None:
        if not any(task.letter is OPEN for task in self.tasks):
            self.status = RunStatus.FAILED

    def redrive(self, task: Task, now: datetime, *, at_once: bool, paused: bool) -> Refusal | None:
        if task.letter in (None, DELETED):
            return Refusal.UNKNOWN
        if task.letter is REPLAYING:
            return Refusal.REPLAYING
        if task.state is not DEAD:
            return Refusal.NOT_OPEN
        if self.is_under_way:
            return Refusal.RUN_UNDER_WAY
        if at_once and paused:
            return Refusal.HELD
        task.revive(now if at_once else now + FIRST_DELAY)
        self._resume(task.step, "FROM_STEP")
        return None

    def replay(
        self, index: int, mode: Mode, now: datetime, *, new_key: bool, at_once: bool, paused: bool
    ) -> RunRefusal | Refusal | None:
        if self.is_under_way:
            return RunRefusal.UNDER_WAY
        first = self.steps[index].task
        if at_once and paused and first is not None and first.can_be_redriven:
            return Refusal.HELD
        if mode == "FROM_STEP":
            for later in self.steps[index + 1 :]:
                if later.task is not None and later.task.can_be_redriven:
                    later.task.letter = REPLAYING
                else:
                    later.reset()
        last = index + 1 if mode == "STEP_ONLY" else None
        for renewed in self.steps[index:last]:
            renewed.renewal += new_key and renewed.came
        step = self.steps[index]
        if step.task is not None and step.task.can_be_redriven:
            due = now if at_once else now + FIRST_DELAY
            if new_key and step.task.body == step.task.original and all(each.done for each in self.steps[:index]):
                step.task.body = self._body(index)
            step.task.revive(self._due(index, now) if step.kind == "wait" else due)
        else:
            self.enqueue(index, now)
        self._resume(index, mode)
        return None

    def _resume(self, index: int, mode: Mode) -> None:
        self.status, self.cancelled = RunStatus.RUNNING, False
        self.stop_after = index if mode == "STEP_ONLY" else None
        self.asked_from = None if mode == "STEP_ONLY" else index

    def cancel(self) -> RunRefusal | None:
        if self.status in ENDED:
            return RunRefusal.ENDED
        self.cancelled = True
        for task in self.tasks:
            if task.state in (WAITING, HELD):
                self.die(task)
            elif task.letter is OPEN:
                task.letter = IGNORED
        if self.status is RunStatus.DLQ_PENDING:
            self._fail_unless_open()
        return None
