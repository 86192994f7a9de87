"""What became of tasks over a time, and what is read out of it: rates, retries that paid off, how long it took. Pure.

The database adds the numbers up (store.analytics); the slots are those of core.pulse.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum, StrEnum

from redrive.core.pulse import RETRY_SLOTS, Span, Waits, added_waits, quantile, rate_of


class Dimension(StrEnum):
    """What numbers are kept by."""

    ENDPOINT = "endpoint"
    EVENT_TYPE = "event_type"
    EXTERNAL_SYSTEM = "external_system"


@dataclass(frozen=True, slots=True)
class Reach:
    """A window, as it is asked for, and the rollups that it is read from: `kept` names their span."""

    name: str
    kept: str
    span: Span


class Period(Enum):
    """The last bucket is the one that now falls into."""

    HOUR = Reach("1h", "minute", Span(timedelta(minutes=1), 60))
    DAY = Reach("24h", "hour", Span(timedelta(hours=1), 24))
    WEEK = Reach("7d", "hour", Span(timedelta(hours=2), 84))
    MONTH = Reach("30d", "day", Span(timedelta(days=1), 30))
    YEAR = Reach("365d", "day", Span(timedelta(days=1), 365))


# For a line that shows when something happened within a day.
DAY_IN_QUARTERS = Reach("24h", "minute", Span(timedelta(minutes=15), 96))
PERIODS = {period.value.name: period for period in Period}


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What happened in a time: to deliveries, that is tasks; to events where the name says so and in the first two.

    untried   of the failed, those that had no try: skipped, or too old before the first
    attempts  tries that ended; `retries` of these were not the first
    saved     the delivered, by how often they had been tried again; `retried` is the sum
    lost      the failed, likewise. Being redriven counts as having been tried again
    waits     the delivered, by how long it took since their event came in; `waited_s` is the sum
    firsts    those of `waits` that needed no retry
    events_…  events of which the last delivery ended; by endpoint: their deliveries to it
    """

    created: int = 0
    acknowledged: int = 0
    delivered: int = 0
    failed: int = 0
    untried: int = 0
    redriven: int = 0
    attempts: int = 0
    retries: int = 0
    saved: tuple[int, ...] = (0,) * RETRY_SLOTS
    retried: int = 0
    lost: tuple[int, ...] = (0,) * RETRY_SLOTS
    waits: Waits = field(default_factory=dict)
    firsts: Waits = field(default_factory=dict)
    waited_s: float = 0.0
    events_routed: int = 0  # delivered, all of their deliveries
    events_failed: int = 0
    events_redriven: int = 0

    def plus(self, other: "Outcomes") -> "Outcomes":
        return Outcomes(
            self.created + other.created,
            self.acknowledged + other.acknowledged,
            self.delivered + other.delivered,
            self.failed + other.failed,
            self.untried + other.untried,
            self.redriven + other.redriven,
            self.attempts + other.attempts,
            self.retries + other.retries,
            _added(self.saved, other.saved),
            self.retried + other.retried,
            _added(self.lost, other.lost),
            added_waits(self.waits, other.waits),
            added_waits(self.firsts, other.firsts),
            self.waited_s + other.waited_s,
            self.events_routed + other.events_routed,
            self.events_failed + other.events_failed,
            self.events_redriven + other.events_redriven,
        )

    @property
    def events_delivered(self) -> int:
        """Those that were acknowledged in the inbox among them."""
        return self.events_routed + self.acknowledged

    @property
    def success_rate(self) -> float | None:
        """Of the events that ended."""
        return rate_of(self.events_delivered, self.events_delivered + self.events_failed)

    @property
    def failed_rate(self) -> float | None:
        return rate_of(self.events_failed, self.events_delivered + self.events_failed)

    @property
    def rescued(self) -> int:
        """Delivered after a failure: without a retry they would have been lost."""
        return sum(self.saved[1:])

    @property
    def rescue_rate(self) -> float | None:
        """Of what failed at least once and ended, the share that a retry saved; None where nothing failed."""
        return rate_of(self.rescued, self.rescued + self.failed - self.untried)

    @property
    def retries_before_success(self) -> float | None:
        """On average; None where nothing was delivered."""
        return self.retried / self.delivered if self.delivered else None

    @property
    def mean_wait_s(self) -> float | None:
        return self.waited_s / sum(self.waits.values()) if self.waits else None

    def wait_s(self, share: float) -> float | None:
        """The seconds from event to delivery within which this share of deliveries was made; None without any."""
        return quantile(self.waits, share)

    def first_wait_s(self, share: float) -> float | None:
        """Likewise, of the deliveries that needed no retry."""
        return quantile(self.firsts, share)


def _added(some: Sequence[int], others: Sequence[int]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip(some, others, strict=True))
