"""What the handler of a queue gets. Made by sources.consumer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a broker. `message_id` is the same for every try: hand it on to whatever must act once.

    `payload` is the body as JSON; None where the consumer takes bytes. `exchange` and `routing_key` are those that it
    was first published to. `attempt` is 1 for the first try; `redelivered`: a try before this one may have acted.
    """

    queue: str
    body: bytes = field(repr=False)
    payload: Any = field(repr=False)
    headers: Mapping[str, Any] = field(repr=False)
    message_id: str | None
    correlation_id: str | None
    content_type: str | None
    type: str | None
    timestamp: datetime | None
    exchange: str
    routing_key: str
    attempt: int
    redelivered: bool
    traceparent: str | None = None  # of this try: hand it on, and what others do for it is part of the same trace
