"""The numbers of an org, as /openapi.json describes them: store.stats.Stats."""

from datetime import datetime

from redrive.api.schemas.base import ENDPOINT_ID, Answer, example
from redrive.core.analytics import Dimension

_OUTCOMES = {
    "created": 0,
    "acknowledged": 0,
    "events_delivered": 1180,
    "events_failed": 5,
    "events_redriven": 1,
    "delivered": 1180,
    "failed": 5,
    "success_rate": 0.9958,
    "attempts": 1243,
    "retries": 58,
    "redriven": 1,
    "rescued": 41,
    "rescue_rate": 0.8913,
    "retries_before_success": {"mean": 0.041, "distribution": [1139, 35, 5, 1, 0, 0, 0, 0, 0, 0, 0]},
    "time_to_delivery_s": {"mean": 1.4, "p50": 0.051, "p95": 0.098, "p99": 5.9, "p95_without_retries": 0.094},
}


class EventNumbers(Answer):
    total: int
    received: int
    acknowledged: int
    routed: int
    queued: int
    delivered: int
    failed: int
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


class Retries(Answer):
    """`distribution`: of those delivered, after 0, 1, … 9, and 10 or more retries."""

    mean: float | None
    distribution: list[int]


class Waits(Answer):
    """Seconds from event to delivery. Percentiles are within 5 % of the true value, from a millisecond to 30 days.

    `p95_without_retries`: of the deliveries that needed no retry. The alert `slow_delivery` watches it.
    """

    mean: float | None
    p50: float | None
    p95: float | None
    p99: float | None
    p95_without_retries: float | None


class OutcomesShown(Answer):
    """Results of events and of their deliveries (`delivered`, `failed`, `attempts` …), also called tasks.

    `success_rate`: of the events that ended. `rescued`: delivered after a failure; `rescue_rate`: of what failed once
    and ended. By endpoint nothing is created or acknowledged, and an event is its delivery to that endpoint.
    """

    created: int
    acknowledged: int
    events_delivered: int
    events_failed: int
    events_redriven: int
    delivered: int
    failed: int
    success_rate: float | None
    attempts: int
    retries: int
    redriven: int
    rescued: int
    rescue_rate: float | None
    retries_before_success: Retries
    time_to_delivery_s: Waits


class KeyedOutcomes(OutcomesShown):
    key: str
    name: str


class MomentShown(Answer):
    at: datetime
    created: int
    events_delivered: int
    events_failed: int
    delivered: int
    failed: int
    retries: int
    success_rate: float | None


class AnalyticsShown(Answer):
    """`others`: all keys that are not listed, together; null where none is left out."""

    window: str
    since: datetime
    bucket_s: float
    by: Dimension | None
    key: str | None
    whole: OutcomesShown
    over_time: list[MomentShown]
    keys: list[KeyedOutcomes]
    others: OutcomesShown | None


class StatsShown(Answer):
    model_config = example(
        {
            "events": {
                "total": 1204,
                "received": 4,
                "acknowledged": 0,
                "routed": 1200,
                "queued": 15,
                "delivered": 1180,
                "failed": 5,
                "payload_bytes": 98304,
            },
            "tasks": {"waiting": 12, "leased": 3, "held": 0, "succeeded": 1180, "dead": 5},
            "retry_queue": {"total": 9},
            "dead_letters": {"open": 4, "replaying": 1, "resolved": 2, "ignored": 1},
            "endpoints": {"total": 7, "disabled": 1, "paused": 0},
            "success_rate": 0.9958,
            "paused": {"installation": False, "org": False, "endpoints": 0},
            "oldest_due_at": None,
            "as_of": "2026-03-01T02:17:09.120Z",
            "analytics": {
                "window": "24h",
                "since": "2026-02-28T03:00:00Z",
                "bucket_s": 3600.0,
                "by": "endpoint",
                "key": None,
                "whole": {**_OUTCOMES, "created": 1190},
                "over_time": [
                    {
                        "at": "2026-02-28T03:00:00Z",
                        "created": 52,
                        "events_delivered": 49,
                        "events_failed": 1,
                        "delivered": 49,
                        "failed": 1,
                        "retries": 3,
                        "success_rate": 0.98,
                    }
                ],
                "keys": [{"key": ENDPOINT_ID, "name": "billing", **_OUTCOMES}],
                "others": None,
            },
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
    analytics: AnalyticsShown | None
