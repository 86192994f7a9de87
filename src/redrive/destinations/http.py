"""Deliveries over HTTP: one signed POST of the stored bytes to an endpoint, and what its answer means.

Called by engine.worker; sends through destinations.client, which guards the connection itself.
"""

import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache, partial
from json import dumps, loads

from redrive.core.address import BadUrl, Target, parse_target
from redrive.core.channels import notice_queue
from redrive.core.classify import MAX_STACK_CHARS, failure_of
from redrive.core.outcome import Category, Failure, Outcome, Success
from redrive.core.ports import (
    HTTP_QUEUE,
    EndpointBook,
    EndpointTerms,
    Exchange,
    Job,
    Released,
    Try,
    Trying,
)
from redrive.core.redact import redact_headers, redact_text, redact_url
from redrive.core.trace import CONTEXT_HEADERS, is_bare
from redrive.destinations.answers import impossible, outcome_of, shown_headers
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
from redrive.destinations.plans import Plans, Seal, context_headers, header_text, order_headers

JSON_TYPE = "application/json"

# What an event's own headers cannot change: the client's, and what this module writes.
_OURS = CLIENT_HEADERS | CONTEXT_HEADERS | {"content-type", "user-agent"}
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
    seal: Seal
    ca_pem: str | None
    url: str
    request_headers: str | None


class HttpDestination:
    def __init__(self, client: Client, book: EndpointBook, *, version: str) -> None:
        self._client = client
        self._user_agent = f"Redrive/{version}"
        self._plans = Plans(book, self._plan)

    @property
    def queues(self) -> Sequence[str]:
        return (HTTP_QUEUE, notice_queue(HTTP_QUEUE))

    async def prepare(self, jobs: Sequence[Job]) -> None:
        await self._plans.prepare(jobs)

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
            seal=Seal.of(terms),
            ca_pem=terms.ca_pem,
            url=redact_url(terms.url),
            request_headers=dumps(shown) if shown else None,
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
        plan = self._plans.of(job)
        if plan is None:
            return None
        if job.edited_headers is not None:
            plan = self._with_edited_headers(job.edited_headers, plan)
        if job.content_type == JSON_TYPE and (job.headers is None or is_bare(job.headers)):
            return plan
        return _with_headers_of(job, plan)

    def _with_edited_headers(self, edited: str, plan: _Plan) -> _Plan:
        """The plan for a job with headers that a person gave: they win over others of the same names."""
        own = [
            (name, value)
            for name, value in loads(edited).items()
            if (lower := name.lower()) in CONTEXT_HEADERS or not _is_ours(lower)
        ]
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
        signature = plan.seal.at(now).sign(message_id, timestamp, job.body)
        lines = (
            f"webhook-id: {message_id}\r\nwebhook-timestamp: {timestamp}\r\nwebhook-signature: {signature}\r\n"
            f"redrive-event-type: {header_text(job.event_type)}\r\nredrive-attempt: {job.attempts + 1}\r\n"
            f"content-type: {header_text(job.content_type)}\r\n"
        )
        if job.lane is not None:
            lines += "".join(f"{name}: {value}\r\n" for name, value in order_headers(job).items())
        if job.correlation_id is not None or job.headers is not None:
            lines += "".join(f"{name}: {value}\r\n" for name, value in context_headers(job, plan.names).items())
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
    return impossible(plan.problem if plan else None, plan.url if plan else None)


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
            shown_response_headers(answer.headers),
            answer.body,
            answer.truncated or answer.body_error is not None,
        )
        return Try(outcome_of_response(answer, now), exchange)
    return failed_transfer(answer, Exchange(plan.url, plan.request_headers))


def failed_transfer(error: Exception, exchange: Exchange) -> Try | Released:
    """What follows where no answer came. Used for steps of workflows, too."""
    if not isinstance(error, TransferError):
        raise error
    if error.kind is FailureKind.BUSY:
        return Released(f"Not tried: {error.message}.")
    category = _CATEGORY.get(error.kind, Category.NETWORK)
    stack = redact_text(error.stack, MAX_STACK_CHARS) if error.stack is not None else None
    return Try(Failure(category, error.message, stack=stack, possible_duplicate=error.sent), exchange)


def outcome_of_response(response: Response, now: datetime) -> Outcome:
    outcome = outcome_of(response.status, _header(response, b"retry-after"), _header(response, b"date"), now)
    # Nothing in it comes from the receiver: there is nothing to redact, which would take as long as all the rest.
    return outcome if isinstance(outcome, Success) else replace(outcome, stack=response.stack)


def _header(response: Response, name: bytes) -> str | None:
    value = response.header(name)
    return value.decode("latin-1") if value is not None else None


@lru_cache(maxsize=1024)
def shown_response_headers(headers: tuple[tuple[bytes, bytes], ...]) -> str | None:
    """Receivers repeat themselves: most answers are found in the cache."""
    return shown_headers({name.decode("latin-1"): value.decode("latin-1") for name, value in headers})
