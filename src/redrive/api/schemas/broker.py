"""Messages and queues of a broker as /openapi.json describes them."""

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import Field

from redrive.api.schemas.base import AT, Answer, example

MESSAGE_EXAMPLE: dict[str, Any] = {
    "source": "orders-dlq",
    "queue": "orders",
    "exchange": "shop",
    "routing_key": "order.paid",
    "message_id": "order-7",
    "service": "order-service",
    "properties": {"content_type": "application/json", "delivery_mode": 2, "headers": {"x-tenant": "north"}},
    "deaths": [
        {
            "queue": "orders",
            "reason": "rejected",
            "count": 1,
            "exchange": "shop",
            "routing-keys": ["order.paid"],
            "time": "2026-11-15T17:57:25Z",
        }
    ],
    "details": None,
    "redriven_from": None,
    "collected_at": AT,
}

QUEUE_EXAMPLE: dict[str, Any] = {
    "queue": "orders-dlq",
    "is_source": True,
    "problem": None,
    "messages": 0,
    "consumers": 1,
    "collected": 1204,
    "duplicates": 2,
    "seen_at": AT,
    "collected_at": AT,
    "open_letters": 0,
    "is_whole": True,
}


class BrokerMessage(Answer):
    """What a dead letter was in its broker. A redrive brings it back to its exchange with its routing key."""

    model_config = example(MESSAGE_EXAMPLE)

    source: str = Field(description="The dead-letter queue that it was taken from.")
    queue: str = Field(description="The queue that it died in, as far as is known.")
    exchange: str = Field(description="That it was published to; empty: the default exchange.")
    routing_key: str
    message_id: str | None
    service: str | None = Field(description="That gave it up, as far as it told.")
    properties: dict[str, Any] = Field(description="With its `headers`; values that look secret are hidden.")
    deaths: list[Any] = Field(description="What the broker wrote down of its deaths (`x-death`), the newest first.")
    details: Any = Field(description="What the service said besides: any JSON.")
    redriven_from: UUID | None = Field(description="The dead letter that it was before it was redriven and died again.")
    collected_at: datetime


class BrokerQueue(Answer):
    """A queue as a collector last saw it."""

    model_config = example(QUEUE_EXAMPLE)

    queue: str
    is_source: bool = Field(description="A dead-letter queue that is collected; else one that messages died in.")
    problem: str | None = Field(description="Why it is not consumed; null: it is.")
    messages: int | None = Field(description="That wait in it; null: not known.")
    consumers: int | None
    collected: int = Field(description="Messages that became dead letters, in all.")
    duplicates: int = Field(description="Messages that were dead letters before.")
    seen_at: datetime
    collected_at: datetime | None = Field(description="When there last was something in it.")
    open_letters: int = Field(description="Open dead letters with the name of this queue as their type, to 1,000.")
    is_whole: bool = Field(description="False: there are more than that.")


class Broker(Answer):
    """The broker that dead letters are collected from, and its queues."""

    model_config = example({"configured": True, "queues": [QUEUE_EXAMPLE]})

    configured: bool = Field(description="This installation is connected to a broker that belongs to this org.")
    queues: list[BrokerQueue]
