"""Endpoints as /openapi.json describes them."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import Field

from redrive.api.schemas.base import ENDPOINT_ID, Answer, example

ENDPOINT_EXAMPLE: dict[str, Any] = {
    "id": ENDPOINT_ID,
    "name": "billing",
    "kind": "http",
    "url": "https://billing.example.com/hooks",
    "hook_url": None,
    "verify": None,
    "exchange": None,
    "routing_key": None,
    "to": None,
    "apprise_url": None,
    "event_types": ["invoice.*"],
    "policy": None,
    "ordered": False,
    "external_system": "billing",
    "headers": {"x-tenant": "[redacted]"},
    "ca_pem": None,
    "timeout_s": None,
    "max_in_flight": None,
    "rate_per_s": None,
    "max_block_s": None,
    "on_block": "skip",
    "disabled": False,
    "disabled_at": None,
    "disabled_reason": None,
    "paused": False,
    "paused_at": None,
    "created_at": "2026-11-15T17:57:25.844434Z",
    "updated_at": "2026-11-15T17:57:25.844435Z",
    "problem": None,
}


class VerifyShown(Answer):
    """How webhooks that come in are verified. The secret is never shown."""

    model_config = example({"scheme": "github", "secret": "[redacted]"})

    scheme: Literal["standard", "github", "stripe", "slack"]
    secret: str


class Endpoint(Answer):
    """Where deliveries go."""

    model_config = example(ENDPOINT_EXAMPLE)

    id: UUID
    name: str
    kind: str
    url: str | None = Field(description="Without its query for those who may not change it; null but for http.")
    hook_url: str | None = Field(
        description="Where webhooks for a relay come in. Without its token for those who may not change the endpoint."
    )
    verify: VerifyShown | None = Field(description="How a relay verifies what comes in.")
    exchange: str | None = Field(description="Of RabbitMQ, for kind rabbitmq; empty: the default exchange.")
    routing_key: str | None = Field(description="What it is published with; null: the event's type.")
    to: list[str] | None = Field(description="Whom mail goes to, for kind mail.")
    apprise_url: str | None = Field(description="For kind apprise: the service, and nothing else of it.")
    event_types: list[str]
    policy: str | None
    ordered: bool
    external_system: str | None
    headers: dict[str, str] = Field(description="Their values are never shown.")
    ca_pem: str | None
    timeout_s: float | None
    max_in_flight: int | None
    rate_per_s: float | None
    max_block_s: float | None
    on_block: str
    disabled: bool
    disabled_at: datetime | None
    disabled_reason: str | None
    paused: bool
    paused_at: datetime | None
    created_at: datetime
    updated_at: datetime
    problem: str | None = Field(description="Why nothing can be delivered there.")


class NewEndpoint(Endpoint):
    """An endpoint that was just made. A repetition under the same Idempotency-Key leaves the secret out."""

    model_config = example(ENDPOINT_EXAMPLE | {"secret": "whsec_5svVArb6T1n8kC0yq3mZxLw7RjH2dGfUo9sBtEaPiKc="})

    secret: str = Field(default="", description="What deliveries are signed with. Shown this once.")
