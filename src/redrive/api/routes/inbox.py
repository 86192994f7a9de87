"""The inbox: events for a program that fetches them, with their payloads."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Response

from redrive.api import shapes
from redrive.api.answers import answer
from redrive.api.auth import SCHEMES, Reader
from redrive.api.context import Context
from redrive.api.cursors import ListPlace
from redrive.api.evidence import payload_or_size
from redrive.api.queries import InboxQuery
from redrive.api.schemas.base import shows
from redrive.api.schemas.inbox import Inbox
from redrive.core.permissions import Action
from redrive.store import inbox
from redrive.store.paging import Page

MAX_REDACTED_PAGE_BYTES = 512 * 1024  # to hide what looks secret may take a second per MiB

router = APIRouter(prefix="/v1/inbox", tags=["inbox"], dependencies=SCHEMES)


@router.get("", responses=shows(Inbox))
async def list_inbox(query: Annotated[InboxQuery, Query()], caller: Reader, context: Context) -> Response:
    """Events that wait to be acknowledged, or those that failed: oldest `timestamp` first, ties by arrival.

    A page ends early where its payloads would be more than 8 MiB (512 KiB where what looks secret is hidden);
    `has_more` and the cursor say that it goes on.
    """
    whole = caller.may(Action.READ_PAYLOADS)
    place = ListPlace("inbox", caller.org_id, query.filters())
    after = context.cursors.read(place, query.cursor)
    async with context.tenant(caller) as session:
        page = await inbox.list_inbox(
            session,
            status=query.status,
            event_type=query.event_type,
            limit=query.limit,
            after=after,
            max_bytes=inbox.MAX_PAGE_BYTES if whole else MAX_REDACTED_PAGE_BYTES,
        )
    cursor = context.cursors.write(place, page.next_key) if page.next_key else None
    # Megabytes are looked through: not in the loop that accepts events.
    return await asyncio.to_thread(_answer, page, query.limit, cursor, whole)


def _answer(page: Page, limit: int, cursor: str | None, whole: bool) -> Response:
    events = [
        {
            "event_id": row["id"],
            "event_type": row["event_type"],
            "timestamp": row["occurred_at"],
            "payload": payload_or_size(row["body"], row["bytes"], whole=whole),
        }
        for row in page.rows
    ]
    listed = shapes.page(events, limit=limit, cursor=cursor, total=page.total)
    return answer({"events": listed["data"], "pagination": listed["pagination"]})
