"""Steps of workflows that call somebody over HTTP: the rendered request, and what its answer means.

Called by engine.worker; sends through destinations.client, which guards the connection itself. Every try carries the
step's idempotency key, by which a receiver acts once however often it is called.
"""

import traceback
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from json import dumps, loads
from typing import NamedTuple

from redrive.core.address import BadUrl, Target, parse_target
from redrive.core.classify import failure_of
from redrive.core.outcome import Category, Failure, Outcome, Steer, Success
from redrive.core.ports import HTTP_STEP_QUEUE, EndpointBook, EndpointTerms, Exchange, Job, Released, Try, Trying
from redrive.core.redact import redact_headers, redact_url
from redrive.core.step_ports import StepBook, StepTerms
from redrive.core.steps import MAX_OUTPUT_BYTES
from redrive.core.url_template import leads_to_its_place
from redrive.destinations.answers import impossible
from redrive.destinations.client import Answer, BadHeader, Client, Request, Response, build_head
from redrive.destinations.client import TransferError as Broken
from redrive.destinations.http import failed_transfer, outcome_of_response, shown_response_headers
from redrive.destinations.plans import Plans, Seal, context_headers, header_text
from redrive.destinations.steps import UNREADABLE, Known, not_to_be_tried, output_problem

JSON_TYPE = "application/json"


class _Endpoint(NamedTuple):
    terms: EndpointTerms
    seal: Seal

    def __repr__(self) -> str:
        return f"_Endpoint({self.terms!r})"


class _Call(NamedTuple):
    """One request, and how it is shown."""

    request: Request
    terms: StepTerms
    url: str
    headers: str

    def __repr__(self) -> str:
        return f"_Call({self.terms!r})"


class StepCalls:
    def __init__(self, client: Client, book: EndpointBook, steps: StepBook, *, version: str) -> None:
        self._client = client
        self._plans = Plans(book, lambda terms: _Endpoint(terms, Seal.of(terms)))
        self._known = Known(steps)
        self._user_agent = f"Redrive/{version}"

    @property
    def queues(self) -> Sequence[str]:
        return (HTTP_STEP_QUEUE,)

    async def prepare(self, jobs: Sequence[Job]) -> None:
        await self._known.prepare(jobs)
        await self._plans.prepare(jobs)

    async def attempt(self, job: Job, now: datetime) -> Try | Released:
        call = self._call(job, now)
        if not isinstance(call, _Call):
            return call
        try:
            return _tried(call, now, await self._client.send(call.request, timeout_s=job.timeout_s))
        except Broken as error:
            return _tried(call, now, error)

    def begin(self, job: Job, now: datetime, ended: Callable[[Try | Released], None]) -> Trying | Try | Released:
        """`attempt` without a task: the answer's arrival runs the rest."""
        call = self._call(job, now)
        if not isinstance(call, _Call):
            return call
        try:
            return self._client.begin(call.request, timeout_s=job.timeout_s, ended=partial(_report, ended, call, now))
        except Broken as error:
            return _tried(call, now, error)

    async def aclose(self) -> None:
        await self._client.aclose()

    def _call(self, job: Job, now: datetime) -> _Call | Try | Released:
        terms = self._known.take(job)
        if terms is None:
            return UNREADABLE
        instead = not_to_be_tried(terms)
        if instead is not None:
            return instead
        endpoint = self._plans.of(job)
        if job.endpoint_id is not None:
            problem = _problem_of(endpoint)
            if problem is not None or endpoint is None:
                return impossible(problem, None)
        url = terms.url if endpoint is None else endpoint.terms.url
        if url is None:
            return impossible("The step has no URL.", None)
        shown_url = redact_url(url)
        try:
            target: Target = parse_target(url)
            if endpoint is None and not leads_to_its_place(terms.spec.url or "", target):
                return impossible("The step's URL leads elsewhere than its definition says.", shown_url)
            given = _given_headers(job, terms, endpoint)
            head = build_head([*self._ours(job, terms, endpoint, now), *given.items()])
        except BadUrl as error:
            return impossible(f"The step's URL cannot be used: {error}", shown_url)
        except BadHeader as error:
            return _invalid(f"The step's headers cannot be sent: {error}", shown_url)
        ca_pem = endpoint.terms.ca_pem if endpoint is not None else None
        request = Request(target, head, job.body, terms.spec.method, ca_pem)
        shown = {"idempotency-key": terms.idempotency_key, **redact_headers(given)}
        return _Call(request, terms, shown_url, dumps(shown))

    def _ours(self, job: Job, terms: StepTerms, endpoint: _Endpoint | None, now: datetime) -> Iterable[tuple[str, str]]:
        attempt = job.attempts + 1
        yield "user-agent", self._user_agent
        yield "idempotency-key", terms.idempotency_key
        yield from context_headers(job).items()
        yield "redrive-run-id", str(terms.run_id)
        yield "redrive-event-type", header_text(job.event_type)
        yield "redrive-attempt", str(attempt)
        if endpoint is not None:
            timestamp = int(now.timestamp())
            yield "webhook-id", terms.idempotency_key
            yield "webhook-timestamp", str(timestamp)
            yield "webhook-signature", endpoint.seal.at(now).sign(terms.idempotency_key, timestamp, job.body)


def _problem_of(endpoint: _Endpoint | None) -> str | None:
    if endpoint is None:
        return "The step's endpoint does not exist."
    if endpoint.terms.deleted:
        return f"The endpoint {endpoint.terms.name!r} was deleted."
    return endpoint.terms.problem


def _given_headers(job: Job, terms: StepTerms, endpoint: _Endpoint | None) -> dict[str, str]:
    """What people said should go out: the step's own win over the endpoint's."""
    own = {**terms.spec.literal_headers, **loads(terms.rendered_headers(job))}
    names = {name.lower() for name in own}
    given = {name: value for name, value in endpoint.terms.headers if name.lower() not in names} if endpoint else {}
    if job.body and "content-type" not in names | {name.lower() for name in given}:
        given["content-type"] = JSON_TYPE
    return given | own


def _report(ended: Callable[[Try | Released], None], call: _Call, now: datetime, answer: Answer) -> None:
    try:
        tried = _tried(call, now, answer)
    except Exception as error:  # noqa: BLE001 - a bug of ours is a failed try, with its stack
        tried = Try(failure_of(error, traceback.format_exc()))
    ended(tried)


def _tried(call: _Call, now: datetime, answer: Answer) -> Try | Released:
    if not isinstance(answer, Response):
        return failed_transfer(answer, Exchange(call.url, call.headers, method=call.request.method))
    is_cut = answer.truncated or answer.body_error is not None
    exchange = Exchange(
        call.url,
        call.headers,
        answer.status,
        shown_response_headers(answer.headers),
        answer.body,
        is_cut,
        call.request.method,
    )
    outcome = _outcome(call.terms, answer, now)
    if not isinstance(outcome, Success):
        return Try(outcome, exchange)
    output = b"" if is_cut else _output(answer.body)
    is_lost = is_cut or len(output) > MAX_OUTPUT_BYTES
    return Try(outcome, exchange, None if is_lost else output, is_lost)


def _outcome(terms: StepTerms, answer: Response, now: datetime) -> Outcome:
    if terms.spec.expects(answer.status):
        return Success(answer.status)
    outcome = outcome_of_response(answer, now)
    if isinstance(outcome, Failure):
        return outcome
    expected = ", ".join(map(str, terms.spec.expected_status))
    message = f"HTTP {answer.status} was answered where {expected} was expected."
    return Failure(Category.VALIDATION, message, status_code=answer.status)


def _output(body: bytes) -> bytes:
    """An answer as later steps see it: JSON as it came, but for a mark that some servers put before it; anything else
    as text.
    """
    body = body.removeprefix(BOM_UTF8)
    if not body:
        return b"null"
    if output_problem(body) is None:
        return body
    return dumps(body.decode("utf-8", "replace"), ensure_ascii=False).encode()


def _invalid(why: str, url: str) -> Try:
    return Try(Failure(Category.VALIDATION, why, steer=Steer.GIVE_UP), Exchange(url))
