"""How an endpoint does: its breaker, since when it fails, how its tries went; and a breaker that a person closes."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict

from redrive.api import endpoint_shapes
from redrive.api.answers import answer
from redrive.api.auth import SCHEMES, Manager, Reader
from redrive.api.context import ApiContext, Context, act_of
from redrive.api.problems import not_found
from redrive.api.queries import BecauseIn, Moment, id_in_path, no_query
from redrive.api.schemas.base import shows
from redrive.api.schemas.endpoint_health import EndpointHealthShown
from redrive.api.shapes import Shape
from redrive.store import endpoint_states
from redrive.store.db import Session
from redrive.store.endpoint_history import history_of

router = APIRouter(prefix="/v1/endpoints", tags=["endpoints"], dependencies=SCHEMES)


class HealthQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    since: Moment | None = None


@router.get("/{endpoint_id}/health", responses=shows(EndpointHealthShown))
async def endpoint_health(
    endpoint_id: str, query: Annotated[HealthQuery, Query()], caller: Reader, context: Context
) -> Response:
    """How it does. `history` is that of a day, or since `since`; 14 days are kept. Times without tries are left out."""
    async with context.tenant(caller) as session:
        return answer(await _health(session, context, id_in_path(endpoint_id, "endpoint"), query.since))


@router.post("/{endpoint_id}/close-breaker", dependencies=[Depends(no_query)], responses=shows(EndpointHealthShown))
async def close_breaker(
    endpoint_id: str, request: Request, caller: Manager, context: Context, given: BecauseIn | None = None
) -> Response:
    """Close the breaker of an endpoint: its tasks resume at a growing rate. A closed breaker stays closed."""
    wanted = id_in_path(endpoint_id, "endpoint")
    act = act_of(request, caller, given.because if given else None)
    async with context.tenant(caller) as session:
        await endpoint_states.ramp_by_hand(session, wanted, act, context.clock)
        return answer(await _health(session, context, wanted))


async def _health(session: Session, context: ApiContext, endpoint_id: UUID, since: datetime | None = None) -> Shape:
    state = await endpoint_states.get_state(session, endpoint_id)
    if state is None:
        raise not_found("endpoint")
    history = await history_of(session, endpoint_id, context.clock, since)
    return endpoint_shapes.health(state, history, context.hubs_of(state.kind, endpoint_id))
