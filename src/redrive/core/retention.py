"""When what is finished may be removed, by its policy. Pure.

The janitor removes by the database's function task_goes_at, which says the same (a test compares them).
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from redrive.core.decide import Reason
from redrive.core.lifecycle import TaskState
from redrive.core.policy import Retention


class Finished(NamedTuple):
    """What is judged of a task. `updated_at`: when it succeeded or died."""

    state: TaskState
    reason: Reason | None
    received_at: datetime
    updated_at: datetime
    last_failed_at: datetime | None


def task_goes_at(retention: Retention, task: Finished) -> datetime | None:
    """The moment from which a task may be removed; None: it is open, or kept for ever."""
    match task.state:
        case TaskState.SUCCEEDED:
            return _after(task.updated_at, retention.delivered_s)
        case TaskState.DEAD if task.reason is Reason.PERMANENT:
            # Without a try (its endpoint was deleted, say) it failed when it died; what failed elsewhere, when it came.
            return _after(max(task.last_failed_at or task.updated_at, task.received_at), retention.failed_s)
        case TaskState.DEAD:
            return _after(task.received_at, retention.dead_s)
        case TaskState.WAITING | TaskState.LEASED | TaskState.HELD:
            return None


def event_goes_at(tasks: Iterable[datetime | None]) -> datetime | None:
    """An event goes with the last of its tasks; with none of them it waits to be acknowledged."""
    moments = list(tasks)
    if not moments:
        return None
    return None if None in moments else max(moment for moment in moments if moment is not None)


def inbox_goes_at(retention: Retention, received_at: datetime, acked_at: datetime | None) -> datetime | None:
    """An event of the inbox, by the retention of the org's default policy."""
    return _after(received_at, retention.received_s) if acked_at is None else _after(acked_at, retention.delivered_s)


def _after(moment: datetime, seconds: float | None) -> datetime | None:
    return None if seconds is None else moment + timedelta(seconds=seconds)
