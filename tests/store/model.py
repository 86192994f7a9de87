"""What the store should do, in plain Python: the model that the stateful test holds the database against.

Pure but for core: it asks core.decide what follows a try, and core.lifecycle what an event's tasks make of it.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

from redrive.core.decide import AwaitPerson, Die, Reason, RetryIn, decide
from redrive.core.lifecycle import EventStatus, TaskState, event_status
from redrive.core.outcome import Category, Failure
from redrive.core.policy import Policy, retry_delay
from redrive.core.ports import Job, Released
from redrive.store.retry_queue import Refusal

FOREVER = datetime.max.replace(tzinfo=UTC)
TIMEOUT_S = 30.0
PAYLOAD = b'{"n":1}'  # of every event
WAITING, LEASED, HELD = TaskState.WAITING, TaskState.LEASED, TaskState.HELD
SUCCEEDED, DEAD = TaskState.SUCCEEDED, TaskState.DEAD


@dataclass(slots=True)
class Task:
    id: UUID
    event_id: UUID
    endpoint_id: UUID
    policy: Policy
    due: datetime
    begun: datetime
    lease_ends: datetime | None = None
    state: TaskState = WAITING
    attempts: int = 0
    fence: int = 0
    generation: int = 0
    reason: str | None = None
    letter: str | None = None
    results: dict[int, str] = field(default_factory=dict)  # how each fence ended

    @property
    def is_live(self) -> bool:
        return self.state in (WAITING, LEASED)

    @property
    def stream(self) -> tuple[UUID, bool]:
        return self.endpoint_id, self.attempts > 0

    def die(self, reason: str) -> None:
        self.state, self.reason, self.letter, self.due = DEAD, reason, "open", FOREVER


@dataclass(slots=True)
class Model:
    margin_s: float
    tasks: dict[UUID, Task] = field(default_factory=dict)
    inbox: set[UUID] = field(default_factory=set)
    acked: set[UUID] = field(default_factory=set)
    disabled: set[UUID] = field(default_factory=set)

    # -- the engine ------------------------------------------------------------------------------------------------

    def claim(self, now: datetime, limit: int) -> set[tuple[UUID, int, int]]:
        """The leases that a claim must answer, as (task, fence, tries before)."""
        due = [
            task
            for task in self.tasks.values()
            if (task.state is WAITING and task.due <= now) or (task.lease_ends is not None and task.lease_ends <= now)
        ]
        first = {
            stream: min(task.due for task in self.tasks.values() if task.is_live and task.stream == stream)
            for stream in {task.stream for task in due}
        }
        leased = set()
        # One stream after the other, as the test asks for them, and each in the order of its due times.
        for task in sorted(due, key=lambda task: (first[task.stream], task.stream, task.due, task.id))[:limit]:
            if task.state is LEASED:
                task.results[task.fence] = "lost"
                task.attempts += 1
            if task.endpoint_id in self.disabled:
                task.state, task.lease_ends = HELD, None
                continue
            task.state = LEASED
            task.fence += 1
            task.lease_ends = now + timedelta(seconds=TIMEOUT_S + self.margin_s)
            leased.add((task.id, task.fence, task.attempts))
        return leased

    def holds(self, job: Job) -> bool:
        """Whether this job's lease is the current one."""
        task = self.tasks[job.id]
        return task.state is LEASED and task.fence == job.fence

    def settled_in_time(self, job: Job) -> bool:
        """What the store answers to a settlement that closes nothing."""
        return self.tasks[job.id].results[job.fence] != "lost"

    def verdict(self, job: Job, failure: Failure | None, now: datetime) -> RetryIn | AwaitPerson | Die | Released:
        """What a worker decides after a failure, or without a try."""
        task = self.tasks[job.id]
        most = task.policy.max_retries
        if job.lost and most is not None and job.attempts > most:
            return Die(Reason.EXHAUSTED, Category.TIMEOUT)
        if failure is None:
            return Released("The worker was stopped.")
        decision = decide(task.policy, failure, failures=job.attempts + 1, age=now - task.begun, roll=0.5)
        assert isinstance(decision, RetryIn | AwaitPerson | Die)
        return decision

    def succeed(self, job: Job) -> None:
        task = self.tasks[job.id]
        task.state, task.due, task.lease_ends = SUCCEEDED, FOREVER, None
        task.attempts += 1
        task.results[job.fence] = "succeeded"
        if task.letter == "replaying":
            task.letter = "resolved"

    def fail(self, job: Job, verdict: RetryIn | AwaitPerson | Die | Released, now: datetime, *, tried: bool) -> None:
        task = self.tasks[job.id]
        task.results[job.fence] = "failed" if tried else "released"
        task.attempts += tried
        task.lease_ends = None
        match verdict:
            case Die(reason=reason):
                task.die(reason.value)
            case RetryIn(delay=delay):
                task.state, task.due = WAITING, now + delay
            case AwaitPerson():
                task.state, task.due = WAITING, FOREVER
            case Released():
                task.state, task.due = WAITING, now

    # -- people ----------------------------------------------------------------------------------------------------

    def retry_now(self, task: Task, now: datetime) -> Refusal | None:
        if task.attempts == 0 and task.state is not DEAD:
            return Refusal.UNKNOWN
        if task.state is WAITING and task.endpoint_id not in self.disabled:
            task.due = now
            return None
        return {WAITING: Refusal.HELD, LEASED: Refusal.IN_PROGRESS, HELD: Refusal.HELD}.get(
            task.state, Refusal.NOT_OPEN
        )

    def skip(self, task: Task) -> Refusal | None:
        if task.attempts == 0 and task.state not in (DEAD, SUCCEEDED):
            return Refusal.UNKNOWN
        if task.state in (WAITING, HELD):
            task.die("skipped")
            return None
        return Refusal.IN_PROGRESS if task.state is LEASED else Refusal.NOT_OPEN

    def redrive(self, task: Task, now: datetime, *, at_once: bool) -> Refusal | None:
        if task.letter in (None, "deleted"):
            return Refusal.UNKNOWN
        if task.letter == "replaying":
            return Refusal.REPLAYING
        if task.state is not DEAD:
            return Refusal.NOT_OPEN
        if at_once and task.endpoint_id in self.disabled:
            return Refusal.HELD
        task.state, task.reason, task.letter = WAITING, None, "replaying"
        task.generation += 1
        task.attempts, task.begun = 1, now
        task.due = now if at_once else now + (retry_delay(task.policy, 0, 0.5) or timedelta(0))
        return None

    def mark(self, task: Task, state: str) -> Refusal | None:
        if task.letter in (None, "deleted"):
            return Refusal.UNKNOWN
        if task.letter == "replaying":
            return Refusal.REPLAYING
        if (task.letter, state) == ("resolved", "ignored"):
            return Refusal.NOT_OPEN
        if state == "open" and task.state == SUCCEEDED:
            return Refusal.NOT_OPEN
        task.letter = state
        return None

    def acknowledge(self, event_id: UUID) -> str:
        """Where the event stood before."""
        stood = self.events()[event_id][0]
        if stood == "received":
            self.inbox.remove(event_id)
            self.acked.add(event_id)
        return stood

    def delete_event(self, event_id: UUID) -> Refusal | None:
        mine = [task for task in self.tasks.values() if task.event_id == event_id]
        if any(task.state in (WAITING, LEASED, HELD) for task in mine):
            return Refusal.IN_PROGRESS
        for task in mine:
            del self.tasks[task.id]
        self.inbox.discard(event_id)
        self.acked.discard(event_id)
        return None

    def enable(self, endpoint_id: UUID) -> None:
        self.disabled.discard(endpoint_id)
        for task in self.tasks.values():
            if task.endpoint_id == endpoint_id and task.state is HELD:
                task.state = WAITING

    # -- what should be in the database ----------------------------------------------------------------------------

    def events(self) -> dict[UUID, tuple[str, int, int]]:
        """Status, open tasks and dead tasks of every event."""
        states: dict[UUID, list[TaskState]] = {event_id: [] for event_id in self.inbox | self.acked}
        for task in self.tasks.values():
            states.setdefault(task.event_id, []).append(task.state)
        return {
            event_id: (self._status(event_id, mine), sum(s in (WAITING, LEASED, HELD) for s in mine), mine.count(DEAD))
            for event_id, mine in states.items()
        }

    def _status(self, event_id: UUID, states: list[TaskState]) -> str:
        return str(event_status(states, acked=event_id in self.acked))

    def counters(self) -> dict[str, int]:
        kept: dict[str, int] = {}

        def count(name: str, n: int = 1) -> None:
            kept[name] = kept.get(name, 0) + n

        for event_id in self.events():
            if event_id in self.acked:
                count("event.acked")
            else:
                count("event.inbox" if event_id in self.inbox else "event.routed")
            count("event.bytes", len(PAYLOAD))
        for task in self.tasks.values():
            count(f"task.{task.state.value}")
            if task.letter is not None:
                count(f"dead.{task.letter}")
            if task.attempts and task.state in (WAITING, LEASED, HELD):
                count("retrying")
        names = {EventStatus.QUEUED: "open", EventStatus.FAILED: "dead", EventStatus.DELIVERED: "succeeded"}
        for event_id, (status, *_) in self.events().items():
            mine = [task for task in self.tasks.values() if task.event_id == event_id]
            for task in mine:
                count(f"further.{'open' if task.state in (WAITING, LEASED, HELD) else task.state.value}")
            if mine:
                count(f"further.{names[EventStatus(status)]}", -1)
        return {name: n for name, n in kept.items() if n}
