"""Trace context (W3C): one trace from the request that hands an event in, or begins a run, to its last try. Pure.

The context is kept with the event, among the headers that are sent with it, or with the run. The id of a try's span is
made of the try: whoever sends it and whoever tells of it say the same without speaking with each other.
"""

import re
from collections.abc import Mapping
from hashlib import blake2b
from json import dumps, loads
from typing import Final

from redrive.core.ports import Job
from redrive.core.run_states import schedule_id

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
CORRELATION: Final = "x-correlation-id"
CONTEXT_HEADERS: Final = frozenset({TRACEPARENT, TRACESTATE, CORRELATION})
MAX_TRACESTATE_CHARS = 512
SPAN_BYTES = 8
TRACE_BYTES = 16
NO_SPAN = "0" * 16

_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_TRACESTATE = re.compile(r"[ -~]{1,512}")
# Headers that hold a context and nothing else are read without a parser: most of those that there are.
_BARE_START = '{"traceparent":"'
_BARE_END = '"}'
_BARE_CHARS = len(_BARE_START) + 55 + len(_BARE_END)


def traceparent_of(given: str | None) -> str | None:
    """What a caller sent, where it can be used."""
    found = _TRACEPARENT.fullmatch(given.strip()) if given is not None else None
    if found is None or not int(found[1], 16) or not int(found[2], 16):
        return None
    return found[0]


def tracestate_of(given: str | None) -> str | None:
    """What a caller sent beside a context that can be used; it says something to others, never to us."""
    return given if given is not None and _TRACESTATE.fullmatch(given) else None


def is_sampled(traceparent: str) -> bool:
    return bool(int(traceparent[-2:], 16) & 1)


def context(trace_id: str, span_id: str, *, sampled: bool = True) -> str:
    return f"00-{trace_id}-{span_id}-{'01' if sampled else '00'}"


def within(parent: str, span_id: str) -> str:
    """The same trace, at another span."""
    return f"{parent[:36]}{span_id}{parent[52:]}"


def trace_of(traceparent: str) -> str:
    return traceparent[3:35]


def span_of(traceparent: str) -> str:
    return traceparent[36:52]


# -- as it is kept ---------------------------------------------------------------------------------------------------


def as_headers(traceparent: str, tracestate: str | None = None) -> str:
    """To be kept with an event that brings no other headers."""
    if tracestate is None:
        return f"{_BARE_START}{traceparent}{_BARE_END}"
    return as_text({TRACEPARENT: traceparent, TRACESTATE: tracestate})


def as_text(headers: Mapping[str, str]) -> str:
    """In the one form in which headers are kept: the same ones are the same text."""
    return dumps(headers, separators=(",", ":"), ensure_ascii=False)


def is_bare(headers: str) -> bool:
    """Whether a context is all that there is among these."""
    return len(headers) == _BARE_CHARS and headers.startswith(_BARE_START)


def kept_context(headers: str | None) -> str | None:
    """The context among an event's headers."""
    if headers is None:
        return None
    if is_bare(headers):
        return traceparent_of(headers[len(_BARE_START) : -len(_BARE_END)])
    return traceparent_of(loads(headers).get(TRACEPARENT)) if TRACEPARENT in headers else None


def kept_state(headers: str | None) -> str | None:
    if headers is None or TRACESTATE not in headers:
        return None
    return tracestate_of(loads(headers).get(TRACESTATE))


def with_context(headers: Mapping[str, str], traceparent: str | None, tracestate: str | None = None) -> dict[str, str]:
    """These headers with this context and no other, which stands behind them."""
    own = {name: value for name, value in headers.items() if name.lower() not in (TRACEPARENT, TRACESTATE)}
    if traceparent is not None:
        own[TRACEPARENT] = traceparent
        if tracestate is not None:
            own[TRACESTATE] = tracestate
    return own


def with_context_of(headers: str | None, other: str | None) -> str | None:
    """These headers with the context of other ones: two that differ in it alone are the same then."""
    own = with_context(loads(headers) if headers is not None else {}, kept_context(other), kept_state(other))
    return as_text(own) if own else None


# -- tries -----------------------------------------------------------------------------------------------------------


def context_of(job: Job) -> str | None:
    """The context that a job was handed in with."""
    if job.run_id is not None:
        return job.run_traceparent
    return None if job.headers is None else kept_context(job.headers)


def span_of_try(job: Job, attempt: int) -> str:
    """Of the try of this number: the same whoever asks, in which process ever."""
    if job.run_id is not None and job.step is not None:
        return _digest(schedule_id(str(job.run_id), job.step, attempt, job.generation))
    return _digest(f"{job.id}:{attempt}:{job.generation}")


def passed_on(job: Job, *, tracing: bool) -> str | None:
    """What goes out with a try: the try's own span where it is traced; else what came, unchanged. Tries of a run's
    steps tell themselves apart in any case; one that came without a context is a trace of its own, of which others are
    told that nobody keeps it where we trace and did not choose it.
    """
    came = context_of(job)
    if job.run_id is not None:
        came = came or context(job.run_id.hex, NO_SPAN, sampled=not tracing)
        return within(came, span_of_try(job, job.attempts + 1))
    if came is None or not (tracing and is_sampled(came)):
        return came
    return within(came, span_of_try(job, job.attempts + 1))


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=SPAN_BYTES).hexdigest()
