"""How deliveries went, as clients see it. Used by the API and the command line; schemas/stats.py describes it."""

from redrive.api.shapes import Shape
from redrive.core.analytics import Dimension, Outcomes
from redrive.store.analytics import Course, Keyed, Ranking


def analytics_shape(course: Course, by: Dimension | None, key: str | None, ranking: Ranking | None) -> Shape:
    """`ranking`: where keys are listed."""
    return {
        "window": course.period.value.name,
        "since": course.since,
        "bucket_s": course.period.value.span.bucket.total_seconds(),
        "by": by,
        "key": key,
        "whole": outcomes_shape(course.whole),
        "over_time": [
            {
                "at": moment.at,
                "created": moment.outcomes.created,
                "events_delivered": moment.outcomes.events_delivered,
                "events_failed": moment.outcomes.events_failed,
                "delivered": moment.outcomes.delivered,
                "failed": moment.outcomes.failed,
                "retries": moment.outcomes.retries,
                "success_rate": moment.outcomes.success_rate,
            }
            for moment in course.moments
        ],
        "keys": [] if ranking is None else [_keyed(keyed) for keyed in ranking.keys],
        "others": None if ranking is None or ranking.others is None else outcomes_shape(ranking.others),
    }


def outcomes_shape(outcomes: Outcomes) -> Shape:
    return {
        "created": outcomes.created,
        "acknowledged": outcomes.acknowledged,
        "events_delivered": outcomes.events_delivered,
        "events_failed": outcomes.events_failed,
        "events_redriven": outcomes.events_redriven,
        "delivered": outcomes.delivered,
        "failed": outcomes.failed,
        "success_rate": outcomes.success_rate,
        "attempts": outcomes.attempts,
        "retries": outcomes.retries,
        "redriven": outcomes.redriven,
        "rescued": outcomes.rescued,
        "rescue_rate": outcomes.rescue_rate,
        "retries_before_success": {"mean": outcomes.retries_before_success, "distribution": list(outcomes.saved)},
        "time_to_delivery_s": {
            "mean": outcomes.mean_wait_s,
            "p50": outcomes.wait_s(0.5),
            "p95": outcomes.wait_s(0.95),
            "p99": outcomes.wait_s(0.99),
            "p95_without_retries": outcomes.first_wait_s(0.95),
        },
    }


def _keyed(keyed: Keyed) -> Shape:
    return {"key": keyed.key, "name": keyed.name, **outcomes_shape(keyed.outcomes)}
