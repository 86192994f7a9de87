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


def test_it_is_said_whether_anybody_tried() -> None:
    assert why_expired(604_800, 0) == (
        "It was not delivered within the 7 days that its policy allows: nobody took it up in that time."
    )
    assert why_expired(60, 1).endswith("allows: the one try failed.")
    assert why_expired(60, 12).endswith("allows: all 12 tries failed.")
