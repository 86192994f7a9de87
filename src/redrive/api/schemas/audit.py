"""The audit as /openapi.json describes it."""

from datetime import datetime
from uuid import UUID

from redrive.api.schemas.base import Answer, example


class AuditEntry(Answer):
    model_config = example(
        {
            "id": "0190c1a2-7b3c-7d4e-8f50-6a7b8c9d0e1f",
            "at": "2026-03-01T02:17:09.120Z",
            "actor": "key:0190c1a2-0000-7000-8000-000000000001",
            "action": "dead_letter.retry",
            "subject_kind": "dead_letter",
            "subject_id": "0190c1a2-7b3c-7d4e-8f50-000000000007",
            "because": "the receiver was fixed",
            "source": "api 10.1.2.3",
            "correlation_id": "0f3c9f0a",
            "before": {"state": "open"},
            "after": None,
        }
    )

    id: UUID
    at: datetime
    actor: str
    action: str
    subject_kind: str
    subject_id: UUID | None
    because: str | None
    source: str | None
    correlation_id: str | None
    before: object
    after: object
