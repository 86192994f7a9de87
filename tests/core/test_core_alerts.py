"""Alerts, as a judgement: what fires, what goes on, what is over, and that nothing wavers."""

from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.alert_sights import (
    EndpointReading,
    InstallationReading,
    JobReading,
    OrgReading,
    TransactionReading,
    of_installation,
    of_org,
)
from redrive.core.alert_words import fired_text, fired_together, over_text, over_together, percent, span
from redrive.core.alerts import (
    CLEARS_AT,
    LATELY_S,
    MAX_TOLD_ALONE,
    RULES,
    TOGETHER_EVERY_S,
    AlertRuleError,
    End,
    Firing,
    Open,
    Sight,
    Standing,
    Subject,
    Told,
    Why,
    default_terms,
    judge,
    messages,
    place,
    read_terms,
    rules_of,
    stored_terms,
)
from redrive.core.pulse import wait_slot

ORG = UUID(int=1)
AT = datetime(2031, 5, 4, 12, 0, tzinfo=UTC)
DEFAULTS = {name: default_terms(rule) for name, rule in RULES.items()}
LETTERS = RULES["dead_letters_open"]
QUIET = OrgReading(ORG, 0, 0, {}, 0, None, None)
ALL_WELL = InstallationReading(5.0, None, 10_000.0)


def taking(**seconds: int) -> dict[int, int]:
    """So many deliveries that took so long: `s59=3`."""
    return {wait_slot(float(name[1:])): n for name, n in seconds.items()}


def follow(threshold: float, values: list[float | None]) -> list[tuple[int, bool]]:
    """The opening and ending of incidents under a number that moves, as the store carries them out."""
    terms = read_terms(LETTERS, {"threshold": threshold})
    firing: list[Firing] = []
    changes = []
    for turn, value in enumerate(values):
        sight = Sight(Subject("org", ORG), place(value, threshold), {})
        for change in judge(LETTERS, terms, firing, [sight]):
            opens = isinstance(change, Open)
            firing = [Firing(UUID(int=turn), LETTERS.name, sight.subject)] if opens else []
            changes.append((turn, opens))
    return changes


NUMBERS = st.none() | st.floats(0, 200, allow_nan=False)


@given(threshold=st.integers(0, 100), values=st.lists(NUMBERS, max_size=60))
def test_openings_and_endings_take_turns_and_each_has_its_reason(threshold: int, values: list[float | None]) -> None:
    changes = follow(threshold, values)
    assert [opens for _, opens in changes] == [n % 2 == 0 for n in range(len(changes))]
    for turn, opens in changes:
        value = values[turn]
        if opens:
            assert value is not None
            assert value > threshold
        else:
            assert value is None or value <= threshold * CLEARS_AT


@given(
    threshold=st.integers(1, 100),
    was_firing=st.booleans(),
    shares=st.lists(st.floats(CLEARS_AT, 1, exclude_min=True), max_size=30),
)
def test_inside_the_band_nothing_ever_changes(threshold: int, was_firing: bool, shares: list[float]) -> None:
    begun: list[float | None] = [threshold + 1.0] if was_firing else [0.0]
    inside = [value for share in shares if threshold * CLEARS_AT < (value := threshold * share) <= threshold]
    assert follow(threshold, [*begun, *inside]) == ([(0, True)] if was_firing else [])


@given(threshold=st.integers(0, 100), values=st.lists(NUMBERS, min_size=1, max_size=40))
def test_it_fires_exactly_while_it_was_above_and_has_not_cleared_since(
    threshold: int, values: list[float | None]
) -> None:
    changes = follow(threshold, values)
    fires = bool(changes) and changes[-1][1]
    last = values[-1]
    if last is not None and last > threshold:
        assert fires
    if last is None or last <= threshold * CLEARS_AT:
        assert not fires


def standing(rule: str, reading: OrgReading, **terms: object) -> Standing:
    (sight,) = of_org(reading, {**DEFAULTS, rule: read_terms(RULES[rule], terms)})[rule]
    return sight.standing


def test_a_rate_needs_volume_to_begin_but_none_to_go_on() -> None:
    assert standing("failure_rate", QUIET._replace(delivered=18, failed=2)) is Standing.ABOVE
    assert standing("failure_rate", QUIET._replace(delivered=17, failed=2)) is Standing.BAND
    assert standing("failure_rate", QUIET._replace(delivered=95, failed=5)) is Standing.BAND
    assert standing("failure_rate", QUIET._replace(delivered=96, failed=4)) is Standing.CLEAR
    assert standing("failure_rate", QUIET) is Standing.CLEAR
    assert standing("slow_delivery", QUIET._replace(waits=taking(s60=20))) is Standing.ABOVE
    assert standing("slow_delivery", QUIET._replace(waits=taking(s60=19))) is Standing.BAND
    assert standing("slow_delivery", QUIET._replace(waits=taking(s45=500))) is Standing.CLEAR


def test_deliveries_are_slow_by_their_p95_and_a_target_that_people_choose_is_exact() -> None:
    slow = QUIET._replace(waits=taking(s59=94, s61=6))
    assert standing("slow_delivery", slow) is Standing.ABOVE
    (sight,) = of_org(slow, DEFAULTS)["slow_delivery"]
    assert sight.saw["p95_s"] == pytest.approx(61, rel=0.025)
    assert fired_text(Open(RULES["slow_delivery"], sight)).startswith(
        "The p95 of the time to delivery is 1 min 1 s, and should be 1 min at most "
        "(100 deliveries without a retry within the last 15 min)."
    )
    assert standing("slow_delivery", QUIET._replace(waits=taking(s59=95, s61=5))) is Standing.BAND
    assert standing("slow_delivery", slow, target_s=120) is Standing.CLEAR
    assert standing("slow_delivery", QUIET._replace(waits=taking(s700000=100)), target_s=604_800) is Standing.ABOVE


@pytest.mark.parametrize(
    ("rule", "reading", "seen"),
    [
        ("dead_letters_open", QUIET._replace(dead_letters=50), Standing.BAND),
        ("dead_letters_open", QUIET._replace(dead_letters=51), Standing.ABOVE),
        ("dead_letters_open", QUIET._replace(dead_letters=40), Standing.CLEAR),
        ("dead_letter_arrived", QUIET._replace(letter_age_s=899, dead_letters=1), Standing.ABOVE),
        ("dead_letter_arrived", QUIET._replace(letter_age_s=900, dead_letters=1), Standing.CLEAR),
        ("dead_letter_arrived", QUIET._replace(letter_age_s=3, dead_letters=0), Standing.CLEAR),
        ("oldest_due", QUIET._replace(due_age_s=3_601), Standing.ABOVE),
        ("oldest_due", QUIET._replace(due_age_s=3_600), Standing.BAND),
        ("oldest_due", QUIET._replace(due_age_s=2_880), Standing.CLEAR),
    ],
)
def test_each_rule_of_an_org_has_its_default_threshold(rule: str, reading: OrgReading, seen: Standing) -> None:
    assert standing(rule, reading) is seen


def test_a_breaker_fires_when_it_opens_and_is_over_when_it_has_closed() -> None:
    seen = [
        EndpointReading(UUID(int=n), f"e{n}", breaker, AT, None, None, None)
        for n, breaker in enumerate(("open", "ramping", "closed"))
    ]
    sights = of_org(QUIET._replace(endpoints=seen), DEFAULTS)["endpoint_open"]
    assert [sight.standing for sight in sights] == [Standing.ABOVE, Standing.BAND, Standing.CLEAR]
    firing = [Firing(UUID(int=90 + n), "endpoint_open", Subject("endpoint", UUID(int=n), f"e{n}")) for n in (1, 2, 4)]
    opened, closed, deleted = judge(RULES["endpoint_open"], DEFAULTS["endpoint_open"], firing, sights)
    assert isinstance(opened, Open)
    assert opened.sight.subject.name == "e0"
    assert isinstance(closed, End)
    assert over_text(closed) == 'The breaker of endpoint "e2" is closed again.'
    assert isinstance(deleted, End)
    assert over_text(deleted) == 'Endpoint "e4" was deleted.'


def test_the_breaker_of_an_endpoint_that_is_disabled_is_nobody_s_trouble() -> None:
    """Nothing tries it: it would be open for ever."""
    off = EndpointReading(UUID(int=1), "billing", "open", AT, "9 of 10 failed", None, None, is_disabled=True)
    (sight,) = of_org(QUIET._replace(endpoints=[off]), DEFAULTS)["endpoint_open"]
    firing = [Firing(UUID(int=9), "endpoint_open", sight.subject)]
    (end,) = judge(RULES["endpoint_open"], DEFAULTS["endpoint_open"], firing, [sight])
    assert isinstance(end, End)
    assert over_text(end) == 'Endpoint "billing" was disabled: nothing waits for its breaker any more.'


@given(sizes=st.lists(st.integers(0, 30), min_size=1, max_size=200))
def test_however_incidents_come_there_are_few_messages_and_each_incident_is_told_once(sizes: list[int]) -> None:
    """Looks, ten seconds apart; what is not told waits for the next one."""
    every_s, waiting, sent = 10.0, 0, [0.0] * 0
    for turn, size in enumerate([*sizes, *[0] * 7]):
        now, waiting = turn * every_s, waiting + size
        lately = [at for at in sent if now - at < LATELY_S]
        told = messages(range(waiting), Told(len(lately), now - lately[-1] if lately else None))
        assert sum(len(message) for message in told) in (0, waiting)
        waiting -= sum(len(message) for message in told)
        sent += [now] * len(told)
        in_minute = [at for at in sent if now - at < TOGETHER_EVERY_S]
        assert len(in_minute) <= MAX_TOLD_ALONE + 1
        assert len([at for at in sent if now - at < LATELY_S]) <= MAX_TOLD_ALONE + LATELY_S / TOGETHER_EVERY_S
    assert waiting == 0


@pytest.mark.parametrize(
    ("reading", "seen"),
    [
        (ALL_WELL._replace(silent_s=61), Standing.ABOVE),
        (ALL_WELL._replace(silent_s=61, watched_s=20), Standing.BAND),  # whoever looks has just begun to
        (ALL_WELL._replace(silent_s=5, watched_s=20), Standing.CLEAR),
        (ALL_WELL._replace(silent_s=60), Standing.BAND),
        (ALL_WELL._replace(silent_s=None, due_age_s=61), Standing.ABOVE),
        (ALL_WELL._replace(silent_s=None), Standing.CLEAR),  # all stopped in good order, and nothing is due
        (ALL_WELL._replace(silent_s=5, due_age_s=9_999), Standing.CLEAR),
    ],
)
def test_a_worker_is_missed_where_one_was_or_where_there_is_work(reading: InstallationReading, seen: Standing) -> None:
    (sight,) = of_installation(reading, DEFAULTS)["no_worker"]
    assert sight.standing is seen


def test_a_job_is_stale_after_three_of_its_intervals_and_a_minute_at_least() -> None:
    jobs = [
        JobReading(f"{every:g}/{idle:g}", every, idle, None)
        for every, idle in ((1, 60), (1, 61), (3_600, 10_800), (3_600, 10_801))
    ]
    sights = of_installation(ALL_WELL._replace(jobs=jobs, watched_s=1e9), DEFAULTS)["job_stale"]
    assert [s.subject.name for s in sights if s.standing is Standing.ABOVE] == ["1/61", "3600/10801"]


def test_a_restart_in_which_nobody_looked_ends_no_incident_about_silence() -> None:
    """Nor does a process that ends in good order, as long as others may run the same job."""
    silent = ALL_WELL._replace(silent_s=500, jobs=[JobReading("herald", 1, 500, None)], watched_s=0)
    left = ALL_WELL._replace(jobs=[JobReading("herald", 1, 500, None, has_left=True)])
    for rule, subject, reading in (
        ("no_worker", Subject("installation"), silent),
        ("job_stale", Subject("job", None, "herald"), silent),
        ("job_stale", Subject("job", None, "herald"), left),
    ):
        sights = of_installation(reading, DEFAULTS)[rule]
        assert judge(RULES[rule], DEFAULTS[rule], [Firing(UUID(int=9), rule, subject)], sights) == []
        assert judge(RULES[rule], DEFAULTS[rule], [], sights) == []


def test_jobs_that_fell_silent_with_all_workers_are_told_by_one_alert() -> None:
    gone, hung = JobReading("heartbeat", 15, 100, None, 100), JobReading("herald", 1, 100, None, 3)
    parts = ALL_WELL._replace(jobs=[gone, hung])
    assert _stale(parts._replace(silent_s=90)) == ["herald"]
    assert _stale(parts._replace(silent_s=5)) == ["heartbeat", "herald"]
    assert _stale(parts._replace(silent_s=None)) == ["heartbeat", "herald"]


def _stale(reading: InstallationReading) -> list[str | None]:
    sights = of_installation(reading, DEFAULTS)["job_stale"]
    return [sight.subject.name for sight in sights if sight.standing is Standing.ABOVE]


def test_what_an_org_sets_is_checked_and_what_it_once_set_never_breaks_a_rule() -> None:
    rule = RULES["failure_rate"]
    terms = read_terms(rule, {"threshold": 0.5, "enabled": False})
    assert (terms.enabled, terms["threshold"], terms["window_s"], terms["min_volume"]) == (False, 0.5, 900, 20)
    for wrong in (
        {"threshold": 1.1},
        {"threshold": True},
        {"threshold": "5"},
        {"threshold": float("nan")},
        {"threshold": float("inf")},
        {"threshold": 10**400},
        {"min_volume": -(10**400)},
        {"min_volume": 1.5},
        {"enabled": 1},
        {"treshold": 0.5},
        {"window_s": 59},
    ):
        with pytest.raises(AlertRuleError) as caught:
            read_terms(rule, wrong)
        assert caught.value.field in wrong
    stored = stored_terms(rule, {"threshold": 10**400, "window_s": 120.0, "gone": 1, "enabled": "yes"})
    assert stored.to_spec() == {"enabled": True, "threshold": 0.05, "window_s": 120.0, "min_volume": 20}


def test_switching_a_rule_off_ends_what_it_fires() -> None:
    firing = [Firing(UUID(int=9), LETTERS.name, Subject("org", ORG))]
    above = Sight(Subject("org", ORG), Standing.ABOVE, {"open": 99, "threshold": 50})
    (end,) = judge(LETTERS, read_terms(LETTERS, {"enabled": False}), firing, [above])
    assert isinstance(end, End)
    assert end.why is Why.SWITCHED_OFF
    assert "switched off" in over_text(end)


def test_rules_of_the_installation_belong_to_one_org() -> None:
    of_one, of_others = rules_of(is_default_org=True), rules_of(is_default_org=False)
    assert {rule.name for rule in of_one} - {rule.name for rule in of_others} == {
        "no_worker",
        "job_stale",
        "long_transaction",
    }


def test_every_rule_has_words_for_its_beginning_and_its_end() -> None:
    transaction = TransactionReading(4711, "psql", "ann", "idle in transaction", AT, 2_000)
    reading = QUIET._replace(
        delivered=10,
        failed=10,
        waits=taking(s600=30),
        dead_letters=60,
        letter_age_s=3,
        due_age_s=4_000,
        endpoints=[EndpointReading(UUID(int=2), "billing", "open", AT, "9 of 10 failed", AT, "It answered 410 Gone.")],
    )
    parts = ALL_WELL._replace(
        silent_s=75, jobs=[JobReading("herald", 1, 99, "OSError: away")], transactions=[transaction, transaction]
    )
    seen = of_org(reading, DEFAULTS) | of_installation(parts, DEFAULTS)
    calm = of_org(QUIET, DEFAULTS) | of_installation(ALL_WELL, DEFAULTS)
    assert set(seen) == set(RULES)
    for name, (sight,) in seen.items():
        assert sight.standing is Standing.ABOVE, name
        opening = Open(RULES[name], sight)
        text = fired_text(opening)
        assert len(text) < 1_000
        assert text.endswith("."), text
        firing = Firing(UUID(int=9), name, sight.subject)
        after = calm[name][0] if calm[name] else None
        why = Why.CLEAR if after else Why.GONE
        assert over_text(End(firing, RULES[name], after, why)), name
        assert f'"{sight.subject.name or ""}"' in over_together(RULES[name], [End(firing, RULES[name], None, Why.GONE)])
    assert "process 4711 (application psql, user ann), which is idle in transaction" in fired_text(
        Open(RULES["long_transaction"], seen["long_transaction"][0])
    )
    many = [seen["endpoint_open"][0]] * 25
    text = fired_together(RULES["endpoint_open"], many)
    assert text.startswith("The breakers of 25 endpoints opened. ")
    assert text.endswith('"billing" and 5 others.')


def test_a_prepared_transaction_is_ended_by_its_name() -> None:
    prepared = TransactionReading(None, "it's", "ann", "prepared", AT, 2_000)
    (sight,) = of_installation(ALL_WELL._replace(transactions=[prepared]), DEFAULTS)["long_transaction"]
    text = fired_text(Open(RULES["long_transaction"], sight))
    assert "for 33 min 20 s: it was prepared (as it's, by user ann). While" in text
    assert text.endswith("by `ROLLBACK PREPARED 'it''s'`.")


def test_that_no_worker_is_missed_any_more_does_not_mean_that_one_is_there() -> None:
    rule, subject = RULES["no_worker"], Subject("installation")
    firing = [Firing(UUID(int=9), rule.name, subject)]
    for silent_s, said in ((3.0, "A worker is there again."), (None, "nothing waits for one.")):
        sights = of_installation(ALL_WELL._replace(silent_s=silent_s), DEFAULTS)[rule.name]
        (end,) = judge(rule, DEFAULTS[rule.name], firing, sights)
        assert isinstance(end, End)
        assert over_text(end).endswith(said)


def test_numbers_are_said_as_people_say_them() -> None:
    assert [span(s) for s in (0.25, 5, 45, 60, 3_900, 86_400, 180_000, 86_460)] == [
        "0.2 s",
        "5 s",
        "45 s",
        "1 min",
        "1 h 5 min",
        "1 day",
        "2 days 2 h",
        "1 day",
    ]
    assert [percent(share) for share in (0.05, 1, 0.1234)] == ["5 %", "100 %", "12.3 %"]
