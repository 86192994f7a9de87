"""What the actions on an endpoint answer, as /openapi.json describes it."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from redrive.api.schemas.base import Answer, example

_ID = "0190c1a2-7b3c-7d4e-8f50-6a7b8c9d0e1f"


class SecretShown(Answer):
    model_config = example({"id": _ID, "secret": "whsec_…", "previous_valid_until": "2026-03-02T02:17:09.120Z"})

    id: UUID
    secret: str
    previous_valid_until: datetime | None


class SentTest(Answer):
    model_config = example({"event_id": _ID, "status": "queued"})

    event_id: UUID
    status: Literal["received", "queued", "delivered", "failed"]


class Delivery(Answer):
    model_config = example(
        {
            "id": _ID,
            "log_id": _ID,
            "event_id": "0190c1a2-7b3c-7d4e-8f50-000000000007",
            "event_type": "invoice.paid",
            "status": "pending",
            "attempts": 1,
            "received_at": "2026-03-01T02:17:09.120Z",
            "last_attempt_at": "2026-03-01T02:17:09.180Z",
            "delivered_at": None,
            "error_message": "HTTP 503 Service Unavailable",
            "next_retry_at": "2026-03-01T02:17:10.180Z",
        }
    )

    id: UUID
    log_id: UUID
    event_id: UUID
    event_type: str
    status: Literal["pending", "delivered", "failed", "dead_letter"]
    attempts: int
    received_at: datetime
    last_attempt_at: datetime | None
    delivered_at: datetime | None
    error_message: str | None
    next_retry_at: datetime | None
