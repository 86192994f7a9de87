"""Tries as spans: one for each that is traced, with what it met. Called by engine.tries.

Names as OpenTelemetry's semantic conventions have them, and `redrive.*` where they have none. URLs and messages come
here redacted; no payload and no header does.
"""

import time
from typing import NamedTuple
from urllib.parse import urlsplit

from redrive.core.broker import RABBITMQ_QUEUE, RETURN_QUEUE
from redrive.core.outcome import Failure, Outcome
from redrive.core.ports import HANDLER_QUEUE_PREFIX, STEP_HANDLER_PREFIX, STEP_QUEUE, Exchange, Job, Try
from redrive.core.trace import context_of, is_sampled, span_of, span_of_try, within
from redrive.observe import traces
from redrive.observe.traces import Attributes, Kind, Span, Trouble


class Told(NamedTuple):
    """A try that has ended, without what it sent and got: the thread that sends spans makes one of it."""

    job: Job
    came: str
    size_bytes: int
    outcome: Outcome
    exchange: Exchange
    began_ns: int
    ended_ns: int

    def __call__(self) -> Span:
        job, outcome = self.job, self.outcome
        attempt = job.attempts + 1
        attributes = _facts(job, attempt) | _sent(job, self.exchange)
        attributes["messaging.message.body.size"] = self.size_bytes
        trouble = None
        if isinstance(outcome, Failure):
            attributes["error.type"] = str(outcome.status_code or outcome.category.value)
            trouble = Trouble(outcome.category.value, outcome.message)
        return Span(
            "deliver",
            _kind(job.queue),
            within(self.came, span_of_try(job, attempt)),
            span_of(self.came),
            self.began_ns,
            self.ended_ns,
            attributes,
            trouble,
            span_of_try(job, job.attempts)
            if job.attempts > (job.generation > 0 and job.run_id is None)
            else None,  # a redrive begins behind one
        )


def tell_try(job: Job, tried: Try, took_s: float) -> None:
    """Note a try that has just ended, if its trace is kept."""
    came = context_of(job)
    if came is None or not is_sampled(came):
        return
    ended_ns = time.time_ns()
    exchange = tried.exchange
    bare = Exchange(exchange.url, status_code=exchange.status_code, method=exchange.method)
    # Without bodies and headers: thousands may wait, and a collector that is gone must not cost memory.
    light = job._replace(body=b"", headers=None, edited_headers=None)
    traces.note(Told(light, came, len(job.body), tried.outcome, bare, ended_ns - int(took_s * 1e9), ended_ns))


def _facts(job: Job, attempt: int) -> Attributes:
    facts: Attributes = {
        "messaging.system": "rabbitmq" if job.queue in (RABBITMQ_QUEUE, RETURN_QUEUE) else "redrive",
        "messaging.operation.type": "process" if _kind(job.queue) == "consumer" else "send",
        "messaging.operation.name": "deliver",
        "messaging.destination.name": job.queue,
        "messaging.message.id": str(job.event_id),
        "redrive.org_id": str(job.org_id),
        "redrive.event_id": str(job.event_id),
        "redrive.event_type": job.event_type,
        "redrive.task_id": str(job.id),
        "redrive.attempt": attempt,
        "redrive.generation": job.generation,
    }
    if job.correlation_id is not None:
        facts["messaging.message.conversation_id"] = job.correlation_id
    if job.endpoint_id is not None:
        facts["redrive.endpoint_id"] = str(job.endpoint_id)
    if job.run_id is not None and job.step is not None:
        facts |= {"redrive.run_id": str(job.run_id), "redrive.step_index": job.step}
    return facts


def _sent(job: Job, exchange: Exchange) -> Attributes:
    told: Attributes = {}
    if exchange.url is not None:
        told["url.full"] = exchange.url
        try:
            where = urlsplit(exchange.url)
        except ValueError:  # no URL at all, or so redacted that it is none
            where = urlsplit("")
        if where.hostname:
            told["server.address"] = where.hostname
            port = _port(where.netloc, where.scheme)
            if port is not None:
                told["server.port"] = port
        if where.scheme in ("http", "https"):
            told["http.request.method"] = exchange.method or "POST"
            if job.attempts:
                told["http.request.resend_count"] = job.attempts
    if exchange.status_code is not None:
        told["http.response.status_code"] = exchange.status_code
    return told


def _port(netloc: str, scheme: str) -> int | None:
    tail = netloc.rpartition("@")[2].rpartition(":")[2]
    if tail.isdecimal():
        return int(tail)
    return {"http": 80, "https": 443}.get(scheme)


def _kind(queue: str) -> Kind:
    if queue.startswith((HANDLER_QUEUE_PREFIX, STEP_HANDLER_PREFIX)):
        return "consumer"
    if queue == STEP_QUEUE:
        return "internal"
    return "producer" if queue in (RABBITMQ_QUEUE, RETURN_QUEUE) else "client"
