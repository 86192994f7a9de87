"""Tallies of a process: what is noted cheaply, batch by batch, is what prometheus_client shows."""

from datetime import UTC, datetime
from functools import partial
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis.strategies import booleans, floats, integers, lists, sampled_from, tuples
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from redrive.core.decide import Decision, RetryIn, Succeed
from redrive.core.outcome import Category, Failure, Success
from redrive.core.ports import NO_EXCHANGE, Claim, Job, Released, Settled, Settlement
from redrive.observe import process_metrics as numbers
from redrive.observe.exposition import ProcessNumbers, merge, write
from redrive.observe.tallies import MAX_SERIES, SIZES, Counter, Gauge, Histogram, Tally

OPEN_METRICS = "application/openmetrics-text; version=1.0.0"
NOBODY = UUID(int=0)
NOW = datetime(2026, 1, 1, tzinfo=UTC)

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def shown(*tallies: Tally, process: str = "worker", accept: str = "") -> str:
    return write([ProcessNumbers(process, tallies)], accept)[0]


def samples(text: str) -> Samples:
    families = openmetrics.text_string_to_metric_families if "# EOF" in text else text_string_to_metric_families
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families(text)
        for sample in family.samples
        if not sample.name.startswith(("process_", "python_"))
    }


@settings(max_examples=25, deadline=None)
@given(values=lists(floats(0, 2_000) | integers(0, 1_000)), accept=sampled_from(["", OPEN_METRICS]))
def test_a_histogram_has_as_many_below_each_bound_as_there_were(values: list[float], accept: str) -> None:
    histogram = Histogram("some_tasks", "Some.", SIZES)
    histogram.of().note_all(values[::2])
    for value in values[1::2]:
        histogram.note(value)
    found = samples(shown(histogram, accept=accept))
    for bound in SIZES:
        assert found["some_tasks_bucket", (("le", str(bound)), ("process", "worker"))] == sum(
            v <= bound for v in values
        )
    assert found["some_tasks_count", (("process", "worker"),)] == len(values)
    assert found["some_tasks_sum", (("process", "worker"),)] == pytest.approx(sum(values))


@settings(max_examples=25, deadline=None)
@given(accept=sampled_from(["", OPEN_METRICS]), numbers_of=lists(lists(integers(0, 9), max_size=4), max_size=3))
def test_what_is_merged_is_what_each_process_said_and_stands_together(accept: str, numbers_of: list[list[int]]) -> None:
    texts = []
    for place, given_numbers in enumerate(numbers_of):
        counter = Counter("some_things", "Some.", ("of",))
        for n in given_numbers:
            counter.add((f'a "label" \\ {n}',), n)
        gauge = Gauge("some_things_now", "Now.")
        gauge.ask(partial(float, place))
        texts.append(shown(counter, gauge, process=f"worker-{place}", accept=accept))
    merged = merge(texts)
    assert samples(merged) == {name: value for text in texts for name, value in samples(text).items()}
    helps = [line for line in merged.splitlines() if line.startswith("# HELP")]
    assert len(helps) == len(set(helps))


def test_a_metric_has_a_bounded_number_of_series() -> None:
    counter = Counter("some_things", "Some.", ("of",))
    histogram = Histogram("some_seconds", "Some.", SIZES, ("of",))
    for n in range(MAX_SERIES + 10):
        counter.add((str(n),))
        histogram.note(n, (str(n),))
    assert len(counter.values) == len(histogram.series) == MAX_SERIES


def _settled(kind: str, failed: bool, attempts: int, took_s: float, held: bool, tried: bool) -> Settled:
    job = Job(
        NOBODY, NOBODY, NOBODY, None, NOBODY, kind, "queue", "type", 1, attempts, 0, NOW, 1.0, False, NOW, None, b"", ""
    )
    outcome = Failure(Category.TIMEOUT, "late") if failed else Success()
    decision: Decision = RetryIn(NOW - NOW) if failed else Succeed()
    if not tried:
        return Settled(Settlement(job, None, Released("stopped"), NO_EXCHANGE, took_s), held, None)
    return Settled(Settlement(job, outcome, decision, NO_EXCHANGE, took_s), held, None)


@settings(max_examples=25, deadline=None)
@given(
    batches=lists(
        lists(
            tuples(
                sampled_from(["http", "step", "of a newer one"]),
                booleans(),
                integers(0, 3),
                floats(0, 400),
                booleans(),
                booleans(),
            ),
            max_size=12,
        ),
        max_size=4,
    )
)
def test_notes_of_batches_add_up_to_every_try(batches: list[list[tuple[str, bool, int, float, bool, bool]]]) -> None:
    every = [one for batch in batches for one in batch]
    tried = [one for one in every if one[5]]
    before = samples(shown(*numbers.OF_WORKERS))
    for batch in batches:
        numbers.WorkerNotes().settled([_settled(*one) for one in batch], 0.5)
    after = samples(shown(*numbers.OF_WORKERS))
    grown = {name: value - before.get(name, 0) for name, value in after.items()}

    def grew(name: str, **labels: str) -> float:
        wanted = (labels | {"process": "worker"}).items()
        return sum(value for (found, have), value in grown.items() if found == name and wanted <= dict(have).items())

    for kind, label in (("http", "http"), ("step", "step"), ("of a newer one", "other")):
        mine = [one for one in tried if one[0] == kind]
        failed = sum(one[1] for one in mine)
        assert grew("redrive_attempts_total", kind=label, result="failed", category="timeout") == failed
        assert grew("redrive_attempts_total", kind=label, result="succeeded") == len(mine) - failed
        assert grew("redrive_retries_total", kind=label) == sum(one[2] > 0 for one in mine)
        assert grew("redrive_attempt_duration_seconds_count", kind=label) == len(mine)
        spent_s = sum(one[3] for one in mine)
        assert grew("redrive_attempt_duration_seconds_sum", kind=label) == pytest.approx(spent_s, abs=1e-3)
    assert grew("redrive_leases_lost_total") == sum(not one[4] for one in every)
    assert grew("redrive_leases_released_total") == len(every) - len(tried)
    assert grew("redrive_settle_seconds_count") == len(batches)
    assert grew("redrive_settle_tasks_sum") == len(every)


def test_retries_are_as_late_as_the_claim_says() -> None:
    before = numbers.RETRY_LATENESS.of().sum
    numbers.WorkerNotes().claimed(Claim([], 0, {}, late_s=[0.25, 0.5]), 0.01)
    assert numbers.RETRY_LATENESS.of().sum - before == pytest.approx(0.75)
