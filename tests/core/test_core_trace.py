"""Trace context: read as anybody may send it, kept with an event, and the same for whoever asks about a try."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core import trace
from redrive.core.ports import Job

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
NOW = datetime(2026, 1, 1, tzinfo=UTC)

names = st.text("abcdefgh-", min_size=1, max_size=9)
values = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)


def job(**fields: Any) -> Job:
    facts: dict[str, Any] = {
        **dict.fromkeys(("org_id", "id", "event_id", "policy_id"), UUID(int=1)),
        **dict.fromkeys(("kind", "queue", "event_type", "content_type"), "x"),
        "endpoint_id": None,
        "fence": 1,
        "attempts": 0,
        "generation": 0,
        "begun_at": NOW,
        "claimed_at": NOW,
        "timeout_s": 1.0,
        "lost": False,
        "correlation_id": None,
        "body": b"",
    }
    return Job(**facts | fields)


@given(headers=st.dictionaries(names, values, max_size=4), state=st.none() | st.just("a=1"))
def test_a_context_is_found_among_the_headers_that_it_is_kept_with(headers: dict[str, str], state: str | None) -> None:
    kept = trace.as_text(trace.with_context(headers, PARENT, state))
    assert (trace.kept_context(kept), trace.kept_state(kept)) == (PARENT, state)
    assert trace.with_context_of(kept, None) == (trace.as_text(headers) if headers else None)
    other = trace.as_text(trace.with_context(headers, trace.within(PARENT, "1" * 16)))
    assert trace.with_context_of(other, kept) == kept  # the trace aside, they are the same
    assert trace.is_bare(kept) is (not headers and state is None)


@pytest.mark.parametrize(
    "given", ["", "00", PARENT.upper(), PARENT.replace("00-", "ff-"), PARENT + "-x", f"00-{'0' * 32}-{'1' * 16}-01"]
)
def test_what_is_no_context_is_none(given: str) -> None:
    assert trace.traceparent_of(given) is None
    assert trace.traceparent_of(f" {PARENT} ") == PARENT


@dataclass(frozen=True)
class Case:
    job: Job
    tracing: bool
    is_same: bool
    flag: str


@pytest.mark.parametrize(
    "case",
    [
        Case(job(headers=trace.as_headers(PARENT)), True, False, "01"),
        Case(job(headers=trace.as_headers(PARENT)), False, True, "01"),  # not ours to tell
        Case(job(headers=trace.as_headers(PARENT[:-1] + "0")), True, True, "00"),  # the caller said no
        Case(job(run_id=uuid4(), step=1, run_traceparent=PARENT), False, False, "01"),
        Case(job(run_id=uuid4(), step=1), True, False, "00"),
        Case(job(run_id=uuid4(), step=1), False, False, "01"),
    ],
)
def test_what_goes_out_is_the_tries_own_span_or_what_came(case: Case) -> None:
    sent = trace.passed_on(case.job, tracing=case.tracing)
    came = trace.context_of(case.job)
    assert sent is not None
    assert trace.traceparent_of(sent) == sent
    assert (sent == came, sent[-2:]) == (case.is_same, case.flag)


def test_every_try_has_a_span_of_its_own_and_a_job_without_a_context_none() -> None:
    tries = {(n, generation) for n in range(1, 4) for generation in range(3)}
    assert len({trace.span_of_try(job(generation=generation), n) for n, generation in tries}) == len(tries)
    assert trace.passed_on(job(), tracing=True) is None
    assert trace.passed_on(job(headers='{"x": "traceparent"}'), tracing=True) is None
