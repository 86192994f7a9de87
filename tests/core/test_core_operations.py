"""How an operation moves: commands, stages, rates, ends, and the words for people."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis.strategies import booleans, floats, integers, lists

from redrive.core.operations import (
    MAX_SENT_ITEMS,
    MAX_STEP_ITEMS,
    Canary,
    Command,
    Course,
    OperationState,
    completed,
    dispatched,
    ending,
    is_finished,
    next_batch,
    progress,
    told,
)

NOW = datetime(2031, 5, 4, 12, 0, tzinfo=UTC)
S = OperationState


@pytest.mark.parametrize(
    ("state", "command", "collected", "then"),
    [
        (S.RUNNING, Command.PAUSE, True, S.PAUSED),
        (S.PREPARING, Command.PAUSE, False, S.PAUSED),
        (S.PAUSED, Command.PAUSE, True, None),
        (S.PAUSED, Command.RESUME, True, S.RUNNING),
        (S.PAUSED, Command.RESUME, False, S.PREPARING),
        (S.RUNNING, Command.RESUME, True, None),
        (S.PREPARING, Command.RESUME, False, None),
        (S.PREPARING, Command.CANCEL, False, S.CANCELLED),
        (S.RUNNING, Command.CANCEL, True, S.CANCELLED),
        (S.PAUSED, Command.CANCEL, True, S.CANCELLED),
    ],
)
def test_a_command_leads_to_one_state_or_makes_no_sense(
    state: S, command: Command, collected: bool, then: S | None
) -> None:
    assert told(state, command, collected=collected) is then


@pytest.mark.parametrize("command", Command)
@pytest.mark.parametrize("state", [S.COMPLETED, S.CANCELLED])
def test_nothing_leaves_an_end(state: S, command: Command) -> None:
    assert told(state, command, collected=True) is None


def test_a_batch_is_bounded_by_the_step_by_what_is_under_way_and_by_the_total() -> None:
    assert next_batch(Course(S.RUNNING, 10_000), NOW)[1] == MAX_STEP_ITEMS
    assert next_batch(Course(S.RUNNING, 10_000, dispatched=MAX_SENT_ITEMS - 3), NOW)[1] == 3
    assert next_batch(Course(S.RUNNING, 10_000, dispatched=9_998, succeeded=9_998), NOW)[1] == 2
    for state in (S.PAUSED, S.CANCELLED, S.COMPLETED, S.PREPARING):
        assert next_batch(Course(state, 10), NOW)[1] == 0


def test_a_stage_waits_for_its_results_before_the_next_begins() -> None:
    course = Course(S.RUNNING, 1_000, canary=Canary((1, 5), 0.5))
    course, count = next_batch(course, NOW)
    assert count == 10
    course = dispatched(course, 10, succeeded=0, failed=0, now=NOW)
    assert next_batch(course, NOW) == (course, 0)
    course, count = next_batch(replace(course, succeeded=5, failed=5), NOW)
    assert (course.stage, count) == (1, 40)


def test_a_stage_is_judged_by_its_own_items_and_only_once() -> None:
    canary = Canary((50,), 0.1)
    paused, count = next_batch(Course(S.RUNNING, 10, dispatched=5, succeeded=4, failed=1, canary=canary), NOW)
    assert (paused.state, count) == (S.PAUSED, 0)
    assert paused.note is not None
    assert "1 of 5 items failed, more than the 10 %" in paused.note
    resumed, count = next_batch(replace(paused, state=S.RUNNING), NOW)
    assert (resumed.state, count) == (S.RUNNING, 5)


def test_an_operation_that_has_done_all_completes_instead_of_pausing() -> None:
    course = Course(S.RUNNING, 1, dispatched=1, failed=1, canary=Canary((100,), 0.0))
    course, _ = next_batch(course, NOW)
    assert completed(course).state is S.COMPLETED


@pytest.mark.parametrize("state", [S.RUNNING, S.PAUSED])
def test_what_has_nothing_left_to_do_is_completed(state: S) -> None:
    assert completed(Course(state, 0)).state is S.COMPLETED
    assert completed(Course(state, 2, dispatched=2, succeeded=1)).state is state
    assert completed(Course(S.CANCELLED, 0)).state is S.CANCELLED


def test_a_cancelled_operation_has_ended_when_nothing_is_under_way() -> None:
    assert not is_finished(Course(S.CANCELLED, 5, dispatched=2, failed=1))
    assert is_finished(Course(S.CANCELLED, 5, dispatched=2, failed=2))
    assert not is_finished(Course(S.PAUSED, 5))


@given(
    rate=floats(0.001, 100_000),
    gaps=lists(floats(0, 30), min_size=1, max_size=30),
)
def test_a_rate_is_never_exceeded_by_more_than_a_second_of_it(rate: float, gaps: list[float]) -> None:
    course = Course(S.RUNNING, 10**9, rate_per_s=rate)
    now, sent = NOW, 0
    for gap in gaps:
        now += timedelta(seconds=gap)
        course, count = next_batch(course, now)
        course = replace(dispatched(course, count, succeeded=count, failed=0, now=now))
        sent += count
    assert sent <= (now - NOW).total_seconds() * rate + max(rate, 1) + 1


@given(
    total=integers(0, 5_000),
    stages=lists(integers(1, 100), unique=True, max_size=5).map(sorted),
    failing=lists(booleans(), min_size=1, max_size=7),
)
def test_every_operation_ends_with_all_items_done(total: int, stages: list[int], failing: list[bool]) -> None:
    course = Course(S.RUNNING, total, canary=Canary(tuple(map(float, stages)), 0.3) if stages else None)
    for turn in range(200):
        course, count = next_batch(course, NOW)
        failed = count if failing[turn % len(failing)] else 0
        course = completed(dispatched(course, count, succeeded=count - failed, failed=failed, now=NOW))
        if course.state is S.COMPLETED:
            break
        if course.state is S.PAUSED:
            course = replace(course, state=S.RUNNING)
    assert (course.state, course.done) == (S.COMPLETED, total)


def test_people_are_told_in_these_words() -> None:
    assert progress(3, 2, 5) == "3/5 succeeded, 2/5 failed"
    sums = {"succeeded": 3, "failed": 2, "cancelled": 4}
    assert ending("retry", S.COMPLETED, **sums) == "Bulk retry complete. 3 succeeded, 2 failed."
    assert ending("skip", S.COMPLETED, **sums) == "Bulk skip complete. 3 succeeded, 2 failed."
    assert ending("delete", S.CANCELLED, **sums) == "Bulk delete cancelled. 3 succeeded, 2 failed, 4 not done."
    assert ending("retry", S.RUNNING, **sums) is None
