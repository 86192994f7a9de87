"""The kill switch of an org and of the whole installation: pause, resume, and see what is paused."""

from dataclasses import replace
from typing import Literal

from fastapi import APIRouter, Depends, Request, Response
from pydantic import ConfigDict

from redrive.api import endpoint_shapes
from redrive.api.answers import answer
from redrive.api.auth import SCHEMES, Manager, Reader
from redrive.api.context import ApiContext, Context, act_of
from redrive.api.problems import forbidden
from redrive.api.queries import BecauseIn, no_query
from redrive.api.schemas.base import shows
from redrive.api.schemas.pausing import PauseShown, PausesShown
from redrive.api.shapes import Shape
from redrive.core.permissions import Action
from redrive.store import pausing
from redrive.store.keys import Caller
from redrive.store.pausing import MAX_PAUSED_SHOWN, Pause, PauseScope

router = APIRouter(prefix="/v1/retries", tags=["retries"], dependencies=[*SCHEMES, Depends(no_query)])


class PauseIn(BecauseIn):
    """What to pause or resume: the caller's org, or the whole installation (owners only)."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"examples": [{"scope": "org", "because": "the receivers move house"}]},
    )

    scope: Literal["org", "installation"] = "org"


@router.get("", responses=shows(PausesShown))
async def show_pauses(caller: Reader, context: Context) -> Response:
    """What is paused: the installation, the org, and which of its endpoints."""
    async with context.tenant(caller) as session:
        installation, org = await pausing.pauses(session, context.clock)
        endpoints = await pausing.paused_endpoints(session, context.clock)
    return answer(
        {
            "installation": endpoint_shapes.pause(await as_seen_by(caller, context, installation)),
            "org": endpoint_shapes.pause(org),
            "endpoints": [endpoint_shapes.pause(endpoint) for endpoint in endpoints[:MAX_PAUSED_SHOWN]],
            "more_endpoints": len(endpoints) > MAX_PAUSED_SHOWN,
        }
    )


@router.post("/pause", responses=shows(PauseShown))
async def pause(request: Request, caller: Manager, context: Context, given: PauseIn | None = None) -> Response:
    """Hold every task as it falls due: no try is spent, nothing is lost, events are still accepted."""
    asked = given or PauseIn()
    scope = _allowed(caller, asked)
    async with context.tenant(caller) as session:
        await pausing.pause(session, scope, act_of(request, caller, asked.because), context.clock)
    return answer(await _state(caller, context, scope))


@router.post("/resume", responses=shows(PauseShown))
async def resume(request: Request, caller: Manager, context: Context, given: PauseIn | None = None) -> Response:
    """Let held tasks go on where they stood. Of many, the workers release the rest after this answer (`held`)."""
    asked = given or PauseIn()
    scope = _allowed(caller, asked)
    async with context.tenant(caller) as session:
        await pausing.resume(session, scope, act_of(request, caller, asked.because), context.clock)
    org_id = None if scope is PauseScope.INSTALLATION else caller.org_id
    await pausing.release(context.engine_db, org_id, context.clock)
    return answer(await _state(caller, context, scope))


def _allowed(caller: Caller, asked: PauseIn) -> PauseScope:
    scope = PauseScope(asked.scope)
    if scope is PauseScope.INSTALLATION and not caller.may(Action.OWN):
        raise forbidden(caller, Action.OWN)
    return scope


async def _state(caller: Caller, context: ApiContext, scope: PauseScope) -> Shape:
    async with context.tenant(caller) as session:
        installation, org = await pausing.pauses(session, context.clock)
    if scope is PauseScope.ORG:
        return endpoint_shapes.pause(org)
    return endpoint_shapes.pause(await as_seen_by(caller, context, installation))


async def as_seen_by(caller: Caller, context: ApiContext, installation: Pause) -> Pause:
    """That it is paused, since when and why concerns everybody; who did it and what other orgs hold, its owners."""
    if caller.may(Action.OWN):
        return replace(installation, held=await pausing.held_everywhere(context.engine_db, context.clock))
    return replace(installation, paused_by=None)
