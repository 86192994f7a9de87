"""Notices as /openapi.json describes them."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from redrive.api.schemas.base import Answer, example


class Notice(Answer):
    model_config = example(
        {
            "id": "0190c1a2-7b3c-7d4e-8f50-6a7b8c9d0e1f",
            "at": "2026-03-01T02:17:09.120Z",
            "kind": "endpoint.disabled",
            "severity": "error",
            "subject_kind": "endpoint",
            "subject_id": "0190c1a2-7b3c-7d4e-8f50-000000000007",
            "text": 'Endpoint "billing" was disabled: It answered 410 Gone. What is for it is held. '
            "Enable it when it can receive again.",
            "facts": {
                "endpoint_id": "0190c1a2-7b3c-7d4e-8f50-000000000007",
                "endpoint": "billing",
                "reason": "It answered 410 Gone.",
            },
            "told_at": "2026-03-01T02:17:09.884Z",
        }
    )

    id: UUID
    at: datetime
    kind: str
    severity: Literal["info", "warning", "error"]
    subject_kind: str
    subject_id: UUID | None
    text: str
    facts: dict[str, Any]
    told_at: datetime | None
