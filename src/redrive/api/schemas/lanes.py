"""Lanes of an endpoint as /openapi.json describes them."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import Field

from redrive.api.schemas.base import AT, ENDPOINT_ID, Answer, example

_HEAD = {
    "id": "01a1e060-ffa4-7994-baec-3e968ddb2a3e",
    "event_id": "01a1e060-ffa4-7994-baec-000000000007",
    "status": "pending",
    "attempts": 2,
    "next_retry_at": AT,
    "error_message": "HTTP 503 Service Unavailable",
}


class LaneHead(Answer):
    """The one of a lane that is tried, and its last failure."""

    model_config = example(_HEAD)

    id: UUID
    event_id: UUID
    status: Literal["pending", "in_progress", "held"]
    attempts: int
    next_retry_at: datetime | None
    error_message: str | None


class LaneShown(Answer):
    """What must stay in order: an endpoint that is ordered, or an endpoint and an ordering key."""

    model_config = example(
        {
            "lane": ENDPOINT_ID,
            "ordering_key": "invoice 7",
            "halted_at": None,
            "halted_by": None,
            "gap": 0,
            "head": _HEAD,
            "waiting": 12,
            "is_whole": True,
        }
    )

    lane: UUID
    ordering_key: str | None = Field(description="Null: the endpoint as a whole.")
    halted_at: datetime | None
    halted_by: UUID | None = Field(description="The dead letter that halted it.")
    gap: int = Field(description="How many of it died since its last delivery.")
    head: LaneHead | None
    waiting: int = Field(description="How many wait behind the head, counted to 1,000.")
    is_whole: bool = Field(description="False: more than that wait.")
