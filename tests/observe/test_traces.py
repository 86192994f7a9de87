"""Spans on their way out: what is traced is decided once; a collector that is gone costs spans, and nothing else."""

import sys
import time

import pytest
from structlog.testing import capture_logs

from redrive.core import trace
from redrive.observe import traces
from redrive.observe.traces import Span, TracesUnavailable
from support.collector import open_collector
from support.receiver import HANG

SAMPLED = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
UNSAMPLED = SAMPLED[:-1] + "0"


@pytest.fixture(autouse=True)
def anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "_sink", traces._Sink())


def span(number: int = 1) -> Span:
    return Span("deliver", "client", trace.within(SAMPLED, f"{number:016x}"), None, 1, 2, {"redrive.attempt": number})


def sent_to(endpoint: str, share: float = 0.0):  # type: ignore[no-untyped-def]
    return traces.sent_to(endpoint, share=share, service="redrive", version="1")


async def test_a_callers_decision_stands_and_without_one_a_share_is_traced() -> None:
    assert traces.entry(None) is None
    assert traces.entry(SAMPLED.encode()) == (SAMPLED, None, None, 0)  # nobody here keeps it: passed on as it came
    async with open_collector() as collector, sent_to(collector.url, share=0.25):
        followed, refused = traces.entry(SAMPLED, "a=1"), traces.entry(UNSAMPLED.encode())
        assert followed is not None
        assert (trace.trace_of(followed.traceparent), followed.parent_id) == (SAMPLED[3:35], "00f067aa0ba902b7")
        assert followed.began_ns > 0
        assert followed.tracestate == "a=1"
        assert refused == (UNSAMPLED, None, None, 0)
        own = [entry for entry in (traces.entry(None) for _ in range(2_000)) if entry is not None]
        assert 350 < len(own) < 650
        assert len({trace.trace_of(entry.traceparent) for entry in own}) == len(own)


async def test_what_waits_at_the_end_is_sent_and_more_than_is_kept_is_counted() -> None:
    async with open_collector() as collector:
        with capture_logs() as said:
            async with sent_to(collector.url):
                for number in range(1, traces.MAX_WAITING_SPANS * 2):
                    traces.note(span(number))
        # A batch whose answer came too late counts as lost, though the collector has it: none is uncounted.
        assert len(collector.spans()) + traces.dropped() >= traces.MAX_WAITING_SPANS * 2 - 1
        assert len({collected.span_id for collected in collector.spans()}) == len(collector.spans())
        assert 0 < traces.dropped() < traces.MAX_WAITING_SPANS * 2 - 1
        assert [line["event"] for line in said] == ["spans_lost", "spans_lost_in_all"]


async def test_one_that_cannot_be_made_costs_no_other() -> None:
    async with open_collector() as collector:
        with capture_logs() as said:
            async with sent_to(collector.url):
                for made in (span(1), lambda: 1 // 0, span(2)):
                    traces.note(made)
        assert sorted(int(collected.span_id, 16) for collected in collector.spans()) == [1, 2]
        assert traces.dropped() == 1
        assert said[0]["why"].startswith("ZeroDivisionError")


async def test_a_collector_that_hangs_or_is_gone_keeps_nobody_waiting() -> None:
    async with open_collector() as collector:
        collector.receiver.usual = HANG
        with capture_logs() as said:
            async with sent_to(collector.url):
                traces.note(span())
                traces.hurry()
                await collector.receiver.wait_for(1)
                began = time.perf_counter()
                for number in range(1_000):
                    traces.note(span(number))
                noted_s = time.perf_counter() - began
                began = time.perf_counter()
            assert time.perf_counter() - began < traces.FLUSH_S + 1.5
        assert noted_s < 0.2
        assert traces.dropped() == 1_001
        assert said[0]["event"] == "spans_lost"
        assert collector.url.removeprefix("http://") not in str(said)


def test_without_the_extra_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "redrive.observe.otel", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    traces.require(None)
    with pytest.raises(TracesUnavailable, match=r"Install redrive\[otel\]"):
        traces.require("http://127.0.0.1:4318")
