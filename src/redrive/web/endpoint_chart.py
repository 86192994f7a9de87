"""How the tries of an endpoint went over a day, drawn. Pure; used by pages.endpoints."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from markupsafe import Markup

from redrive.store.endpoint_history import HistoryPoint
from redrive.web.charts import Series, stacked

SLOT = timedelta(minutes=30)
SLOTS = 48
HEIGHT = 140.0


def drawn_history(points: Sequence[HistoryPoint], now: datetime) -> Markup:
    """Tries that succeeded and failed, in half hours until now. A time without tries is one with none."""
    first = now - SLOT * SLOTS
    succeeded, failed = [0] * SLOTS, [0] * SLOTS
    for point in points:
        slot = (point.at - first) // SLOT
        if 0 <= slot < SLOTS:
            succeeded[slot] += point.succeeded
            failed[slot] += point.failed
    return stacked(
        "Tries of 24 hours",
        [Series("delivered-share", "succeeded", succeeded), Series("failed", "failed", failed)],
        start="24 h ago",
        moments=[f"{first + SLOT * slot:%d %b %H:%M}" for slot in range(SLOTS)],
        height=HEIGHT,
    )
