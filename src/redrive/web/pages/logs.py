"""Integration logs: every delivery, with what became of it, newest first."""

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from redrive.api import shapes
from redrive.api.context import Context
from redrive.api.cursors import ListPlace
from redrive.api.shapes import Shape
from redrive.store import logs
from redrive.store.endpoint_names import endpoint_names, offered_names
from redrive.store.logs import LogFilter
from redrive.store.orgs import as_id
from redrive.store.paging import MAX_COUNTED
from redrive.web.frame import Frame, load_frame
from redrive.web.lists import (
    NOBODY,
    PAGE_ROWS,
    Asked,
    FilterBuilder,
    Sorting,
    searched,
    sort_of,
    terms_of,
    thing_with_id,
)
from redrive.web.render import render
from redrive.web.visitor import PageRoute, Visitor

PATH = "/integrations/logs"
QUALIFIERS = ("status", "type", "system", "endpoint", "event", "since", "until")
STATUSES = {"pending": "Pending", "error": "Error", "success": "Success"}

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass(frozen=True, slots=True)
class LogsPage:
    frame: Frame
    asked: Asked
    sorting: Sorting
    logs: list[Shape]
    total: int | None
    next_href: str | None
    first_href: str | None
    endpoint_names: Sequence[str]

    path = PATH
    statuses = STATUSES
    counted_to = MAX_COUNTED


@router.get(PATH)
async def logs_page(request: Request, visitor: Visitor, context: Context) -> Response:
    search = searched(request, QUALIFIERS)
    if isinstance(search, Response):
        return search
    if search.text and as_id(search.text) is None:  # a text without a qualifier is a type
        typed = search.without("q").changed("type", search.text)
        return Response(status_code=303, headers={"location": typed.address(PATH)})
    async with context.tenant(visitor) as session:
        frame = await load_frame(session, visitor, context, PATH)
        if (way := await thing_with_id(session, search)) is not None:
            return way
        chosen = FilterBuilder(search, frame.now)
        chosen.choice("status", "status", STATUSES)
        chosen.text("type", "event_type")
        chosen.text("system", "external_system")
        await chosen.endpoint(session)
        if (event := search.get("event")) is not None:
            chosen.filter["event_id"] = as_id(event) or NOBODY
        chosen.time("since")
        chosen.time("until")
        chosen.nothing_if_unclear()
        sort = sort_of(request, logs.SORTS, logs.NEWEST)
        place = ListPlace("page logs", visitor.org_id, dict(search.terms) | {"sort": sort})
        given = request.query_params.get("cursor")
        page = await logs.list_logs(
            session,
            LogFilter(**chosen.filter),  # type: ignore[arg-type]
            limit=PAGE_ROWS,
            after=context.cursors.read(place, given),
            sort=sort,
        )
        sorting = Sorting(search, PATH, sort, logs.NEWEST, logs.NEWEST, page.is_by_time)
        names = await endpoint_names(session, [row["endpoint_id"] for row in page.rows])
        cursor = context.cursors.write(place, page.next_key) if page.next_key else None
        shown = LogsPage(
            frame=frame,
            asked=Asked(search, chosen.filter, tuple(chosen.problems), terms_of(search, PATH, chosen.words)),
            sorting=sorting,
            logs=[
                shapes.log_entry(row) | {"category": row["category"], "endpoint": names.get(row["endpoint_id"])}
                for row in page.rows
            ],
            total=page.total,
            next_href=search.address(PATH, sort=sorting.carried, cursor=cursor) if cursor else None,
            first_href=search.address(PATH, sort=sorting.carried) if given else None,
            endpoint_names=await offered_names(session),
        )
    return render(request, "logs.html", shown)
