"""Which delay queue of a broker a retry waits in. Pure.

A queue gives messages up at its head only: one behind another that waits longer waits with it. So all messages in a
delay queue wait equally long, for the queue's own time to live, and none waits for another. Each delay of a policy has
several such queues, spread over the range of its jitter: a burst that failed together comes back spread. Other delays,
that a handler asked for, go into queues by size, and may come up to twice as late.
"""

import re
from dataclasses import dataclass
from datetime import timedelta

from redrive.core.policy import Policy, PolicyKind, delay_bounds, retry_delay

MAX_DELAYS = 32
MAX_QUEUES = 64
MAX_QUEUES_OF_A_DELAY = 8
MAX_RETRIES_LOOKED_AT = 1_000
MAX_TTL_MS = 2**32 - 1  # RabbitMQ knows no more
FIRST_ASKED_S = 1
MIDDLE = 0.5  # the roll that gives a delay without its jitter

_OURS = re.compile(r"-retry-(?:in-[0-9]+ms|asked-[0-9]+s)\Z")


class UnusablePolicy(ValueError):
    """A policy whose retries cannot wait in a broker. The message is for a person."""


@dataclass(frozen=True, slots=True)
class DelayQueue:
    """`ttl_ms` is that of the queue; None: each message has its own."""

    name: str
    ttl_ms: int | None


class DelayQueues:
    """Those of a policy: `all` of them, and which one a retry waits in."""

    def __init__(self, source: str, policy: Policy) -> None:
        if policy.kind is PolicyKind.MANUAL:
            raise UnusablePolicy("it never retries by itself, and a broker's message cannot wait for a person")
        self._source = source
        self._policy = policy
        retry_of: dict[int, int] = {}
        most = MAX_RETRIES_LOOKED_AT if policy.max_retries is None else min(policy.max_retries, MAX_RETRIES_LOOKED_AT)
        for retry in range(most):
            retry_of.setdefault(_full_ms(policy, retry), retry)
            if len(retry_of) > MAX_DELAYS:
                raise UnusablePolicy(f"it has more than {MAX_DELAYS} different delays, and each needs queues")
        each = min(MAX_QUEUES_OF_A_DELAY, MAX_QUEUES // max(len(retry_of), 1))
        self._by_delay = {full: _spread(source, policy, retry, each) for full, retry in retry_of.items()}
        self.all = {queue.name: queue for queues in self._by_delay.values() for queue in queues}

    def queue_of(self, retry: int, delay: timedelta, at_least: timedelta | None) -> DelayQueue:
        """Where the retry n waits for about so long; `at_least`: and for no less than this."""
        queues = self._by_delay.get(_full_ms(self._policy, retry), [])
        low, high = _bounds(self._policy, retry)
        if not queues or not low <= delay <= high:
            return asked_queue(self._source, delay)
        place = int((delay - low) / (high - low) * len(queues)) if high > low else 0
        late_enough = (queue for queue in queues[min(place, len(queues) - 1) :] if _is_as_long(queue, at_least))
        return next(late_enough, None) or asked_queue(self._source, delay)


def asked_queue(source: str, delay: timedelta) -> DelayQueue:
    """The one for delays up to the next power of two in seconds."""
    size_s = FIRST_ASKED_S
    while size_s < delay.total_seconds():
        size_s *= 2
    return DelayQueue(f"{source}-retry-asked-{size_s}s", None)


def is_delay_queue(queue: str) -> bool:
    return _OURS.search(queue) is not None


def is_delay_queue_of(source: str, queue: str) -> bool:
    return queue.startswith(source) and _OURS.match(queue, len(source)) is not None


def _spread(source: str, policy: Policy, retry: int, count: int) -> list[DelayQueue]:
    """Over the range of a delay, each in the middle of its part; without jitter one."""
    low, high = _bounds(policy, retry)
    parts = count if high > low else 1
    ttls = [_ms(low + (high - low) * (part + MIDDLE) / parts) for part in range(parts)]
    return [DelayQueue(f"{source}-retry-in-{ttl}ms", ttl) for ttl in ttls]


def _is_as_long(queue: DelayQueue, at_least: timedelta | None) -> bool:
    return at_least is None or (queue.ttl_ms is not None and timedelta(milliseconds=queue.ttl_ms) >= at_least)


def _bounds(policy: Policy, retry: int) -> tuple[timedelta, timedelta]:
    bounds = delay_bounds(policy, retry)
    assert bounds is not None, "a policy that never retries has no delays"
    return bounds


def _full_ms(policy: Policy, retry: int) -> int:
    full = retry_delay(policy, retry, MIDDLE)
    assert full is not None, "a policy that never retries has no delays"
    return _ms(full)


def _ms(delay: timedelta) -> int:
    return min(max(round(delay.total_seconds() * 1000), 1), MAX_TTL_MS)
