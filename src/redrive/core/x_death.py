"""What a broker wrote down of a message's deaths (the header x-death), and what that means for a dead letter. Pure.

The newest death is first. One queue and one reason have one entry, which counts: where a message went round before it
came to rest, the last entry is where it came from.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from redrive.core.broker import Origin
from redrive.core.decide import Reason
from redrive.core.delay_queues import is_delay_queue
from redrive.core.outcome import Category

MAX_DEATHS = 100


@dataclass(frozen=True, slots=True)
class Death:
    queue: str
    reason: str
    count: int
    at: datetime | None
    exchange: str
    routing_keys: tuple[str, ...]
    is_wait: bool = False  # in a delay queue, or for a time to live of its own: meant to go on after it

    @property
    def origin(self) -> Origin:
        """Of several keys (CC), nobody knows which one led to this queue: the default exchange does."""
        if len(self.routing_keys) > 1:
            return Origin("", self.queue, self.queue)
        return Origin(self.exchange, self.routing_keys[0] if self.routing_keys else "", self.queue)


def read_deaths(headers: Mapping[str, Any]) -> list[Death]:
    """Newest first; what cannot be read is left out: anybody may have written it."""
    entries = headers.get("x-death")
    if not isinstance(entries, Sequence) or isinstance(entries, str | bytes):
        return []
    return [death for entry in entries[:MAX_DEATHS] if (death := _read(entry)) is not None]


def first_death(deaths: Sequence[Death], headers: Mapping[str, Any]) -> Death | None:
    """Where it came from: the entry that the broker names as the first, else the oldest.

    A queue that it only waited in is none to go back to: without the time to live that it had, it would stay there,
    and whatever comes behind it.
    """
    named = (headers.get("x-first-death-queue"), headers.get("x-first-death-reason"))
    died = [death for death in deaths if not death.is_wait] or deaths
    for death in reversed(died):
        if (death.queue, death.reason) == named:
            return death
    return died[-1] if died else None


# By the broker's word: why it died, of what class that is, and how to say it.
_MEANINGS: Mapping[str, tuple[Reason, Category, str]] = {
    "rejected": (Reason.PERMANENT, Category.UNKNOWN, "A consumer of {queue} rejected it."),
    "expired": (Reason.EXPIRED, Category.TIMEOUT, "It waited in {queue} for longer than its time to live."),
    "maxlen": (Reason.PERMANENT, Category.RATE_LIMITED, "{queue} was full, and put it out."),
    "delivery_limit": (
        Reason.EXHAUSTED,
        Category.UNKNOWN,
        "Consumers of {queue} returned it more often than the queue allows.",
    ),
}
_OTHER = (Reason.PERMANENT, Category.UNKNOWN, "RabbitMQ took it out of {queue}: {reason}.")


def meaning_of(death: Death) -> tuple[Reason, Category, str]:
    reason, category, sentence = _MEANINGS.get(death.reason, _OTHER)
    return reason, category, sentence.format(queue=death.queue, reason=death.reason)


def _read(entry: object) -> Death | None:
    if not isinstance(entry, Mapping):
        return None
    queue, reason, count, at = (entry.get(name) for name in ("queue", "reason", "count", "time"))
    if not isinstance(queue, str) or not isinstance(reason, str):
        return None
    keys = entry.get("routing-keys")
    exchange = entry.get("exchange")
    return Death(
        queue=queue,
        reason=reason,
        count=count if isinstance(count, int) else 1,
        at=at.astimezone(UTC) if isinstance(at, datetime) and at.tzinfo is not None else None,
        exchange=exchange if isinstance(exchange, str) else "",
        routing_keys=tuple(key for key in keys if isinstance(key, str)) if isinstance(keys, Sequence) else (),
        is_wait=reason == "expired" and (entry.get("original-expiration") is not None or is_delay_queue(queue)),
    )
