"""Edits and replays of dead letters as /openapi.json describes them."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from redrive.api.schemas.base import Answer, example

EDIT_EXAMPLE = {
    "number": 1,
    "generation": 1,
    "at": "2026-03-01T02:17:09.120Z",
    "by": "key:0190c1a2-0000-7000-8000-000000000001",
    "because": "the currency was missing",
    "edits_payload": True,
    "headers": ["x-tenant"],
    "diff": [{"path": "/currency", "change": "added", "before": None, "after": "EUR"}],
    "diff_is_cut": False,
}


class Change(Answer):
    """One place where the edited payload differs from the original: a JSON pointer, and both values, redacted."""

    path: str
    change: Literal["added", "removed", "changed"]
    before: object
    after: object


class Edit(Answer):
    """What a person changed. `headers` are names only; without them and a payload it is the return to the original."""

    model_config = example(EDIT_EXAMPLE)

    number: int
    generation: int
    at: datetime
    by: str
    because: str | None
    edits_payload: bool
    headers: list[str]
    diff: list[Change]
    diff_is_cut: bool


class ReplayedLetter(Answer):
    """A dead letter on its way again."""

    model_config = example(
        {
            "id": "0190c1a2-7b3c-7d4e-8f50-000000000007",
            "log_id": "0190c1a2-7b3c-7d4e-8f50-000000000007",
            "event_id": "0190c1a2-7b3c-7d4e-8f50-6a7b8c9d0e1f",
            "kind": "http",
            "event_type": "invoice.paid",
            "external_system": "erp",
            "endpoint_id": "0190c1a2-7b3c-7d4e-8f50-000000000003",
            "status": "pending",
            "retry_count": 0,
            "max_retries": 3,
            "retry_policy": "exponential",
            "policy": "integration",
            "next_retry_at": "2026-03-01T02:17:14.120Z",
            "last_retry_at": "2026-03-01T01:12:00.004Z",
            "in_dlq": False,
            "held": False,
            "error_message": "HTTP 422 Unprocessable Content",
            "error_stack": None,
            "correlation_id": "0f3c9f0a",
            "created_at": "2026-03-01T01:12:00.004Z",
            "updated_at": "2026-03-01T02:17:09.120Z",
            "reason": "permanent",
            "category": "client_error",
            "fingerprint": "96ebd18da708b15b",
            "state": "replaying",
            "first_failed_at": "2026-03-01T01:12:00.004Z",
            "failed_at": "2026-03-01T01:12:00.004Z",
            "generation": 0,
        }
    )

    id: UUID
    log_id: UUID
    event_id: UUID
    kind: str
    event_type: str
    external_system: str | None
    endpoint_id: UUID | None
    status: str
    retry_count: int
    max_retries: int | None
    retry_policy: str
    policy: str
    next_retry_at: datetime | None
    last_retry_at: datetime | None
    in_dlq: bool
    held: bool
    error_message: str
    error_stack: str | None
    correlation_id: str | None
    created_at: datetime
    updated_at: datetime
    reason: str
    category: str
    fingerprint: str
    state: str
    first_failed_at: datetime | None
    failed_at: datetime
    generation: int
