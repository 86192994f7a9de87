"""Events: what producers handed in, newest first, and where each stands. One may be sent from here, too."""

from dataclasses import dataclass
from uuid import UUID

from fastapi import APIRouter, Request, Response

from redrive.api import shapes
from redrive.api.context import Context
from redrive.api.cursors import ListPlace
from redrive.api.shapes import Shape
from redrive.store import events
from redrive.store.endpoint_names import endpoint_names
from redrive.web.frame import Frame, load_frame
from redrive.web.lists import PAGE_ROWS, Asked, FilterBuilder, known_total, searched, terms_of
from redrive.web.render import render
from redrive.web.search import Search
from redrive.web.visitor import PageRoute, Visitor

PATH = "/events"
QUALIFIERS = ("status", "type")
STATUSES = {"received": "Received", "queued": "Queued", "delivered": "Delivered", "failed": "Failed"}

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass(frozen=True, slots=True)
class EventsPage:
    frame: Frame
    asked: Asked
    events: list[Shape]
    total: int | None
    next_href: str | None
    first_href: str | None

    path = PATH
    statuses = STATUSES

    @property
    def watched(self) -> bool:
        """Whether what is new belongs on top of this page."""
        return self.first_href is None


@router.get(PATH)
async def events_page(request: Request, visitor: Visitor, context: Context) -> Response:
    search = searched(request, QUALIFIERS)
    if isinstance(search, Response):
        return search
    if search.text:
        return Response(status_code=303, headers={"location": _meant(search)})
    async with context.tenant(visitor) as session:
        frame = await load_frame(session, visitor, context, PATH)
        chosen = FilterBuilder(search, frame.now)
        chosen.choice("status", "status", STATUSES)
        chosen.text("type", "event_type")
        status, event_type = (chosen.filter.get(name) for name in ("status", "event_type"))
        place = ListPlace("page events", visitor.org_id, chosen.filter)
        given = request.query_params.get("cursor")
        page = await events.list_events(
            session,
            status=str(status) if status else None,
            event_type=str(event_type) if event_type else None,
            limit=PAGE_ROWS,
            after=context.cursors.read(place, given),
        )
        names = await endpoint_names(session, [row["endpoint_id"] for row in page.rows])
        cursor = context.cursors.write(place, page.next_key) if page.next_key else None
        shown = EventsPage(
            frame=frame,
            asked=Asked(search, chosen.filter, tuple(chosen.problems), terms_of(search, PATH)),
            events=[shapes.event(row) | {"endpoint": names.get(row["endpoint_id"])} for row in page.rows],
            total=known_total(page, is_first=given is None),
            next_href=search.address(PATH, cursor=cursor) if cursor else None,
            first_href=search.address(PATH) if given else None,
        )
    return render(request, "events.html", shown)


def _meant(search: Search) -> str:
    """Where a search without a qualifier leads: an id is an event, any other text is a type."""
    try:
        return f"{PATH}/{UUID(search.text)}"
    except ValueError:
        return search.without("q").changed("type", search.text).address(PATH)
