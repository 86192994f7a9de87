"""Attempts, with what was sent and what came back, as /openapi.json describes them."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import Field

from redrive.api.schemas.base import AT, EVENT_ID, TASK_ID, WORKER_ID, Answer, example

REQUEST_EXAMPLE = {
    "method": "POST",
    "url": "https://billing.example.com/hooks",
    "headers": {
        "content-type": "application/json",
        "webhook-id": EVENT_ID,
        "webhook-timestamp": "1794765446",
        "webhook-signature": "[redacted]",
        "redrive-event-type": "invoice.paid",
        "redrive-attempt": "1",
    },
}
RESPONSE_EXAMPLE = {"status": 503, "headers": {"server": "nginx"}, "body": "busy", "truncated": False}
ATTEMPT_EXAMPLE = {
    "task_id": TASK_ID,
    "number": 1,
    "generation": 0,
    "result": "failed",
    "started_at": "2026-11-15T17:57:26.929253Z",
    "ended_at": AT,
    "duration_ms": 2.511,
    "status_code": 503,
    "category": "server_error",
    "error_message": "HTTP 503 Service Unavailable",
    "error_stack": None,
    "possible_duplicate": False,
    "request": REQUEST_EXAMPLE,
    "response": RESPONSE_EXAMPLE,
    "late": None,
    "worker_id": WORKER_ID,
}


class SentRequest(Answer):
    """What was sent, without credentials."""

    model_config = example(REQUEST_EXAMPLE)

    method: str
    url: str
    headers: dict[str, str]


class LoggedRequest(SentRequest):
    """What was sent, with its body; values that look secret are hidden."""

    model_config = example(REQUEST_EXAMPLE | {"body": {"invoice": 7}})

    body: Any = Field(description="Any JSON.")


class ReceivedResponse(Answer):
    """What came back. A body that is no text begins with `base64:`."""

    model_config = example(RESPONSE_EXAMPLE)

    status: int
    headers: dict[str, str]
    body: str | None
    truncated: bool = Field(description="More came than is shown.")


class LateResult(Answer):
    """A result that came after the lease was lost."""

    model_config = example({"at": AT, "result": "succeeded"})

    at: datetime
    result: str | None


class Attempt(Answer):
    """One try of a task."""

    model_config = example(ATTEMPT_EXAMPLE)

    task_id: UUID
    number: int | None = Field(description="Null where no try was made (released).")
    generation: int = Field(description="How often the task had been redriven.")
    result: Literal["open", "succeeded", "failed", "lost", "released"]
    started_at: datetime
    ended_at: datetime | None
    duration_ms: float | None
    status_code: int | None
    category: str | None
    error_message: str | None
    error_stack: str | None
    possible_duplicate: bool = Field(description="The receiver may have had it before.")
    request: SentRequest | None
    response: ReceivedResponse | None
    late: LateResult | None
    worker_id: UUID | None
