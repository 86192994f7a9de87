"""Trace context (W3C): one trace from the request that begins a run to the last step. Pure."""

import re
from hashlib import blake2b
from uuid import UUID

_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


def traceparent_of(given: str | None) -> str | None:
    """What a caller sent, where it can be used."""
    found = _TRACEPARENT.fullmatch(given.strip()) if given is not None else None
    if found is None or not int(found[1], 16) or not int(found[2], 16):
        return None
    return found[0]


def child_traceparent(parent: str | None, run_id: UUID, schedule_id: str) -> str:
    """What goes out with a try: in the caller's trace, else in one of the run's own; the try is the span."""
    span = blake2b(schedule_id.encode(), digest_size=8).hexdigest()
    if parent is None:
        return f"00-{run_id.hex}-{span}-01"
    _, trace, _, flags = parent.split("-")
    return f"00-{trace}-{span}-{flags}"
