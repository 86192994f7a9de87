"""Runs and steps: every move is promised or impossible, tasks read as steps, ids are the same each time."""

from itertools import product

import pytest

from redrive.core.lifecycle import DEAD_LETTER_TRANSITIONS, TRANSITIONS, DeadLetterState, TaskState
from redrive.core.run_states import (
    RUN_ACTS,
    RUN_TRANSITIONS,
    STEP_ACTS,
    STEP_TRANSITIONS,
    UNDER_WAY,
    RunStatus,
    StepStatus,
    schedule_id,
    step_key,
    step_status,
)

RUN_MOVES = {
    "PENDING": "RUNNING FAILED DLQ_PENDING",
    "RUNNING": "SUCCESS FAILED PARTIAL DLQ_PENDING",
    "DLQ_PENDING": "RUNNING FAILED",
    "FAILED": "RUNNING DLQ_PENDING",
    "PARTIAL": "RUNNING DLQ_PENDING",
    "SUCCESS": "RUNNING",
}
STEP_MOVES = {
    "PENDING": "RUNNING DLQ FAILED",
    "RUNNING": "SUCCESS RETRYING DLQ FAILED PENDING",
    "RETRYING": "RUNNING DLQ FAILED",
    "DLQ": "PENDING FAILED",
    "FAILED": "PENDING DLQ",
    "SUCCESS": "PENDING",
}


@pytest.mark.parametrize(("before", "after"), list(product(RunStatus, RunStatus)))
def test_a_run_makes_the_promised_moves_only(before: RunStatus, after: RunStatus) -> None:
    assert ((before, after) in RUN_TRANSITIONS) == (after in RUN_MOVES[before].split())


@pytest.mark.parametrize(("before", "after"), list(product(StepStatus, StepStatus)))
def test_a_step_makes_the_promised_moves_only(before: StepStatus, after: StepStatus) -> None:
    assert ((before, after) in STEP_TRANSITIONS) == (after in STEP_MOVES[before].split())


def test_only_a_person_moves_a_run_that_is_not_under_way_and_a_step_that_has_ended() -> None:
    assert {before for before, _ in RUN_ACTS}.isdisjoint(UNDER_WAY)
    assert {before for before, _ in RUN_TRANSITIONS - RUN_ACTS} == UNDER_WAY
    ended = {StepStatus.SUCCESS, StepStatus.DLQ, StepStatus.FAILED}
    assert {before for before, _ in STEP_ACTS} == ended
    assert {before for before, _ in STEP_TRANSITIONS - STEP_ACTS}.isdisjoint(ended)


@pytest.mark.parametrize(
    ("state", "letter", "tried", "word"),
    [
        (None, None, False, "PENDING"),
        ("waiting", None, False, "PENDING"),
        ("held", None, False, "PENDING"),
        ("leased", None, False, "RUNNING"),
        ("waiting", None, True, "RETRYING"),
        ("held", None, True, "RETRYING"),
        ("leased", None, True, "RUNNING"),
        ("succeeded", None, True, "SUCCESS"),
        ("succeeded", "resolved", True, "SUCCESS"),
        ("waiting", "replaying", False, "PENDING"),
        ("dead", "open", True, "DLQ"),
        ("dead", "open", False, "DLQ"),
        ("dead", None, True, "DLQ"),
        ("dead", "replaying", True, "PENDING"),
        ("dead", "resolved", True, "FAILED"),
        ("dead", "ignored", True, "FAILED"),
        ("dead", "deleted", True, "FAILED"),
    ],
)
def test_a_step_reads_off_its_task(state: str | None, letter: str | None, tried: bool, word: str) -> None:
    assert step_status(state, letter, tried) is StepStatus(word)


def test_what_a_task_may_do_its_step_may_do() -> None:
    """A redrive counts its tries anew."""
    for before, after in TRANSITIONS:
        for tried in (False, True):
            words = step_status(before, "open", tried), step_status(after, "open", tried and before != TaskState.DEAD)
            assert words[0] is words[1] or words in STEP_TRANSITIONS, (before, after, words)
    for was, then in DEAD_LETTER_TRANSITIONS - {(DeadLetterState.REPLAYING, DeadLetterState.RESOLVED)}:
        words = step_status("dead", was, True), step_status("dead", then, True)
        assert words[0] is words[1] or words in STEP_TRANSITIONS, (was, then)


def test_ids_are_told_by_run_step_attempt_and_generation() -> None:
    assert schedule_id("01J", 2, 3) == "01J:2:3"
    assert schedule_id("01J", 2, 3, 1) == "01J:2:3:r1"
    assert step_key("01J", 2) == "01J:2"
    assert step_key("01J", 2, 4) == "01J:2:r4"
