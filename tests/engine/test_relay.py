"""Deliveries through hubs, with hubs that the test plays itself: turns, take-overs, answers, time-outs."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from redrive.core.outcome import Category, Failure, Steer, Success
from redrive.core.ports import EndpointTerms, Job, Released, Try
from redrive.core.relay import Answered, Delivery, HubSeat, Unanswered, Welcome, from_edge
from redrive.core.sign import verify
from redrive.core.trace import as_text
from redrive.destinations.relay import MAX_HUBS, NO_HUB, RelayDestination

ORG, ENDPOINT = UUID(int=1), UUID(int=2)
NOW = datetime(2031, 5, 4, 12, 0, tzinfo=UTC)
SECRET = b"s" * 32
FORWARD = "http://localhost:3000/hooks?token=canary"


class Book:
    def __init__(self, **terms: Any) -> None:
        self.terms_of = EndpointTerms(
            **{
                "org_id": ORG,
                "id": ENDPOINT,
                "name": "relay",
                "url": "",
                "secrets": (SECRET,),
                "headers": (),
                "ca_pem": None,
                "deleted": False,
                **terms,
            }
        )

    async def terms(self, keys: object) -> list[EndpointTerms]:
        return [self.terms_of]


class PlayedHub:
    """A link whose other end is the test."""

    def __init__(self, relay: RelayDestination) -> None:
        self.said: list[Welcome | Delivery] = []
        self.news = asyncio.Event()
        self.is_ended = False
        seat = relay.join(ORG, ENDPOINT, "relay", self, FORWARD)
        assert seat is not None
        self.seat: HubSeat = seat

    def post(self, text: str) -> None:
        self.said.append(from_edge(text))
        self.news.set()

    def end(self) -> None:
        self.is_ended = True

    @property
    def deliveries(self) -> list[Delivery]:
        return [one for one in self.said if isinstance(one, Delivery)]

    async def delivery(self, number: int = 1) -> Delivery:
        async with asyncio.timeout(5):
            while len(self.deliveries) < number:
                self.news.clear()
                await self.news.wait()
        return self.deliveries[number - 1]

    def answer(self, delivery: Delivery, status: int = 200, **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.seat.heard(Answered(delivery.id, delivery.fence, status, named, b"ok", False))


def job(**fields: Any) -> Job:
    usual: dict[str, Any] = {
        "org_id": ORG,
        "id": uuid4(),
        "event_id": uuid4(),
        "endpoint_id": ENDPOINT,
        "policy_id": UUID(int=3),
        "kind": "relay",
        "queue": "relay",
        "event_type": "github.push",
        "fence": 1,
        "attempts": 0,
        "generation": 0,
        "begun_at": NOW,
        "timeout_s": 5.0,
        "lost": False,
        "claimed_at": NOW,
        "correlation_id": None,
        "body": b"\x00body",
        "content_type": "text/plain",
        "headers": '{"x-shop": "7", "user-agent": "Shop/1"}',
    }
    return Job(**usual | fields)


async def relay_with(task: Job, *, turn_wait_s: float = 5.0, **terms: Any) -> RelayDestination:
    relay = RelayDestination(Book(**terms), version="0.0.1", turn_wait_s=turn_wait_s)
    await relay.prepare([task])
    return relay


async def tried(relay: RelayDestination, hub: PlayedHub, task: Job, status: int = 200, **headers: str) -> Try:
    trying = asyncio.create_task(relay.attempt(task, NOW))
    hub.answer(await hub.delivery(), status, **headers)
    result = await trying
    assert isinstance(result, Try)
    return result


async def test_a_delivery_is_one_message_with_everything_that_the_service_must_get() -> None:
    task = job(attempts=2)
    relay = await relay_with(task, headers=(("X-Tenant", "t"), ("X-Shop", "8")))
    hub = PlayedHub(relay)
    result = await tried(relay, hub, task, 201)
    sent = hub.deliveries[0]
    assert (sent.id, sent.fence, sent.event_id, sent.attempt) == (task.id, 1, task.event_id, 3)
    assert (sent.event_type, sent.content_type, sent.body) == ("github.push", "text/plain", b"\x00body")
    headers = sent.headers
    assert (headers["x-shop"], headers["x-tenant"], headers["user-agent"]) == ("8", "t", "Shop/1")
    assert (headers["webhook-id"], headers["redrive-attempt"]) == (str(task.event_id), "3")
    at = int(NOW.timestamp())
    assert verify([SECRET], str(task.event_id), at, task.body, headers["webhook-signature"], now=at)
    assert result.outcome == Success(201)
    assert (result.exchange.status_code, result.exchange.response_body) == (201, b"ok")
    assert result.exchange.url == "http://localhost:3000/hooks?[redacted]"
    assert "Shop/1" in (result.exchange.request_headers or "")


async def test_neither_sender_nor_endpoint_nor_a_person_writes_headers_that_are_ours() -> None:
    task = job(
        headers='{"webhook-id": "theirs", "Redrive-Attempt": "9", "connection": "close", "x-a": "sender"}',
        edited_headers='{"X-A": "person", "Content-Type": "text/html"}',
    )
    relay = await relay_with(task, headers=(("x-a", "endpoint"), ("host", "evil")))
    hub = PlayedHub(relay)
    await tried(relay, hub, task)
    headers = hub.deliveries[0].headers
    assert (headers["webhook-id"], headers["redrive-attempt"]) == (str(task.event_id), "1")
    assert (headers["content-type"], headers["x-a"]) == ("text/plain", "person")
    assert not headers.keys() & {"connection", "host"}


async def test_the_trace_and_the_correlation_id_of_the_request_go_on_to_the_service() -> None:
    came = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
    task = job(headers=as_text({"x-correlation-id": "theirs", "traceparent": came}), correlation_id="c 7")
    hub = PlayedHub(relay := await relay_with(task))
    await tried(relay, hub, task)
    headers = hub.deliveries[0].headers
    assert (headers["traceparent"], headers["x-correlation-id"]) == (came, "c 7")
    hub = PlayedHub(relay := await relay_with(task, headers=(("X-Correlation-Id", "endpoint's own"),)))
    await tried(relay, hub, task)
    assert hub.deliveries[0].headers["x-correlation-id"] == "endpoint's own"


@pytest.mark.parametrize(
    ("status", "category"),
    [(404, Category.CLIENT_ERROR), (429, Category.RATE_LIMITED), (503, Category.SERVER_ERROR)],
)
async def test_an_answer_is_judged_as_one_over_http_is(status: int, category: Category) -> None:
    task = job()
    relay = await relay_with(task)
    result = await tried(relay, PlayedHub(relay), task, status, Retry_After="7")
    assert isinstance(result.outcome, Failure)
    assert (result.outcome.category, result.outcome.status_code) == (category, status)
    assert result.outcome.retry_after == timedelta(seconds=7)


async def test_without_a_hub_nothing_is_tried() -> None:
    task = job()
    relay = await relay_with(task)
    assert not relay.can_reach(ENDPOINT)
    assert await relay.attempt(task, NOW) == NO_HUB


@pytest.mark.parametrize("terms", [{"deleted": True}, {"problem": "The secret cannot be opened."}])
async def test_an_endpoint_that_cannot_be_delivered_to_is_a_failure_whether_a_hub_is_there_or_not(
    terms: dict[str, Any],
) -> None:
    task = job()
    relay = await relay_with(task, **terms)
    result = await relay.attempt(task, NOW)
    assert isinstance(result, Try)
    assert isinstance(result.outcome, Failure)
    assert result.outcome.category is Category.CONFIGURATION


async def unanswered(why: str, category: Category, *, sent: bool) -> Try:
    """What comes of a try whose hub says that its service did not answer."""
    task = job()
    relay = await relay_with(task)
    hub = PlayedHub(relay)
    trying = asyncio.create_task(relay.attempt(task, NOW))
    delivery = await hub.delivery()
    hub.seat.heard(Unanswered(delivery.id, delivery.fence, why, category, sent))
    result = await trying
    assert isinstance(result, Try)
    return result


async def test_what_the_hub_could_not_deliver_fails_by_its_word() -> None:
    result = await unanswered("refused password=canary", Category.TIMEOUT, sent=True)
    assert isinstance(result.outcome, Failure)
    assert result.outcome.stack is not None
    assert replace(result.outcome, stack=None) == Failure(
        Category.TIMEOUT, "The local service: refused password=[redacted]", possible_duplicate=True
    )


async def test_what_a_hub_says_cannot_be_sent_is_not_tried_again() -> None:
    result = await unanswered("its headers", Category.CONFIGURATION, sent=False)
    assert isinstance(result.outcome, Failure)
    assert (result.outcome.category, result.outcome.steer) == (Category.CONFIGURATION, Steer.GIVE_UP)


async def test_a_hub_that_says_nothing_is_waited_for_as_long_as_the_task_may_take() -> None:
    task = job(timeout_s=0.01)
    relay = await relay_with(task, turn_wait_s=0.01)
    hub = PlayedHub(relay)
    result = await relay.attempt(task, NOW)
    assert isinstance(result, Try)
    assert isinstance(result.outcome, Failure)
    assert (result.outcome.category, result.outcome.possible_duplicate) == (Category.TIMEOUT, True)
    hub.answer(hub.deliveries[0])  # too late: nobody listens


async def test_a_hub_that_said_nothing_in_time_loses_its_place_to_the_next() -> None:
    first, second = job(timeout_s=0.01), job()
    relay = await relay_with(first, turn_wait_s=0.01)
    silent, standby = PlayedHub(relay), PlayedHub(relay)
    await relay.attempt(first, NOW)
    assert (silent.is_ended, standby.is_ended) == (True, False)
    assert standby.said[-1] == Welcome("relay", True)
    assert (await tried(relay, standby, second)).outcome == Success(200)
    silent.seat.leave()  # its connection is gone now, too
    assert relay.can_reach(ENDPOINT)


async def test_an_answer_under_another_fence_is_nobody_s() -> None:
    task = job(fence=2)
    relay = await relay_with(task)
    hub = PlayedHub(relay)
    trying = asyncio.create_task(relay.attempt(task, NOW))
    sent = await hub.delivery()
    hub.answer(sent._replace(fence=1), 500)
    hub.answer(sent, 200)
    result = await trying
    assert isinstance(result, Try)
    assert result.outcome == Success(200)


async def test_one_webhook_at_a_time_and_in_the_order_in_which_they_began() -> None:
    tasks = [job() for _ in range(3)]
    relay = await relay_with(tasks[0])
    hub = PlayedHub(relay)
    trying = [asyncio.create_task(relay.attempt(task, NOW)) for task in tasks]
    for number, task in enumerate(tasks, 1):
        sent = await hub.delivery(number)
        assert (sent.id, len(hub.deliveries)) == (task.id, number)
        hub.answer(sent)
    await asyncio.gather(*trying)


async def test_who_waits_too_long_for_a_turn_is_not_tried() -> None:
    first, second = job(), job(timeout_s=0.01)
    relay = await relay_with(first)
    hub = PlayedHub(relay)
    trying = asyncio.create_task(relay.attempt(first, NOW))
    sent = await hub.delivery()
    assert isinstance(await relay.attempt(second, NOW), Released)
    hub.answer(sent)
    await trying


async def test_the_next_hub_takes_over_and_what_was_under_way_may_have_arrived() -> None:
    first, second = job(), job()
    relay = await relay_with(first)
    leading, waiting = PlayedHub(relay), PlayedHub(relay)
    assert [hub.said for hub in (leading, waiting)] == [[Welcome("relay", True)], [Welcome("relay", False)]]
    trying = [asyncio.create_task(relay.attempt(task, NOW)) for task in (first, second)]
    await leading.delivery()
    leading.seat.leave()
    leading.seat.leave()  # once is enough
    lost, not_tried = await asyncio.gather(*trying)
    assert isinstance(lost, Try)
    assert isinstance(lost.outcome, Failure)
    assert (lost.outcome.category, lost.outcome.possible_duplicate) == (Category.NETWORK, True)
    assert isinstance(not_tried, Released)
    assert not not_tried.possible_duplicate
    assert waiting.said[-1] == Welcome("relay", True)
    assert isinstance(await tried(relay, waiting, first), Try)
    waiting.seat.leave()
    assert not relay.can_reach(ENDPOINT)


async def test_an_edge_that_stops_blames_nobody_for_what_it_broke_off() -> None:
    task = job()
    relay = await relay_with(task)
    hub = PlayedHub(relay)
    trying = asyncio.create_task(relay.attempt(task, NOW))
    await hub.delivery()
    relay.stop()
    hub.seat.leave()
    result = await trying
    assert isinstance(result, Released)
    assert result.possible_duplicate
    assert relay.join(ORG, ENDPOINT, "relay", hub, FORWARD) is None


async def test_an_endpoint_has_so_many_hubs_and_no_more_and_each_wakes_the_worker() -> None:
    relay = RelayDestination(Book(), version="0.0.1")
    woken: list[None] = []
    relay.on_joined = lambda: woken.append(None)
    hubs = [PlayedHub(relay) for _ in range(MAX_HUBS)]
    assert relay.join(ORG, ENDPOINT, "relay", hubs[0], FORWARD) is None
    assert len(woken) == MAX_HUBS
    assert relay.can_reach(ENDPOINT)
