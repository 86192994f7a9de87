"""When a finished task goes: by how it ended, and never while it is open or its policy keeps it."""

from datetime import UTC, datetime, timedelta

import pytest

from redrive.core.decide import Reason
from redrive.core.lifecycle import OPEN_STATES, TaskState
from redrive.core.policy import DAY_S, Retention
from redrive.core.presets import PRESETS
from redrive.core.retention import Finished, event_goes_at, inbox_goes_at, task_goes_at

RECEIVED = datetime(2031, 5, 4, tzinfo=UTC)
FAILED, ENDED = RECEIVED + timedelta(hours=1), RECEIVED + timedelta(hours=2)
RELAY = PRESETS["relay"].retention
KEPT = Retention(None, None, None)


def ended(state: TaskState, reason: Reason | None = None, last_failed_at: datetime | None = FAILED) -> Finished:
    return Finished(state, reason, RECEIVED, ENDED, last_failed_at)


@pytest.mark.parametrize(
    ("task", "goes"),
    [
        (ended(TaskState.SUCCEEDED), ENDED + timedelta(days=7)),
        (ended(TaskState.DEAD, Reason.PERMANENT), FAILED + timedelta(days=7)),
        (ended(TaskState.DEAD, Reason.PERMANENT, None), ENDED + timedelta(days=7)),
        (ended(TaskState.DEAD, Reason.EXHAUSTED), RECEIVED + timedelta(days=14)),
        (ended(TaskState.DEAD, Reason.EXPIRED), RECEIVED + timedelta(days=14)),
        (ended(TaskState.DEAD, Reason.SKIPPED), RECEIVED + timedelta(days=14)),
    ],
)
def test_a_relayed_webhook_goes_as_promised(task: Finished, goes: datetime) -> None:
    assert task_goes_at(RELAY, task) == goes
    assert task_goes_at(KEPT, task) is None


@pytest.mark.parametrize("state", sorted(OPEN_STATES))
def test_an_open_task_never_goes(state: TaskState) -> None:
    assert task_goes_at(Retention(0, 0, 0), ended(state)) is None


@pytest.mark.parametrize("name", PRESETS)
def test_a_dead_letter_is_kept_by_every_preset_but_relay(name: str) -> None:
    goes = [task_goes_at(PRESETS[name].retention, ended(TaskState.DEAD, reason)) for reason in Reason]
    assert all((moment is not None) == (name == "relay") for moment in goes)


def test_an_event_goes_with_its_last_task_and_not_while_one_is_kept() -> None:
    assert event_goes_at([FAILED, ENDED]) == ENDED
    assert event_goes_at([FAILED, None]) is None
    assert event_goes_at([]) is None


def test_what_was_acknowledged_goes_later_and_the_rest_of_the_inbox_if_the_policy_says_so() -> None:
    assert inbox_goes_at(Retention(), FAILED, ENDED) == ENDED + timedelta(seconds=30 * DAY_S)
    assert inbox_goes_at(Retention(), FAILED, None) is None
    assert inbox_goes_at(KEPT, FAILED, ENDED) is None
    assert inbox_goes_at(Retention(received_s=DAY_S), ENDED, None) == ENDED + timedelta(seconds=DAY_S)
