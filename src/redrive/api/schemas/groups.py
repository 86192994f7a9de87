"""Groups of dead letters as /openapi.json describes them."""

from datetime import datetime
from uuid import UUID

from redrive.api.schemas.base import Answer, Page, example


class Group(Answer):
    """Dead letters that share a fingerprint. Where there are too many to count, `count` is null."""

    model_config = example(
        {
            "fingerprint": "96ebd18da708b15b",
            "count": 412,
            "count_at_least": 412,
            "first_at": "2026-03-01T01:12:00.004Z",
            "last_at": "2026-03-01T02:17:09.120Z",
            "kind": "http",
            "category": "network",
            "reason": "exhausted",
            "event_type": "invoice.paid",
            "external_system": "erp",
            "endpoint_id": "0190c1a2-7b3c-7d4e-8f50-000000000003",
            "error_message": "could not connect to https://billing.example.com",
            "sample_id": "0190c1a2-7b3c-7d4e-8f50-000000000007",
        }
    )

    fingerprint: str
    count: int | None
    count_at_least: int
    first_at: datetime
    last_at: datetime
    kind: str
    category: str
    reason: str
    event_type: str
    external_system: str | None
    endpoint_id: UUID | None
    error_message: str
    sample_id: UUID


class Groups(Page[Group]):
    pass
