"""Endpoints made ready for deliveries, remembered for a moment; and who signs. Used by the destinations of webhooks."""

import time
from collections.abc import Callable, Container, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar
from urllib.parse import quote
from uuid import UUID

from redrive.core.ports import EndpointBook, EndpointTerms, Job
from redrive.core.sign import Signer
from redrive.core.trace import CORRELATION, TRACEPARENT, TRACESTATE, kept_state, passed_on
from redrive.observe import traces

TERMS_TTL_S = 1.0  # an edit of an endpoint reaches running workers within this time
MAX_ENDPOINTS_CACHED = 10_000

P = TypeVar("P")


class Plans(Generic[P]):
    """What `make` makes of an endpoint: everything that is the same for each of its deliveries."""

    def __init__(self, book: EndpointBook, make: Callable[[EndpointTerms], P]) -> None:
        self._book = book
        self._make = make
        self._plans: dict[UUID, tuple[P, float]] = {}

    async def prepare(self, jobs: Sequence[Job]) -> None:
        """Look up the endpoints that are not known, or not known lately."""
        stale_before = time.monotonic() - TERMS_TTL_S
        wanted: dict[UUID, tuple[UUID, UUID]] = {}
        for job in jobs:
            endpoint_id = job.endpoint_id
            if endpoint_id is None or endpoint_id in wanted:
                continue
            known = self._plans.get(endpoint_id)
            if known is None or known[1] < stale_before:
                wanted[endpoint_id] = (job.org_id, endpoint_id)
        if not wanted:
            return
        if len(self._plans) > MAX_ENDPOINTS_CACHED:
            self._plans.clear()
            wanted = {job.endpoint_id: (job.org_id, job.endpoint_id) for job in jobs if job.endpoint_id is not None}
        for terms in await self._book.terms(list(wanted.values())):
            self._plans[terms.id] = (self._make(terms), time.monotonic())

    def of(self, job: Job) -> P | None:
        """None where there is no such endpoint."""
        known = self._plans.get(job.endpoint_id) if job.endpoint_id is not None else None
        return known[0] if known is not None else None


class Seal(NamedTuple):
    """Who signs an endpoint's deliveries. Secrets inside: no repr."""

    signer: Signer
    all_until: datetime | None
    newest: Signer  # signs alone from all_until on

    @classmethod
    def of(cls, terms: EndpointTerms) -> "Seal":
        return cls(Signer(terms.secrets), terms.all_until, Signer(terms.secrets[:1]))

    def at(self, now: datetime) -> Signer:
        return self.signer if self.all_until is None or now < self.all_until else self.newest

    def __repr__(self) -> str:
        return "Seal()"


@lru_cache(maxsize=1024)
def header_text(text: str) -> str:
    """Text as a header value: visible ASCII stands for itself, anything else is percent-encoded."""
    return quote(text, safe=" !#$&'()*+,-./:;<=>?@[]^_`{|}~\"\\")


def context_headers(job: Job, given: Container[str] = ()) -> dict[str, str]:
    """What tells a receiver whose request it goes back to, and in which trace: but for what an endpoint has of its own.

    `given`: the names of those, in lower case.
    """
    told: dict[str, str] = {}
    correlation_id = job.correlation_id
    if correlation_id is not None and CORRELATION not in given:
        is_plain = correlation_id.isascii() and correlation_id.isalnum()  # those that we make: no need to look further
        told[CORRELATION] = correlation_id if is_plain else header_text(correlation_id)
    if (job.headers is None and job.run_id is None) or TRACEPARENT in given:
        return told
    traceparent = passed_on(job, tracing=traces.is_on())
    if traceparent is not None:
        told[TRACEPARENT] = traceparent
        if job.run_id is None and (state := kept_state(job.headers)) is not None:
            told[TRACESTATE] = state
    return told


def order_headers(job: Job) -> dict[str, str]:
    """What a receiver is told of a task that must stay in order: what is missing before it, and that it comes late."""
    told = {"redrive-gap": str(job.gap)} if job.gap else {}
    return told | {"redrive-out-of-order": "true"} if job.out_of_order else told
