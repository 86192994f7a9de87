"""The inbox, and where an event stands, as /openapi.json describes them."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from redrive.api.schemas.base import Answer, Pagination, example


class InboxEvent(Answer):
    event_id: UUID
    event_type: str
    timestamp: datetime
    payload: object


class Inbox(Answer):
    model_config = example(
        {
            "events": [
                {
                    "event_id": "0190c1a2-7b3c-7d4e-8f50-6a7b8c9d0e1f",
                    "event_type": "stock.low",
                    "timestamp": "2026-03-01T02:17:09.120Z",
                    "payload": {"sku": "A1"},
                }
            ],
            "pagination": {"limit": 50, "cursor": None, "has_more": False, "total_count": 1},
        }
    )

    events: list[InboxEvent]
    pagination: Pagination


class EventStanding(Answer):
    model_config = example(
        {
            "event_id": "0190c1a2-7b3c-7d4e-8f50-6a7b8c9d0e1f",
            "status": "delivered",
            "retry_attempts": 0,
            "last_retry_at": None,
            "failed_at": None,
            "next_retry_at": None,
        }
    )

    event_id: UUID
    status: Literal["received", "queued", "delivered", "failed"]
    retry_attempts: int
    last_retry_at: datetime | None
    failed_at: datetime | None
    next_retry_at: datetime | None
