"""Spans on their way to a collector: noted where things happen, for next to nothing; sent by a thread of their own.

Off unless a process was told where to send them (`sent_to`). What is noted is a tuple in a bounded queue; observe.otel,
which knows OpenTelemetry, makes spans of them in its thread. A collector that is gone costs spans, no delivery.
"""

import asyncio
import os
import random
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import Any, Literal, NamedTuple

import structlog

from redrive.core import trace

MAX_WAITING_SPANS = 8_192  # some 10 MB at most
BATCH_SPANS = 512
SEND_EVERY_S = 1.0
FLUSH_S = 2.0  # when the process ends: what is not sent by then is lost
EXTRA = "opentelemetry-sdk and its OTLP exporter"

Kind = Literal["server", "client", "producer", "consumer", "internal"]
Attributes = dict[str, str | int | float | bool]

log = structlog.get_logger("redrive.traces")


class TracesUnavailable(Exception):
    """Traces are asked for and cannot be had. The message says what to do."""


class Trouble(NamedTuple):
    """Why what a span tells of failed. The message was redacted when it was made."""

    type: str
    message: str


class Span(NamedTuple):
    """`traceparent` is its own: the trace, and its id. `behind`: the id of the span of the try before."""

    name: str
    kind: Kind
    traceparent: str
    parent_id: str | None
    began_ns: int
    ended_ns: int
    attributes: Attributes
    trouble: Trouble | None = None
    behind: str | None = None


class Entry(NamedTuple):
    """The context of something that is being handed in. `began_ns` is 0 where nobody traces it."""

    traceparent: str
    tracestate: str | None
    parent_id: str | None
    began_ns: int

    @property
    def headers(self) -> str:
        """As it is kept with an event that brings no headers of its own."""
        return trace.as_headers(self.traceparent, self.tracestate)


class _Sink:
    """What waits to be sent. Appending is safe from any thread."""

    def __init__(self) -> None:
        self.is_on = False
        self.share = 0.0
        self.waiting: deque[Any] = deque()  # Span, what makes one, or what OpenTelemetry itself made for a handler
        self.dropped = 0
        self.wanted = threading.Event()


_sink = _Sink()


def is_on() -> bool:
    return _sink.is_on


def dropped() -> int:
    """How many spans were lost since the process began: more came than could be sent, or nobody took them."""
    return _sink.dropped


def note(span: object) -> None:
    """A Span, or what makes one when it is called: by the thread that sends it, where it takes longer."""
    waiting = _sink.waiting
    if len(waiting) >= MAX_WAITING_SPANS:
        lose(1, "more of them wait than are kept")
        return
    waiting.append(span)
    if len(waiting) >= BATCH_SPANS and not _sink.wanted.is_set():
        _sink.wanted.set()


def take() -> list[Any]:
    """The oldest that wait, as many as are sent together."""
    waiting = _sink.waiting
    return [waiting.popleft() for _ in range(min(len(waiting), BATCH_SPANS))]


def lose(spans: int, why: str) -> None:
    """Said once, and counted from then on: what is lost is lost again and again while a collector is gone."""
    if not _sink.dropped:
        log.warning("spans_lost", why=why, spans=spans)
    _sink.dropped += spans


def wait_for_spans(within_s: float) -> None:
    """Until enough of them wait, or the time is over. For the thread that sends."""
    _sink.wanted.wait(within_s)
    _sink.wanted.clear()


def hurry() -> None:
    _sink.wanted.set()


# -- what is handed in -----------------------------------------------------------------------------------------------


def entry(traceparent: bytes | str | None, tracestate: bytes | str | None = None) -> Entry | None:
    """The context that something is handed in with, by what the caller sent; None: it has none.

    A caller's decision stands: what is sampled is followed, what is not never is. Without one a share is traced.
    """
    if traceparent is None:
        if not _sink.is_on or random.random() >= _sink.share:  # noqa: S311 (which ones are traced is no secret)
            return None
        return Entry(trace.context(_new_id(trace.TRACE_BYTES), new_span_id()), None, None, time.time_ns())
    came = trace.traceparent_of(_text(traceparent))
    if came is None:
        return entry(None)
    state = trace.tracestate_of(_text(tracestate))
    if not _sink.is_on or not trace.is_sampled(came):
        return Entry(came, state, None, 0)
    return Entry(trace.within(came, new_span_id()), state, trace.span_of(came), time.time_ns())


def handed_in(entered: Entry, attributes: Attributes, *, name: str = "accept", trouble: Trouble | None = None) -> None:
    """It is stored, or was refused: the first span of what we do with it."""
    if entered.began_ns:
        span = (entered.traceparent, entered.parent_id, entered.began_ns, time.time_ns(), attributes, trouble)
        note(Span(name, "server", *span))


def new_span_id() -> str:
    return _new_id(trace.SPAN_BYTES)


def _new_id(size: int) -> str:
    while True:
        made = os.urandom(size).hex()
        if int(made, 16):  # all zeros mean: none
            return made


def _text(given: bytes | str | None) -> str | None:
    return given.decode("latin-1") if isinstance(given, bytes) else given


# -- what a handler does ---------------------------------------------------------------------------------------------


def current(traceparent: str | None) -> AbstractContextManager[object]:
    """What a handler begins inside of this block is part of this trace. Also where Redrive itself does not trace."""
    if traceparent is None or "opentelemetry.trace" not in sys.modules:
        return nullcontext()
    from redrive.observe import otel_context

    return otel_context.current(traceparent)


def current_context() -> str | None:
    """The span that the code which asks is in, by OpenTelemetry; None: in none."""
    if "opentelemetry.trace" not in sys.modules:
        return None
    from redrive.observe import otel_context

    return otel_context.current_context()


# -- where they go ---------------------------------------------------------------------------------------------------


def require(endpoint: str | None) -> None:
    """TracesUnavailable where spans are to be sent and what sends them is not installed."""
    if endpoint is None:
        return
    try:
        import redrive.observe.otel  # noqa: F401
    except ModuleNotFoundError as missing:
        raise TracesUnavailable(
            f"Traces are to be sent (REDRIVE_OTEL_ENDPOINT), and {EXTRA} are not installed "
            f"(there is no module {missing.name}). Install redrive[otel], or unset it."
        ) from missing


@asynccontextmanager
async def sent_to(
    endpoint: str | None,
    *,
    share: float,
    service: str,
    version: str,
    facts: Mapping[str, str] | None = None,
    for_handlers: bool = False,
) -> AsyncIterator[None]:
    """While this block runs, what is noted is sent there; what is left at its end, within FLUSH_S. None: nowhere.

    `for_handlers`: what handlers trace themselves, too.
    """
    if endpoint is None:
        yield
        return
    require(endpoint)
    from redrive.observe import otel

    sending = otel.start(endpoint, service=service, version=version, facts=facts or {}, for_handlers=for_handlers)
    _sink.is_on, _sink.share = True, share
    try:
        yield
    finally:
        _sink.is_on = False
        await asyncio.to_thread(sending.stop, FLUSH_S)
        if _sink.dropped:
            log.warning("spans_lost_in_all", spans=_sink.dropped)
