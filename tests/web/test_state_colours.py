"""Each state of an event or task has one colour on every page."""

from importlib.resources import files

import pytest

from redrive.core.run_states import RunStatus, StepStatus
from redrive.web import words, workflow_words

MEANINGS = ("created", "delivered", "failed", "waiting", "held")


@pytest.mark.parametrize(
    ("state", "colour"),
    [
        ("received", "created"),
        ("delivered", "delivered"),
        ("succeeded", "delivered"),
        ("failed", "failed"),
        ("dead", "failed"),
        ("queued", "waiting"),
        ("pending", "waiting"),
        ("in_progress", "waiting"),
        ("held", "held"),
    ],
)
def test_a_state_has_the_colour_of_its_meaning(state: str, colour: str) -> None:
    assert words.state_colour(state) == colour


def test_runs_and_steps_use_the_same_colours() -> None:
    assert set(workflow_words.RUN_STATUSES) == set(RunStatus)
    assert set(workflow_words.STEP_STATUSES) == set(StepStatus)
    for statuses in (workflow_words.RUN_STATUSES, workflow_words.STEP_STATUSES):
        assert {colour for colour, _ in statuses.values()} <= set(MEANINGS)


def test_the_stylesheet_defines_each_colour_and_its_badge() -> None:
    css = files("redrive.web").joinpath("static", "app.css").read_text()
    for meaning in MEANINGS:
        assert f"--{meaning}:" in css
        assert f".badge.{meaning} {{" in css
