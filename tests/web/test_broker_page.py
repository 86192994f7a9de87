"""Dead letters of a broker in front of people: what they were there, where a retry brings them, and the queues."""

from typing import Any
from uuid import UUID

import pytest

from api.conftest import Api
from redrive.api.context import BrokerTerms
from redrive.core.broker import Origin, QueueState, Redriven
from redrive.store.dead_messages import DeadMessages
from redrive.store.events import MAX_PAYLOAD_BYTES
from redrive.web.broker_view import broker_view
from support.dead_messages import QUEUE, dead_message
from support.page import read

HOSTILE = '<img src=x onerror=alert(1)>"'


def book(api: Api) -> DeadMessages:
    return DeadMessages(api.context.engine_db, api.org_id, api.context.clock)


async def page_of(api: Api, **fields: Any) -> str:
    """The path of the page of a new dead letter."""
    assert await book(api).keep([dead_message(**fields)]) == [True]
    letters = (await api.owner.get("/v1/dead-letters?kind=rabbitmq&limit=1")).json["data"]
    return f"/app/admin/dlq/{letters[0]['id']}"


async def test_a_letter_tells_what_it_was_in_its_broker_and_where_a_retry_brings_it(api: Api) -> None:
    ordinary = await page_of(api, message_id="m-1")
    before = ordinary.rpartition("/")[2]
    path = await page_of(
        api,
        origin=Origin("shop", f"order {HOSTILE}", f"queue {HOSTILE}"),
        message_id="m-1",
        redriven=Redriven(UUID(before), 1),
    )
    page = await read(api.owner, path)
    told = page.one("section", id="broker").text
    for said in (
        "shop",
        f"order {HOSTILE}",
        f"queue {HOSTILE}",
        "m-1",
        "shop-service",
        "rejected",
        "x-tenant",
        "[redacted]",
    ):
        assert said in told, said
    assert page.has("a", href=ordinary)
    assert (
        f"with the routing key “order {HOSTILE}”" in page.one("button", text="Manual Retry").attributes["data-ask-text"]
    )
    assert "not connected to RabbitMQ" in told
    assert not page.has("h2", text="As cURL")
    assert not page.has("img")
    listed = await read(api.viewer, "/integrations/logs/dead-letter-queue")
    assert listed.has("span", class_="badge", text="RabbitMQ")
    assert (await read(api.viewer, path.replace("/app/admin/dlq", "/integrations/logs"))).has("section", id="broker")


@pytest.mark.parametrize(
    ("exchange", "redrive_to", "said"),
    [
        ("shop", "exchange", "to exchange “shop” with the routing key “k”"),
        ("", "exchange", "to the default exchange with the routing key “k”"),
        ("shop", "queue", "straight to the queue “orders”"),
    ],
)
def test_the_way_back_is_told_as_it_is_set(exchange: str, redrive_to: Any, said: str) -> None:
    row: Any = dict.fromkeys(("message_id", "service", "redriven_from", "details", "deaths", "collected_at"))
    row |= {
        "source": "orders-dlq",
        "queue": QUEUE,
        "exchange": exchange,
        "routing_key": "k",
        "properties": "{}",
        "retries": 0,
    }
    view = broker_view(row, BrokerTerms("north", redrive_to))
    assert view is not None
    assert (view.way_back, view.is_connected) == (said, True)


async def test_what_is_too_large_to_be_shown_is_told_by_its_size_and_cannot_be_edited(api: Api) -> None:
    path = await page_of(api, body=b"x" * (2 * MAX_PAYLOAD_BYTES))
    page = await read(api.owner, path)
    assert "2.1 MB: too large to be shown" in page.text
    assert not page.has("button", text="Edit and replay")
    assert page.has("button", text="Manual Retry")
    event = (await api.owner.get(f"/v1/logs/{path.rpartition('/')[2]}")).json["event_id"]
    assert "too large to be shown" in (await read(api.owner, f"/events/{event}")).text
    assert "too many to be shown" in (await read(api.owner, "/inbox?status=failed")).text


async def test_queues_are_told_with_their_trouble_and_lead_to_their_letters(api: Api) -> None:
    assert "No broker" in (await read(api.viewer, "/broker")).text
    assert not (await read(api.viewer, "/")).has("a", href="/broker")
    await page_of(api)
    seen = QueueState(f"{QUEUE}-dlq", True, f"closed {HOSTILE}", 3, 0, 1, 0)
    await book(api).note([seen, seen._replace(queue=QUEUE, is_source=False, problem=None)])
    page = await read(api.viewer, "/broker")
    assert page.has("span", class_="badge bad", text="in trouble")
    assert page.has("span", class_="hint", text=f"closed {HOSTILE}")
    assert page.has("a", href=f"/integrations/logs/dead-letter-queue?type={QUEUE}", text="1")
    assert (await read(api.viewer, "/")).has("a", href="/broker", text="RabbitMQ")
