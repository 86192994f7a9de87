"""The inbox as a person sees it: events that wait for a program to fetch them, and those that failed, oldest first."""

import asyncio
from dataclasses import dataclass

import msgspec
from fastapi import APIRouter, Request, Response

from redrive.api.context import Context
from redrive.api.cursors import ListPlace
from redrive.api.evidence import payload_or_size
from redrive.api.routes.inbox import MAX_REDACTED_PAGE_BYTES
from redrive.api.shapes import Shape
from redrive.core.permissions import Action
from redrive.store import inbox
from redrive.store.db import Record
from redrive.web.frame import Frame, load_frame
from redrive.web.lists import PAGE_ROWS, Asked, FilterBuilder, known_total, searched, terms_of
from redrive.web.render import render
from redrive.web.visitor import PageRoute, Visitor

PATH = "/inbox"
QUALIFIERS = ("status", "type")
STATUSES = {"received": "Waiting", "failed": "Failed"}
MAX_PREVIEW_CHARS = 200  # of a payload in the list: the event's own page has all of it

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass(frozen=True, slots=True)
class InboxPage:
    frame: Frame
    asked: Asked
    events: list[Shape]
    total: int | None
    next_href: str | None
    first_href: str | None

    path = PATH

    @property
    def status(self) -> str:
        return str(self.asked.filter.get("status", "received"))

    @property
    def tabs(self) -> list[tuple[str, str, bool]]:
        """Where each leads, its name, and whether it is this one. The type stays in force."""
        search = self.asked.search.without("status")
        return [
            ((search if status == "received" else search.changed("status", status)).address(PATH), name, is_shown)
            for status, name in STATUSES.items()
            for is_shown in (status == self.status,)
        ]


@router.get(PATH)
async def inbox_page(request: Request, visitor: Visitor, context: Context) -> Response:
    search = searched(request, QUALIFIERS)
    if isinstance(search, Response):
        return search
    if search.text:
        meant = search.without("q").changed("type", search.text)
        return Response(status_code=303, headers={"location": meant.address(PATH)})
    async with context.tenant(visitor) as session:
        frame = await load_frame(session, visitor, context, PATH)
        chosen = FilterBuilder(search, frame.now)
        chosen.choice("status", "status", STATUSES)
        chosen.text("type", "event_type")
        event_type = chosen.filter.get("event_type")
        place = ListPlace("page inbox", visitor.org_id, chosen.filter)
        given = request.query_params.get("cursor")
        page = await inbox.list_inbox(
            session,
            status=str(chosen.filter.get("status", "received")),
            event_type=str(event_type) if event_type else None,
            limit=PAGE_ROWS,
            after=context.cursors.read(place, given),
            max_bytes=MAX_REDACTED_PAGE_BYTES,
        )
    whole = visitor.may(Action.READ_PAYLOADS)
    # To hide what looks secret takes its time: not in the loop that accepts events.
    previews = await asyncio.to_thread(lambda: [_preview(row, whole=whole) for row in page.rows])
    cursor = context.cursors.write(place, page.next_key) if page.next_key else None
    shown = InboxPage(
        frame=frame,
        asked=Asked(search, chosen.filter, tuple(chosen.problems), terms_of(search.without("status"), PATH)),
        events=[_event(row, preview) for row, preview in zip(page.rows, previews, strict=True)],
        total=known_total(page, is_first=given is None),
        next_href=search.address(PATH, cursor=cursor) if cursor else None,
        first_href=search.address(PATH) if given else None,
    )
    return render(request, "inbox.html", shown)


def _event(row: Record, preview: str) -> Shape:
    return {
        "event_id": row["id"],
        "event_type": row["event_type"],
        "received_at": row["received_at"],
        "size": row["bytes"],
        "preview": preview,
    }


def _preview(row: Record, *, whole: bool) -> str:
    """The beginning of a payload, on one line."""
    value = payload_or_size(row["body"], row["bytes"], whole=whole)
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    text = " ".join(text[: 4 * MAX_PREVIEW_CHARS].split())
    return text if len(text) <= MAX_PREVIEW_CHARS else text[:MAX_PREVIEW_CHARS] + "…"
