"""The dashboard's chart of events per minute, at its right end: the bucket that now falls into goes on."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from redrive.core.analytics import Outcomes
from redrive.store.analytics import Course, Moment
from redrive.store.pulse import Standing
from redrive.web.pages.dashboard import CHOICES, Choice, _drawn

AT = datetime(2026, 11, 18, tzinfo=UTC)
NOBODY = Standing(0, 0, 0, 0, 0, 0)
LENGTHS = {"1h": 1, "24h": 60, "7d": 120, "30d": 1_440}  # of a bucket, in minutes


def rates(choice: Choice, minutes: int, passed: timedelta, created: int, before: int = 0) -> str:
    """The chart, so long after its last bucket began; each had so many events."""
    moments = (
        Moment(AT - timedelta(minutes=minutes), Outcomes(created=before)),
        Moment(AT, Outcomes(created=created)),
    )
    return str(_drawn(Course(choice.period, AT + passed, moments), None, NOBODY, choice, (AT, moments)).rates)


@pytest.mark.parametrize("name", ["24h", "7d", "30d"])
@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_a_steady_stream_is_level_to_its_end(name: str, share: float) -> None:
    minutes = LENGTHS[name]
    passed = minutes * share
    chart = rates(CHOICES[name], minutes, timedelta(minutes=passed), created=round(4 * passed), before=4 * minutes)
    assert "created: 4 at the end, always 4." in chart


@pytest.mark.parametrize("name", LENGTHS)
@pytest.mark.parametrize("passed_s", [0, 1, 59.9])
def test_what_has_only_just_begun_has_no_rate_yet(name: str, passed_s: float) -> None:
    """Neither a spike of one event nor a fall to nothing."""
    minutes = LENGTHS[name]
    chart = rates(CHOICES[name], minutes, timedelta(seconds=passed_s), created=1, before=3 * minutes)
    assert "created: 3 when last known, always 3." in chart
    assert re.search(r"18 Nov 00:00: created –, delivered –, failed –<", chart)


@pytest.mark.parametrize("name", LENGTHS)
def test_it_has_one_when_a_minute_of_it_has_passed(name: str) -> None:
    minutes = LENGTHS[name]
    chart = rates(CHOICES[name], minutes, timedelta(minutes=1), created=7, before=3 * minutes)
    assert "created: 7 at the end, from 3 to 7." in chart
