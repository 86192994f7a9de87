"""Messages as a source takes them from a dead-letter queue, without a broker.

await DeadMessages(engine.db, engine.org_id, engine.clock).keep([dead_message(message_id="m-1")])
"""

import json
from datetime import UTC, datetime
from typing import Any

from redrive.core.broker import DeadMessage, Origin
from redrive.core.decide import Reason
from redrive.core.outcome import Category, Failure

QUEUE = "orders"
DIED = datetime(2031, 5, 4, 11, 0, tzinfo=UTC)
REJECTED = Failure(Category.UNKNOWN, 'Its consumer rejected it ("orders").')
HEADERS = {"x-tenant": "north", "authorization": "Bearer abc.def", "x-retry-count": 3}
DEATHS = [
    {
        "count": 1,
        "exchange": "shop",
        "queue": QUEUE,
        "reason": "rejected",
        "routing-keys": ["order.paid"],
        "time": "2031-05-04T11:00:00Z",
    }
]


def dead_message(queue: str = QUEUE, body: bytes = b'{"order": 7}', **fields: Any) -> DeadMessage:
    """One that a consumer rejected; the fields are those of DeadMessage."""
    given: dict[str, Any] = {
        "source": f"{queue}-dlq",
        "origin": Origin("shop", "order.paid", queue),
        "body": body,
        "content_type": "application/json",
        "properties": json.dumps({"content_type": "application/json", "delivery_mode": 2, "headers": HEADERS}),
        "message_id": None,
        "correlation_id": "c-1",
        "failure": REJECTED,
        "reason": Reason.PERMANENT,
        "retries": 0,
        "first_failed_at": None,
        "failed_at": DIED,
        "deaths": json.dumps(DEATHS),
        "details": None,
        "service": "shop-service",
    }
    return DeadMessage(**given | fields)
