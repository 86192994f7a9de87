"""What is said of a task that nobody delivered in time."""

import pytest

from redrive.core.expiry import span, why_expired


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (604_800, "7 days"),
        (86_400, "1 day"),
        (7_200, "2 hours"),
        (5_400, "90 minutes"),
        (61, "61 seconds"),
        (1, "1 second"),
        (0.5, "0.5 seconds"),
    ],
)
def test_a_span_is_said_in_its_largest_whole_unit(seconds: float, said: str) -> None:
    assert span(seconds) == said


def test_a_task_that_was_never_tried_says_so() -> None:
    assert why_expired(604_800) == (
        "It was not delivered within the 7 days that its policy allows: no try was made in that time."
    )
