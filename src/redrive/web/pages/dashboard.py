"""The dashboard: what came in, went out and failed over a time, and how deliveries went by endpoint, type or system."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fastapi import APIRouter, Request, Response
from markupsafe import Markup

from redrive.api.context import Context
from redrive.core.analytics import DAY_IN_QUARTERS, Dimension, Outcomes, Period
from redrive.core.pulse import Window, below_marks
from redrive.store import analytics, pulse
from redrive.store.analytics import Course, Moment, Ranking
from redrive.store.pulse import Pulse, Standing
from redrive.web.charts import Part, Series, Unit, bars, donut, gauge, lines
from redrive.web.frame import Frame, load_frame
from redrive.web.render import render
from redrive.web.visitor import PageRoute, Visitor

PATH = "/dashboard"
TARGET = 0.95  # of what ends: more failures than that are an alarm
MAX_KEYS = 8
# Of a bucket, before it has a rate: one event in its first second is no 60 a minute.
LEAST_PASSED = timedelta(minutes=1)
# The bars of the time to delivery: up to which bound, and its label.
WAITS = {1: "<1 s", 10: "<10 s", 60: "<1 min", 900: "<15 min", 3_600: "<1 h", 86_400: "<1 d"}

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Choice:
    """A window that can be chosen. `depth`: where the depth of the queue is kept for as long."""

    name: str
    label: str
    ago: str
    depth: Window | None
    period: Period


CHOICES = {
    choice.name: choice
    for choice in (
        Choice("1h", "Last hour", "60 min ago", Window.HOUR, Period.HOUR),
        Choice("24h", "Last 24 hours", "24 h ago", Window.DAY, Period.DAY),
        Choice("7d", "Last 7 days", "7 d ago", Window.WEEK, Period.WEEK),
        Choice("30d", "Last 30 days", "30 d ago", None, Period.MONTH),
    )
}


BY = {
    Dimension.ENDPOINT: "Endpoint",
    Dimension.EVENT_TYPE: "Event type",
    Dimension.EXTERNAL_SYSTEM: "External system",
}


@dataclass(frozen=True, slots=True)
class Charts:
    """All of them, drawn; the depth of the queue only as far as it is known."""

    standing: Markup
    rates: Markup
    success: Markup
    retries: Markup
    waits: Markup
    failed: Markup
    failures: Markup
    depth: Markup | None


@dataclass(frozen=True, slots=True)
class DashboardPage:
    frame: Frame
    choice: Choice
    course: Course
    standing: Standing
    charts: Charts
    whole: Outcomes  # how deliveries went in the same time, and by what is chosen
    ranking: Ranking

    choices = tuple(CHOICES.values())
    dimensions = tuple(BY.items())

    @property
    def by(self) -> Dimension:
        return self.ranking.dimension

    @property
    def by_label(self) -> str:
        return BY[self.by]

    @property
    def per_minute(self) -> float:
        """Events that came in during the last whole bucket, a minute."""
        return self.course.moments[-2].outcomes.created / _minutes(self.course)


@router.get(PATH)
async def dashboard_page(request: Request, visitor: Visitor, context: Context) -> Response:
    choice = CHOICES.get(request.query_params.get("window", ""), CHOICES["1h"])
    by = next((each for each in BY if each == request.query_params.get("by")), Dimension.ENDPOINT)
    async with context.tenant(visitor) as session:
        frame = await load_frame(session, visitor, context, PATH)
        standing = await pulse.standing(session)
        course = await analytics.over_time(session, context.clock, choice.period)
        ranking = await analytics.by_key(session, context.clock, choice.period, by, limit=MAX_KEYS)
        beat = None if choice.depth is None else await pulse.pulse(session, context.clock, choice.depth)
        day = await analytics.moments_of(session, context.clock, DAY_IN_QUARTERS)
    charts = _drawn(course, beat, standing, choice, day)
    page = DashboardPage(frame, choice, course, standing, charts, course.whole, ranking)
    return render(request, "dashboard.html", page)


def _minutes(course: Course) -> float:
    return course.period.value.span.bucket / timedelta(minutes=1)


def _passed(at: datetime, as_of: datetime, bucket_min: float) -> float | None:
    """Minutes of a bucket: of the last one those that have passed, None where it has only just begun."""
    passed = as_of - at
    return min(passed / timedelta(minutes=1), bucket_min) if passed >= LEAST_PASSED else None


def _per_minute(
    name: str, label: str, as_of: datetime, moments: Sequence[Moment], bucket_min: float, of: Callable[[Outcomes], int]
) -> Series:
    passed = [_passed(moment.at, as_of, bucket_min) for moment in moments]
    values = [
        of(moment.outcomes) / minutes if minutes else None for moment, minutes in zip(moments, passed, strict=True)
    ]
    return Series(name, label, values)


def _drawn(
    course: Course,
    beat: Pulse | None,
    standing: Standing,
    choice: Choice,
    day: tuple[datetime, Sequence[Moment]],
) -> Charts:
    moments = [_shown(moment.at) for moment in course.moments]
    whole = course.whole

    def per_minute(name: str, of: Callable[[Outcomes], int]) -> Series:
        return _per_minute(name, name, course.as_of, course.moments, _minutes(course), of)

    ended = [saved + lost for saved, lost in zip(whole.saved, whole.lost, strict=True)]
    return Charts(
        standing=donut(
            "Events by status",
            [
                Part("delivered", "delivered", standing.delivered),
                Part("queued", "queued", standing.queued),
                Part("failed", "failed", standing.failed),
                Part("received", "received", standing.received),
            ],
        ),
        rates=lines(
            "Events per minute",
            [
                per_minute("created", lambda outcomes: outcomes.created),
                per_minute("delivered", lambda outcomes: outcomes.events_delivered),
                per_minute("failed", lambda outcomes: outcomes.events_failed),
            ],
            start=choice.ago,
            moments=moments,
            adds_up=False,
        ),
        success=gauge("Success rate", whole.success_rate, TARGET, caption=choice.label.lower()),
        retries=bars(
            "Retries",
            [*(str(retry) for retry in range(len(ended) - 1)), f"{len(ended) - 1}+"],
            ended,
            name="retries",
        ),
        waits=bars("Time to delivery", [*WAITS.values(), "longer"], below_marks(whole.waits, tuple(WAITS))),
        failed=lines(
            "Failed rate",
            [Series("failed", "failed", [moment.outcomes.failed_rate for moment in course.moments])],
            start=choice.ago,
            moments=moments,
            unit=Unit.RATE,
        ),
        failures=lines(
            "Failed per minute, last 24 hours",
            [
                _per_minute(
                    "failed",
                    "failed events per minute",
                    *day,
                    DAY_IN_QUARTERS.span.bucket / timedelta(minutes=1),
                    lambda outcomes: outcomes.events_failed,
                )
            ],
            start="24 h ago",
            moments=[_shown(moment.at) for moment in day[1]],
            adds_up=False,
        ),
        depth=None
        if beat is None
        else lines(
            "Queue depth",
            [Series("depth", "open tasks", [bucket.depth for bucket in beat.buckets])],
            start=choice.ago,
            moments=[_shown(bucket.at) for bucket in beat.buckets],
            adds_up=False,
        ),
    )


def _shown(at: datetime) -> str:
    return at.strftime("%d %b %H:%M")
