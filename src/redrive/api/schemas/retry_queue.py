"""Entries of the retry queue as /openapi.json describes them."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import Field

from redrive.api.schemas.base import AT, ENDPOINT_ID, EVENT_ID, TASK_ID, Answer, example

ENTRY_EXAMPLE: dict[str, Any] = {
    "id": TASK_ID,
    "log_id": TASK_ID,
    "event_id": EVENT_ID,
    "kind": "http",
    "event_type": "invoice.paid",
    "external_system": "billing",
    "endpoint_id": ENDPOINT_ID,
    "status": "pending",
    "retry_count": 0,
    "max_retries": 3,
    "retry_policy": "exponential",
    "policy": "integration",
    "next_retry_at": "2026-11-15T17:57:31.931764Z",
    "last_retry_at": AT,
    "in_dlq": False,
    "held": False,
    "blocked_by": None,
    "error_message": "HTTP 503 Service Unavailable",
    "error_stack": None,
    "correlation_id": "757cb07df635c01c2ae7d66e5c3daf9e",
    "created_at": "2026-11-15T17:57:25.844434Z",
    "updated_at": AT,
}


class RetryQueueEntry(Answer):
    """A task that has failed before."""

    model_config = example(ENTRY_EXAMPLE)

    id: UUID
    log_id: UUID
    event_id: UUID
    kind: str
    event_type: str
    external_system: str | None
    endpoint_id: UUID | None
    status: Literal["pending", "in_progress", "succeeded", "failed"]
    retry_count: int = Field(description="Retries made: tries without the first.")
    max_retries: int | None = Field(description="Null: until the policy's max age.")
    retry_policy: Literal["exponential", "immediate", "manual"]
    policy: str | None
    next_retry_at: datetime | None = Field(description="Null when nothing is scheduled.")
    last_retry_at: datetime | None = Field(description="When the latest failed try ended.")
    in_dlq: bool
    held: bool = Field(description="Due, and kept back: by a disabled endpoint, a pause, or a breaker.")
    blocked_by: str | None = Field(description="Why it cannot be tried now, and what to do about it.")
    error_message: str | None
    error_stack: str | None
    correlation_id: str | None
    created_at: datetime
    updated_at: datetime


class RetriedEntry(RetryQueueEntry):
    """A task that a person wants tried. `in_progress`: the try has begun. `pending`: not yet."""

    model_config = example(ENTRY_EXAMPLE | {"status": "in_progress", "warning": None})

    warning: Literal["no_worker"] | None = Field(description="`no_worker`: no worker serves its queue.")
