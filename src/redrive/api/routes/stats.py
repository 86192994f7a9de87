"""An org's numbers, from counters and rollups that are kept on write: cheap to ask, however much there is."""

from dataclasses import asdict
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator

from redrive.api.analytics_shapes import analytics_shape
from redrive.api.answers import answer
from redrive.api.auth import SCHEMES, Reader
from redrive.api.context import Context
from redrive.api.queries import Text
from redrive.api.schemas.base import shows
from redrive.api.schemas.stats import StatsShown
from redrive.core.analytics import PERIODS, Dimension, Period
from redrive.store.analytics import DEFAULT_TOP_KEYS, MAX_TOP_KEYS, by_key, over_time
from redrive.store.stats import stats

router = APIRouter(prefix="/v1/stats", tags=["stats"], dependencies=SCHEMES)


class StatsQuery(BaseModel):
    """Without `window` and `by` there are no analytics. `limit` and `sort` are of the keys that are listed."""

    model_config = ConfigDict(extra="forbid")

    window: Literal["1h", "24h", "7d", "30d", "365d"] | None = None
    by: Dimension | None = None
    key: Text | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_TOP_KEYS)] = DEFAULT_TOP_KEYS
    sort: Literal["volume", "failures"] = "volume"

    @model_validator(mode="after")
    def _key_of_something(self) -> "StatsQuery":
        if self.key is not None and self.by is None:
            raise ValueError("key needs by: of what is it a key?")
        return self

    @property
    def period(self) -> Period | None:
        """A day where only `by` is given."""
        return PERIODS[self.window or "24h"] if self.window or self.by else None


@router.get("", responses=shows(StatsShown))
async def get_stats(query: Annotated[StatsQuery, Query()], caller: Reader, context: Context) -> Response:
    """Where events, tasks, dead letters and endpoints stand, what is paused, and how long the oldest due task waits.

    With `window`, how deliveries went since: rates, retries that paid off, time to delivery, over time. With `by`, the
    same for each endpoint, event type or external system, those with most first; with `key`, for one of them.
    """
    async with context.tenant(caller) as session:
        found = await stats(session, context.clock)
        if query.period is None:
            return answer({**asdict(found), "analytics": None})
        course = await over_time(session, context.clock, query.period, query.by if query.key else None, query.key or "")
        ranking = None
        if query.by is not None and query.key is None:
            by_failures = query.sort == "failures"
            ranking = await by_key(
                session, context.clock, query.period, query.by, limit=query.limit, by_failures=by_failures
            )
    return answer({**asdict(found), "analytics": analytics_shape(course, query.by, query.key, ranking)})
