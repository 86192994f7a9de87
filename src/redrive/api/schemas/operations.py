"""Operations and the results of those that were waited for, as /openapi.json describes them."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import Field

from redrive.api.schemas.base import Answer, example

_ID = "01a1e0a4-11d2-7c55-8f0a-5a1d1f0e2b6c"


class CanaryPlan(Answer):
    stages: list[float]
    max_failure_rate: float


class Operation(Answer):
    """A bulk action and how far it has come."""

    model_config = example(
        {
            "id": _ID,
            "operation_id": _ID,
            "action": "retry",
            "subject": "retry_queue",
            "state": "completed",
            "total": 5,
            "done": 5,
            "succeeded": 3,
            "failed": 2,
            "cancelled": 0,
            "because": "the receiver is back",
            "by": "key:01a1e05b-5ad1-7b81-bb4b-58a3eab6dc35",
            "filter": {"event_type": "invoice.paid"},
            "now": False,
            "canary": None,
            "rate_per_s": None,
            "patch": None,
            "order": None,
            "note": None,
            "progress": "3/5 succeeded, 2/5 failed",
            "message": "Bulk retry complete. 3 succeeded, 2 failed.",
            "created_at": "2026-11-15T18:03:40.749220Z",
            "updated_at": "2026-11-15T18:03:41.120003Z",
            "finished_at": "2026-11-15T18:03:41.120003Z",
        }
    )

    id: UUID
    operation_id: UUID
    action: Literal["retry", "skip", "resolve", "ignore", "delete", "reopen"]
    subject: Literal["retry_queue", "dead_letters"]
    state: Literal["preparing", "running", "paused", "cancelled", "completed"]
    total: int
    done: int
    succeeded: int
    failed: int
    cancelled: int
    because: str | None
    by: str
    filter: dict[str, object] | None
    now: bool
    canary: CanaryPlan | None
    rate_per_s: float | None
    patch: object
    order: Literal["in_place", "tail"] | None
    note: str | None
    progress: str
    message: str | None
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None


class OperationItem(Answer):
    """One of its tasks. `note` says why it failed, where no try of its own does."""

    model_config = example({"n": 3, "id": _ID, "state": "failed", "note": "There is no such entry here."})

    n: int
    id: UUID
    state: Literal["waiting", "sent", "succeeded", "failed"]
    note: str | None


class BulkResult(Answer):
    """The result of an operation that the request waited for. The header X-Operation-Id names it."""

    model_config = example({"succeeded": 3, "failed": 2})

    succeeded: int
    failed: int
    pending: int | None = Field(default=None, description="Items not finished within 30 s; omitted if all are.")
