"""Where code is in a trace, by OpenTelemetry: for programs that use it, whether Redrive traces or not. Its interface
only, which every such program has. Loaded by observe.traces in processes that have loaded OpenTelemetry themselves.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import context as contexts
from opentelemetry import trace as api
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from redrive.core import trace


@contextmanager
def current(traceparent: str) -> Iterator[None]:
    """Spans that are begun inside of this block are children of this one."""
    span = NonRecordingSpan(span_context(traceparent, trace.span_of(traceparent), is_remote=False))
    token = contexts.attach(api.set_span_in_context(span))
    try:
        yield
    finally:
        contexts.detach(token)


def current_context() -> str | None:
    """The span that the code which asks is in; None: in none."""
    found = api.get_current_span().get_span_context()
    if not found.is_valid:
        return None
    return trace.context(f"{found.trace_id:032x}", f"{found.span_id:016x}", sampled=found.trace_flags.sampled)


def span_context(traceparent: str, span_id: str, *, is_remote: bool) -> SpanContext:
    flags = TraceFlags(int(traceparent[-2:], 16))
    return SpanContext(int(trace.trace_of(traceparent), 16), int(span_id, 16), is_remote, flags)
