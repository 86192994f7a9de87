"""Integration logs as /openapi.json describes them."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import Field

from redrive.api.schemas.attempts import (
    ATTEMPT_EXAMPLE,
    REQUEST_EXAMPLE,
    RESPONSE_EXAMPLE,
    Attempt,
    LoggedRequest,
    ReceivedResponse,
)
from redrive.api.schemas.base import AT, ENDPOINT_ID, EVENT_ID, TASK_ID, Answer, example
from redrive.api.schemas.broker import BrokerMessage
from redrive.api.schemas.edits import Edit


class LogEntry(Answer):
    """One delivery, as the list shows it."""

    model_config = example(
        {
            "id": TASK_ID,
            "log_id": TASK_ID,
            "event_id": EVENT_ID,
            "kind": "http",
            "event_type": "invoice.paid",
            "external_system": "billing",
            "endpoint_id": ENDPOINT_ID,
            "status": "error",
            "attempt_count": 1,
            "error_message": "HTTP 503 Service Unavailable",
            "correlation_id": "757cb07df635c01c2ae7d66e5c3daf9e",
            "created_at": "2026-11-15T17:57:25.844434Z",
            "updated_at": AT,
        }
    )

    id: UUID
    log_id: UUID
    event_id: UUID
    kind: str
    event_type: str
    external_system: str | None
    endpoint_id: UUID | None
    status: Literal["pending", "error", "success"]
    attempt_count: int
    error_message: str | None = Field(description="Of the last try that failed.")
    correlation_id: str | None
    created_at: datetime = Field(description="When its event was received.")
    updated_at: datetime


class Log(Answer):
    """One task: its last request and response, and every try."""

    model_config = example(
        {
            "id": TASK_ID,
            "log_id": TASK_ID,
            "event_id": EVENT_ID,
            "event_type": "invoice.paid",
            "external_system": "billing",
            "status": "error",
            "note": None,
            "request": REQUEST_EXAMPLE | {"body": {"invoice": 7}},
            "response": RESPONSE_EXAMPLE,
            "error_message": "HTTP 503 Service Unavailable",
            "error_stack": None,
            "correlation_id": "757cb07df635c01c2ae7d66e5c3daf9e",
            "created_at": "2026-11-15T17:57:25.844434Z",
            "updated_at": AT,
            "attempts": [ATTEMPT_EXAMPLE],
            "edits": [],
            "broker": None,
        }
    )

    id: UUID
    log_id: UUID
    event_id: UUID
    event_type: str
    external_system: str | None
    status: Literal["pending", "error", "success"]
    note: str | None
    request: LoggedRequest | None
    response: ReceivedResponse | None
    error_message: str | None
    error_stack: str | None
    correlation_id: str | None
    created_at: datetime
    updated_at: datetime
    attempts: list[Attempt]
    edits: list[Edit]
    broker: BrokerMessage | None
