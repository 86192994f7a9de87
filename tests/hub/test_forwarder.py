"""Forwarding one delivery: within its time, and with an answer that the edge can take."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio

from redrive.core.address import parse_target
from redrive.core.outcome import Category
from redrive.core.relay import MAX_ANSWER_BYTES, MAX_HUB_MESSAGE_BYTES, Answered, Delivery, Unanswered, encode, from_hub
from redrive.hub.forwarder import Forwarder
from support.holding import HoldingReceiver, open_holding
from support.receiver import Answer


def delivery(**fields: Any) -> Delivery:
    usual: dict[str, Any] = {
        "id": UUID(int=1),
        "fence": 1,
        "event_id": UUID(int=2),
        "event_type": "webhook",
        "attempt": 1,
        "timeout_s": 30.0,
        "headers": {"webhook-id": str(UUID(int=2))},
        "content_type": "text/plain",
        "body": b"1",
    }
    return Delivery(**usual | fields)


@pytest_asyncio.fixture(loop_scope="session")
async def receiver() -> AsyncIterator[HoldingReceiver]:
    async with open_holding() as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="session")
async def forwarder(receiver: HoldingReceiver) -> AsyncIterator[Forwarder]:
    made = Forwarder(parse_target(receiver.url))
    yield made
    await made.aclose()


async def test_a_delivery_that_had_to_wait_for_one_sent_by_hand_is_answered_in_its_time_and_was_not_sent(
    receiver: HoldingReceiver, forwarder: Forwarder
) -> None:
    receiver.hold()
    by_hand = asyncio.create_task(forwarder.forward(delivery(), resent=True))
    await receiver.wait_for(1)
    done = await forwarder.forward(delivery(timeout_s=0.05))
    assert isinstance(done.result, Unanswered)
    assert (done.result.category, done.result.sent) == (Category.TIMEOUT, False)
    receiver.release()
    assert isinstance((await by_hand).result, Answered)
    assert isinstance((await forwarder.forward(delivery())).result, Answered)
    assert len(receiver.requests) == 2


@pytest.mark.parametrize("headers", [{"x a": "1"}, {"x-a": "1\r\nx-b: 2"}, {"x" * 3_000 + " ": ""}])
async def test_headers_that_cannot_be_sent_are_nothing_to_try_again(
    forwarder: Forwarder, headers: dict[str, str]
) -> None:
    done = await forwarder.forward(delivery(headers=headers))
    assert isinstance(done.result, Unanswered)
    assert (done.result.category, done.result.sent) == (Category.CONFIGURATION, False)
    assert from_hub(encode(done.result)) == done.result


async def test_an_answer_with_more_headers_than_an_edge_takes_is_sent_without_those_that_do_not_fit(
    receiver: HoldingReceiver, forwarder: Forwarder
) -> None:
    large = {f"x-{n}": "\xe9" * 20_000 for n in range(3)}  # as JSON six times as much
    receiver.usual = Answer(503, b"x" * (MAX_ANSWER_BYTES + 1), headers={**large, "retry-after": "7"})
    done = await forwarder.forward(delivery())
    assert isinstance(done.result, Answered)
    assert done.result.truncated
    assert done.result.headers["retry-after"] == "7"
    told = encode(done.result)
    assert len(told) <= MAX_HUB_MESSAGE_BYTES
    assert from_hub(told) == done.result
