"""The goals: ratios between runs of one scenario, and whether this run met them. Pure.

Called by bench.run and bench.report.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from bench.model import Run, spread
from bench.scenarios import OURS

Key = tuple[str, str, str]
"""scenario, variant, system"""


@dataclass(slots=True)
class Results:
    """Runs by key, and why a key has none."""

    runs: dict[Key, list[Run]]
    not_run: dict[Key, str]

    def of(self, *key: str) -> Sequence[Run]:
        return self.runs.get(key, [])  # type: ignore[call-overload]

    def why_not(self, *key: str) -> str:
        return self.not_run.get(key, "not part of this run")  # type: ignore[call-overload]


class Verdict(StrEnum):
    PASS = "pass"
    MISS = "miss"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class Outcome:
    goal: str
    wanted: str
    found: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Ratio:
    """`key` of one run over `key` of another must be at least, or at most, `limit`."""

    goal: str
    over: Key
    under: Key
    limit: float
    at_least: bool = True
    key: str = "per_s"
    inverted: bool = False

    def judge(self, results: Results) -> Outcome:
        wanted = f"{'≥' if self.at_least else '≤'} {self.limit:g} ×"
        over, under = results.of(*self.over), results.of(*self.under)
        for key, runs in ((self.over, over), (self.under, under)):
            if not runs:
                return _missing(self.goal, wanted, key, results)
            if spread(runs, self.key) is None:
                return Outcome(self.goal, wanted, f"{key[2]} did not measure {self.key}", Verdict.NOT_RUN)
        ratios = round_ratios(over, under, self.key)
        ratios = [1 / ratio if ratio else float("inf") for ratio in ratios] if self.inverted else ratios
        found = statistics.median(ratios)
        met = found >= self.limit if self.at_least else found <= self.limit
        return Outcome(self.goal, wanted, _ratio_text(ratios, over, under), Verdict.PASS if met else Verdict.MISS)


@dataclass(frozen=True, slots=True)
class AtMost:
    """A figure of our own must not exceed `limit`."""

    goal: str
    of: Key
    key: str
    limit: float
    unit: str

    def judge(self, results: Results) -> Outcome:
        wanted = f"≤ {self.limit:g} {self.unit}"
        runs = results.of(*self.of)
        if not runs:
            return _missing(self.goal, wanted, self.of, results)
        found = spread(runs, self.key)
        if found is None:
            return Outcome(self.goal, wanted, f"did not measure {self.key}", Verdict.NOT_RUN)
        met = found.median <= self.limit
        return Outcome(self.goal, wanted, f"{found.median:.1f} {self.unit}", Verdict.PASS if met else Verdict.MISS)


def _missing(goal: str, wanted: str, key: Key, results: Results) -> Outcome:
    return Outcome(goal, wanted, f"{key[2]}, {key[1]}: {results.why_not(*key)}", Verdict.NOT_RUN)


def round_ratios(over: Sequence[Run], under: Sequence[Run], key: str) -> list[float]:
    """Each round's own ratio; the one of the medians where one side ran less often."""
    if len(over) == len(under):
        pairs = [(a.value(key), b.value(key)) for a, b in zip(over, under, strict=True)]
    else:
        pairs = [tuple(statistics.median(run.value(key) for run in runs) for runs in (over, under))]
    return [a / b if b else float("inf") for a, b in pairs]


def _ratio_text(ratios: Sequence[float], over: Sequence[Run], under: Sequence[Run]) -> str:
    """A single round on a busy machine proves little, so the text says how many there were, and how far apart."""
    median = f"{statistics.median(ratios):.2f} ×"
    if len(ratios) > 1:
        return f"{median} ({min(ratios):.2f} to {max(ratios):.2f}, {len(ratios)} rounds)"
    shortest_s = min(run.seconds for run in (*over, *under))
    return f"{median} (one ratio, shortest run {shortest_s:.1f} s)"


def _deliver(variant: str, system: str) -> Key:
    return ("deliver", variant, system)


OUR_WEBHOOK = _deliver("webhook", OURS)
SMALL, LARGE = ("backlog", "small", OURS), ("backlog", "large", OURS)
MEMORY = ("memory", "500 in flight", OURS)
FEW_LETTERS, MANY_LETTERS = ("pages", "few letters", OURS), ("pages", "many letters", OURS)
PAGES: Mapping[str, str] = {
    "first_page_ms": "dead letters, first page",
    "middle_page_ms": "dead letters, a page in the middle",
    "filter_ms": "dead letters of one event type",
    "groups_ms": "groups of dead letters",
    "detail_ms": "one dead letter",
    "dashboard_ms": "dashboard",
}
FEW_WAITING, MANY_WAITING = ("order", "few waiting", OURS), ("order", "many waiting", OURS)
BESIDE_A_LANE: Mapping[str, str] = {
    "claim_settle_ms": "claim + settle of 100 tasks of another endpoint",
    "accept_ms": "accept of 10 events into the lane",
    "wake_ms": "look for lanes that want a head",
    "survey_ms": "survey of what is due",
}
RECOVERING = ("recovery", "recovering endpoint", OURS)
COSTS: Mapping[str, str] = {
    "wal_bytes_per_job": "WAL bytes per delivered task",
    "commits_per_job": "commits per delivered task",
    "dead_rows_per_job": "dead rows per delivered task",
}

GOALS: tuple[Ratio | AtMost, ...] = (
    Ratio("deliver, against PgQueuer", OUR_WEBHOOK, _deliver("webhook", "pgqueuer"), 3),
    Ratio("deliver, against graphile-worker", OUR_WEBHOOK, _deliver("webhook", "graphile-worker"), 2),
    Ratio("deliver, against the bare spike (stretch)", OUR_WEBHOOK, _deliver("webhook", "spike"), 0.5),
    Ratio("deliver, two processes against one", _deliver("webhook ×2", OURS), OUR_WEBHOOK, 1.5),
    Ratio("retry path against deliver", _deliver("flaky", OURS), OUR_WEBHOOK, 0.4),
    Ratio("ingest, against plain ASGI + shared commit", ("ingest", "single", OURS), ("ingest", "single", "asgi"), 0.7),
    Ratio("ingest, against FastAPI + one INSERT", ("ingest", "single", OURS), ("ingest", "single", "fastapi"), 3),
    Ratio("ingest in batches, against bare unnest", ("ingest", "batch", OURS), ("ingest", "batch", "insert"), 0.4),
    *(
        Ratio(f"accept → receiver when idle, {key[:-3]}", ("idle", "latency", OURS),
              ("idle", "latency", "commit + request"), limit, at_least=False, key=key)
        for key, limit in (("p50_ms", 3.0), ("p99_ms", 10.0))
    ),
    AtMost("lateness of 1 000 retries due at once, p99", ("lateness", "1000 due at once", OURS), "p99_ms", 1000, "ms"),
    AtMost("1 000 failures at once, until scheduled again, p95", ("lateness", "1000 due at once", OURS),
           "scheduled_p95_ms", 5000, "ms"),
    AtMost("status query under load, p95", ("status", "under load", OURS), "p95_ms", 50, "ms"),
    AtMost("status query, 10 000 clients over 10 s, p95", ("promises", "status spread", OURS), "p95_ms", 50, "ms"),
    *(
        AtMost(f"failed inbox with 10 000 events, {page} page, p95", ("promises", "failed inbox", OURS),
               f"{page}_p95_ms", 50, "ms")
        for page in ("first", "deep")
    ),
    Ratio("claim + settle, 10⁶ waiting against 10³", LARGE, SMALL, 1.3, at_least=False, inverted=True),
    Ratio("list page, 10⁶ rows against 10³", LARGE, SMALL, 1.3, at_least=False, key="list_ms"),
    Ratio("status query, 10⁶ rows against 10³", LARGE, SMALL, 1.3, at_least=False, key="status_ms"),
    Ratio("throughput beside an open snapshot", ("snapshot", "pinned", OURS), ("snapshot", "free", OURS), 0.8),
    *(
        Ratio(f"{text}, against {peer}", OUR_WEBHOOK, _deliver("webhook", peer), 1, at_least=False, key=key)
        for key, text in COSTS.items()
        for peer in ("pgqueuer", "awa")
    ),
    AtMost("first view of 200 000 dead letters, transferred", MANY_LETTERS, "view_kb", 60, "kB"),
    *(
        Ratio(f"page: {text}, 200 000 against 1 000", MANY_LETTERS, FEW_LETTERS, 1.3, at_least=False, key=key)
        for key, text in PAGES.items()
    ),
    *(
        Ratio(f"order: {text}, 200 000 behind a blocked head against 1 000", MANY_WAITING, FEW_WAITING, 1.3,
              at_least=False, key=key)
        for key, text in BESIDE_A_LANE.items()
    ),
    Ratio("workflows: steps per second beside 60 000 ended runs", ("workflows", "called steps, many ended", OURS),
          ("workflows", "called steps", OURS), 0.8),
    AtMost("recovery: in flight to an endpoint that comes back", RECOVERING, "most_in_flight", 50, "requests"),
    AtMost("memory of a worker", MEMORY, "worker_mb", 150, "MB"),
    AtMost("memory of the API", MEMORY, "api_mb", 150, "MB"),
)  # fmt: skip


def judge(results: Results) -> list[Outcome]:
    return [goal.judge(results) for goal in GOALS]
