"""The retry queue: what failed and will be tried again, soonest first, and a person's hand in it."""

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from redrive.api import shapes
from redrive.api.context import Context
from redrive.api.cursors import ListPlace
from redrive.api.shapes import Shape
from redrive.store import retry_queue
from redrive.store.choices import event_types
from redrive.store.endpoint_names import endpoint_names, offered_names
from redrive.store.operations import RETRY_QUEUE
from redrive.store.paging import MAX_COUNTED
from redrive.store.pausing import NO_HOLD, holds_of
from redrive.store.retry_queue import RetryQueueFilter
from redrive.web.frame import Frame, load_frame
from redrive.web.lists import (
    PAGE_ROWS,
    Asked,
    FilterBuilder,
    Sorting,
    operations_to_show,
    searched,
    sort_of,
    terms_of,
    thing_with_id,
)
from redrive.web.render import render
from redrive.web.visitor import PageRoute, Visitor
from redrive.web.words import CATEGORIES

PATH = "/integrations/logs/retry-queue"
QUALIFIERS = ("status", "type", "system", "endpoint", "error")
STATUSES = {"pending": "Pending", "in_progress": "In progress"}

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass(frozen=True, slots=True)
class RetryQueuePage:
    frame: Frame
    asked: Asked
    sorting: Sorting
    entries: list[Shape]
    total: int | None
    next_href: str | None
    first_href: str | None
    event_types: Sequence[str]  # to choose from
    endpoint_names: Sequence[str]
    operations: list[Shape]
    path: str = PATH

    statuses = STATUSES
    categories = CATEGORIES
    counted_to = MAX_COUNTED

    @property
    def watched(self) -> dict[str, object] | None:
        """What is new and belongs on this page: it failed for the first time since then."""
        return None if self.first_href else dict(self.asked.filter) | {"since": self.frame.now}

    @property
    def bulk_filter(self) -> dict[str, object]:
        """All that match: what is under way is left to end."""
        return {"status": "pending"} | dict(self.asked.filter)


@router.get(PATH)
async def retry_queue_page(request: Request, visitor: Visitor, context: Context) -> Response:
    search = searched(request, QUALIFIERS)
    if isinstance(search, Response):
        return search
    async with context.tenant(visitor) as session:
        frame = await load_frame(session, visitor, context, PATH)
        if (way := await thing_with_id(session, search)) is not None:
            return way
        chosen = FilterBuilder(search, frame.now)
        chosen.choice("status", "status", STATUSES)
        chosen.choice("error", "category", CATEGORIES)
        chosen.text("type", "event_type")
        chosen.text("system", "external_system")
        await chosen.endpoint(session)
        chosen.free_text()
        chosen.nothing_if_unclear()
        sort = sort_of(request, retry_queue.SORTS, retry_queue.SOONEST)
        place = ListPlace("page retry-queue", visitor.org_id, chosen.filter | {"sort": sort})
        given = request.query_params.get("cursor")
        page = await retry_queue.list_retry_queue(
            session,
            RetryQueueFilter(**chosen.filter),  # type: ignore[arg-type]
            limit=PAGE_ROWS,
            after=context.cursors.read(place, given),
            sort=sort,
        )
        sorting = Sorting(search, PATH, sort, retry_queue.SOONEST, retry_queue.SOONEST, page.is_by_time)
        names = await endpoint_names(session, [row["endpoint_id"] for row in page.rows])
        holds = await holds_of(session, [row["id"] for row in page.rows], context.clock)
        shown = RetryQueuePage(
            frame=frame,
            asked=Asked(search, chosen.filter, tuple(chosen.problems), terms_of(search, PATH, chosen.words)),
            sorting=sorting,
            entries=[
                shapes.held_by(shapes.entry(row), holds.get(row["id"]))
                | {
                    "category": row["category"],
                    "endpoint": names.get(row["endpoint_id"]),
                    "hold": holds.get(row["id"], NO_HOLD),
                }
                for row in page.rows
            ],
            total=page.total,
            next_href=search.address(PATH, sort=sorting.carried, cursor=context.cursors.write(place, page.next_key))
            if page.next_key
            else None,
            first_href=search.address(PATH, sort=sorting.carried) if given else None,
            event_types=(await event_types(session, RETRY_QUEUE)).values,
            endpoint_names=await offered_names(session),
            operations=await operations_to_show(session, request, visitor),
        )
    return render(request, "retry_queue.html", shown)
