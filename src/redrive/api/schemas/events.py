"""Events as /openapi.json describes them."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import Field

from redrive.api.schemas.base import AT, EVENT_ID, TASK_ID, Answer, example

Status = Literal["received", "queued", "delivered", "failed"]

_STATUS = {
    "event_id": EVENT_ID,
    "status": "queued",
    "retry_attempts": 1,
    "last_retry_at": AT,
    "failed_at": None,
    "next_retry_at": "2026-11-15T17:57:31.931764Z",
}
_EVENT = {
    "event_id": EVENT_ID,
    "event_type": "invoice.paid",
    "timestamp": "2026-11-15T17:57:25.844434Z",
    "status": "queued",
    "endpoint_id": None,
    "ordering_key": None,
    "policy": None,
    "external_system": "billing",
    "correlation_id": "757cb07df635c01c2ae7d66e5c3daf9e",
    "submitted_by": "key:01a1e05b-5ed0-7aa4-8b7c-0d3cbb9d4a51",
    "received_at": "2026-11-15T17:57:25.844434Z",
    "delivered_at": None,
    "failed_at": None,
}


class Event(Answer):
    """An event without its payload. Nothing here is kept from whoever may read."""

    model_config = example(_EVENT)

    event_id: UUID
    event_type: str
    timestamp: datetime = Field(description="When it happened, as its producer says.")
    status: Status
    endpoint_id: UUID | None = Field(description="The only endpoint it goes to, where it was given one.")
    ordering_key: str | None
    policy: str | None
    external_system: str | None
    correlation_id: str | None
    submitted_by: str | None = Field(
        description="Who handed it in: a key or a user. Null: Redrive or a Python program."
    )
    received_at: datetime
    delivered_at: datetime | None
    failed_at: datetime | None


class EventStatus(Answer):
    """Where an event stands."""

    model_config = example(_STATUS)

    event_id: UUID
    status: Status
    retry_attempts: int = Field(
        description="Retries granted, of the task that was retried most. A permanent failure grants none."
    )
    last_retry_at: datetime | None = Field(description="When the latest failed try ended.")
    failed_at: datetime | None
    next_retry_at: datetime | None = Field(description="The soonest retry; null when none is scheduled.")


class EventDetail(Event, EventStatus):
    """An event with its status and payload."""

    model_config = example(_EVENT | _STATUS | {"payload": {"invoice": 7, "amount": "12.50"}})

    payload: Any = Field(description="Any JSON.")


class RefusedRetry(Answer):
    task_id: UUID
    detail: str = Field(description="Why this dead letter was not retried.")


class EventRetried(Answer):
    """The tasks of an event that were redriven."""

    model_config = example({"event_id": EVENT_ID, "status": "queued", "retried": [TASK_ID], "refused": []})

    event_id: UUID
    status: Status
    retried: list[UUID] = Field(description="Tasks whose dead letters were open.")
    refused: list[RefusedRetry]
