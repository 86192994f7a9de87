"""Home: what needs a person, and how the last hour went. The charts are on the dashboard."""

from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from redrive.api.context import Context
from redrive.core.analytics import Outcomes, Period
from redrive.store import analytics, groups, pulse
from redrive.store.dead_letters import DeadLetterFilter
from redrive.store.pulse import WorstEndpoint
from redrive.web.frame import Frame, load_frame
from redrive.web.pages.groups import Group, shown_groups
from redrive.web.render import render
from redrive.web.search import Search
from redrive.web.visitor import PageRoute, Visitor

PATH = "/"
MAX_GROUPS = 5

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass(frozen=True, slots=True)
class HomePage:
    frame: Frame
    groups: list[Group]
    groups_total: int | None
    worst: list[WorstEndpoint]
    hour: Outcomes
    retrying: int


@router.get(PATH)
async def home_page(request: Request, visitor: Visitor, context: Context) -> Response:
    async with context.tenant(visitor) as session:
        frame = await load_frame(session, visitor, context, PATH)
        found = await groups.list_groups(session, DeadLetterFilter(), limit=MAX_GROUPS)
        causes = await shown_groups(session, found, Search({}), frame.now, "open")
        worst = await pulse.worst_endpoints(session, context.clock)
        course = await analytics.over_time(session, context.clock, Period.HOUR)
        standing = await pulse.standing(session)
    page = HomePage(frame, causes, found.total, worst, course.whole, standing.retrying)
    return render(request, "home.html", page)
