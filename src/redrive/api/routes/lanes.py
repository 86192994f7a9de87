"""Lanes of an endpoint: what waits for what, and a halt that a person lifts."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from redrive.api import endpoint_shapes, shapes
from redrive.api.answers import answer
from redrive.api.auth import SCHEMES, Manager, Reader
from redrive.api.context import Context, act_of
from redrive.api.cursors import ListPlace
from redrive.api.problems import not_found
from redrive.api.queries import BecauseIn, PageQuery, id_in_path, no_query
from redrive.api.schemas.base import Page, shows
from redrive.api.schemas.lanes import LaneShown
from redrive.store import lanes
from redrive.store.endpoints import get_endpoint

router = APIRouter(prefix="/v1/endpoints", tags=["endpoints"], dependencies=SCHEMES)


@router.get("/{endpoint_id}/lanes", responses=shows(Page[LaneShown]))
async def list_lanes(
    endpoint_id: str, query: Annotated[PageQuery, Query()], caller: Reader, context: Context
) -> Response:
    """Its lanes that are halted, then those in which something waits behind a head. A page may be short and lead on."""
    wanted = id_in_path(endpoint_id, "endpoint")
    place = ListPlace(f"lanes {wanted}", caller.org_id, {})
    after = context.cursors.read(place, query.cursor)
    async with context.tenant(caller) as session:
        if await get_endpoint(session, wanted) is None:
            raise not_found("endpoint")
        page = await lanes.list_lanes(session, wanted, limit=query.limit, after=after)
    cursor = context.cursors.write(place, page.next_key) if page.next_key else None
    data = [endpoint_shapes.lane(lane) for lane in page.lanes]
    return answer(shapes.page(data, limit=query.limit, cursor=cursor, total=None))


@router.post("/{endpoint_id}/lanes/{lane_id}/resume", dependencies=[Depends(no_query)], responses=shows(LaneShown))
async def resume_lane(
    endpoint_id: str, lane_id: str, request: Request, caller: Manager, context: Context, given: BecauseIn | None = None
) -> Response:
    """Lift its halt, and go on with the next. The dead letter that halted it stays open. One that goes on stays so."""
    wanted, lane = id_in_path(endpoint_id, "endpoint"), id_in_path(lane_id, "lane")
    act = act_of(request, caller, given.because if given else None)
    async with context.tenant(caller) as session:
        if await get_endpoint(session, wanted) is None:
            raise not_found("endpoint")
        await lanes.resume_lane(session, wanted, lane, act, context.clock)
        found = await lanes.get_lane(session, wanted, lane)
    if found is None:
        raise not_found("lane")
    return answer(endpoint_shapes.lane(found))
