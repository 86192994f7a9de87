"""Spans as OpenTelemetry has them, sent to a collector by OTLP over HTTP. The only module that knows its SDK, which the
extra `otel` installs. Loaded by observe.traces where it is needed.

One thread makes spans of what was noted and sends them. Whatever a handler traces with OpenTelemetry goes the same way,
unless its program has set up a provider of its own.
"""

import logging
import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import structlog
from opentelemetry import trace as api
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from redrive.core import trace
from redrive.observe import traces
from redrive.observe.otel_context import span_context
from redrive.observe.traces import SEND_EVERY_S, Span

TRACES_PATH = "/v1/traces"
SEND_TIMEOUT_S = 5.0  # of a batch, its repetitions included
NAMED = "OTEL_SERVICE_NAME"  # the standard's own variables come first
DESCRIBED = "OTEL_RESOURCE_ATTRIBUTES"

_KINDS = {
    "server": SpanKind.SERVER,
    "client": SpanKind.CLIENT,
    "producer": SpanKind.PRODUCER,
    "consumer": SpanKind.CONSUMER,
    "internal": SpanKind.INTERNAL,
}
_FINE = Status(StatusCode.UNSET)

log = structlog.get_logger("redrive.traces")


def start(
    endpoint: str, *, service: str, version: str, facts: Mapping[str, str], for_handlers: bool = False
) -> "Sending":
    """Begin to send what is noted. `endpoint` is the collector's base address, as the standard has it.

    `for_handlers`: what others trace in this process is sent, too. Not in the API's, where libraries would trace on
    their own what we trace.
    """
    # It says again and again that nobody is there, with the address and all that stands in it; we say it once.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    address = endpoint.rstrip("/")
    exporter = OTLPSpanExporter(
        address if address.endswith(TRACES_PATH) else address + TRACES_PATH, timeout=SEND_TIMEOUT_S
    )
    resource = _resource(service, version, facts)
    sending = Sending(exporter, resource, version)
    if for_handlers and not isinstance(api.get_tracer_provider(), TracerProvider):
        provider = TracerProvider(sampler=ParentBased(ALWAYS_OFF), resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(_Noting())
        api.set_tracer_provider(provider)
    sending.start()
    return sending


class Sending:
    """The thread that sends. It dies with the process: what it has not sent by then is lost."""

    def __init__(self, exporter: OTLPSpanExporter, resource: Resource, version: str) -> None:
        self._exporter = exporter
        self._resource = resource
        self._scope = InstrumentationScope("redrive", version)
        self._thread = threading.Thread(target=self._run, name="redrive-traces", daemon=True)
        self._stopping = threading.Event()
        self._is_down = False
        self._is_given_up = False  # what is under way was counted as lost
        self._under_way = 0  # spans that the collector has not answered for yet

    def start(self) -> None:
        self._thread.start()

    def stop(self, within_s: float) -> None:
        """Send what waits, for so long; then no more."""
        until = time.monotonic() + within_s
        self._stopping.set()
        traces.hurry()
        self._thread.join(within_s)
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # breaks off what it still tries
        self._thread.join(max(0.0, until - time.monotonic()))
        if self._thread.is_alive():
            self._is_given_up = True
            traces.lose(self._under_way, "the process ended before they were sent")
        while left := traces.take():
            traces.lose(len(left), "the process ended before they were sent")

    def _run(self) -> None:
        while True:
            stopping = self._stopping.is_set()
            noted: Sequence[Any] = ()
            # Once given up, what waits belongs to whoever sends after this one.
            while not self._is_given_up and (noted := traces.take()) and not (stopping and self._is_down):
                self._send(noted)
                noted = ()
            if noted:
                traces.lose(len(noted), "the collector did not take them")
            if stopping:
                return
            traces.wait_for_spans(SEND_EVERY_S)

    def _send(self, noted: Sequence[Any]) -> None:
        why = "the collector did not take them"
        spans = []
        for one in noted:
            try:
                spans.append(self._made(one))
            except Exception as error:  # noqa: BLE001 - of a bug in one, the others tell nothing
                traces.lose(1, f"{type(error).__name__} when it was made")
        if not spans:
            return
        self._under_way = len(spans)
        try:
            result = self._exporter.export(spans)
        except Exception as error:  # noqa: BLE001 - whatever it is, the thread goes on: nothing depends on a span
            result, why = SpanExportResult.FAILURE, type(error).__name__
        if result is SpanExportResult.SUCCESS:
            if self._is_down:
                log.info("spans_sent_again", lost=traces.dropped())
            self._is_down = False
            return
        self._is_down = True
        if not self._is_given_up:
            traces.lose(len(spans), why)

    def _made(self, noted: Any) -> ReadableSpan:
        """Of what we noted; what a handler made itself is one already."""
        if isinstance(noted, ReadableSpan):
            return noted
        return self._span(noted if isinstance(noted, Span) else noted())

    def _span(self, noted: Span) -> ReadableSpan:
        own = span_context(noted.traceparent, trace.span_of(noted.traceparent), is_remote=False)
        trouble = noted.trouble
        told = {"exception.type": trouble.type, "exception.message": trouble.message} if trouble else {}
        return ReadableSpan(
            noted.name,
            context=own,
            parent=span_context(noted.traceparent, noted.parent_id, is_remote=True) if noted.parent_id else None,
            resource=self._resource,
            attributes=noted.attributes,
            events=[Event("exception", told, noted.ended_ns)] if trouble else (),
            links=[Link(span_context(noted.traceparent, noted.behind, is_remote=True))] if noted.behind else (),
            kind=_KINDS[noted.kind],
            status=Status(StatusCode.ERROR, trouble.message) if trouble else _FINE,
            start_time=noted.began_ns,
            end_time=noted.ended_ns,
            instrumentation_scope=self._scope,
        )


class _Noting(SpanProcessor):
    """Spans that handlers made themselves wait with ours."""

    def on_end(self, span: ReadableSpan) -> None:
        if traces.is_on() and span.context is not None and span.context.trace_flags.sampled:
            traces.note(span)


def _resource(service: str, version: str, facts: Mapping[str, str]) -> Resource:
    told = {"service.version": version, "service.instance.id": f"{socket.gethostname()}:{os.getpid()}", **facts}
    if not os.environ.get(NAMED) and "service.name" not in os.environ.get(DESCRIBED, ""):
        told["service.name"] = service
    return Resource.create(told)
