"""Dead letters as /openapi.json describes them."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import Field

from redrive.api.schemas.attempts import ATTEMPT_EXAMPLE, Attempt
from redrive.api.schemas.base import AT, Answer, example
from redrive.api.schemas.broker import BrokerMessage
from redrive.api.schemas.edits import Edit
from redrive.api.schemas.policies import SPEC_EXAMPLE
from redrive.api.schemas.retry_queue import ENTRY_EXAMPLE, RetryQueueEntry

LetterState = Literal["open", "replaying", "resolved", "ignored", "deleted"]

LETTER_EXAMPLE = ENTRY_EXAMPLE | {
    "status": "failed",
    "retry_count": 3,
    "next_retry_at": None,
    "in_dlq": True,
    "reason": "exhausted",
    "category": "server_error",
    "fingerprint": "5f0e7c1d9a3b2f6e",
    "state": "open",
    "first_failed_at": AT,
    "failed_at": "2026-11-15T18:03:01.931764Z",
    "generation": 0,
    "run_id": None,
    "step_index": None,
}


class DeadLetter(RetryQueueEntry):
    """A task that died."""

    model_config = example(LETTER_EXAMPLE)

    reason: Literal["permanent", "exhausted", "expired", "skipped"]
    category: str | None = Field(description="The class of its last failure.")
    fingerprint: str | None = Field(description="The same for all that died of the same thing.")
    state: LetterState
    first_failed_at: datetime | None
    failed_at: datetime = Field(description="When it died. `created_at` says when it first failed.")
    generation: int = Field(description="How often it had been redriven before it died.")
    run_id: UUID | None = Field(description="Of a workflow's step: the run that it belongs to.")
    step_index: int | None


class RetriedLetter(DeadLetter):
    """A dead letter that was redriven. `in_progress`: the try has begun. `pending`: not yet."""

    model_config = example(
        LETTER_EXAMPLE
        | {"status": "pending", "in_dlq": False, "state": "replaying", "retry_count": 0, "next_retry_at": AT}
        | {"warning": None}
    )

    warning: Literal["no_worker"] | None = Field(description="`no_worker`: no worker serves its queue.")


class ConfigSnapshot(Answer):
    """Under which settings it was to be delivered."""

    endpoint: dict[str, Any] | None
    step: dict[str, Any] | None = Field(description="Of a workflow's step: how it was defined.")
    policy: dict[str, Any]


class Replay(Answer):
    """Its latest redrive."""

    count: int
    at: datetime | None
    by: str | None
    because: str | None
    outcome: str | None


class Resolution(Answer):
    """How a person, or a success, closed it."""

    at: datetime
    by: str | None
    because: str | None
    state: LetterState


class DeadLetterDetail(DeadLetter):
    """A dead letter with every try, what was to be delivered, and what people did with it."""

    model_config = example(
        LETTER_EXAMPLE
        | {
            "attempts": [ATTEMPT_EXAMPLE],
            "payload_snapshot": {"invoice": 7},
            "config_snapshot": {
                "endpoint": {"name": "billing", "url": "https://billing.example.com/hooks"},
                "step": None,
                "policy": {"name": "integration", **SPEC_EXAMPLE},
            },
            "replay": {"count": 0, "at": None, "by": None, "because": None, "outcome": None},
            "resolution": None,
            "edit": None,
            "edited_payload": None,
            "edits": [],
            "lane": None,
            "ordering_key": None,
            "out_of_order": False,
            "halts_lane": False,
            "broker": None,
        }
    )

    attempts: list[Attempt]
    payload_snapshot: Any = Field(description="Any JSON; values that look secret are hidden.")
    config_snapshot: ConfigSnapshot
    replay: Replay
    resolution: Resolution | None
    edit: int | None = Field(description="The number of the edit that its next try sends; null: the original.")
    edited_payload: Any = Field(description="Any JSON; values that look secret are hidden.")
    edits: list[Edit]
    lane: UUID | None = Field(description="What it must stay in order in; null: in no order.")
    ordering_key: str | None
    out_of_order: bool = Field(description="Redriven when later ones of its lane had been delivered, or were ahead.")
    halts_lane: bool = Field(description="Nothing of its lane is sent until a person acts.")
    broker: BrokerMessage | None = Field(description="What it was in a broker; null: it never was in one.")
