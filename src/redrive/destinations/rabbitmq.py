"""Deliveries to RabbitMQ: an event is one message for an exchange, over when the broker has confirmed it.

Called by engine.worker; publishes through broker.publisher. Needs the extra `rabbitmq`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from json import loads

from redrive.broker.link import BrokerDown
from redrive.broker.properties import PERSISTENT, headers_of
from redrive.broker.publisher import Outgoing, Publisher, PublishRefused, Unconfirmed, failure_of_publish
from redrive.broker.wire import Properties
from redrive.core.broker import RABBITMQ_QUEUE
from redrive.core.broker_route import MAX_NAME_BYTES, is_short, route_url
from redrive.core.outcome import Success
from redrive.core.ports import EndpointBook, EndpointTerms, Exchange, Job, Released, Try
from redrive.core.trace import CONTEXT_HEADERS
from redrive.destinations.answers import impossible, shown_headers
from redrive.destinations.plans import Plans, Seal, context_headers, header_text, order_headers

APP_ID = "redrive"
JSON_TYPE = "application/json"

# What neither an event's headers nor an endpoint's can change.
_OUR_PREFIXES = ("webhook-", "redrive-")

Headers = dict[str, str]


@dataclass(frozen=True, slots=True, repr=False)
class _Plan:
    """An endpoint made ready. Secrets inside: no repr."""

    problem: str | None
    exchange: str
    routing_key: str | None
    headers: Headers  # by names in lower case
    seal: Seal


class RabbitDestination:
    """`org`: the name of the one that the broker belongs to. The publisher is closed by whoever made it."""

    def __init__(self, publisher: Publisher, book: EndpointBook, *, org: str) -> None:
        self._publisher = publisher
        self._org = org
        self._plans = Plans(book, self._plan)

    @property
    def queues(self) -> Sequence[str]:
        return (RABBITMQ_QUEUE,)

    async def prepare(self, jobs: Sequence[Job]) -> None:
        await self._plans.prepare(jobs)

    def _plan(self, terms: EndpointTerms) -> _Plan:
        problem = terms.problem
        if terms.deleted:
            problem = f"The endpoint {terms.name!r} was deleted."
        elif terms.org_name != self._org:  # asked again here: the settings may have changed since it was made
            problem = "RabbitMQ belongs to another org of this installation (REDRIVE_RABBITMQ_ORG)."
        headers = {name.lower(): value for name, value in terms.headers}
        return _Plan(problem, terms.exchange or "", terms.routing_key, headers, Seal.of(terms))

    async def attempt(self, job: Job, now: datetime) -> Try | Released:
        plan = self._plans.of(job)
        if plan is None:
            return impossible(None, None)
        routing_key = job.event_type if plan.routing_key is None else plan.routing_key
        own = _own_headers(plan, job)
        own |= context_headers(job, own)
        problem = plan.problem or _unpublishable(routing_key, own)
        url = route_url(plan.exchange, routing_key)
        if problem is not None:
            return impossible(problem, url)
        message = Outgoing(plan.exchange, routing_key, job.body, _properties(plan, job, own, now))
        told = own if job.content_type == JSON_TYPE else {"content-type": job.content_type, **own}
        sent = Exchange(url, shown_headers(told))
        try:
            await self._publisher.publish(message, job.timeout_s)
        except (PublishRefused, Unconfirmed, BrokerDown, TimeoutError) as problem_met:
            return Try(failure_of_publish(problem_met), sent)
        return Try(Success(), sent)

    async def aclose(self) -> None:
        """Nothing of its own is open."""


def _own_headers(plan: _Plan, job: Job) -> Headers:
    """The event's headers, under the endpoint's, under those that a person gave for this task."""
    given: Headers = {}
    sent = {name: value for name, value in _loaded(job.headers).items() if name not in CONTEXT_HEADERS}
    for headers in (sent, plan.headers, _loaded(job.edited_headers)):
        given |= headers
    kept = headers_of(Properties(headers=dict(given)))  # without what the broker itself acts upon
    return {name: value for name, value in kept.items() if not name.startswith(_OUR_PREFIXES)}


def _loaded(text: str | None) -> Headers:
    return {name.lower(): value for name, value in loads(text).items()} if text is not None else {}


def _unpublishable(routing_key: str, headers: Headers) -> str | None:
    """Why AMQP cannot carry it."""
    if not is_short(routing_key):
        return f"The event's type is longer than {MAX_NAME_BYTES} bytes: it cannot be a routing key."
    if not all(map(is_short, headers)):
        return f"A header's name is longer than {MAX_NAME_BYTES} bytes: RabbitMQ takes none such."
    return None


def _properties(plan: _Plan, job: Job, own: Headers, now: datetime) -> Properties:
    message_id, timestamp = str(job.event_id), int(now.timestamp())
    signed = {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": plan.seal.at(now).sign(message_id, timestamp, job.body),
        "redrive-event-type": header_text(job.event_type),
        "redrive-attempt": str(job.attempts + 1),
        **order_headers(job),
    }
    return Properties(
        content_type=_short(job.content_type),
        headers={**own, **signed},
        delivery_mode=PERSISTENT,
        correlation_id=_short(job.correlation_id),
        message_id=message_id,
        timestamp=now,
        message_type=_short(job.event_type),
        app_id=APP_ID,
    )


def _short(text: str | None) -> str | None:
    """As a property; left out where AMQP cannot carry it."""
    return text if text is not None and is_short(text) else None
