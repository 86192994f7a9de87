"""The states of tasks and dead letters, what may follow what, and how they read elsewhere. Pure.

The database's triggers hold the same transitions (a test compares them); api and web read the vocabulary.
"""

from collections.abc import Iterable
from enum import StrEnum

from redrive.core.decide import Reason


class TaskState(StrEnum):
    WAITING = "waiting"
    LEASED = "leased"
    HELD = "held"
    SUCCEEDED = "succeeded"
    DEAD = "dead"


OPEN_STATES: frozenset[TaskState] = frozenset({TaskState.WAITING, TaskState.LEASED, TaskState.HELD})
TERMINAL_STATES: frozenset[TaskState] = frozenset({TaskState.SUCCEEDED, TaskState.DEAD})

# A redrive: only ever by a person or their script, audited, as a new generation.
REDRIVE_TRANSITIONS: frozenset[tuple[TaskState, TaskState]] = frozenset(
    {(TaskState.DEAD, TaskState.WAITING), (TaskState.DEAD, TaskState.HELD)}
)
# Nothing leaves `succeeded`. leased → leased is a lease that ran out and was taken over.
TRANSITIONS: frozenset[tuple[TaskState, TaskState]] = REDRIVE_TRANSITIONS | {
    (TaskState.WAITING, TaskState.LEASED),
    (TaskState.WAITING, TaskState.HELD),
    (TaskState.WAITING, TaskState.DEAD),
    (TaskState.HELD, TaskState.WAITING),
    (TaskState.HELD, TaskState.DEAD),
    (TaskState.LEASED, TaskState.LEASED),
    (TaskState.LEASED, TaskState.WAITING),
    (TaskState.LEASED, TaskState.HELD),
    (TaskState.LEASED, TaskState.SUCCEEDED),
    (TaskState.LEASED, TaskState.DEAD),
}


class EventStatus(StrEnum):
    """Where an event stands. Not kept: its tasks say it (`event_status`, and the database's view event_entry)."""

    RECEIVED = "received"
    QUEUED = "queued"
    DELIVERED = "delivered"
    FAILED = "failed"


class DeadLetterState(StrEnum):
    """What a person did with a dead letter. Deleted ones live on in the audit only."""

    OPEN = "open"
    REPLAYING = "replaying"
    RESOLVED = "resolved"
    IGNORED = "ignored"
    DELETED = "deleted"


# What a person may say of a dead letter without anything being sent, and what it is then.
MARKS: dict[str, DeadLetterState] = {
    "resolve": DeadLetterState.RESOLVED,
    "ignore": DeadLetterState.IGNORED,
    "delete": DeadLetterState.DELETED,
    "reopen": DeadLetterState.OPEN,
}
CLOSED_STATES: frozenset[DeadLetterState] = frozenset({DeadLetterState.RESOLVED, DeadLetterState.IGNORED})

DEAD_LETTER_TRANSITIONS: frozenset[tuple[DeadLetterState, DeadLetterState]] = frozenset(
    {
        (DeadLetterState.OPEN, DeadLetterState.REPLAYING),
        (DeadLetterState.OPEN, DeadLetterState.RESOLVED),
        (DeadLetterState.OPEN, DeadLetterState.IGNORED),
        (DeadLetterState.OPEN, DeadLetterState.DELETED),
        (DeadLetterState.REPLAYING, DeadLetterState.RESOLVED),
        (DeadLetterState.REPLAYING, DeadLetterState.OPEN),
        (DeadLetterState.REPLAYING, DeadLetterState.IGNORED),  # its run was cancelled
        (DeadLetterState.RESOLVED, DeadLetterState.REPLAYING),
        (DeadLetterState.RESOLVED, DeadLetterState.DELETED),
        (DeadLetterState.RESOLVED, DeadLetterState.OPEN),
        (DeadLetterState.IGNORED, DeadLetterState.REPLAYING),
        (DeadLetterState.IGNORED, DeadLetterState.RESOLVED),
        (DeadLetterState.IGNORED, DeadLetterState.DELETED),
        (DeadLetterState.IGNORED, DeadLetterState.OPEN),
    }
)


def queue_status(state: TaskState, attempts: int) -> str | None:
    """The word in the retry queue and among the dead letters; None: not in either.

    `attempts` counts tries that ended, here and below: a task in its first try has none. A task that has
    not failed yet is not in the retry queue, held or not.
    """
    match state:
        case TaskState.SUCCEEDED:
            return "succeeded"
        case TaskState.DEAD:
            return "failed"
        case TaskState.WAITING | TaskState.HELD:
            return "pending" if attempts else None
        case TaskState.LEASED:
            return "in_progress" if attempts else None


def relay_status(state: TaskState, reason: Reason | None) -> str:
    """A relay's word for a webhook."""
    match state:
        case TaskState.SUCCEEDED:
            return "delivered"
        case TaskState.DEAD:
            return "failed" if _why(reason) is Reason.PERMANENT else "dead_letter"
        case TaskState.WAITING | TaskState.LEASED | TaskState.HELD:
            return "pending"


def event_status(task_states: Iterable[TaskState], *, acked: bool = False) -> EventStatus:
    """The word for an event, from the states of its tasks. Without any it waits to be acknowledged."""
    states = set(task_states)
    if not states:
        return EventStatus.DELIVERED if acked else EventStatus.RECEIVED
    if states & OPEN_STATES:
        return EventStatus.QUEUED
    return EventStatus.FAILED if TaskState.DEAD in states else EventStatus.DELIVERED


def retry_count(attempts: int) -> int:
    """Retries made: 0 after the first failure, max_retries when exhausted."""
    return max(attempts - 1, 0)


def retry_attempts(failures: int, max_retries: int | None, *, is_permanent: bool = False) -> int:
    """Retries granted: 1 after the first failure, at most max_retries. A permanent failure grants none."""
    failures -= is_permanent and failures > 0
    return failures if max_retries is None else min(failures, max_retries)


def _why(reason: Reason | None) -> Reason:
    if reason is None:
        raise ValueError("a dead task has a reason")
    return reason
