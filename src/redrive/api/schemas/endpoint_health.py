"""How an endpoint does, as /openapi.json describes it."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from redrive.api.schemas.base import AT, ENDPOINT_ID, Answer, example

_BREAKER = {
    "state": "open",
    "since": AT,
    "reason": "16 of the last 20 tries failed, the last one with: HTTP 503 Service Unavailable",
}
_POINT = {"at": "2026-11-15T17:55:00Z", "succeeded": 4, "failed": 16, "average_ms": 83.4, "slowest_ms": 412}


class BreakerShown(Answer):
    """`open`: a trickle of its tasks is tried, on schedule. `ramping`: more and more of them are."""

    model_config = example(_BREAKER)

    state: Literal["closed", "open", "ramping"]
    since: datetime | None
    reason: str | None


class HistoryShown(Answer):
    """The tries of `bucket_s` from `at` on."""

    model_config = example(_POINT)

    at: datetime
    succeeded: int
    failed: int
    average_ms: float
    slowest_ms: int


class EndpointHealthShown(Answer):
    """`failing_since`: the first failure behind the last success, and `failures` how many there were since.

    `hubs`: of a relay, how many are connected to the API process that answers.
    """

    model_config = example(
        {
            "endpoint_id": ENDPOINT_ID,
            "breaker": _BREAKER,
            "last_success_at": "2026-11-15T17:57:02.113402Z",
            "last_failure_at": AT,
            "failing_since": "2026-11-15T17:57:03.004118Z",
            "failures": 14,
            "hubs": None,
            "bucket_s": 300,
            "history": [_POINT],
        }
    )

    endpoint_id: UUID
    breaker: BreakerShown
    last_success_at: datetime | None
    last_failure_at: datetime | None
    failing_since: datetime | None
    failures: int
    hubs: int | None
    bucket_s: int
    history: list[HistoryShown]
