"""Tries as spans: one for each that is traced, with what it met. Called by engine.tries.

Names as OpenTelemetry's semantic conventions have them, and `redrive.*` where they have none. URLs and messages come
here redacted; no payload and no header does.
"""

import time
from urllib.parse import urlsplit

from redrive.core.broker import RABBITMQ_QUEUE, RETURN_QUEUE
from redrive.core.outcome import Failure
from redrive.core.ports import HANDLER_QUEUE_PREFIX, STEP_HANDLER_PREFIX, STEP_QUEUE, Job, Try
from redrive.core.trace import context_of, is_sampled, span_of, span_of_try, within
from redrive.observe import traces
from redrive.observe.traces import Attributes, Kind, Span, Trouble


def tell_try(job: Job, tried: Try, took_s: float) -> None:
    """Note a try that has just ended, if its trace is kept."""
    came = context_of(job)
    if came is None or not is_sampled(came):
        return
    ended_ns = time.time_ns()
    attempt = job.attempts + 1
    outcome = tried.outcome
    failed = isinstance(outcome, Failure)
    attributes = _facts(job, attempt) | _sent(job, tried)
    trouble = None
    if failed:
        assert isinstance(outcome, Failure)
        attributes["error.type"] = str(outcome.status_code or outcome.category.value)
        trouble = Trouble(outcome.category.value, outcome.message)
    traces.note(
        Span(
            "deliver",
            _kind(job.queue),
            within(came, span_of_try(job, attempt)),
            span_of(came),
            ended_ns - int(took_s * 1e9),
            ended_ns,
            attributes,
            trouble,
            span_of_try(job, job.attempts)
            if job.attempts > bool(job.generation)
            else None,  # a redrive begins behind one
        )
    )


def _facts(job: Job, attempt: int) -> Attributes:
    facts: Attributes = {
        "messaging.system": "rabbitmq" if job.queue in (RABBITMQ_QUEUE, RETURN_QUEUE) else "redrive",
        "messaging.operation.type": "process" if _kind(job.queue) == "consumer" else "send",
        "messaging.operation.name": "deliver",
        "messaging.destination.name": job.queue,
        "messaging.message.id": str(job.event_id),
        "messaging.message.body.size": len(job.body),
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


def _sent(job: Job, tried: Try) -> Attributes:
    exchange = tried.exchange
    told: Attributes = {}
    if exchange.url is not None:
        told["url.full"] = exchange.url
        where = urlsplit(exchange.url)
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
