"""Whose turn it is: claims go round orgs and places, and no place takes more than its limits and its share allow."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.breaker import DEFAULT_RULES, OPEN, BreakerRules, Budget, Ramping, after_time
from redrive.core.ports import (
    HTTP_QUEUE,
    HTTP_STEP_QUEUE,
    NO_ENDPOINT,
    RELAY_QUEUE,
    Ask,
    Claim,
    Job,
    Owned,
    Place,
    Stream,
    Survey,
)
from redrive.engine.agenda import MAX_ASKS, NOT_OURS_S, Agenda
from redrive.engine.outlet import AT_A_HUB, SLOW_S, Outlet

NOW = datetime(2031, 5, 4, 12, 0, tzinfo=UTC)
AT = 1_000.0


def place(org: int, endpoint: int) -> Place:
    return Place(HTTP_QUEUE, UUID(int=org), UUID(int=1_000 * org + endpoint))


def agenda_of(due: dict[Place, float], *, retries: dict[Place, float] | None = None) -> Agenda:
    """An agenda after a survey: something is due in so many seconds at each place."""
    agenda = Agenda(DEFAULT_RULES)
    firsts = {Stream(where, False): NOW + timedelta(seconds=s) for where, s in due.items()}
    again = {Stream(where, True): NOW + timedelta(seconds=s) for where, s in (retries or {}).items()}
    agenda.learn(Survey(NOW, firsts | again), AT)
    return agenda


def asked(asks: list[Ask]) -> dict[Place, int]:
    total: Counter[Place] = Counter()
    for ask in asks:
        total[ask.stream.place] += ask.most
    return dict(total)


def begin(agenda: Agenda, asks: list[Ask], at: float = AT) -> int:
    """As if the claim had found as many as were asked for, and there were more; how many it took."""
    jobs = [job_of(ask.stream) for ask in asks for _ in range(ask.most)]
    agenda.note_claim(asks, Claim(jobs, 0, {ask.stream: ask.floor for ask in asks}), at)
    return len(jobs)


def job_of(stream: Stream) -> Job:
    queue, org_id, endpoint_id = stream.place
    nothing = UUID(int=0)
    attempts = 1 if stream.is_retry else 0
    facts = (org_id, nothing, nothing, endpoint_id, nothing, "http", queue, "t", 1, attempts, 0, NOW, 1.0, False, NOW)
    return Job(*facts, None, b"", "text/plain")


def owned(where: Place, **terms: object) -> Owned:
    given = dict.fromkeys(("max_in_flight", "rate_per_s", "paced_until", "breaker_since"))
    return Owned(where, **{**given, "breaker": "closed", "is_new": False, **terms}, now=NOW)  # type: ignore[arg-type]


def test_each_org_has_the_same_share_however_many_endpoints_it_has() -> None:
    many = {place(1, n): 0.0 for n in range(20)}
    asks = agenda_of(many | {place(2, 0): 0.0}).asks(AT, 400, 40)
    by_org = Counter({UUID(int=1): 0, UUID(int=2): 0})
    for where, most in asked(asks).items():
        by_org[where.org_id] += most
    assert by_org == {UUID(int=1): 20, UUID(int=2): 20}


def test_what_one_does_not_need_goes_to_those_that_do() -> None:
    agenda = agenda_of({place(1, 1): 0.0, place(2, 1): 0.0})
    agenda.outlet(place(2, 1)).max_in_flight = 3
    assert asked(agenda.asks(AT, 1_000, 100)) == {place(1, 1): 97, place(2, 1): 3}


def test_an_org_with_more_places_than_a_claim_asks_leaves_the_others_their_turn() -> None:
    agenda = agenda_of({place(1, n): 0.0 for n in range(MAX_ASKS + 72)} | {place(2, 0): 0.0})
    assert place(2, 0) in asked(agenda.asks(AT, 400, 400))


def test_an_org_with_more_places_than_a_claim_may_take_leaves_the_others_their_part() -> None:
    agenda = agenda_of({place(1, n): 0.0 for n in range(10)} | {place(2, 0): 0.0})
    for _ in range(3):
        assert asked(agenda.asks(AT, 100, 5, hurry=True))[place(2, 0)] >= 2


def test_who_was_given_nothing_keeps_the_turn_though_surveys_come_between() -> None:
    orgs = [place(org, 0) for org in range(1, 1_001)]
    agenda = Agenda(DEFAULT_RULES)
    survey = Survey(NOW, {Stream(where, False): NOW for where in orgs})
    seen: Counter[Place] = Counter()
    for _ in range(10):
        agenda.learn(survey, AT)
        seen.update(asked(agenda.asks(AT, 400, 100)))
    assert set(seen.values()) == {1}
    assert len(seen) == 1_000


def test_more_places_than_a_claim_asks_have_their_turn_one_after_the_other() -> None:
    places = {place(1, n): 0.0 for n in range(3 * MAX_ASKS)}
    agenda = agenda_of(places)
    turns = [set(asked(agenda.asks(AT, 10_000, 400))) for _ in range(3)]
    assert [len(turn) for turn in turns] == [MAX_ASKS] * 3
    assert turns[0] | turns[1] | turns[2] == set(places)


def test_what_falls_due_later_is_asked_for_then() -> None:
    agenda = agenda_of({place(1, 1): 5.0})
    assert agenda.asks(AT, 400, 100) == []
    assert agenda.next_at(AT) == AT + 5
    assert set(asked(agenda.asks(AT + 5, 400, 100))) == {place(1, 1)}


def test_a_slow_or_unknown_place_gets_a_fifth_of_the_room_and_a_quick_one_three() -> None:
    agenda = agenda_of({place(1, 1): 0.0})
    assert asked(agenda.asks(AT, 400, 400)) == {place(1, 1): 80}
    agenda.outlet(place(1, 1)).took_s = SLOW_S / 2
    assert asked(agenda.asks(AT, 400, 400)) == {place(1, 1): 240}


def test_a_handler_may_have_all_the_room() -> None:
    where = Place("handler:edi", UUID(int=1), NO_ENDPOINT)
    assert asked(agenda_of({where: 0.0}).asks(AT, 10, 10)) == {where: 10}


def test_places_that_hang_never_take_the_last_of_the_room() -> None:
    places = {place(org, n): 0.0 for org in range(1, 6) for n in range(4)}
    agenda = agenda_of(places)
    free = 500
    for _ in range(50):
        asks = agenda.asks(AT, free, 400, hurry=True)
        begin(agenda, asks)
        free -= sum(ask.most for ask in asks)
    assert 500 / (4 + len(places)) - 1 <= free
    assert asked(agenda.asks(AT, free, 400)) == {}
    agenda.tell(Stream(place(9, 9), False), AT, AT)
    assert asked(agenda.asks(AT, free, 400))[place(9, 9)] >= 4


def fill(agenda: Agenda, room: int) -> int:
    """Let tries begin that never end, until nothing more may; the room that is left."""
    while begun := begin(agenda, agenda.asks(AT, room, 400, hurry=True)):
        room -= begun
    return room


@pytest.mark.parametrize("took_s", [SLOW_S, SLOW_S / 100], ids=["as ever", "though they were quick"])
def test_an_org_whose_endpoints_all_hang_leaves_room_for_another_s(took_s: float) -> None:
    agenda = agenda_of({place(1, n): 0.0 for n in range(200)})
    for n in range(200):
        agenda.outlet(place(1, n)).took_s = took_s
    assert (left := fill(agenda, 100)) == 20
    agenda.tell(Stream(place(2, 0), False), AT, AT)
    assert asked(agenda.asks(AT, left, 400)) == {place(2, 0): 4}
    agenda.note_end(agenda.outlet(place(1, 0)), 30.0)
    assert fill(agenda, left + 1) < left


def test_of_many_orgs_that_hang_none_takes_the_last_of_the_room() -> None:
    agenda = agenda_of({place(org, n): 0.0 for org in range(1, 5) for n in range(200)})
    left = fill(agenda, 500)
    agenda.tell(Stream(place(9, 0), False), AT, AT)
    assert asked(agenda.asks(AT, left, 400, hurry=True))[place(9, 0)] >= 4


# -- where nobody can be reached ---------------------------------------------------------------------------------------


def test_a_place_that_cannot_be_reached_is_asked_for_the_lease_that_was_lost_there_and_no_other() -> None:
    away, gone = place(1, 1), place(1, 2)
    streams = [Stream(where, is_retry) for where in (away, gone) for is_retry in (False, True)]
    agenda = Agenda(DEFAULT_RULES, can_reach=lambda _place: False)
    due = Survey(NOW, dict.fromkeys(streams, NOW))
    agenda.learn(due, AT)
    assert agenda.asks(AT, 100, 100) == []
    agenda.learn(due._replace(lost=frozenset({streams[1]}), deleted=frozenset({gone})), AT)
    asks = agenda.asks(AT, 100, 100)
    assert {ask.stream: ask.most for ask in asks} == {streams[1]: 1, streams[2]: 8, streams[3]: 8}
    begin(agenda, asks)
    assert away not in asked(agenda.asks(AT, 100, 100, hurry=True))


def test_a_hub_is_given_a_few_at_a_time() -> None:
    where = Place(RELAY_QUEUE, UUID(int=1), UUID(int=2))
    agenda = agenda_of({where: 0.0})
    agenda.outlet(where).took_s = SLOW_S / 100
    assert asked(agenda.asks(AT, 500, 400)) == {where: AT_A_HUB}


def test_small_claims_wait_for_more_room_unless_there_is_a_hurry() -> None:
    agenda = agenda_of({place(1, 1): 0.0})
    outlet = agenda.outlet(place(1, 1))
    outlet.took_s, outlet.in_flight = 0.01, 90
    assert agenda.asks(AT, 110, 100) == []
    assert agenda.is_short_of_room
    assert asked(agenda.asks(AT, 110, 100, hurry=True)) == {place(1, 1): 30}


def test_first_tries_and_retries_share_the_room_of_a_place() -> None:
    agenda = agenda_of({place(1, 1): 0.0}, retries={place(1, 1): 0.0})
    asks = agenda.asks(AT, 1_000, 100)
    assert {ask.stream.is_retry: ask.most for ask in asks} == {False: 50, True: 50}


def test_an_emptied_stream_is_asked_again_when_something_is_told() -> None:
    agenda = agenda_of({place(1, 1): 0.0})
    asks = agenda.asks(AT, 400, 100)
    agenda.note_claim(asks, Claim([], 0, {}), AT)
    assert agenda.asks(AT, 400, 100) == []
    assert agenda.is_unsure
    agenda.tell(Stream(place(1, 1), True), AT, AT + 2)
    assert agenda.next_at(AT) == AT + 2


def test_what_somebody_has_in_hand_is_no_news() -> None:
    """A survey names the first of a stream, a lease among them: looking ahead, that is nothing to ask for."""
    where = place(1, 1)
    agenda = agenda_of({where: -1.0})
    agenda.note_claim(agenda.asks(AT, 100, 100), Claim([], 0, {}), AT)
    agenda.learn(Survey(NOW, {Stream(where, False): NOW - timedelta(seconds=1)}), AT + 1, from_start=False)
    assert agenda.next_at(AT + 1) is None
    agenda.learn(Survey(NOW, {Stream(where, False): NOW + timedelta(seconds=5)}), AT + 1, from_start=False)
    assert agenda.next_at(AT + 1) == AT + 6
    agenda.learn(Survey(NOW, {Stream(where, False): NOW - timedelta(seconds=1)}), AT + 2)
    assert agenda.next_at(AT + 2) == AT + 2  # a lease may have ended, and a row may have come late


def test_what_is_told_while_a_survey_is_made_is_not_forgotten() -> None:
    agenda = agenda_of({})
    agenda.expect_survey()
    agenda.tell(Stream(place(1, 1), True), AT, AT + 3)
    agenda.learn(Survey(NOW, {}), AT + 1)
    assert agenda.next_at(AT + 1) == AT + 3
    agenda.expect_survey()
    agenda.learn(Survey(NOW, {}), AT + 2)
    assert agenda.next_at(AT + 2) is None


def test_a_barred_place_is_to_be_owned_and_then_its_limits_hold() -> None:
    where = place(1, 1)
    agenda = agenda_of({where: 0.0})
    asks = agenda.asks(AT, 400, 100)
    agenda.note_claim(asks, Claim([], 0, {}, frozenset([where])), AT)
    assert agenda.asks(AT, 400, 100) == []
    assert agenda.to_own(AT) == [where]
    agenda.note_owned([where], [owned(where, max_in_flight=2)], AT)
    asks = agenda.asks(AT, 400, 100)
    assert asked(asks) == {where: 2}
    begin(agenda, asks)
    assert agenda.asks(AT, 400, 100, hurry=True) == []
    agenda.outlet(where).ended(0.1)
    assert asked(agenda.asks(AT, 400, 100)) == {where: 1}


def test_a_place_that_another_worker_has_is_looked_at_again_later() -> None:
    where = place(1, 1)
    agenda = agenda_of({where: 0.0})
    agenda.outlet(where).counted = True
    agenda.arrange(agenda.outlet(where), AT)
    assert agenda.to_own(AT) == [where]
    agenda.note_owned([where], [], AT)
    assert agenda.to_own(AT) == []
    assert agenda.next_at(AT) == AT + NOT_OURS_S
    assert agenda.to_own(AT + NOT_OURS_S) == [where]


def test_a_rate_lets_through_what_it_says_and_tells_when_to_ask_again() -> None:
    where = place(1, 1)
    agenda = agenda_of({where: 0.0})
    agenda.note_owned([where], [owned(where, rate_per_s=4.0)], AT)
    began, at = 0, AT
    while at < AT + 2:
        asks = agenda.asks(at, 400, 100, hurry=True)
        begin(agenda, asks, at)
        began += sum(ask.most for ask in asks)
        upcoming = agenda.next_at(at)
        assert upcoming is not None
        at = max(upcoming, at + 0.001)
        agenda.note_owned([where], [owned(where, rate_per_s=4.0)], at)
    assert 8 <= began <= 9


def trickle_of(agenda: Agenda, where: Place, *, for_s: float, takes_s: float) -> tuple[int, int]:
    """How many tries an open breaker lets begin, each of which takes so long; and how many were under way at once."""
    agenda.note_owned([where], [owned(where, breaker="open", breaker_since=NOW)], AT)
    outlet = agenda.outlet(where)
    began, most, at = 0, 0, AT
    ends: list[float] = []
    while at < AT + for_s:
        while ends and ends[0] <= at:
            ends.pop(0)
            agenda.note_end(outlet, takes_s)
        outlet.owned_until = at + 1
        agenda.arrange(outlet, at)
        count = begin(agenda, agenda.asks(at, 400, 100, hurry=True), at)
        ends += [at + takes_s] * count
        began += count
        most = max(most, outlet.in_flight)
        at += 0.01
    return began, most


def test_a17_an_open_breaker_lets_ten_tries_a_second_through() -> None:
    where = place(1, 1)
    began, most = trickle_of(agenda_of({where: 0.0}), where, for_s=10, takes_s=0.02)
    assert 90 <= began <= 101
    assert most <= 5


def test_a17_an_open_breaker_lets_five_tries_be_under_way_at_once() -> None:
    where = place(1, 1)
    began, most = trickle_of(agenda_of({where: 0.0}), where, for_s=10, takes_s=2.0)
    assert most == 5
    assert began <= 25


@pytest.mark.parametrize(("firsts", "retries"), [(-20.0, -10.0), (-10.0, -20.0)])
def test_a17_an_open_breaker_keeps_the_order_of_the_schedule(firsts: float, retries: float) -> None:
    where = place(1, 1)
    agenda = agenda_of({where: firsts}, retries={where: retries})
    agenda.note_owned([where], [owned(where, breaker="open", breaker_since=NOW)], AT)
    (ask,) = agenda.asks(AT, 400, 100, hurry=True)
    assert (ask.stream.is_retry, ask.most) == (retries < firsts, 1)


def test_a_place_that_is_held_back_is_owned_again_for_what_a_person_changed() -> None:
    where = place(1, 1)
    agenda = agenda_of({where: 0.0})
    agenda.note_claim(agenda.asks(AT, 100, 100), Claim([], 0, {}, barred=frozenset({where})), AT)
    agenda.note_owned(
        [where], [owned(where, rate_per_s=1 / 300, is_new=True, paced_until=NOW + timedelta(seconds=300))], AT
    )
    agenda.tell(Stream(where, True), AT, AT)
    assert agenda.asks(AT, 100, 100) == []
    assert agenda.to_own(AT + 1) == []
    assert agenda.to_own(AT + 4) == [where]
    agenda.note_owned([where], [owned(where)], AT + 4)
    assert asked(agenda.asks(AT + 4, 100, 100)) == {where: 20}


def test_what_is_known_of_limits_is_doubted_when_anything_may_have_changed() -> None:
    where = place(1, 1)
    agenda = agenda_of({where: 0.0})
    agenda.note_claim(agenda.asks(AT, 100, 100), Claim([], 0, {}, barred=frozenset({where})), AT)
    agenda.note_owned([where], [owned(where, rate_per_s=0.01)], AT)
    assert agenda.to_own(AT) == []
    agenda.doubt()
    assert agenda.to_own(AT) == [where]


def test_a_ramp_is_watched_to_its_end_though_nothing_is_due() -> None:
    where = place(1, 1)
    agenda = agenda_of({where: 0.0})
    agenda.note_claim(agenda.asks(AT, 100, 100), Claim([], 0, {}, barred=frozenset({where})), AT)
    agenda.note_owned([where], [owned(where, breaker="ramping", breaker_since=NOW)], AT)
    agenda.learn(Survey(NOW, {}), AT + 1)
    assert agenda.to_own(AT + 4) == [where]


def test_whoever_takes_over_a_rate_waits_as_long_as_its_last_owner_would_have() -> None:
    outlet = Outlet(place(1, 1), DEFAULT_RULES)
    outlet.own(owned(place(1, 1), rate_per_s=0.1, paced_until=NOW + timedelta(seconds=7), is_new=True), AT)
    assert outlet.room(AT, 100) == 0
    assert outlet.held_back_until(AT) == pytest.approx(AT + 7)
    outlet.own(owned(place(1, 1), rate_per_s=0.1, paced_until=NOW + timedelta(seconds=7), is_new=False), AT + 8)
    assert outlet.room(AT + 8, 100) == 1  # its own count is the better one


def test_a_ramp_that_began_while_another_owned_the_place_is_learned() -> None:
    outlet = Outlet(place(1, 1), DEFAULT_RULES)
    outlet.own(owned(place(1, 1), breaker="ramping", breaker_since=NOW, is_new=True), AT)
    outlet.own(owned(place(1, 1), breaker="ramping", breaker_since=NOW, is_new=True), AT + 100)
    assert after_time(outlet.breaker, AT + 100.5, DEFAULT_RULES) == Ramping(AT + 100)


def test_a_budget_that_is_spent_leaves_nothing_to_ask_before_a_first_try_that_comes_later() -> None:
    where = place(1, 1)
    agenda = agenda_of({where: 30.0}, retries={where: 0.0})
    outlet = agenda.outlet(where)
    outlet.budget = Budget(DEFAULT_RULES, AT)
    outlet.budget.take(AT, outlet.budget.allows(AT))
    assert agenda.asks(AT, 100, 100, hurry=True) == []
    assert agenda.next_at(AT) == pytest.approx(AT + 0.1)


def test_a_ramp_lets_more_and_more_through() -> None:
    outlet = Outlet(place(1, 1), DEFAULT_RULES)
    outlet.took_s = 0.01
    outlet.set_breaker(Ramping(AT), AT)
    rates = []
    for second in range(4):
        began = 0
        for step in range(1_000):
            at = AT + 3 * second + step / 1_000
            room = outlet.room(at, 400)
            outlet.began(at, room, 0)
            outlet.in_flight = 0
            began += room
        rates.append(began)
    assert rates == sorted(rates)
    assert 10 <= rates[0] <= 15
    assert 7 <= rates[3] / rates[0] <= 9


def test_the_retries_of_an_unhealthy_endpoint_have_a_budget_until_it_recovers() -> None:
    rules = BreakerRules(min_tries=5, min_span_s=0, retry_floor_per_s=1, failure_rate=1)
    outlet = Outlet(place(1, 1), rules)
    outlet.took_s = 0.01
    for n in range(10):
        outlet.succeeded(False) if n % 2 else outlet.failed(AT)
    outlet.look_after_budget(AT)
    outlet.tell(True, AT)
    assert outlet.room(AT, 400) == 3  # a quarter of ten tries, and the trickle
    outlet.began(AT, 0, 3)
    for _ in range(3):
        outlet.ended(0.01)
    assert outlet.room(AT, 400) == 0
    assert outlet.held_back_until(AT) is not None
    outlet.succeeded(False)
    assert outlet.room(AT, 400) == 0
    outlet.succeeded(True)
    assert outlet.room(AT, 400) == 1
    outlet.tell(False, AT)
    assert outlet.split(AT, outlet.room(AT, 400)) == (239, 1)
    outlet.set_breaker(OPEN, AT)
    outlet.look_after_budget(AT)
    assert outlet.budget is None  # what an open breaker lets through is limited already


@given(
    limits=st.lists(st.one_of(st.none(), st.integers(1, 50)), min_size=1, max_size=30),
    orgs=st.integers(1, 5),
    free=st.integers(0, 500),
    limit=st.integers(1, 400),
    rounds=st.integers(1, 4),
)
def test_no_claim_asks_for_more_than_there_is_room_for(
    limits: list[int | None], orgs: int, free: int, limit: int, rounds: int
) -> None:
    places = [place(1 + n % orgs, n) for n in range(len(limits))]
    agenda = agenda_of(dict.fromkeys(places, 0.0))
    for where, most in zip(places, limits, strict=True):
        agenda.outlet(where).max_in_flight = most
    for _ in range(rounds):
        asks = agenda.asks(AT, free, min(limit, max(free, 1)), hurry=True)
        total = sum(ask.most for ask in asks)
        assert all(ask.most > 0 for ask in asks)
        assert total <= min(limit, free)
        begin(agenda, asks)
        free -= total
        for where, most in zip(places, limits, strict=True):
            assert most is None or agenda.outlet(where).in_flight <= most


@pytest.mark.parametrize("terms", [{"max_in_flight": 1}, {"rate_per_s": 1.0}, {"breaker": "open", "max_in_flight": 1}])
def test_deliveries_to_an_endpoint_and_steps_that_call_it_share_its_limits(terms: dict[str, object]) -> None:
    deliveries = place(1, 1)
    both = [deliveries, deliveries._replace(queue=HTTP_STEP_QUEUE)]
    agenda = agenda_of(dict.fromkeys(both, 0.0))
    agenda.note_owned(both, [owned(where, **terms) for where in both], AT)
    first = agenda.asks(AT, 100, 100)
    assert begin(agenda, first) == 1
    if "rate_per_s" not in terms:
        assert agenda.asks(AT, 99, 99) == []
        agenda.note_end(agenda.outlet(first[0].stream.place), 0.1)
    second = agenda.asks(AT + 1, 100, 100)
    assert [ask.most for ask in second] == [1]
    assert second[0].stream.place != first[0].stream.place  # they take turns


def test_what_is_known_of_a_rate_from_before_another_worker_had_the_endpoint_holds_no_longer() -> None:
    deliveries = place(1, 1)
    both = [deliveries, deliveries._replace(queue=HTTP_STEP_QUEUE)]
    agenda = agenda_of(dict.fromkeys(both, 0.0))
    agenda.note_owned(both, [owned(where, rate_per_s=1.0) for where in both], AT)
    until = NOW + timedelta(seconds=0.5)
    terms = [owned(where, rate_per_s=1.0, is_new=True, paced_until=until) for where in both]
    agenda.note_owned(both, terms, AT + 20)
    assert agenda.asks(AT + 20.4, 100, 100) == []
    assert begin(agenda, agenda.asks(AT + 20.5, 100, 100), AT + 20.5) == 1
