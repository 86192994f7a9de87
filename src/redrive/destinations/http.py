"""Deliveries over HTTP: one signed POST of the stored bytes to an endpoint, and what its answer means.

Called by engine.worker; sends through destinations.client, which guards the connection itself.
"""

import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache, partial
from http import HTTPStatus
from json import dumps, loads
from urllib.parse import quote
from uuid import UUID

from redrive.core.address import BadUrl, Target, parse_target
from redrive.core.classify import classify_status, failure_of, parse_http_date, parse_retry_after
from redrive.core.outcome import Category, Failure, Outcome, Steer, Success
from redrive.core.ports import (
    HTTP_QUEUE,
    NO_EXCHANGE,
    EndpointBook,
    EndpointTerms,
    Exchange,
    Job,
    Released,
    Try,
    Trying,
)
from redrive.core.redact import redact_headers, redact_url
from redrive.core.sign import Signer
from redrive.destinations.client import (
    CLIENT_HEADERS,
    Answer,
    BadHeader,
    Client,
    FailureKind,
    Request,
    Response,
    TransferError,
    build_head,
)

TERMS_TTL_S = 1.0  # an edit of an endpoint reaches running workers within this time
MAX_ENDPOINTS_CACHED = 10_000
JSON_TYPE = "application/json"

# What an event's own headers cannot change: the client's, and what this module writes.
_OURS = CLIENT_HEADERS | {"content-type", "user-agent"}
_OUR_PREFIXES = ("webhook-", "redrive-", "proxy-")

_CATEGORY = {
    FailureKind.TIMEOUT: Category.TIMEOUT,
    FailureKind.REFUSED_ADDRESS: Category.CONFIGURATION,
}


@dataclass(frozen=True, slots=True, repr=False)
class _Plan:
    """An endpoint made ready: everything that is the same for each of its deliveries. Secrets inside: no repr."""

    target: Target | None
    problem: str | None
    headers: tuple[tuple[str, str], ...]
    head: bytes
    names: frozenset[str]  # of the endpoint's own headers, in lower case
    signer: Signer
    all_until: datetime | None
    newest: Signer  # signs alone from all_until on
    ca_pem: str | None
    url: str
    request_headers: str | None
    loaded_at: float


class HttpDestination:
    def __init__(self, client: Client, book: EndpointBook, *, version: str) -> None:
        self._client = client
        self._book = book
        self._user_agent = f"Redrive/{version}"
        self._plans: dict[UUID, _Plan] = {}

    @property
    def queues(self) -> Sequence[str]:
        return (HTTP_QUEUE,)

    async def prepare(self, jobs: Sequence[Job]) -> None:
        """Look up the endpoints that are not known, or not known lately."""
        stale_before = time.monotonic() - TERMS_TTL_S
        wanted: dict[UUID, tuple[UUID, UUID]] = {}
        for job in jobs:
            endpoint_id = job.endpoint_id
            if endpoint_id is None or endpoint_id in wanted:
                continue
            plan = self._plans.get(endpoint_id)
            if plan is None or plan.loaded_at < stale_before:
                wanted[endpoint_id] = (job.org_id, endpoint_id)
        if not wanted:
            return
        if len(self._plans) > MAX_ENDPOINTS_CACHED:
            self._plans.clear()
            wanted = {job.endpoint_id: (job.org_id, job.endpoint_id) for job in jobs if job.endpoint_id is not None}
        for terms in await self._book.terms(list(wanted.values())):
            self._plans[terms.id] = self._plan(terms)

    def _plan(self, terms: EndpointTerms) -> _Plan:
        """What is wrong with one endpoint is said in its own plan: the batch has deliveries to others."""
        target, problem, head = None, terms.problem, b""
        if terms.deleted:
            problem = f"The endpoint {terms.name!r} was deleted."
        elif problem is None:
            try:
                head = self._fixed_head(terms.headers)
                target = parse_target(terms.url)
            except BadUrl as error:
                problem = f"The endpoint's URL cannot be used: {error}"
            except BadHeader as error:
                problem = f"The endpoint's headers cannot be sent: {error}"
        shown = redact_headers(dict(terms.headers)) if terms.headers else None
        return _Plan(
            target=target,
            problem=problem,
            headers=terms.headers,
            head=head,
            names=frozenset(name.lower() for name, _ in terms.headers),
            signer=Signer(terms.secrets),
            all_until=terms.all_until,
            newest=Signer(terms.secrets[:1]),
            ca_pem=terms.ca_pem,
            url=redact_url(terms.url),
            request_headers=dumps(shown) if shown else None,
            loaded_at=time.monotonic(),
        )

    async def attempt(self, job: Job, now: datetime) -> Try | Released:
        plan = self._plan_of(job)
        if plan is None or plan.target is None:
            return _impossible(plan)
        request = Request(plan.target, self._head(plan, job, now), job.body, ca_pem=plan.ca_pem)
        try:
            return _tried(plan, now, await self._client.send(request, timeout_s=job.timeout_s))
        except TransferError as error:
            return _tried(plan, now, error)

    def begin(self, job: Job, now: datetime, ended: Callable[[Try | Released], None]) -> Trying | Try | Released:
        """`attempt` without a task: the answer's arrival runs the rest."""
        plan = self._plan_of(job)
        if plan is None or plan.target is None:
            return _impossible(plan)
        request = Request(plan.target, self._head(plan, job, now), job.body, ca_pem=plan.ca_pem)
        try:
            return self._client.begin(request, timeout_s=job.timeout_s, ended=partial(_report, ended, plan, now))
        except TransferError as error:
            return _tried(plan, now, error)

    def _fixed_head(self, headers: Iterable[tuple[str, str]]) -> bytes:
        return build_head([("user-agent", self._user_agent), *headers])

    def _plan_of(self, job: Job) -> _Plan | None:
        plan = self._plans.get(job.endpoint_id) if job.endpoint_id else None
        if plan is None:
            return None
        if job.edited_headers is not None:
            plan = self._with_edited_headers(job.edited_headers, plan)
        if job.headers is None and job.content_type == JSON_TYPE:
            return plan
        return _with_headers_of(job, plan)

    def _with_edited_headers(self, edited: str, plan: _Plan) -> _Plan:
        """The plan for a job with headers that a person gave: they win over others of the same names."""
        own = [(name, value) for name, value in loads(edited).items() if not _is_ours(name.lower())]
        replaced = {name.lower() for name, _ in own}
        headers = (*(line for line in plan.headers if line[0].lower() not in replaced), *own)
        try:
            head = self._fixed_head(headers)
        except BadHeader as error:
            return replace(plan, target=None, problem=f"The edited headers cannot be sent: {error}")
        names = frozenset(name.lower() for name, _ in headers)
        return replace(
            plan, headers=headers, head=head, names=names, request_headers=dumps(redact_headers(dict(headers)))
        )

    def _head(self, plan: _Plan, job: Job, now: datetime) -> bytes:
        message_id = str(job.event_id)
        timestamp = int(now.timestamp())
        signer = plan.signer if plan.all_until is None or now < plan.all_until else plan.newest
        signature = signer.sign(message_id, timestamp, job.body)
        lines = (
            f"webhook-id: {message_id}\r\nwebhook-timestamp: {timestamp}\r\nwebhook-signature: {signature}\r\n"
            f"redrive-event-type: {_header_text(job.event_type)}\r\nredrive-attempt: {job.attempts + 1}\r\n"
            f"content-type: {_header_text(job.content_type)}\r\n"
        )
        if job.gap:
            lines += f"redrive-gap: {job.gap}\r\n"
        if job.out_of_order:
            lines += "redrive-out-of-order: true\r\n"
        return lines.encode("ascii") + plan.head

    async def aclose(self) -> None:
        await self._client.aclose()


def _is_ours(name: str) -> bool:
    return name in _OURS or name.startswith(_OUR_PREFIXES)


def _with_headers_of(job: Job, plan: _Plan) -> _Plan:
    """The plan for a job that brings headers of its own. Where the endpoint has one of the same name, that is sent."""
    try:
        given: dict[str, str] = loads(job.headers) if job.headers is not None else {}
        own = {
            name: value
            for name, value in given.items()
            if (lower := name.lower()) not in plan.names and not _is_ours(lower)
        }
        head = build_head(own.items())
    except BadHeader as error:
        return replace(plan, target=None, problem=f"The event's headers cannot be sent: {error}")
    shown = {"content-type": job.content_type, **redact_headers(own), **loads(plan.request_headers or "{}")}
    return replace(plan, head=head + plan.head, request_headers=dumps(shown))


def _impossible(plan: _Plan | None) -> Try:
    why = plan.problem if plan and plan.problem else "The task's endpoint does not exist."
    failure = Failure(Category.CONFIGURATION, why, steer=Steer.GIVE_UP)  # whatever the policy says of the class
    return Try(failure, Exchange(plan.url) if plan else NO_EXCHANGE)


def _report(ended: Callable[[Try | Released], None], plan: _Plan, now: datetime, answer: Answer) -> None:
    try:
        tried = _tried(plan, now, answer)
    except Exception as error:  # noqa: BLE001 - a bug of ours is a failed try, with its stack
        tried = Try(failure_of(error, traceback.format_exc()))
    ended(tried)


def _tried(plan: _Plan, now: datetime, answer: Answer) -> Try | Released:
    if isinstance(answer, Response):
        exchange = Exchange(
            plan.url,
            plan.request_headers,
            answer.status,
            _shown_headers(answer.headers),
            answer.body,
            answer.truncated or answer.body_error is not None,
        )
        return Try(_outcome(answer, now), exchange)
    if not isinstance(answer, TransferError):
        raise answer
    if answer.kind is FailureKind.BUSY:
        return Released(f"Not tried: {answer.message}.")
    category = _CATEGORY.get(answer.kind, Category.NETWORK)
    failure = Failure(category, answer.message, possible_duplicate=answer.sent)
    return Try(failure, Exchange(plan.url, plan.request_headers))


def _outcome(response: Response, now: datetime) -> Outcome:
    status = response.status
    category = classify_status(status)
    if category is None:
        return Success(status)
    asked = response.header(b"retry-after")
    return Failure(
        category,
        f"HTTP {status} {_phrase(status)}".rstrip(),
        status_code=status,
        retry_after=_retry_after(asked, response.header(b"date"), now) if asked else None,
    )


def _retry_after(asked: bytes, date: bytes | None, now: datetime) -> timedelta | None:
    """A date counts from the receiver's own clock, where it tells it: two clocks are one too many."""
    their_now = parse_http_date(date.decode("latin-1")) if date is not None else None
    return parse_retry_after(asked.decode("latin-1"), their_now or now)


@lru_cache(maxsize=1024)
def _shown_headers(headers: tuple[tuple[bytes, bytes], ...]) -> str | None:
    """Response headers as they are stored. Receivers repeat themselves: most answers are found in the cache."""
    shown = redact_headers({name.decode("latin-1"): value.decode("latin-1") for name, value in headers})
    return dumps(shown) if shown else None


@lru_cache(maxsize=1024)
def _header_text(text: str) -> str:
    """Text as a header value: visible ASCII stands for itself, anything else is percent-encoded."""
    return quote(text, safe=" !#$&'()*+,-./:;<=>?@[]^_`{|}~\"\\")


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
