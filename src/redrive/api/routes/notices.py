"""Notices: what people should hear of. Read only: the engine writes them, a herald tells them."""

from typing import Annotated

import msgspec
from fastapi import APIRouter, Query
from fastapi.responses import Response

from redrive.api import shapes
from redrive.api.answers import answer
from redrive.api.auth import SCHEMES, Reader
from redrive.api.context import Context
from redrive.api.cursors import ListPlace
from redrive.api.queries import NoticesQuery
from redrive.api.schemas.base import Page, shows
from redrive.api.schemas.notices import Notice
from redrive.store.db import Record
from redrive.store.notices import list_notices as stored_notices

router = APIRouter(prefix="/v1/notices", tags=["notices"], dependencies=SCHEMES)


@router.get("", responses=shows(Page[Notice]))
async def list_notices(query: Annotated[NoticesQuery, Query()], caller: Reader, context: Context) -> Response:
    """Newest first; kept for 30 days. They are never counted (`total_count` is null)."""
    place = ListPlace("notices", caller.org_id, query.filters())
    after = context.cursors.read(place, query.cursor)
    async with context.tenant(caller) as session:
        page = await stored_notices(session, kind=query.kind, limit=query.limit, after=after)
    cursor = context.cursors.write(place, page.next_key) if page.next_key else None
    return answer(shapes.page([notice(row) for row in page.rows], limit=query.limit, cursor=cursor, total=None))


def notice(row: Record) -> shapes.Shape:
    return {**dict(row), "facts": msgspec.Raw(row["facts"].encode())}
