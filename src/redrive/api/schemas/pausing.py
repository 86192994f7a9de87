"""What is paused, as /openapi.json describes it."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from redrive.api.schemas.base import Answer, example

_PAUSED = {
    "paused": True,
    "paused_at": "2026-03-01T02:17:09.120Z",
    "paused_by": "key:0190c1a2-0000-7000-8000-000000000001",
    "because": "the receiver moves house",
    "held": 412,
}
_RUNNING = {"paused": False, "paused_at": None, "paused_by": None, "because": None, "held": None}
_ENDPOINT = {
    "scope": "endpoint",
    "endpoint_id": "0190c1a2-7b3c-7d4e-8f50-6a7b8c9d0e1f",
    "name": "billing",
    **_PAUSED,
}


class PauseShown(Answer):
    model_config = example({"scope": "org", **_PAUSED})

    scope: Literal["installation", "org"]
    paused: bool
    paused_at: datetime | None
    paused_by: str | None
    because: str | None
    held: int | None


class EndpointPauseShown(Answer):
    model_config = example(_ENDPOINT)

    scope: Literal["endpoint"]
    endpoint_id: UUID
    name: str
    paused: bool
    paused_at: datetime | None
    paused_by: str | None
    because: str | None
    held: int


class PausesShown(Answer):
    model_config = example(
        {
            "installation": {"scope": "installation", **_RUNNING},
            "org": {"scope": "org", **_PAUSED},
            "endpoints": [_ENDPOINT],
            "more_endpoints": False,
        }
    )

    installation: PauseShown
    org: PauseShown
    endpoints: list[EndpointPauseShown]
    more_endpoints: bool
