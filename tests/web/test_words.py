"""Values as people read them."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.web import words

NOW = datetime(2026, 11, 16, 9, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "now"),
        (0.4, "now"),
        (-1, "1 s ago"),
        (5, "in 5 s"),
        (-59, "59 s ago"),
        (-60, "1 min ago"),
        (3_600, "in 1 h"),
        (-86_400 * 2, "2 d ago"),
        (-86_400 * 40, "1 mo ago"),
        (-86_400 * 800, "2 y ago"),
    ],
)
def test_relative_times(seconds: float, said: str) -> None:
    assert words.relative(NOW + timedelta(seconds=seconds), NOW) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.25, "250 ms"),
        (1.5, "1.5 s"),
        (5, "5 s"),
        (90, "1 min 30 s"),
        (5_400, "1 h 30 min"),
        (86_400 * 7, "7 d"),
        (None, "–"),
    ],
)
def test_durations(seconds: float | None, said: str) -> None:
    assert words.duration(seconds) == said


def test_a_share_is_never_rounded_to_all_or_nothing() -> None:
    assert words.percent(0.999999) == "99.9%"
    assert words.percent(1e-9) == "<0.1%"
    assert words.percent(1.0) == "100.0%"
    assert words.percent(0.0) == "0.0%"


@pytest.mark.parametrize(
    ("count", "said"), [(1, "1 letter"), (2, "2 letters"), (1_234, "1,234 letters"), (0, "0 letters")]
)
def test_plurals(count: int, said: str) -> None:
    assert words.plural(count, "letter") == said


@pytest.mark.parametrize(
    ("count", "said"), [(512, "512 bytes"), (1_500, "1.5 kB"), (250_000, "250 kB"), (3 * 10**15, "3000 TB")]
)
def test_sizes(count: int, said: str) -> None:
    assert words.size(count) == said


def test_a_time_is_told_relative_with_the_absolute_one_on_hover() -> None:
    told = words.when(NOW - timedelta(minutes=3), NOW)
    assert 'datetime="2026-11-16T09:27:00.000Z"' in told
    assert 'title="2026-11-16 09:27:00 UTC"' in told
    assert ">3 min ago<" in told


def test_no_time_is_told_as_a_dash() -> None:
    assert words.when(None, NOW) == '<span class="none">–</span>'


@given(st.datetimes(min_value=datetime(1990, 1, 1), max_value=datetime(2200, 1, 1), timezones=st.just(UTC)))
def test_any_time_can_be_told(at: datetime) -> None:
    assert words.relative(at, NOW)


@pytest.mark.parametrize(
    ("category", "message", "parts"),
    [
        ("server_error", "HTTP 503 Service Unavailable", ("HTTP 503", "Service Unavailable")),
        ("server_error", "HTTP 599", ("HTTP 599", "Server error")),
        ("timeout", "http://x did not answer", ("Timeout", "http://x did not answer")),
        ("unknown", None, ("Unknown", "–")),
    ],
)
def test_an_error_is_a_mark_and_what_else_there_is_to_say(
    category: str, message: str | None, parts: tuple[str, str]
) -> None:
    assert words.error_parts(category, message) == parts
