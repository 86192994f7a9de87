"""Every pair of states is either a promised transition or impossible; the words for states are as promised."""

from itertools import product

import pytest

from redrive.core.decide import Reason
from redrive.core.lifecycle import (
    CLOSED_STATES,
    DEAD_LETTER_TRANSITIONS,
    OPEN_STATES,
    REDRIVE_TRANSITIONS,
    TERMINAL_STATES,
    TRANSITIONS,
    DeadLetterState,
    EventStatus,
    TaskState,
    event_status,
    queue_status,
    relay_status,
    retry_attempts,
    retry_count,
)
from redrive.core.run_states import step_status

TASK_MOVES = {
    "waiting": "leased held dead",
    "leased": "leased waiting held succeeded dead",
    "held": "waiting dead",
    "succeeded": "",
    "dead": "waiting held",
}
DEAD_LETTER_MOVES = {
    "open": "replaying resolved ignored deleted",
    "replaying": "resolved open ignored",
    "resolved": "replaying deleted open",
    "ignored": "replaying resolved deleted open",
    "deleted": "",
}


@pytest.mark.parametrize("pair", list(product(TaskState, TaskState)), ids="-".join)
def test_a_task_moves_only_as_promised(pair: tuple[TaskState, TaskState]) -> None:
    assert (pair in TRANSITIONS) == (pair[1] in TASK_MOVES[pair[0]].split())


@pytest.mark.parametrize("pair", list(product(DeadLetterState, DeadLetterState)), ids="-".join)
def test_a_dead_letter_moves_only_as_promised(pair: tuple[DeadLetterState, DeadLetterState]) -> None:
    assert (pair in DEAD_LETTER_TRANSITIONS) == (pair[1] in DEAD_LETTER_MOVES[pair[0]].split())


def test_only_a_redrive_leaves_a_terminal_state() -> None:
    assert {move for move in TRANSITIONS if move[0] in TERMINAL_STATES} == REDRIVE_TRANSITIONS
    assert set(TaskState) == OPEN_STATES | TERMINAL_STATES
    assert {"resolved", "ignored"} == CLOSED_STATES


@pytest.mark.parametrize(
    ("state", "attempts", "reason", "closed", "words"),
    [
        ("waiting", 0, None, False, (None, "pending", "queued", "PENDING")),
        ("leased", 0, None, False, (None, "pending", "queued", "RUNNING")),
        ("held", 0, None, False, (None, "pending", "queued", "PENDING")),
        ("waiting", 1, None, False, ("pending", "pending", "queued", "RETRYING")),
        ("held", 1, None, False, ("pending", "pending", "queued", "RETRYING")),
        ("leased", 1, None, False, ("in_progress", "pending", "queued", "RUNNING")),
        ("succeeded", 2, None, False, ("succeeded", "delivered", "delivered", "SUCCESS")),
        ("dead", 1, "permanent", False, ("failed", "failed", "failed", "DLQ")),
        ("dead", 4, "exhausted", False, ("failed", "dead_letter", "failed", "DLQ")),
        ("dead", 4, "expired", False, ("failed", "dead_letter", "failed", "DLQ")),
        ("dead", 2, "skipped", False, ("failed", "dead_letter", "failed", "DLQ")),
        ("dead", 1, "permanent", True, ("failed", "failed", "failed", "FAILED")),
        ("dead", 4, "exhausted", True, ("failed", "dead_letter", "failed", "FAILED")),
    ],
)
def test_the_words_for_a_task_in_every_vocabulary(
    state: str, attempts: int, reason: str | None, closed: bool, words: tuple[str | None, ...]
) -> None:
    task, why = TaskState(state), None if reason is None else Reason(reason)
    letter = None if state != "dead" else "resolved" if closed else "open"
    assert words == (
        queue_status(task, attempts),
        relay_status(task, why),
        event_status([task]),
        step_status(state, letter, tried=attempts > 0),
    )


def test_every_state_has_a_word_everywhere() -> None:
    for state, attempts, reason, closed in product(TaskState, (0, 1, 5), Reason, (True, False)):
        queue_status(state, attempts)
        assert relay_status(state, reason)
        assert step_status(state, "ignored" if closed else None, tried=attempts > 0)


def test_a_dead_task_without_a_reason_is_a_bug() -> None:
    with pytest.raises(ValueError, match="reason"):
        relay_status(TaskState.DEAD, None)


@pytest.mark.parametrize("states", list(product(TaskState, TaskState)), ids="-".join)
def test_an_event_is_queued_while_one_task_is_open_and_failed_when_one_is_dead(
    states: tuple[TaskState, TaskState],
) -> None:
    expected = "delivered"
    if "dead" in states:
        expected = "failed"
    if {"waiting", "leased", "held"} & set(states):
        expected = "queued"
    assert event_status(states) == expected


def test_an_event_without_tasks_waits_in_the_inbox() -> None:
    assert event_status([]) is EventStatus.RECEIVED


def test_retries_made_and_retries_granted() -> None:
    assert [retry_count(attempts) for attempts in range(5)] == [0, 0, 1, 2, 3]
    assert [retry_attempts(failures, 3) for failures in range(6)] == [0, 1, 2, 3, 3, 3]
    assert retry_attempts(40, None) == 40
