"""Messages of a broker that died there: what is kept of them, and how engine, store and sources meet over them. Pure.

A source takes a DeadMessage from a dead-letter queue and hands it to a DeadMessageBook; when a person redrives it, a
destination asks the ReturnBook where it came from, and publishes it there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from redrive.core.decide import Reason
from redrive.core.outcome import Failure
from redrive.core.policy import Policy

RETURN_QUEUE = "rabbitmq.return"  # of workers: messages that go back to where they came from
RABBITMQ_QUEUE = "rabbitmq"  # of workers: events for endpoints of this kind
RABBITMQ_KIND = "rabbitmq"
DEAD_SUFFIX = "-dlq"
SUSPECTS_SUFFIX = "-suspects"
MAX_QUEUE_BYTES = 255
MAX_SOURCE_BYTES = 200  # the names of its delay queues are longer
QUEUE_TYPES = ("classic", "quorum")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a message was published to, and the queue that it died in, as far as anybody knows."""

    exchange: str
    routing_key: str
    queue: str


@dataclass(frozen=True, slots=True)
class Redriven:
    """The dead letter that a message was redriven from before it died again, and how often it had been by then."""

    letter_id: UUID
    replays: int


@dataclass(frozen=True, slots=True)
class DeadMessage:
    """A message as it was taken from a dead-letter queue. `retries`: those made before it died."""

    source: str  # the dead-letter queue
    origin: Origin
    body: bytes  # as it was first published
    content_type: str | None
    properties: str  # of the message, its headers among them: a JSON object (see broker.properties)
    message_id: str | None
    correlation_id: str | None
    failure: Failure
    reason: Reason
    retries: int
    first_failed_at: datetime | None
    failed_at: datetime | None
    deaths: str | None  # what the broker wrote down of them (x-death): a JSON array
    details: str | None  # what the service that gave it up said besides: a JSON object
    service: str | None
    redriven: Redriven | None = None
    traceparent: str | None = None  # of its own headers


class DeadMessageBook(Protocol):
    """Where dead messages become dead letters."""

    async def keep(self, messages: Sequence[DeadMessage]) -> list[bool]:
        """Each is an open dead letter when this returns, all of them by one commit; False: it was one before.

        Known is what has the same source, message id, body and number of replays as a letter that is open, or being
        redriven. Without a message id nothing is known.
        """
        ...

    async def note(self, states: Sequence["QueueState"]) -> None:
        """What a collector sees of its queues. The newest word counts."""
        ...


class QueueState(NamedTuple):
    """A queue as a collector sees it. `problem` is for a person; None: it is consumed."""

    queue: str
    is_source: bool  # a dead-letter queue that is collected; else one that messages died in
    problem: str | None
    messages: int | None  # that wait in it; None: not known
    consumers: int | None
    collected: int  # since the last word
    duplicates: int


class Return(NamedTuple):
    """Where a message goes back to. `properties` is that of the DeadMessage; `replays` counts this one in."""

    org_id: UUID
    task_id: UUID
    origin: Origin
    properties: str
    replays: int


class ReturnBook(Protocol):
    async def returns(self, keys: Sequence[tuple[UUID, UUID]]) -> list[Return]:
        """By org and task."""
        ...


@dataclass(frozen=True, slots=True)
class ConsumerSpec:
    """A handler for the messages of a queue. `policy`: a name, or the policy itself.

    `queue_type` is that of queues made for it; None: the broker's default, as `{durable: true}` without arguments.
    """

    queue: str
    handler: Callable[[Any], Any]
    policy: str | Policy
    service: str
    concurrency: int
    prefetch: int
    is_json: bool = True
    declare: bool = True
    dead_letter_queue: str | None = None
    queue_type: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.dead_queue.encode()) <= MAX_QUEUE_BYTES:
            raise ValueError(f"the name of a dead-letter queue has 1 to {MAX_QUEUE_BYTES} bytes")
        if self.dead_queue == self.queue:
            raise ValueError(f"{self.queue!r} cannot be its own dead-letter queue")
        if self.queue_type not in (None, *QUEUE_TYPES):
            raise ValueError(f"the type of a queue is {' or '.join(QUEUE_TYPES)}, not {self.queue_type!r}")

    @property
    def dead_queue(self) -> str:
        return self.queue + DEAD_SUFFIX if self.dead_letter_queue is None else self.dead_letter_queue

    @property
    def suspects_queue(self) -> str:
        """Of messages whose consumer was gone before it answered: each is tried alone."""
        return self.queue + SUSPECTS_SUFFIX
