"""The numbers of an org, as /openapi.json describes them: store.stats.Stats."""

from datetime import datetime

from redrive.api.schemas.base import Answer, example


class EventNumbers(Answer):
    total: int
    received: int
    acknowledged: int
    routed: int
    payload_bytes: int


class TaskNumbers(Answer):
    waiting: int
    leased: int
    held: int
    succeeded: int
    dead: int


class QueueNumbers(Answer):
    total: int


class LetterNumbers(Answer):
    open: int
    replaying: int
    resolved: int
    ignored: int


class EndpointNumbers(Answer):
    total: int
    disabled: int
    paused: int


class PausedNumbers(Answer):
    installation: bool
    org: bool
    endpoints: int


class StatsShown(Answer):
    model_config = example(
        {
            "events": {"total": 1204, "received": 4, "acknowledged": 0, "routed": 1200, "payload_bytes": 98304},
            "tasks": {"waiting": 12, "leased": 3, "held": 0, "succeeded": 1180, "dead": 5},
            "retry_queue": {"total": 9},
            "dead_letters": {"open": 4, "replaying": 1, "resolved": 2, "ignored": 1},
            "endpoints": {"total": 7, "disabled": 1, "paused": 0},
            "success_rate": 0.9958,
            "paused": {"installation": False, "org": False, "endpoints": 0},
            "oldest_due_at": None,
            "as_of": "2026-03-01T02:17:09.120Z",
        }
    )

    events: EventNumbers
    tasks: TaskNumbers
    retry_queue: QueueNumbers
    dead_letters: LetterNumbers
    endpoints: EndpointNumbers
    success_rate: float | None
    paused: PausedNumbers
    oldest_due_at: datetime | None
    as_of: datetime
