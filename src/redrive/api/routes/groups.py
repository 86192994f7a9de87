"""Groups: dead letters by what went wrong, so that a person sees five causes instead of five thousand letters."""

from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from redrive.api.answers import answer
from redrive.api.auth import SCHEMES, Reader
from redrive.api.context import Context
from redrive.api.queries import DEFAULT_PAGE_ROWS, EndMoment, Moment, Text
from redrive.api.schemas.base import shows
from redrive.api.schemas.groups import Groups
from redrive.api.shapes import Row, Shape
from redrive.core.outcome import Category
from redrive.store import groups
from redrive.store.dead_letters import DeadLetterFilter
from redrive.store.paging import MAX_PAGE_ROWS

router = APIRouter(prefix="/v1/dead-letters", tags=["dead letters"], dependencies=SCHEMES)


class GroupsQuery(BaseModel):
    """The filters of the list of dead letters that have a meaning here. There is one page: the biggest."""

    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_ROWS)] = DEFAULT_PAGE_ROWS
    state: Literal["open", "replaying", "resolved", "ignored"] = "open"
    kind: Text | None = None
    event_type: Text | None = None
    external_system: Text | None = None
    endpoint_id: UUID | None = None
    reason: Literal["permanent", "exhausted", "expired", "skipped"] | None = None
    category: Category | None = None
    since: Moment | None = None
    until: EndMoment | None = None
    q: Text | None = None

    def chosen(self) -> DeadLetterFilter:
        others = self.model_dump(exclude={"limit", "since", "until"})
        return DeadLetterFilter(**others, failed_since=self.since, failed_until=self.until)


@router.get("/groups", responses=shows(Groups))
async def list_groups(query: Annotated[GroupsQuery, Query()], caller: Reader, context: Context) -> Response:
    """Dead letters with one fingerprint counted together, biggest first; the open ones unless a state is asked for."""
    async with context.tenant(caller) as session:
        found = await groups.list_groups(session, query.chosen(), limit=query.limit)
    pagination = {"limit": query.limit, "cursor": None, "has_more": found.has_more, "total_count": found.total}
    return answer({"data": [_group(row) for row in found.rows], "pagination": pagination})


def _group(row: Row) -> Shape:
    return {
        "fingerprint": row["fingerprint"],
        "count": row["n"] if row["is_whole"] else None,
        "count_at_least": row["n"],
        "first_at": row["first_at"],
        "last_at": row["last_at"],
        "kind": row["kind"],
        "category": row["category"],
        "reason": row["reason"],
        "event_type": row["event_type"],
        "external_system": row["external_system"],
        "endpoint_id": row["endpoint_id"],
        "error_message": row["error_message"],
        "sample_id": row["sample_id"],
    }
