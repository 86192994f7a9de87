"""Deliveries through hubs: a try is one message over a connection that a hub opened, and its answer.

Called by the worker in the API's process, where hubs are connected: api.hub_door lets them in and out. Of several hubs
of an endpoint the first delivers, one webhook at a time; when it goes, or is silent, the next takes over.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from json import loads
from time import monotonic
from uuid import UUID

import structlog

from redrive.core.outcome import Category, Failure, Steer
from redrive.core.ports import RELAY_QUEUE, EndpointBook, EndpointTerms, Exchange, Job, Released, Try
from redrive.core.redact import redact_text, redact_url
from redrive.core.relay import Answered, Delivery, HubLink, Unanswered, Welcome, encode
from redrive.core.trace import CONTEXT_HEADERS
from redrive.destinations.answers import impossible, outcome_of, shown_headers
from redrive.destinations.client import CLIENT_HEADERS
from redrive.destinations.plans import Plans, Seal, context_headers, header_text, order_headers
from redrive.observe.watch import Watched

MAX_HUBS = 8  # of an endpoint
TURN_WAIT_S = 3.0  # for the webhook before: a fifth of a lease's margin, unless that is set
WAY_PART = 0.3  # of that: for a hub's word that its service took too long, which it sends when the time is nearly over
NO_HUB = Released("No hub is connected.", delay_s=1.0)
BUSY = Released("Not tried: the hub was busy with the webhooks before it.", delay_s=0.2)
EDGE_STOPS = Released("The edge was stopped before the hub answered.", possible_duplicate=True)

# What neither the sender's headers nor an endpoint's can change.
_OURS = CLIENT_HEADERS | {"content-type"}
_OUR_PREFIXES = ("webhook-", "redrive-", "proxy-")

log = Watched(structlog.get_logger("redrive.relay"))

Headers = dict[str, str]


@dataclass(frozen=True, slots=True, repr=False)
class _Plan:
    """An endpoint made ready. Secrets inside: no repr."""

    problem: str | None
    headers: Headers  # by names in lower case
    seal: Seal


@dataclass(slots=True, eq=False)
class _Hub:
    """A hub that is connected, and those who wait for its answers."""

    org_id: UUID
    endpoint_id: UUID
    endpoint: str
    link: HubLink
    forward: str
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    asked: dict[tuple[UUID, int], asyncio.Future[Answered | Unanswered | None]] = field(default_factory=dict)
    gone: bool = False

    def ask(self, delivery: Delivery) -> asyncio.Future[Answered | Unanswered | None]:
        """The answer, or None when the hub went away without one."""
        answer: asyncio.Future[Answered | Unanswered | None] = asyncio.get_running_loop().create_future()
        self.asked[delivery.id, delivery.fence] = answer
        self.link.post(encode(delivery))
        return answer

    def welcome(self, *, delivers: bool) -> None:
        self.link.post(encode(Welcome(self.endpoint, delivers)))


class _Seat:
    """core.relay.HubSeat."""

    def __init__(self, relay: "RelayDestination", hub: _Hub) -> None:
        self._relay = relay
        self._hub = hub

    def heard(self, result: Answered | Unanswered) -> None:
        """Somebody who waited too long hears nothing of it: the try has ended without."""
        answer = self._hub.asked.get((result.id, result.fence))
        if answer is not None and not answer.done():
            answer.set_result(result)

    def leave(self) -> None:
        self._relay._leave(self._hub)


class RelayDestination:
    """`turn_wait_s` comes on top of a try's time-out, and the lease must outlast both: give it a part of the margin."""

    def __init__(self, book: EndpointBook, *, version: str, turn_wait_s: float = TURN_WAIT_S) -> None:
        self._user_agent = f"Redrive/{version}"
        self._turn_wait_s = turn_wait_s
        self._plans = Plans(book, _plan)
        self._hubs: dict[UUID, list[_Hub]] = {}  # by endpoint, the one that delivers first
        self.is_closing = False
        self.on_joined: Callable[[], None] | None = None  # something can be delivered that could not be before

    # -- hubs ------------------------------------------------------------------------------------------------------

    def join(self, org_id: UUID, endpoint_id: UUID, endpoint: str, link: HubLink, forward: str) -> _Seat | None:
        if self.is_closing or len(self._hubs.get(endpoint_id, ())) >= MAX_HUBS:
            return None
        hub = _Hub(org_id, endpoint_id, endpoint, link, redact_url(forward))
        hubs = self._hubs.setdefault(endpoint_id, [])
        hubs.append(hub)
        hub.welcome(delivers=len(hubs) == 1)
        log.info("hub_joined", org_id=str(org_id), endpoint_id=str(endpoint_id), hubs=len(hubs))
        if self.on_joined is not None:
            self.on_joined()
        return _Seat(self, hub)

    def _leave(self, hub: _Hub) -> None:
        if hub.gone:
            return
        hub.gone = True
        hubs = self._hubs[hub.endpoint_id]
        delivered = hubs[0] is hub
        hubs.remove(hub)
        for answer in hub.asked.values():
            if not answer.done():
                answer.set_result(None)
        if not hubs:
            del self._hubs[hub.endpoint_id]
        elif delivered:
            hubs[0].welcome(delivers=True)
        log.info("hub_left", org_id=str(hub.org_id), endpoint_id=str(hub.endpoint_id), hubs=len(hubs))

    @property
    def connected(self) -> int:
        """Hubs of all endpoints."""
        return sum(map(len, self._hubs.values()))

    def count(self, endpoint_id: UUID) -> int:
        return len(self._hubs.get(endpoint_id, ()))

    def can_reach(self, endpoint_id: UUID) -> bool:
        """Whether a hub is connected for it now."""
        return endpoint_id in self._hubs

    def stop(self) -> None:
        """The process ends: a hub that is cut off now did not fail."""
        self.is_closing = True

    # -- core.ports.Destination ------------------------------------------------------------------------------------

    @property
    def queues(self) -> Sequence[str]:
        return (RELAY_QUEUE,)

    async def prepare(self, jobs: Sequence[Job]) -> None:
        await self._plans.prepare(jobs)

    async def attempt(self, job: Job, now: datetime) -> Try | Released:
        plan = self._plans.of(job)
        if plan is None or plan.problem is not None:
            return impossible(plan.problem if plan else None, None)
        hub = self._delivering(job)
        if hub is None:
            return NO_HUB
        try:
            async with asyncio.timeout(min(job.timeout_s, self._turn_wait_s)):
                await hub.turn.acquire()
        except TimeoutError:
            return BUSY
        began = monotonic()
        try:
            return _with_stack(await self._tried(hub, plan, job, now), hub.forward, monotonic() - began)
        finally:
            hub.turn.release()

    def _delivering(self, job: Job) -> _Hub | None:
        hubs = self._hubs.get(job.endpoint_id) if job.endpoint_id is not None else None
        return hubs[0] if hubs else None

    async def _tried(self, hub: _Hub, plan: _Plan, job: Job, now: datetime) -> Try | Released:
        if hub.gone:  # while this one waited for its turn
            return Released("Not tried: the hub went away before its turn.")
        own = _own_headers(plan, job, self._user_agent)
        own |= context_headers(job, own)
        delivery = Delivery(
            job.id,
            job.fence,
            job.event_id,
            job.event_type,
            job.attempts + 1,
            job.timeout_s,
            own | _signed_headers(plan, job, now),
            job.content_type,
            job.body,
        )
        sent = Exchange(hub.forward, shown_headers({"content-type": job.content_type, **own}))
        try:
            async with asyncio.timeout(job.timeout_s + WAY_PART * self._turn_wait_s):
                said = await hub.ask(delivery)
        except TimeoutError:
            self._leave(hub)  # a hub always answers: this one hangs, and keeps its place from those that do not
            hub.link.end()
            message = f"The hub did not answer within {job.timeout_s:g} s."
            return Try(Failure(Category.TIMEOUT, message, possible_duplicate=True), sent)
        finally:
            hub.asked.pop((job.id, job.fence), None)
        return self._judged(said, sent, now)

    def _judged(self, said: Answered | Unanswered | None, sent: Exchange, now: datetime) -> Try | Released:
        match said:
            case None if self.is_closing:
                return EDGE_STOPS
            case None:
                message = "The hub went away before it acknowledged."
                return Try(Failure(Category.NETWORK, message, possible_duplicate=True), sent)
            case Unanswered():
                message = f"The local service: {redact_text(said.error)}"
                steer = Steer.GIVE_UP if said.category is Category.CONFIGURATION else None
                return Try(Failure(said.category, message, possible_duplicate=said.sent, steer=steer), sent)
            case Answered():
                headers = {name.lower(): value for name, value in said.headers.items()}
                outcome = outcome_of(said.status, headers.get("retry-after"), headers.get("date"), now)
                return Try(
                    outcome,
                    sent._replace(
                        status_code=said.status,
                        response_headers=shown_headers(headers),
                        response_body=said.body,
                        truncated=said.truncated,
                    ),
                )

    async def aclose(self) -> None:
        """Hubs are let go by those who let them in."""
        self.is_closing = True


def _with_stack(tried: Try | Released, forward: str, took_s: float) -> Try | Released:
    """Where a failed attempt went, how long that took, and what was said: the log of every failure has a stack."""
    if isinstance(tried, Released) or not isinstance(tried.outcome, Failure):
        return tried
    failure = tried.outcome
    lines = (
        f"a hub, which forwards to {forward}",
        f"  answer     {took_s * 1000:>10.1f} ms",
        f"{failure.category.value}: {failure.message}",
    )
    return tried._replace(outcome=replace(failure, stack=redact_text("\n".join(lines))))


def _plan(terms: EndpointTerms) -> _Plan:
    problem = f"The endpoint {terms.name!r} was deleted." if terms.deleted else terms.problem
    return _Plan(problem, {name.lower(): value for name, value in terms.headers}, Seal.of(terms))


def _own_headers(plan: _Plan, job: Job, user_agent: str) -> Headers:
    """The sender's headers, under the endpoint's, under those that a person gave for this task."""
    given: Headers = {"user-agent": user_agent}
    sent = {name: value for name, value in _loaded(job.headers).items() if name not in CONTEXT_HEADERS}
    for headers in (sent, plan.headers, _loaded(job.edited_headers)):
        given |= headers
    return {name: value for name, value in given.items() if not _is_ours(name)}


def _loaded(text: str | None) -> Headers:
    return {name.lower(): value for name, value in loads(text).items()} if text is not None else {}


def _is_ours(name: str) -> bool:
    return name in _OURS or name.startswith(_OUR_PREFIXES)


def _signed_headers(plan: _Plan, job: Job, now: datetime) -> Headers:
    message_id, timestamp = str(job.event_id), int(now.timestamp())
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": plan.seal.at(now).sign(message_id, timestamp, job.body),
        "redrive-event-type": header_text(job.event_type),
        "redrive-attempt": str(job.attempts + 1),
        "content-type": header_text(job.content_type),
        **order_headers(job),
    }
