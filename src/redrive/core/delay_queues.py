"""Which delay queue of a broker a retry waits in. Pure.

A queue gives messages up at its head only: one behind another that waits longer waits with it. So each delay of a
policy has a queue of its own, in which no message waits longer than its jitter allows. Other delays, that a handler
asked for, go into queues by size, and may come up to twice as late.
"""

from dataclasses import dataclass
from datetime import timedelta

from redrive.core.policy import Policy, PolicyKind, delay_bounds, retry_delay

MAX_RUNGS = 32
MAX_RETRIES_LOOKED_AT = 1_000
FIRST_ASKED_S = 1
MIDDLE = 0.5  # the roll that gives a delay without its jitter


class UnusablePolicy(ValueError):
    """A policy whose retries cannot wait in a broker. The message is for a person."""


@dataclass(frozen=True, slots=True)
class Rung:
    queue: str
    low: timedelta
    high: timedelta


def rungs(source: str, policy: Policy) -> list[Rung]:
    """The delay queues of a policy, one for each of its delays; the retry n waits in `rung_of(n)`."""
    if policy.kind is PolicyKind.MANUAL:
        raise UnusablePolicy("it never retries by itself, and a broker's message cannot wait for a person")
    found: dict[str, Rung] = {}
    for retry in range(min(policy.max_retries if policy.max_retries is not None else 1 << 30, MAX_RETRIES_LOOKED_AT)):
        rung = rung_of(source, policy, retry)
        if rung.queue not in found and len(found) == MAX_RUNGS:
            raise UnusablePolicy(f"it has more than {MAX_RUNGS} different delays, and each needs a queue")
        found[rung.queue] = rung
    return list(found.values())


def rung_of(source: str, policy: Policy, retry: int) -> Rung:
    full = retry_delay(policy, retry, MIDDLE)
    bounds = delay_bounds(policy, retry)
    assert full is not None
    assert bounds is not None, "a policy that never retries has no rungs"
    return Rung(f"{_prefix(source)}{_ms(full)}ms", *bounds)


def delay_queue(source: str, policy: Policy, retry: int, delay: timedelta) -> str:
    """Where the retry n waits for so long."""
    rung = rung_of(source, policy, retry)
    return rung.queue if rung.low <= delay <= rung.high else asked_queue(source, delay)


def asked_queue(source: str, delay: timedelta) -> str:
    """The one for delays up to the next power of two in seconds."""
    size_s = FIRST_ASKED_S
    while size_s < delay.total_seconds():
        size_s *= 2
    return f"{_prefix(source)}asked-{size_s}s"


def is_delay_queue_of(source: str, queue: str) -> bool:
    return queue.startswith(_prefix(source))


def _prefix(source: str) -> str:
    return f"{source}-retry-"


def _ms(delay: timedelta) -> int:
    return round(delay.total_seconds() * 1000)
