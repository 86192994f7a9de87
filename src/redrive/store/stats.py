"""Where an org stands, in numbers: from the counters that are kept on write. Read by the API and the command line.

The dataclasses are the answer's shape: field by field what clients see.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from redrive.core.pulse import rate_of
from redrive.store.clock import Clock
from redrive.store.counters import counts, events_by_status
from redrive.store.db import Session
from redrive.store.pausing import kept_back, pauses

MAX_ROWS_LOOKED_AT = 10_000  # for the oldest due task


@dataclass(frozen=True, slots=True)
class EventNumbers:
    total: int
    received: int  # in the inbox: nobody subscribes to them
    acknowledged: int  # taken out of the inbox
    routed: int  # sent to endpoints or handlers: queued, delivered or failed
    queued: int
    delivered: int  # all of their deliveries; acknowledged ones among them
    failed: int  # of their deliveries, one at least
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class TaskNumbers:
    waiting: int
    leased: int
    held: int
    succeeded: int
    dead: int


@dataclass(frozen=True, slots=True)
class QueueNumbers:
    total: int


@dataclass(frozen=True, slots=True)
class LetterNumbers:
    open: int
    replaying: int
    resolved: int
    ignored: int


@dataclass(frozen=True, slots=True)
class EndpointNumbers:
    total: int
    disabled: int
    paused: int


@dataclass(frozen=True, slots=True)
class Paused:
    installation: bool
    org: bool
    endpoints: int


@dataclass(frozen=True, slots=True)
class Stats:
    events: EventNumbers
    tasks: TaskNumbers
    retry_queue: QueueNumbers
    dead_letters: LetterNumbers
    endpoints: EndpointNumbers
    success_rate: float | None  # of the events that have ended; None before any has
    paused: Paused
    oldest_due_at: datetime | None  # since when the task is due that waits longest
    as_of: datetime


async def stats(session: Session, clock: Clock) -> Stats:
    counted = await counts(session)
    endpoints = await session.fetchrow("count_endpoint_states", session.org_id)
    oldest = await session.fetchrow("oldest_due", session.org_id, clock.now(), MAX_ROWS_LOOKED_AT)
    assert endpoints is not None
    assert oldest is not None
    installation, org = await pauses(session, clock)
    kept = await kept_back(session, clock, session.org_id)  # waiting, as the counters have it; held, as people see it
    counted = {**counted, "task.waiting": counted.get("task.waiting", 0) - kept}
    counted["task.held"] = counted.get("task.held", 0) + kept
    tasks = TaskNumbers(**_named("task", counted, TaskNumbers))
    events = events_by_status(counted)
    received, acked, routed = (counted.get(f"event.{name}", 0) for name in ("inbox", "acked", "routed"))
    return Stats(
        events=EventNumbers(
            total=received + acked + routed,
            received=received,
            acknowledged=acked,
            routed=routed,
            queued=events["queued"],
            delivered=events["delivered"],
            failed=events["failed"],
            payload_bytes=counted.get("event.bytes", 0),
        ),
        tasks=tasks,
        retry_queue=QueueNumbers(counted.get("retrying", 0)),
        dead_letters=LetterNumbers(**_named("dead", counted, LetterNumbers)),
        endpoints=EndpointNumbers(**endpoints),
        success_rate=rate_of(events["delivered"], events["delivered"] + events["failed"]),
        paused=Paused(installation.paused, org.paused, endpoints["paused"]),
        oldest_due_at=oldest["due_at"],
        as_of=oldest["now"],
    )


def _named(group: str, counted: Mapping[str, int], numbers: type[TaskNumbers | LetterNumbers]) -> dict[str, int]:
    return {name: counted.get(f"{group}.{name}", 0) for name in numbers.__dataclass_fields__}
