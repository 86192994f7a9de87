"""A broker's queues and deaths: where a retry waits and for how long, and where what died came from."""

import statistics
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from redrive.core.broker import Origin
from redrive.core.delay_queues import (
    FIRST_ASKED_S,
    MAX_QUEUES,
    MAX_RETRIES_LOOKED_AT,
    MAX_TTL_MS,
    DelayQueues,
    UnusablePolicy,
    asked_queue,
    is_delay_queue_of,
)
from redrive.core.policy import MAX_DELAY_S, Policy, PolicyKind, delay_bounds, retry_delay
from redrive.core.x_death import first_death, meaning_of, read_deaths

MS = timedelta(milliseconds=1)  # what a queue's name and a message's time to live are told in
delays = st.floats(0, MAX_DELAY_S) | st.sampled_from([0.0, 0.0005, 0.0011, 0.0012, 1.0, 86_400.0])


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    retries: dict[str, Any] = {
        "jitter": draw(st.floats(0, 1)),
        "max_retries": draw(st.integers(0, MAX_RETRIES_LOOKED_AT)),
    }
    if draw(st.booleans()):
        return Policy(PolicyKind.LIST, delays_s=tuple(draw(st.lists(delays, min_size=1, max_size=6))), **retries)
    factor = draw(st.floats(2, 100))
    return Policy(PolicyKind.EXPONENTIAL, base_s=draw(delays), factor=factor, cap_s=draw(delays), **retries)


def left_at(queue: list[tuple[timedelta, timedelta]]) -> list[timedelta]:
    """When messages leave a queue, by when they came and their time to live: at its head only."""
    left, before = [], timedelta(0)
    for came, ttl in queue:
        before = max(before, came + ttl)
        left.append(before)
    return left


def all_of(policy: Policy) -> DelayQueues:
    try:
        return DelayQueues("orders", policy)
    except UnusablePolicy:
        reject()


@given(policies(), st.integers(0, MAX_RETRIES_LOOKED_AT - 1), st.floats(0, 1))
def test_e10_a_delay_of_a_policy_has_a_queue_of_its_own_within_its_jitter(
    policy: Policy, retry: int, roll: float
) -> None:
    """So that no message waits for another. The broker waits for whole milliseconds, one at least."""
    queues = all_of(policy)
    assert len(queues.all) <= MAX_QUEUES
    if retry >= (policy.max_retries or 0):
        return
    delay, bounds = retry_delay(policy, retry, roll), delay_bounds(policy, retry)
    assert delay is not None
    assert bounds is not None
    chosen = queues.queue_of(retry, delay, None)
    assert queues.all[chosen.name] == chosen
    assert is_delay_queue_of("orders", chosen.name)
    assert not is_delay_queue_of("order", chosen.name)
    assert chosen.ttl_ms is not None
    waits = timedelta(milliseconds=chosen.ttl_ms)
    assert chosen.ttl_ms == MAX_TTL_MS or bounds[0] - MS <= waits <= bounds[1] + MS


@given(policies(), st.integers(0, MAX_RETRIES_LOOKED_AT - 1))
def test_e10_the_queues_of_a_delay_spread_like_its_jitter(policy: Policy, retry: int) -> None:
    queues = all_of(policy)
    bounds = delay_bounds(policy, retry)
    assert bounds is not None
    width_ms = (bounds[1] - bounds[0]) / MS
    if retry >= (policy.max_retries or 0) or width_ms < 100 or bounds[1] / MS > MAX_TTL_MS:
        return  # less than some milliseconds cannot be spread
    ttls = []
    for part in range(200):
        delay = retry_delay(policy, retry, (part + 0.5) / 200)
        assert delay is not None
        ttls.append(queues.queue_of(retry, delay, None).ttl_ms or 0)
    assert statistics.pstdev(ttls) >= 0.8 * width_ms / 12**0.5


@given(policies(), st.integers(0, MAX_RETRIES_LOOKED_AT - 1), st.floats(0, 1), st.floats(0.001, MAX_DELAY_S))
def test_a_delay_that_a_handler_asked_for_is_never_cut(policy: Policy, retry: int, roll: float, asked_s: float) -> None:
    queues, asked = all_of(policy), timedelta(seconds=asked_s)
    own = retry_delay(policy, retry, roll)
    assert own is not None
    delay = max(own, asked)
    chosen = queues.queue_of(retry, delay, asked)
    assert chosen.ttl_ms is None or timedelta(milliseconds=chosen.ttl_ms) >= asked


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0.001, MAX_DELAY_S)), max_size=20))
def test_a_delay_that_a_handler_asked_for_is_at_most_doubled(asked: list[tuple[float, float]]) -> None:
    queues: dict[str, list[tuple[timedelta, timedelta]]] = {}
    now = timedelta(0)
    for pause_s, delay_s in asked:
        now += timedelta(seconds=pause_s)
        delay = timedelta(seconds=delay_s)
        queues.setdefault(asked_queue("orders", delay).name, []).append((now, delay))
    for name, queue in queues.items():
        assert is_delay_queue_of("orders", name)
        for left, (came, delay) in zip(left_at(queue), queue, strict=True):
            assert delay <= left - came <= max(2 * delay, timedelta(seconds=FIRST_ASKED_S))


anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.datetimes(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ("queue", "reason", "count", "time", "exchange", "routing-keys", "original-expiration")
REASONS = st.sampled_from(["rejected", "expired", "maxlen", "delivery_limit", "{queue}"])
entries = st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, anything) | {"reason": REASONS | anything})
NAMED = ("x-death", "x-first-death-queue", "x-first-death-reason")


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(NAMED, anything) | {"x-death": st.lists(entries) | anything}))
def test_whatever_stands_where_deaths_are_told_is_read_or_left_out(headers: dict[str, Any]) -> None:
    deaths = read_deaths(headers)
    first = first_death(deaths, headers)
    assert (first is None) is (not deaths)
    for death in deaths:
        assert death.queue in meaning_of(death)[2]


def death(queue: str, reason: str, *keys: str, exchange: str = "", **more: object) -> dict[str, Any]:
    told = {"queue": queue, "reason": reason, "count": 1, "time": datetime(2031, 5, 4, tzinfo=UTC)}
    return told | {"exchange": exchange, "routing-keys": list(keys)} | more


@pytest.mark.parametrize(
    ("deaths", "origin"),
    [
        # Rejected, put off in a queue with a time to live of its own, and rejected again.
        (
            [death("late", "expired", "late"), death("orders", "rejected", "new", exchange="shop")],
            Origin("shop", "new", "orders"),
        ),
        # It waited first, for as long as its publisher wanted: without that it would never leave.
        (
            [
                death("orders", "rejected", "orders"),
                death("late", "expired", "late", **{"original-expiration": "5000"}),
            ],
            Origin("", "orders", "orders"),
        ),
        ([death("orders", "expired", "orders", **{"original-expiration": "5000"})], Origin("", "orders", "orders")),
        # Which of the keys led to the queue that it died in?
        ([death("audit", "rejected", "new", "copies", exchange="shop")], Origin("", "audit", "audit")),
        # It waited in a delay queue of a consumer.
        (
            [
                death("orders", "rejected", "orders"),
                death("orders-retry-in-1650ms", "expired", "orders-retry-in-1650ms"),
            ],
            Origin("", "orders", "orders"),
        ),
        ([death("orders", "rejected", "", exchange="fan")], Origin("fan", "", "orders")),
    ],
)
def test_a_message_came_from_where_it_first_died_and_not_from_where_it_waited(
    deaths: list[dict[str, Any]], origin: Origin
) -> None:
    oldest = deaths[-1]
    headers = {
        "x-death": deaths,
        "x-first-death-queue": oldest["queue"],
        "x-first-death-reason": oldest["reason"],
    }
    first = first_death(read_deaths(headers), headers)
    assert first is not None
    assert first.origin == origin
