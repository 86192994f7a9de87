"""One place as a worker sees it: what may be due there, and how many more tries may begin. No I/O; time is handed in.

Used by engine.agenda, which gives every place its turn, and by engine.breakers. Times are seconds of the worker's
monotonic clock.
"""

from datetime import UTC, datetime
from uuid import UUID

from redrive.core.breaker import (
    CLOSED,
    OPEN,
    UNLIMITED,
    Breaker,
    BreakerRules,
    BreakerState,
    Budget,
    Closed,
    Open,
    Pace,
    Ramping,
    Window,
    name_of,
    ramp_rate,
)
from redrive.core.ports import HTTP_STEP_QUEUE, NO_ENDPOINT, RELAY_QUEUE, Floor, Owned, Place

SLOW_S = 1.0  # an endpoint whose tries take longer on average, or of which nothing is known yet, counts as slow
# What may be in flight to one place, of the room that it has and that is free: so there is always some left for others.
SLOW_PART = 0.2
QUICK_PART = 0.6
FEW = 4  # at least so many, where there is room at all
AT_A_HUB = 8  # at most: a hub takes one at a time, and the others wait for it under their leases
WORTH_A_CLAIM = 2  # a place is asked when half of its room is free: claims stay large
LEARNED = 0.1  # of each try's time
START = Floor(datetime(1970, 1, 1, tzinfo=UTC), UUID(int=0))
SETTLED_S = 3.0  # how long what was learned when an endpoint was owned is relied on


class Outlet:
    """`due`: when something may be due, of the first tries and of the retries; None: nothing that is known. What is
    overdue keeps the time for which it was scheduled.
    """

    __slots__ = (
        "_ok",
        "_rules",
        "asked_retries",
        "breaker",
        "breaker_pace",
        "breaker_since",
        "budget",
        "counted",
        "due",
        "emptied_at",
        "floors",
        "in_flight",
        "max_in_flight",
        "not_before",
        "owned_until",
        "pace",
        "paced_until",
        "place",
        "siblings",
        "took_s",
        "turn",
        "window",
    )

    def __init__(self, place: Place, rules: BreakerRules) -> None:
        self.place = place
        self._rules = rules
        self.due: list[float | None] = [None, None]
        self.floors = [START, START]
        self.emptied_at: list[datetime | None] = [None, None]  # of what is due until then, all was seen
        self.in_flight = 0
        self.siblings: tuple[Outlet, ...] = ()  # the same endpoint for other queues: what is limited is all together
        self.took_s = SLOW_S
        self.not_before = 0.0  # another worker has it
        self.paced_until = 0.0  # its own limits hold it back
        self.turn = 0  # of the agenda: which of its notes about this place is the last
        self.window = Window(rules.window_s)
        self._ok = 0  # successes that the window has not been told of
        self.asked_retries = False  # whose turn it was, where there is room for one
        # Where something is to be counted, one worker has the place to itself.
        self.counted = False
        self.owned_until = 0.0
        self.max_in_flight: int | None = None
        self.pace: Pace | None = None
        self.breaker: Breaker = CLOSED
        self.breaker_since = 0.0
        self.breaker_pace: Pace | None = None  # of a trickle or a ramp
        self.budget: Budget | None = None

    # -- what is due -----------------------------------------------------------------------------------------------

    def tell(self, is_retry: bool, at: float) -> None:
        """Something falls due then."""
        known = self.due[is_retry]
        if known is None or at < known:
            self.due[is_retry] = at
        if not is_retry:
            self.paced_until = 0.0  # a budget that keeps retries back is none for it

    def has_due(self, at: float) -> bool:
        return any(due is not None and due <= at for due in self.due)

    def asked_at(self) -> float | None:
        """When to ask next, as far as what is due and what it was told to wait for say."""
        firsts, retries = self.due
        if firsts is None or (retries is not None and retries < firsts):
            firsts = retries
        return None if firsts is None else max(firsts, self.not_before, self.paced_until)

    def held_back_until(self, at: float) -> float | None:
        """Until when a limit of time holds it back; None: none does."""
        until = at
        for pace in (self.pace, self.breaker_pace):
            if pace is not None:
                until = max(until, pace.next_at(at))
        if self.budget is not None and not self._has_first_due(at):
            until = max(until, self.budget.next_at(at))
        return until if until > at else None

    def _has_first_due(self, at: float) -> bool:
        firsts = self.due[False]
        return firsts is not None and firsts <= at

    @property
    def is_our_own(self) -> bool:
        """Nobody else's: handlers, and steps that call nobody."""
        return self.place.id == NO_ENDPOINT and self.place.queue != HTTP_STEP_QUEUE

    # -- how much may begin ----------------------------------------------------------------------------------------

    def is_crowded(self, free: int) -> bool:
        """No place is free, or so few that a claim for them is not worth it yet."""
        return self.slots(free) * WORTH_A_CLAIM < self.places(free)

    def room(self, at: float, free: int) -> int:
        """How many tries may begin now, of `free` in all."""
        room = self.slots(free)
        if isinstance(self.breaker, Ramping) and self.breaker_pace is not None:
            rate = ramp_rate(self._rules, at - self.breaker.since)
            if rate is not None:
                self.breaker_pace.set_rate(at, rate)
        for pace in (self.pace, self.breaker_pace):
            if pace is not None:
                room = min(room, pace.room(at))
        if self.budget is not None and not self._has_first_due(at):
            room = min(room, self.budget.allows(at))
        return max(0, room)

    def places(self, free: int) -> int:
        """How many tries may be in flight. Handlers may have all the room."""
        reach = self.in_flight + free
        if self.is_our_own:
            return reach
        beside = sum(sibling.in_flight for sibling in self.siblings)
        fair = max(int(reach * (QUICK_PART if self.took_s < SLOW_S else SLOW_PART)), min(reach, FEW))
        if self.place.queue == RELAY_QUEUE:
            fair = min(fair, AT_A_HUB)
        if isinstance(self.breaker, Open):
            fair = min(fair, max(0, self._rules.trickle_in_flight - beside))
        if self.max_in_flight is None:
            return fair
        return min(fair, max(0, self.max_in_flight - beside))

    def slots(self, free: int, granted: int = 0) -> int:
        """How many more may be in flight than there are and were granted just now."""
        return self.places(free + granted) - self.in_flight - granted

    def split(self, at: float, room: int) -> tuple[int, int]:
        """Of the room: how many first tries and how many retries."""
        first_due, retry_due = self.due
        allowed = min(room, self.budget.allows(at)) if self.budget is not None else room
        if retry_due is None or retry_due > at:
            return (0, 0) if first_due is None or first_due > at else (room, 0)
        if first_due is None or first_due > at:
            return 0, allowed
        if isinstance(self.breaker, Open):  # in the order of the schedule
            return (0, room) if retry_due < first_due else (room, 0)
        self.asked_retries = not self.asked_retries
        half = min(allowed, (room + self.asked_retries) // 2)
        return room - half, half

    def began(self, at: float, firsts: int, retries: int) -> None:
        self.in_flight += firsts + retries
        for pace in (self.pace, self.breaker_pace):
            if pace is not None:
                pace.take(at, firsts + retries)
        if self.budget is not None:
            self.budget.note_first_tries(firsts)
            self.budget.take(at, retries)

    # -- how it goes -----------------------------------------------------------------------------------------------

    def ended(self, took_s: float | None) -> None:
        """A try ended, after so long; None: there was none."""
        self.in_flight -= 1
        if took_s is not None:
            self.took_s += (took_s - self.took_s) * LEARNED

    def succeeded(self, is_retry: bool) -> None:
        """Told to the window with the next failure, or at the next look."""
        self._ok += 1
        if self.budget is not None and is_retry:
            self.budget.give_back()

    def failed(self, at: float) -> None:
        self.catch_up(at)
        self.window.note(at, True)

    def catch_up(self, at: float) -> None:
        if self._ok:
            self.window.note_batch(at, self._ok, 0)
            self._ok = 0

    def look_after_budget(self, at: float) -> None:
        """An unhealthy endpoint's retries have a budget; a healthy one's have none."""
        self.catch_up(at)
        unhealthy = isinstance(self.breaker, Closed) and self.window.is_unhealthy(at, self._rules)
        if unhealthy and self.budget is None:
            self.budget = Budget(self._rules, at)
            self.budget.note_first_tries(self.window.tries)
        elif not unhealthy:
            self.budget = None

    # -- what was learned when it was owned ------------------------------------------------------------------------

    def own(self, owned: Owned, at: float) -> None:
        """It is this worker's for a while; what is to be counted is said again each time."""
        self.max_in_flight = owned.max_in_flight
        self._set_pace(owned, at)
        if owned.breaker != name_of(self.breaker) or (owned.is_new and owned.breaker != BreakerState.CLOSED):
            self.set_breaker(_breaker_of(owned, at), at)
        self.counted = self.max_in_flight is not None or self.pace is not None or not isinstance(self.breaker, Closed)
        self.owned_until = at + SETTLED_S
        self.not_before = self.paced_until = 0.0

    def _set_pace(self, owned: Owned, at: float) -> None:
        if self.pace is None:
            self.pace = next((sibling.pace for sibling in self.siblings if sibling.pace is not None), None)
        if owned.rate_per_s is None:
            self.pace = None
        elif self.pace is None or owned.is_new:  # what another worker began since is told by paced_until
            self.pace = Pace(owned.rate_per_s, at)
            if owned.paced_until is not None:
                self.pace.hold(at, owned.moment(owned.paced_until, at))
        elif self.pace.rate_per_s != owned.rate_per_s:
            self.pace.set_rate(at, owned.rate_per_s)
        for sibling in self.siblings:
            sibling.pace = self.pace

    def set_breaker(self, breaker: Breaker, at: float) -> None:
        self.breaker = breaker
        self.breaker_since = at
        self.breaker_pace = self._pace_of(breaker, at)
        if isinstance(breaker, Open):
            self.budget = None
        else:
            self.window.clear()
            self._ok = 0
        self.counted = self.counted or not isinstance(breaker, Closed)

    def _pace_of(self, breaker: Breaker, at: float) -> Pace | None:
        """That of its siblings, where theirs has come as far: what is limited is the endpoint."""
        if isinstance(breaker, Closed):
            return None
        for sibling in self.siblings:
            if type(sibling.breaker) is type(breaker) and sibling.breaker_pace is not None:
                return sibling.breaker_pace
        if isinstance(breaker, Open):
            return Pace(self._rules.trickle_per_s, at)
        return Pace(ramp_rate(self._rules, at - breaker.since) or UNLIMITED, at)


def _breaker_of(owned: Owned, at: float) -> Breaker:
    match owned.breaker:
        case "open":
            return OPEN
        case "ramping":
            return Ramping(owned.moment(owned.breaker_since, at))
    return CLOSED
