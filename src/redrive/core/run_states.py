"""The states of workflow runs and their steps, what may follow what, and the ids that a run gives away. Pure.

A step is carried out by a task, and its state is read off that task (`step_status`); a run's own state is kept.
"""

from enum import StrEnum

from redrive.core.lifecycle import CLOSED_STATES, DeadLetterState, TaskState


class StepStatus(StrEnum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    RETRYING = "RETRYING"
    SUCCESS = "SUCCESS"
    DLQ = "DLQ"
    FAILED = "FAILED"


class RunStatus(StrEnum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    PARTIAL = "PARTIAL"
    DLQ_PENDING = "DLQ_PENDING"


UNDER_WAY: frozenset[RunStatus] = frozenset({RunStatus.PENDING, RunStatus.RUNNING})

# By a person or their script only, audited: a replay, a letter closed or opened again.
RUN_ACTS: frozenset[tuple[RunStatus, RunStatus]] = frozenset(
    {
        (RunStatus.DLQ_PENDING, RunStatus.RUNNING),
        (RunStatus.DLQ_PENDING, RunStatus.FAILED),
        (RunStatus.FAILED, RunStatus.RUNNING),
        (RunStatus.FAILED, RunStatus.DLQ_PENDING),
        (RunStatus.PARTIAL, RunStatus.RUNNING),
        (RunStatus.PARTIAL, RunStatus.DLQ_PENDING),
        (RunStatus.SUCCESS, RunStatus.RUNNING),
    }
)
RUN_TRANSITIONS: frozenset[tuple[RunStatus, RunStatus]] = RUN_ACTS | {
    (RunStatus.PENDING, RunStatus.RUNNING),
    (RunStatus.PENDING, RunStatus.FAILED),
    (RunStatus.PENDING, RunStatus.DLQ_PENDING),
    (RunStatus.RUNNING, RunStatus.SUCCESS),
    (RunStatus.RUNNING, RunStatus.FAILED),
    (RunStatus.RUNNING, RunStatus.PARTIAL),
    (RunStatus.RUNNING, RunStatus.DLQ_PENDING),
}

STEP_ACTS: frozenset[tuple[StepStatus, StepStatus]] = frozenset(
    {
        (StepStatus.DLQ, StepStatus.PENDING),
        (StepStatus.DLQ, StepStatus.FAILED),
        (StepStatus.FAILED, StepStatus.PENDING),
        (StepStatus.FAILED, StepStatus.DLQ),
        (StepStatus.SUCCESS, StepStatus.PENDING),
    }
)
# RUNNING → PENDING is a lease that was given back before anything was tried.
STEP_TRANSITIONS: frozenset[tuple[StepStatus, StepStatus]] = STEP_ACTS | {
    (StepStatus.PENDING, StepStatus.RUNNING),
    (StepStatus.PENDING, StepStatus.DLQ),
    (StepStatus.PENDING, StepStatus.FAILED),
    (StepStatus.RUNNING, StepStatus.SUCCESS),
    (StepStatus.RUNNING, StepStatus.RETRYING),
    (StepStatus.RUNNING, StepStatus.DLQ),
    (StepStatus.RUNNING, StepStatus.FAILED),
    (StepStatus.RUNNING, StepStatus.PENDING),
    (StepStatus.RETRYING, StepStatus.RUNNING),
    (StepStatus.RETRYING, StepStatus.DLQ),
    (StepStatus.RETRYING, StepStatus.FAILED),
}

_CLOSED = CLOSED_STATES | {DeadLetterState.DELETED}


def step_status(state: str | None, letter_state: str | None, tried: bool) -> StepStatus:
    """The word for a step. `state` is its task's, None before there is one; `letter_state` its dead letter's.

    `tried`: a try of this generation has failed.
    """
    if state is None:
        return StepStatus.PENDING
    match TaskState(state):
        case TaskState.SUCCEEDED:
            return StepStatus.SUCCESS
        case TaskState.DEAD if letter_state == DeadLetterState.REPLAYING:
            return StepStatus.PENDING  # an earlier step is run again: the run comes to it
        case TaskState.DEAD:
            return StepStatus.FAILED if letter_state in _CLOSED else StepStatus.DLQ
        case TaskState.WAITING | TaskState.HELD:
            return StepStatus.RETRYING if tried else StepStatus.PENDING
        case TaskState.LEASED:
            return StepStatus.RUNNING


def schedule_id(run_id: str, index: int, attempt: int, generation: int = 0) -> str:
    """The id under which a try of a step is scheduled: scheduled twice, it is made once."""
    return f"{run_id}:{index}:{attempt}{_renewed(generation)}"


def step_key(run_id: str, index: int, renewal: int = 0) -> str:
    """The idempotency key of what a step does: the same in every try and replay, unless a replay asks for another."""
    return f"{run_id}:{index}{_renewed(renewal)}"


def _renewed(times: int) -> str:
    return f":r{times}" if times > 0 else ""
