"""An org's numbers, from the counters that are kept on write: cheap to ask, however much there is."""

from fastapi import APIRouter, Depends, Response

from redrive.api.answers import answer
from redrive.api.auth import SCHEMES, Reader
from redrive.api.context import Context
from redrive.api.queries import no_query
from redrive.api.schemas.base import shows
from redrive.api.schemas.stats import StatsShown
from redrive.store.stats import stats

router = APIRouter(prefix="/v1/stats", tags=["stats"], dependencies=[*SCHEMES, Depends(no_query)])


@router.get("", responses=shows(StatsShown))
async def get_stats(caller: Reader, context: Context) -> Response:
    """Where events, tasks, dead letters and endpoints stand, what is paused, and how long the oldest due task waits."""
    async with context.tenant(caller) as session:
        return answer(await stats(session, context.clock))
