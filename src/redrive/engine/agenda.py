"""Whose turn it is: which streams a claim asks, and for how many tasks each. No I/O; time is handed in.

Used by engine.worker. Turns go round the orgs, and within an org round its places, and neither may take the last of the
room: so neither a tenant with a million due tasks nor endpoints that hang delay the others. What there is to ask is
known from surveys of the database, from what is told (NOTIFY), and from what this worker schedules itself.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from heapq import heappop, heappush
from uuid import UUID

from redrive.core.breaker import BreakerRules, Closed, Ramping
from redrive.core.channels import APPRISE_QUEUE, MAIL_QUEUE, notice_queue
from redrive.core.ports import (
    HTTP_QUEUE,
    HTTP_STEP_QUEUE,
    NO_ENDPOINT,
    Ask,
    Claim,
    Floor,
    Job,
    Owned,
    Place,
    Stream,
    Survey,
)
from redrive.engine.outlet import FEW, START, Outlet

MAX_ASKS = 128  # places in one claim
MAX_OUTLETS = 10_000  # remembered though nothing is known to be due there
# What the endpoints of one org may fill, of the room that it has and that is free: however many of them hang, there is
# some left for the others. Also those that were quick until now: when they hang all at once, it is too late to learn.
ORG_PART = 0.8
LATE_COMMITS = timedelta(seconds=1)  # how long after its due time a row may be committed and still be found at once
FIRST_ID = UUID(int=0)
NOT_OURS_S = 1.0  # when to look again for an endpoint that another worker has

# The queues in which tasks of one endpoint may wait.
_FAMILIES: dict[str, tuple[str, ...]] = {
    queue: family
    for family in (
        (HTTP_QUEUE, notice_queue(HTTP_QUEUE), HTTP_STEP_QUEUE),
        *((queue, notice_queue(queue)) for queue in (MAIL_QUEUE, APPRISE_QUEUE)),
    )
    for queue in family
}


class Agenda:
    def __init__(self, rules: BreakerRules, *, can_reach: Callable[[Place], bool] = lambda _place: True) -> None:
        self._rules = rules
        self._can_reach = can_reach
        self._outlets: dict[Place, Outlet] = {}
        self._in_flight: dict[UUID, int] = {}  # of each org that is known
        self._ready: dict[UUID, dict[Place, Outlet]] = {}
        self._later: list[tuple[float, int, int, Outlet]] = []
        self._counted: dict[Place, Outlet] = {}  # those that a worker must have to itself
        self._lost: set[Stream] = set()  # begin with a lease that ran out
        self._deleted: frozenset[Place] = frozenset()
        self._notes = 0
        self._told_since: list[tuple[Stream, float]] = []  # since the last survey began
        self._surveyed_at: datetime | None = None  # by the database's clock
        self.is_short_of_room = False  # something is due that had no room, or too little to be worth a claim
        self.is_unsure = False  # streams were emptied: when their next task is due is not known

    def outlet(self, place: Place) -> Outlet:
        known = self._outlets.get(place)
        if known is None:
            known = self._outlets[place] = Outlet(place, self._rules)
            self._in_flight.setdefault(place.org_id, 0)
            self._introduce(known)
        return known

    def _introduce(self, outlet: Outlet) -> None:
        """Deliveries to an endpoint, notices for it, and steps that call it, know of each other."""
        if outlet.place.id == NO_ENDPOINT:
            return
        places = [outlet.place._replace(queue=queue) for queue in _FAMILIES.get(outlet.place.queue, ())]
        family = [self._outlets[place] for place in places if place in self._outlets]
        for one in family:
            one.siblings = tuple(other for other in family if other is not one)

    def outlet_of(self, job: Job) -> Outlet:
        return self.outlet(Place(job.queue, job.org_id, job.endpoint_id or NO_ENDPOINT))

    # -- what is due -----------------------------------------------------------------------------------------------

    def expect_survey(self) -> None:
        """A survey begins: what is told from now on, it may not have seen."""
        self._told_since = []

    def learn(self, survey: Survey, at: float, *, from_start: bool = True) -> None:
        """What there is. Whatever the survey does not name has nothing. `from_start`: claims begin there again.

        Else what is no news counts for nothing: it was there when the stream was emptied, so somebody has it in hand.
        """
        if len(self._outlets) > MAX_OUTLETS:
            self._forget()
        for outlet in self._outlets.values():
            outlet.due = [None, None]
        for stream, due_at in survey.due_at.items():
            outlet = self.outlet(stream.place)
            emptied_at = outlet.emptied_at[stream.is_retry]
            if from_start or emptied_at is None or due_at > emptied_at:
                outlet.due[stream.is_retry] = at + (due_at - survey.now).total_seconds()
        for stream, due in self._told_since:
            self.outlet(stream.place).tell(stream.is_retry, due)
        self._surveyed_at = survey.now
        self._lost = set(survey.lost)
        self._deleted = survey.deleted
        self.is_unsure = False
        in_line = [place for of_org in self._ready.values() for place in of_org if place in self._outlets]
        self._ready.clear()
        self._later.clear()
        for place in dict.fromkeys([*in_line, *self._outlets]):
            outlet = self._outlets[place]
            if from_start:
                outlet.floors = [START, START]
            self.arrange(outlet, at)

    def _forget(self) -> None:
        self._outlets = {place: outlet for place, outlet in self._outlets.items() if outlet.in_flight or outlet.counted}
        self._in_flight = {place.org_id: self._in_flight[place.org_id] for place in self._outlets}

    def tell(self, stream: Stream, at: float, due: float) -> None:
        outlet = self.outlet(stream.place)
        outlet.tell(stream.is_retry, due)
        self.arrange(outlet, at)
        self._told_since.append((stream, due))

    def next_at(self, at: float) -> float | None:
        """When something is to be asked for: now, later; None: nobody knows of anything."""
        self._move_on(at)
        if self._ready:
            return at
        return self._later[0][0] if self._later else None

    def arrange(self, outlet: Outlet, at: float) -> None:
        """Note where an outlet stands now; what was noted of it before counts no longer."""
        self._notes += 1
        outlet.turn = self._notes
        if outlet.counted:
            self._counted[outlet.place] = outlet
        elif outlet.place in self._counted:
            del self._counted[outlet.place]
        when = outlet.asked_at() if self._may_ask(outlet.place) else None
        if when is not None and when <= at:
            self._ready.setdefault(outlet.place.org_id, {})[outlet.place] = outlet
            return
        self._unready(outlet)
        if when is not None:
            heappush(self._later, (when, outlet.turn, id(outlet), outlet))

    def _may_ask(self, place: Place) -> bool:
        """Where nobody can be reached, for a lease that ran out: its try is written down, and the task waits."""
        return self._is_served(place) or any(Stream(place, is_retry) in self._lost for is_retry in (False, True))

    def _is_served(self, place: Place) -> bool:
        return self._can_reach(place) or place in self._deleted

    def _unready(self, outlet: Outlet) -> None:
        of_org = self._ready.get(outlet.place.org_id)
        if of_org is not None and of_org.pop(outlet.place, None) is not None and not of_org:
            del self._ready[outlet.place.org_id]

    def _move_on(self, at: float) -> None:
        while self._later and self._later[0][0] <= at:
            _, turn, _, outlet = heappop(self._later)
            if turn == outlet.turn:
                self.arrange(outlet, at)

    def doubt(self) -> None:
        """What was learned of limits and breakers may hold no longer: it is to be learned again."""
        for outlet in self._counted.values():
            outlet.owned_until = 0.0

    # -- whose turn it is ------------------------------------------------------------------------------------------

    def to_own(self, at: float) -> list[Place]:
        """Places that must be had to oneself before they are asked, or whose breaker is to be moved on.

        What holds a place back is no reason to leave it out: a person may have lifted it, and owning it tells so.
        """
        wanted = [
            place
            for place, outlet in self._counted.items()
            if max(outlet.owned_until, outlet.not_before) <= at
            and (isinstance(outlet.breaker, Ramping) or (outlet.has_due(at) and self._may_ask(place)))
        ]
        return wanted[:MAX_ASKS]

    def guarded(self, at: float) -> list[Outlet]:
        """The outlets that are ours and whose breaker is not closed."""
        return [
            outlet
            for outlet in self._counted.values()
            if not isinstance(outlet.breaker, Closed) and outlet.owned_until > at
        ]

    def asks(self, at: float, free: int, limit: int, *, hurry: bool = False) -> list[Ask]:
        """What to claim: `limit` at most, where `free` is the room in all.

        In a hurry small claims are made too.
        """
        self._move_on(at)
        self.is_short_of_room = False
        turns = self._turns(at, free, hurry)
        if not turns:
            return []
        asks: list[Ask] = []
        for outlet, room in self._share_out(turns, free, limit).items():
            if room > 0:
                self._to_the_end(outlet)
            is_served = self._is_served(outlet.place)
            for is_retry, most in enumerate(outlet.split(at, room)):
                stream = Stream(outlet.place, bool(is_retry))
                if not is_served:  # those behind the one that was lost wait to be reached
                    most = min(most, 1) if stream in self._lost else 0
                if most > 0:
                    asks.append(Ask(stream, most, outlet.floors[is_retry]))
        return asks

    def _turns(self, at: float, free: int, hurry: bool) -> dict[UUID, list[tuple[Outlet, int]]]:
        """The outlets that are asked now, with their room, by org: of each org one, then of each one more."""
        turns: dict[UUID, list[tuple[Outlet, int]]] = {}
        lines = {org_id: iter(list(of_org.values())) for org_id, of_org in self._ready.items()}
        count = 0
        while lines:
            for org_id in list(lines):
                turn = self._next_turn(lines[org_id], at, free, hurry)
                if turn is None:
                    del lines[org_id]
                    continue
                turns.setdefault(org_id, []).append(turn)
                count += 1
                if count == MAX_ASKS:
                    return turns
        return turns

    def _next_turn(self, line: Iterator[Outlet], at: float, free: int, hurry: bool) -> tuple[Outlet, int] | None:
        for outlet in line:
            if outlet.counted and outlet.owned_until <= at:
                continue
            room = min(outlet.room(at, free), self._room_of_org(outlet, free))
            if room > 0 and (hurry or not outlet.is_crowded(free)):
                return outlet, room
            self._wait_for_room(outlet, at)
        return None

    def _to_the_end(self, outlet: Outlet) -> None:
        """Of its org's line, and its org of all orgs'. Who was given nothing stays where it is."""
        org_id = outlet.place.org_id
        of_org = self._ready.pop(org_id)
        of_org[outlet.place] = of_org.pop(outlet.place)
        self._ready[org_id] = of_org

    def _room_of_org(self, outlet: Outlet, free: int, granted: int = 0) -> int:
        """How many more its org may begin there than it has in flight and was granted just now."""
        if outlet.is_our_own:
            return free
        in_flight = self._in_flight[outlet.place.org_id] + granted
        reach = in_flight + free
        return max(int(reach * ORG_PART), min(reach, FEW)) - in_flight

    def _wait_for_room(self, outlet: Outlet, at: float) -> None:
        """A place that its limits hold back says until when; any other waits for a try to end."""
        until = outlet.held_back_until(at)
        if until is None:
            self.is_short_of_room = True
        else:
            outlet.paced_until = until
            self.arrange(outlet, at)

    def _share_out(
        self, turns: Mapping[UUID, Sequence[tuple[Outlet, int]]], free: int, limit: int
    ) -> dict[Outlet, int]:
        """Each org the same, within it each place the same; what one does not need goes to those that do."""
        granted: dict[Outlet, int] = {}
        taken: Counter[UUID] = Counter()  # by each org
        left = limit
        per_org = max(1, limit // len(turns))
        for org_id, outlets in turns.items():
            share = max(1, per_org // len(outlets))
            for outlet, room in outlets:
                of_org = min(per_org - taken[org_id], self._room_of_org(outlet, free, taken[org_id]))
                granted[outlet] = max(0, min(room, share, left, of_org, outlet.slots(free)))
                if _is_asked_already(outlet, granted):
                    granted[outlet] = 0
                taken[org_id] += granted[outlet]
                left -= granted[outlet]
                free -= granted[outlet]
        for org_id, outlets in turns.items():
            for outlet, room in outlets:
                of_org = self._room_of_org(outlet, free, taken[org_id])
                more = max(0, min(room - granted[outlet], left, of_org, outlet.slots(free, granted[outlet])))
                if _is_asked_already(outlet, granted):
                    more = 0
                granted[outlet] += more
                taken[org_id] += more
                left -= more
                free -= more
        return granted

    # -- what came of it -------------------------------------------------------------------------------------------

    def note_begun(self, claim: Claim, at: float) -> None:
        """These tries begin."""
        counts: dict[Place, list[int]] = {}
        for job in claim.jobs:
            place = Place(job.queue, job.org_id, job.endpoint_id or NO_ENDPOINT)
            # A lost first try is a retry from now on: it came from the stream of first tries all the same.
            counts.setdefault(place, [0, 0])[job.attempts > job.lost] += 1
        for place, (firsts, retries) in counts.items():
            self.outlet(place).began(at, firsts, retries)
            self._in_flight[place.org_id] += firsts + retries

    def note_claim(self, asks: Iterable[Ask], claim: Claim, at: float) -> None:
        self.note_begun(claim, at)
        # After one that took all there was: behind leases that are long under way, but not behind rows that are
        # committed only now, which may have come due some moments ago.
        behind = Floor(claim.jobs[0].claimed_at - LATE_COMMITS, FIRST_ID) if claim.jobs else None
        seen_until = claim.jobs[0].claimed_at if claim.jobs else self._surveyed_at
        for ask in asks:
            self._lost.discard(ask.stream)
            outlet = self.outlet(ask.stream.place)
            end = claim.ends.get(ask.stream)
            if end is not None:
                outlet.floors[ask.stream.is_retry] = end
                # The next one was scheduled no sooner than the last one taken.
                late_s = (claim.jobs[0].claimed_at - end.due_at).total_seconds() if claim.jobs else 0.0
                outlet.due[ask.stream.is_retry] = at - max(0.0, late_s)
            elif ask.stream.place in claim.barred:
                outlet.counted = True
                outlet.owned_until = 0.0
            else:
                outlet.due[ask.stream.is_retry] = None
                outlet.emptied_at[ask.stream.is_retry] = seen_until
                self.is_unsure = True
                if behind is not None:
                    outlet.floors[ask.stream.is_retry] = behind
            self.arrange(outlet, at)

    def note_end(self, outlet: Outlet, took_s: float | None) -> None:
        """A try ended, after so long; None: there was none."""
        outlet.ended(took_s)
        self._in_flight[outlet.place.org_id] -= 1

    def note_owned(self, wanted: Iterable[Place], owned: Iterable[Owned], at: float) -> None:
        """What this worker has to itself; the rest belongs to another, for a while."""
        mine = {one.place: one for one in owned}
        for place in wanted:
            outlet = self.outlet(place)
            if place in mine:
                outlet.own(mine[place], at)
            else:
                outlet.not_before = at + NOT_OURS_S
            self.arrange(outlet, at)

    def look_after_budgets(self, at: float) -> None:
        """Which endpoints are unhealthy now."""
        for outlet in self._outlets.values():
            if outlet.window.failures or outlet.budget is not None:
                outlet.look_after_budget(at)


def _is_asked_already(outlet: Outlet, granted: Mapping[Outlet, int]) -> bool:
    """Whether the limits of its endpoint are spent on its sibling in this claim. In the next one it comes first."""
    return outlet.counted and any(granted.get(sibling, 0) > 0 for sibling in outlet.siblings)
