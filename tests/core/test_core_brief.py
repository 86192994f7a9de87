"""An error in a line, also one that says nothing."""

import pytest

from redrive.core.brief import MAX_ERROR_CHARS, brief


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("no such thing"), "ValueError: no such thing"),
        (ValueError("a\nrow"), "ValueError: a"),
        (ValueError("x" * 1_000), f"ValueError: {'x' * MAX_ERROR_CHARS}"),
        (ValueError(), "ValueError"),
        (ConnectionResetError("\n"), "ConnectionResetError"),
        (TimeoutError(), "no answer in time (TimeoutError)"),
        (TimeoutError("of the lock"), "TimeoutError: of the lock"),
    ],
)
def test_an_error_is_a_line_that_ends_in_no_colon(error: Exception, line: str) -> None:
    assert brief(error) == line
