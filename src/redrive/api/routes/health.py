"""Whether the process lives, and whether it can accept. No key is needed: it tells nothing else."""

import asyncio

from fastapi import APIRouter, Request, Response

from redrive.api.answers import answer
from redrive.api.committer import Committer
from redrive.api.context import Context
from redrive.api.outage import OUTAGES, reason_of
from redrive.api.problems import unavailable
from redrive.api.schemas.base import shows
from redrive.api.schemas.health import Alive, Ready
from redrive.store.health import is_writable, prove_commits

READY_TIMEOUT_S = 2.0

router = APIRouter(tags=["health"])


@router.get("/healthz", responses=shows(Alive))
async def healthz() -> Response:
    """200 while the process lives."""
    return answer({"status": "ok"})


@router.get("/readyz", responses=shows(Ready))
async def readyz(request: Request, context: Context) -> Response:
    """200 when events can be accepted: the database answers and commits, and not too much waits already."""
    committer: Committer = request.app.state.committer
    if committer.is_full:
        raise unavailable("More events wait than are taken in.")
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            writable = await is_writable(context.engine_db)
            if writable:
                await prove_commits(context.engine_db)
    except OUTAGES as error:
        raise unavailable(reason_of(error)) from error
    if not writable:
        raise unavailable("The database takes no writes.")
    return answer({"status": "ready"})
