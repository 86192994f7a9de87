"""Operations, bulk actions as objects: their states, their pace, and how they read to people. Pure.

Asked by store.operation_steps at every step, by store.operations when a person pauses, resumes or cancels, and by api
and cli for the words.
"""

import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

MAX_STEP_ITEMS = 500  # acted on in one transaction
MAX_SENT_ITEMS = 5_000  # sent and not ended, per operation
MAX_IDS = 10_000
MAX_ITEMS = 1_000_000
MAX_STAGES = 20
BURST = timedelta(seconds=1)  # how much of a rate that was not used may be made up for


class OperationState(StrEnum):
    PREPARING = "preparing"  # its items are being written down
    RUNNING = "running"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    COMPLETED = "completed"


ENDED_STATES = frozenset({OperationState.CANCELLED, OperationState.COMPLETED})


class Command(StrEnum):
    """What a person may tell an operation."""

    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class Canary:
    """Stages in percent of all items, and how many of a stage's items may fail before all stops."""

    stages: tuple[float, ...]
    max_failure_rate: float


@dataclass(frozen=True, slots=True)
class Course:
    """Where an operation stands. Items 1 to `dispatched` were acted on; `stage…` are the sums when the stage began."""

    state: OperationState
    total: int
    dispatched: int = 0
    succeeded: int = 0
    failed: int = 0
    canary: Canary | None = None
    stage: int = 0
    stage_done: int = 0
    stage_failed: int = 0
    rate_per_s: float | None = None
    paid_until: datetime | None = None
    note: str | None = None

    @property
    def done(self) -> int:
        return self.succeeded + self.failed

    @property
    def sent(self) -> int:
        """Under way: acted on, with the result to come."""
        return self.dispatched - self.done


def told(state: OperationState, command: Command, *, collected: bool) -> OperationState | None:
    """The state that a command leads to; None where it makes no sense."""
    if state in ENDED_STATES:
        return None
    match command:
        case Command.PAUSE:
            return None if state is OperationState.PAUSED else OperationState.PAUSED
        case Command.RESUME:
            if state is not OperationState.PAUSED:
                return None
            return OperationState.RUNNING if collected else OperationState.PREPARING
        case Command.CANCEL:
            return OperationState.CANCELLED


def next_batch(course: Course, now: datetime) -> tuple[Course, int]:
    """How many items may be acted on now; the course says whether it paused itself or entered another stage."""
    course = _past_gates(course)
    if course.state is not OperationState.RUNNING:
        return course, 0
    room = min(MAX_STEP_ITEMS, MAX_SENT_ITEMS - course.sent, _stage_end(course) - course.dispatched)
    if course.rate_per_s is not None:
        room = min(room, math.floor((now - _paid_until(course, now)).total_seconds() * course.rate_per_s + 1e-6))
    return course, max(room, 0)


def dispatched(course: Course, count: int, *, succeeded: int, failed: int, now: datetime) -> Course:
    """The course after items were acted on, some of which ended at once."""
    paid_until = course.paid_until
    if course.rate_per_s is not None and count:
        paid_until = _paid_until(course, now) + timedelta(seconds=count / course.rate_per_s)
    return replace(
        course,
        dispatched=course.dispatched + count,
        succeeded=course.succeeded + succeeded,
        failed=course.failed + failed,
        paid_until=paid_until,
    )


def is_trial(course: Course) -> bool:
    """Whether a stage is under way behind which another one comes."""
    return _stage_end(course) < course.total


def completed(course: Course) -> Course:
    """Completed where nothing is left to do, even while paused."""
    if course.state in (OperationState.RUNNING, OperationState.PAUSED) and course.done == course.total:
        return replace(course, state=OperationState.COMPLETED)
    return course


def is_finished(course: Course) -> bool:
    return course.state in ENDED_STATES and not course.sent


def progress(succeeded: int, failed: int, total: int) -> str:
    return f"{succeeded}/{total} succeeded, {failed}/{total} failed"


def ending(action: str, state: OperationState, *, succeeded: int, failed: int, cancelled: int) -> str | None:
    """What a person is told at the end; None before."""
    if state is OperationState.COMPLETED:
        return f"Bulk {action} complete. {succeeded} succeeded, {failed} failed."
    if state is OperationState.CANCELLED:
        return f"Bulk {action} cancelled. {succeeded} succeeded, {failed} failed, {cancelled} not done."
    return None


def _stage_end(course: Course) -> int:
    """Up to which item the present stage goes. Every stage has an item at least."""
    if course.canary is None or course.stage >= len(course.canary.stages):
        return course.total
    return min(course.total, max(1, math.ceil(course.total * course.canary.stages[course.stage] / 100)))


def _past_gates(course: Course) -> Course:
    """Leave the stages whose items have all ended; pause behind one in which too many failed.

    A stage is judged once: whoever resumes has seen it.
    """
    while course.canary is not None and course.stage < len(course.canary.stages):
        if course.state is not OperationState.RUNNING or course.sent or course.dispatched < _stage_end(course):
            return course
        finished, failed = course.done - course.stage_done, course.failed - course.stage_failed
        percent, allowed = course.canary.stages[course.stage], course.canary.max_failure_rate
        course = replace(course, stage=course.stage + 1, stage_done=course.done, stage_failed=course.failed)
        if finished and failed / finished > allowed and course.done < course.total:
            note = (
                f"Paused by itself after the first {percent:g} %: {failed} of {finished} items failed, more than the "
                f"{allowed * 100:g} % that are allowed. Look at the failures, then resume or cancel."
            )
            return replace(course, state=OperationState.PAUSED, note=note)
    return course


def _paid_until(course: Course, now: datetime) -> datetime:
    """The moment up to which the rate has been used; long ago counts no more than BURST, or one item."""
    assert course.rate_per_s is not None
    one = timedelta(seconds=1 / course.rate_per_s)
    if course.paid_until is None:
        return now - one
    return max(course.paid_until, now - max(BURST, one))
