"""The sample's broker: two services whose queues dead letters were collected from, and what is known of these queues.

Nobody need run RabbitMQ for it: what a collector would hand in is handed in. Used by support.sample.
"""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from uuid import UUID

from redrive.core.broker import DeadMessage, Origin, QueueState, Redriven
from redrive.core.decide import Reason
from redrive.core.outcome import Category, Failure
from redrive.store.dead_messages import DeadMessages
from support.dead_messages import dead_message
from support.engine import ManualClock
from support.installation import Installation

TRANSFORMER = "outbound-transformer"


async def collect(redrive: Installation, end: datetime, *, error: str) -> None:
    clock = ManualClock(end - timedelta(hours=3))
    book = DeadMessages(redrive.stores.engine, redrive.org_id, clock)
    await book.keep(list(_rejected(clock.now())))
    clock.advance(3_000)
    await book.keep([_given_up(clock.now(), number, error) for number in range(3)])
    clock.advance((end - clock.now()).total_seconds())
    await book.note(
        [
            QueueState("orders-dlq", True, None, 0, 1, 5, 1),
            QueueState(f"{TRANSFORMER}-dlq", True, "RabbitMQ closed the connection: it is tried again.", 3, 0, 3, 0),
            QueueState("orders", False, None, 12, 2, 0, 0),
            QueueState(TRANSFORMER, False, None, None, None, 0, 0),
        ]
    )


def _rejected(now: datetime) -> Iterator[DeadMessage]:
    """By consumers that never heard of us: the broker tells where and why."""
    for number in range(5):
        died = now - timedelta(minutes=9 * number)
        body = b"\x00\xff not text" if number == 4 else json.dumps({"order": 4_711 + number}).encode()
        deaths = [
            {"queue": "orders", "reason": reason, "count": 1, "exchange": "shop", "routing-keys": ["order.paid"]}
            | {"time": {"$time": (died - ago).isoformat()}}
            for reason, ago in (("rejected", timedelta(0)), ("expired", timedelta(minutes=2)))
        ]
        yield dead_message(
            body=body, message_id=f"order-{number}", failed_at=died, deaths=json.dumps(deaths), service=None
        )


def _given_up(now: datetime, number: int, error: str) -> DeadMessage:
    """By a consumer of ours, after all of its retries; the last one had been redriven before."""
    headers = {"x-retry-count": 3, "x-tenant": "north", "x-last-error": error, "x-api-key": "sk_live_1234567890"}
    return dead_message(
        TRANSFORMER,
        origin=Origin("", TRANSFORMER, TRANSFORMER),
        body=json.dumps({"tenantId": "north", "internalId": number}).encode(),
        message_id=f"transform-{number}",
        failure=Failure(Category.NETWORK, f"PostgreSQL is not available: {error}", stack="Traceback\n  in transform"),
        reason=Reason.EXHAUSTED,
        retries=3,
        first_failed_at=now - timedelta(seconds=14),
        failed_at=now,
        properties=json.dumps({"content_type": "application/json", "app_id": "shop", "headers": headers}),
        deaths=None,
        details=json.dumps({"metadata": {"tenant_id": "north", "service_version": "1.0.0"}}),
        service=TRANSFORMER,
        redriven=Redriven(UUID(int=number), 1) if number == 2 else None,
    )
