"""What protects an endpoint that fails: its breaker, its ramp, the budget of its retries. Pure.

Asked by engine.worker, which has a window and a state for each endpoint that it tries; store.endpoint_states keeps
the state for all workers. Time and chance are handed in: times are seconds of one clock that never runs backwards,
whatever it began with; where it seems to, the latest time counts.

    closed ──the window trips──▶ open ──success──▶ ramping ──ramp_s──▶ closed
                                  ▲                   │
                                  └─────it trips──────┘
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from redrive.core.outcome import TRANSIENT, Category, Outcome, Success

BUCKETS = 12  # of a window: it forgets a twelfth at a time
RAMP_MIN_PART = 0.25  # of min_tries: a ramp that fails ends after fewer of them
UNHEALTHY_PART = 0.5  # of failure_rate: from there on the retries have a budget
MAX_DOUBLINGS = 32  # bound first: huge powers overflow
BURST_S = 0.1  # what a pace may do at once is what it lets through in this time
MAX_EARNED = 1_000.0  # retries that first tries may have earned and that were not made yet
ROUNDING = 1e-6  # what seconds times a rate may be wrong by
UNLIMITED = 2**31 - 1


class Verdict(StrEnum):
    """What a try says of its endpoint."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    NEITHER = "neither"


def breaker_verdict(outcome: Outcome | None) -> Verdict:
    """Whether the endpoint was there. It was when it refused: then others may well be taken.

    A try that was refused here (configuration), that ended in nothing known, or that was not made says neither.
    """
    if isinstance(outcome, Success):
        return Verdict.SUCCEEDED
    if outcome is None or outcome.category in (Category.CONFIGURATION, Category.UNKNOWN):
        return Verdict.NEITHER
    return Verdict.FAILED if outcome.category in TRANSIENT else Verdict.SUCCEEDED


def delivery_verdict(outcome: Outcome | None) -> Verdict:
    """Whether a delivery came through, for the history of the endpoint: what it refused did not.

    What never left for its endpoint (configuration) says neither.
    """
    if isinstance(outcome, Success):
        return Verdict.SUCCEEDED
    if outcome is None or outcome.category is Category.CONFIGURATION:
        return Verdict.NEITHER
    return Verdict.FAILED


@dataclass(frozen=True, slots=True)
class BreakerRules:
    """When a breaker opens, what it lets through, how it comes back. ValueError where that makes no sense."""

    failure_rate: float = 0.8  # it opens from this share of failures on, in the window
    min_tries: int = 20  # of fewer tries in the window nothing is concluded
    min_span_s: float = 2.0  # nor of failures that came all at once: a burst is one event, not a state
    window_s: float = 60.0
    trickle_per_s: float = 10.0  # what an open breaker lets through, and what a ramp begins with
    trickle_in_flight: int = 5
    ramp_doubling_s: float = 3.0
    ramp_s: float = 30.0
    retry_share: float = 0.2  # of the tries of an unhealthy endpoint, its retries at most; 1: no budget
    retry_floor_per_s: float = 10.0  # retries that each worker lets through in any case

    def __post_init__(self) -> None:
        positive = ("window_s", "trickle_per_s", "ramp_doubling_s", "ramp_s", "retry_floor_per_s")
        for name in positive:
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be a number above 0, not {value}")
        if not (math.isfinite(self.min_span_s) and self.min_span_s >= 0):
            raise ValueError(f"min_span_s must be a number, and not below 0, but is {self.min_span_s}")
        if not 0 < self.failure_rate <= 1:
            raise ValueError(f"failure_rate must be above 0 and at most 1, not {self.failure_rate}")
        if self.min_tries < 1:
            raise ValueError(f"min_tries must be at least 1, not {self.min_tries}")
        if self.trickle_in_flight < 1:
            raise ValueError(f"trickle_in_flight must be at least 1, not {self.trickle_in_flight}")
        if not 0 <= self.retry_share <= 1:
            raise ValueError(f"retry_share must be from 0 to 1, not {self.retry_share}")

    @property
    def ramp_min_tries(self) -> int:
        return max(1, round(self.min_tries * RAMP_MIN_PART))


DEFAULT_RULES = BreakerRules()


class Window:
    """Tries and failures of the last `span_s`, known to a twelfth of it."""

    __slots__ = ("_failing_from", "_failures", "_slot", "_tries", "_width_s", "failures", "tries")

    def __init__(self, span_s: float) -> None:
        assert span_s > 0, "a window without a span holds nothing"
        self._width_s = span_s / BUCKETS
        self._tries = [0] * BUCKETS
        self._failures = [0] * BUCKETS
        self._slot: int | None = None
        self._failing_from = 0.0  # the first failure of those that are counted
        self.tries = 0  # as of the last time that was handed in
        self.failures = 0

    def note(self, at: float, failed: bool) -> None:
        self.note_batch(at, 1, int(failed))

    def note_batch(self, at: float, tries: int, failures: int) -> None:
        """Tries that ended about now, and how many of them failed."""
        assert 0 <= failures <= tries
        place = self._advance(at) % BUCKETS
        if failures and not self.failures:
            self._failing_from = at
        self._tries[place] += tries
        self._failures[place] += failures
        self.tries += tries
        self.failures += failures

    def trips(self, at: float, rules: BreakerRules) -> bool:
        """Enough tries, and too many of them failed."""
        return self._has_failed(at, rules.min_tries, rules.failure_rate) and at - self._failing_from >= rules.min_span_s

    def trips_in_ramp(self, at: float, rules: BreakerRules) -> bool:
        """The same of a window that was cleared when the ramp began: sooner, since the endpoint was just away."""
        return self._has_failed(at, rules.ramp_min_tries, rules.failure_rate)

    def is_unhealthy(self, at: float, rules: BreakerRules) -> bool:
        """Not so bad that the breaker opens, but its retries should not come on top of the rest without a limit."""
        return (
            self._has_failed(at, rules.min_tries, rules.failure_rate * UNHEALTHY_PART)
            and at - self._failing_from >= rules.min_span_s
        )

    def clear(self) -> None:
        self._tries = [0] * BUCKETS
        self._failures = [0] * BUCKETS
        self.tries = self.failures = 0

    def _has_failed(self, at: float, min_tries: int, rate: float) -> bool:
        self._advance(at)
        return self.tries >= min_tries and self.failures >= rate * self.tries

    def _advance(self, at: float) -> int:
        slot = int(at // self._width_s)
        if self._slot is None:
            self._slot = slot
        passed = min(slot - self._slot, BUCKETS)
        if passed <= 0:
            return self._slot
        for gone in range(slot - passed + 1, slot + 1):
            place = gone % BUCKETS
            self.tries -= self._tries[place]
            self.failures -= self._failures[place]
            self._tries[place] = self._failures[place] = 0
        self._slot = slot
        return slot


# -- the breaker -------------------------------------------------------------------------------------------------------


class BreakerState(StrEnum):
    """The names by which the states below are stored and shown."""

    CLOSED = "closed"
    OPEN = "open"
    RAMPING = "ramping"


@dataclass(frozen=True, slots=True)
class Closed:
    """Nothing is in the way."""


@dataclass(frozen=True, slots=True)
class Open:
    """A trickle of tasks is let through, in the order of their schedule."""


@dataclass(frozen=True, slots=True)
class Ramping:
    """More and more tasks are let through, by `ramp_rate`."""

    since: float


Breaker = Closed | Open | Ramping
CLOSED = Closed()
OPEN = Open()
_NAMES: dict[type[Breaker], BreakerState] = {
    Closed: BreakerState.CLOSED,
    Open: BreakerState.OPEN,
    Ramping: BreakerState.RAMPING,
}


def name_of(breaker: Breaker) -> BreakerState:
    return _NAMES[type(breaker)]


def after_try(breaker: Breaker, verdict: Verdict, window: Window, at: float, rules: BreakerRules) -> Breaker:
    """What follows from a try that is noted in the window already; the same value where nothing does.

    The window is to be cleared when a ramp begins and when a breaker closes. Only the ends of tries that began in the
    breaker's present state are handed in: what was under way before tells of another time.
    """
    match breaker:
        case Closed():
            return OPEN if window.trips(at, rules) else breaker
        case Open():
            return Ramping(at) if verdict is Verdict.SUCCEEDED else breaker
        case Ramping():
            return OPEN if window.trips_in_ramp(at, rules) else breaker
    assert_never(breaker)


def after_time(breaker: Breaker, at: float, rules: BreakerRules) -> Breaker:
    """What follows from the time alone; the same value where nothing does."""
    if isinstance(breaker, Ramping) and ramp_rate(rules, at - breaker.since) is None:
        return CLOSED
    return breaker


def ramp_rate(rules: BreakerRules, since_s: float) -> float | None:
    """How many tries per second are let through, so long after the ramp began; None: it is over."""
    if since_s >= rules.ramp_s:
        return None
    doublings = min(max(since_s, 0.0) / rules.ramp_doubling_s, MAX_DOUBLINGS)
    return rules.trickle_per_s * math.exp2(doublings)


# -- how many at once --------------------------------------------------------------------------------------------------


class Pace:
    """Lets so many through per second, evenly: what it may do at once is a tenth of a second's worth, or one."""

    __slots__ = ("_at", "_level", "rate_per_s")

    def __init__(self, rate_per_s: float, at: float) -> None:
        assert rate_per_s > 0, "a pace of nothing would never let anything through"
        self.rate_per_s = rate_per_s
        self._at = at
        self._level = self.burst

    @property
    def burst(self) -> float:
        return max(1.0, self.rate_per_s * BURST_S)

    def set_rate(self, at: float, rate_per_s: float) -> None:
        """Another rate from now on."""
        assert rate_per_s > 0
        self._fill(at)
        self.rate_per_s = rate_per_s
        self._level = min(self._level, self.burst)

    def room(self, at: float) -> int:
        """How many may begin now."""
        self._fill(at)
        return max(0, math.floor(self._level + ROUNDING))

    def take(self, at: float, n: int) -> None:
        """So many begin now. More than there was room for are a debt."""
        self._fill(at)
        self._level -= n

    def hold(self, at: float, until: float) -> None:
        """Somebody else made use of it: there is no room before that time."""
        self._fill(at)
        self._level = min(self._level, 1 - (until - at) * self.rate_per_s)

    def next_at(self, at: float) -> float:
        """When there is room for one: now, or later."""
        self._fill(at)
        return at if self._level + ROUNDING >= 1 else self._at + (1 - self._level) / self.rate_per_s

    def _fill(self, at: float) -> None:
        if at > self._at:
            self._level = min(self.burst, self._level + (at - self._at) * self.rate_per_s)
            self._at = at


class Budget:
    """How many of an unhealthy endpoint's tries may be retries: a share of them all, and a few per second in any case.

    Only while its breaker is closed: an open one and a ramp limit all that they let through.

    What counts are those that fail again: they only add to its load. One that comes through is what all want.
    """

    __slots__ = ("_earned", "_floor", "_per_first_try")

    def __init__(self, rules: BreakerRules, at: float) -> None:
        share = rules.retry_share
        self._per_first_try = share / (1 - share) if share < 1 else None  # None: no budget
        self._floor = Pace(rules.retry_floor_per_s, at)
        self._earned = 0.0

    def note_first_tries(self, n: int) -> None:
        """They earn what retries take."""
        if self._per_first_try is not None:
            self._earn(n * self._per_first_try)

    def give_back(self) -> None:
        """A retry came through: what it took may be taken again."""
        self._earn(1.0)

    def _earn(self, retries: float) -> None:
        self._earned = min(MAX_EARNED, self._earned + retries)

    def allows(self, at: float) -> int:
        """How many retries may begin now."""
        if self._per_first_try is None:
            return UNLIMITED
        return self._floor.room(at) + max(0, math.floor(self._earned + ROUNDING))

    def take(self, at: float, n: int) -> None:
        """So many retries begin now: at most what was allowed."""
        if self._per_first_try is None:
            return
        from_floor = min(n, self._floor.room(at))
        self._floor.take(at, from_floor)
        self._earned -= n - from_floor

    def next_at(self, at: float) -> float:
        """When the next retry may begin if no first try comes before."""
        return at if self.allows(at) > 0 else self._floor.next_at(at)
