"""Results as files, tables and plots: bench/results/*.json, docs/benchmarks.md, docs/images/bench-*.svg.

Called by bench.run and by what is run by itself. Touches those files only. A goal or a section of the page that
bench/results has nothing for keeps what the page says of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.goals import (
    BESIDE_A_LANE,
    COSTS,
    FEW_LETTERS,
    FEW_WAITING,
    MANY_LETTERS,
    MANY_WAITING,
    PAGES,
    RECOVERING,
    Key,
    Outcome,
    Results,
    Verdict,
    judge,
)
from bench.model import Run, spread
from bench.peers.base import Peer
from bench.peers.consumers import CONSUMERS, JOBS
from bench.plots import Bar, Panel, bars, number, panels
from bench.processes import ROOT
from bench.scenarios import DELIVER_VARIANTS, OURS

RESULTS = ROOT / "bench" / "results"
DOCS = ROOT / "docs"
PLOTS: Mapping[str, tuple[str, str, str, str, str]] = {  # file: title, unit, scenario, variant, figure
    "bench-deliver": ("Webhooks delivered, one worker process", "jobs/s", "deliver", "webhook", "per_s"),
    "bench-retry": ("Each job fails once, then succeeds", "jobs/s", "deliver", "flaky", "per_s"),
    "bench-ingest": ("Single events accepted, durable", "events/s", "ingest", "single", "per_s"),
    "bench-batch": ("Events accepted in batches of 1 000", "events/s", "ingest", "batch", "per_s"),
    "bench-wal": ("WAL written per delivered job", "bytes", "deliver", "webhook", "wal_bytes_per_job"),
}
ORDER: Mapping[str, str] = {
    "many ordered endpoints": "1 000 ordered endpoints × 100 messages",
    "many unordered endpoints": "1 000 unordered endpoints × 100 messages",
    "one unordered endpoint": "one unordered endpoint, 100 000 messages",
    "one ordered endpoint": "one ordered endpoint, 5 000 messages, one after the other",
}
NUMBERS: Mapping[str, str] = {
    "dashboard_1h": "/dashboard",
    "dashboard_24h": "/dashboard?window=24h",
    "dashboard_7d": "/dashboard?window=7d&by=event_type",
    "dashboard_30d": "/dashboard?window=30d&by=external_system",
    "stats": "/v1/stats",
    "stats_24h": "/v1/stats?window=24h&by=endpoint",
    "stats_30d": "/v1/stats?window=30d&by=event_type",
}
FAIRNESS: Mapping[str, str] = {
    "idle": "nothing else to do",
    "one hangs": "10⁶ due for one endpoint that hangs",
    "many hang": "10⁶ due for 20 endpoints that hang",
}
WORKFLOWS: Mapping[str, str] = {
    "called tasks": "50 000 plain tasks, calls over HTTP",
    "called steps": "10 000 runs of 5 steps, calls over HTTP",
    "called steps, many ended": "the same beside 60 000 runs that have ended",
    "handled tasks": "50 000 plain tasks, handlers that do nothing",
    "handled steps": "10 000 runs of 5 steps, handlers that do nothing",
}
RECOVERY_PANELS: Mapping[str, str] = {
    "per_s": "requests per second to the endpoint that came back",
    "in_flight": "most of them at once (50 allowed)",
    "other_p99_ms": "another endpoint meanwhile: p99, ms",
}
RECOVERY_TITLE = "An endpoint comes back to 10 000 waiting tasks"
# Sections of the page that tell of one scenario, which is run by itself or may have had no time.
SECTIONS: Mapping[str, str] = {
    "Order": "order",
    "Workflows": "workflows",
    "Consumers of RabbitMQ": "rabbitmq",
    "A noisy neighbour": "fairness",
    "An endpoint that comes back": "recovery",
    "Pages": "pages",
    "Load tests that were promised": "promises",
    "Numbers over many tasks": "observability",
}
ABOUT_PEERS = (
    "Settings are the best of a handful that were tried, most of them once, on a machine that was not quiet: better",
    "ones may exist. Peers run *flaky* and *×2* once. The number of jobs differs by system, so that each runs for",
    "some seconds. Awa's *flaky* has 1 000 jobs: with the same settings 8 000 did not finish in 90 s. Awa's clock",
    "stops at the last answer, not at its settling, and Celery's as well. graphile-worker cannot retry sooner than",
    "2.7 s, which bounds its *flaky*.",
)


def write_results(results: Results, about: Mapping[str, object]) -> None:
    """One file per scenario that ran; others keep what they have."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    keys = [*results.runs, *results.not_run]
    for scenario in sorted({key[0] for key in keys if results.of(*key)}):
        rows = [_row(key, results) for key in keys if key[0] == scenario]
        text = json.dumps({"about": about, "scenario": scenario, "rows": rows}, indent=1, ensure_ascii=False)
        (RESULTS / f"{scenario}.json").write_text(text + "\n")


def _row(key: Key, results: Results) -> dict[str, object]:
    runs = [
        {"n": run.n, "seconds": round(run.seconds, 4), "per_s": round(run.per_s, 1)}
        | {"extra": {name: round(value, 4) for name, value in run.extra.items()}}
        | (
            {"series": {name: [round(v, 3) for v in values] for name, values in run.series.items()}}
            if run.series
            else {}
        )
        for run in results.of(*key)
    ]
    why = {} if runs else {"not_run": results.why_not(*key)}
    return {"variant": key[1], "system": key[2], "runs": runs} | why


def read_results() -> tuple[Results, dict[str, object]]:
    """Everything that bench/results holds, for rendering; `about` is that of the newest file."""
    results, about = Results({}, {}), {}
    for path in sorted(RESULTS.glob("*.json")):
        kept = json.loads(path.read_text())
        about = max(about, kept["about"], key=lambda a: str(a.get("taken_at", "")))
        for row in kept["rows"]:
            key = (kept["scenario"], row["variant"], row["system"])
            if row["runs"]:
                results.runs[key] = [Run(key[2], **run) for run in row["runs"]]
            else:
                results.not_run[key] = row["not_run"]
    return results, about


def goals_table(outcomes: Sequence[Outcome]) -> list[str]:
    marks = {Verdict.PASS: "pass", Verdict.MISS: "**miss**", Verdict.NOT_RUN: "not run"}
    lines = ["| Goal | Wanted | Found | |", "|---|---|---|---|"]
    return lines + [f"| {o.goal} | {o.wanted} | {o.found} | {marks[o.verdict]} |" for o in outcomes]


def figures_table(results: Results, scenario: str, variants: Sequence[str], key: str = "per_s") -> list[str]:
    """Systems down, variants across: median (lowest to highest)."""
    systems = dict.fromkeys(k[2] for k in [*results.runs, *results.not_run] if k[0] == scenario and k[1] in variants)
    lines = [f"| System | {' | '.join(variants)} |", "|---|" + "---|" * len(variants)]
    for system in systems:
        cells = [_cell(results, (scenario, variant, system), key) for variant in variants]
        lines.append(f"| {system} | {' | '.join(cells)} |")
    return lines


def _cell(results: Results, place: Key, key: str) -> str:
    found = spread(results.of(*place), key)
    if found is None:
        return "" if results.of(*place) or place not in results.not_run else f"not run: {results.why_not(*place)}"
    if found.times == 1:
        return number(found.median)
    return f"{number(found.median)} ({number(found.low)} to {number(found.high)})"


def render(peers: Sequence[Peer]) -> Path:
    """Write docs/benchmarks.md and its plots from what bench/results holds."""
    results, about = read_results()
    images = DOCS / "images"
    images.mkdir(parents=True, exist_ok=True)
    plots = {}
    for name, (title, unit, scenario, variant, key) in PLOTS.items():
        rows = _bars(results, scenario, variant, key)
        path = images / f"{name}.svg"
        path.unlink(missing_ok=True)
        if rows:
            path.write_text(bars(title, unit, rows))
            plots[name] = f"![{title}](images/{name}.svg)"
    if series := _recovery_series(results):
        name = "recovery"
        (images / f"{name}.svg").write_text(panels(RECOVERY_TITLE, series))
        plots[name] = f"![{RECOVERY_TITLE}](images/{name}.svg)"
    page = DOCS / "benchmarks.md"
    before = page.read_text() if page.exists() else ""
    page.write_text(kept("\n".join(_page(results, about, plots, peers)) + "\n", before, results))
    return page


def kept(page: str, before: str, results: Results) -> str:
    """The page, with what it said before of goals and sections that there are no results of."""
    old, new = _sections(before), _sections(page)
    measured = {scenario for scenario, _, _ in results.runs}
    for title, text in old.items():
        if title not in new or (title in SECTIONS and SECTIONS[title] not in measured):
            new[title] = text
    if "Goals" in old:
        new["Goals"] = _with_goals_of(old["Goals"], new["Goals"], results)
    return "\n".join(text.rstrip("\n") + "\n" for text in new.values())


def _sections(page: str) -> dict[str, str]:
    """By their titles; what stands before them has none."""
    found: dict[str, str] = {}
    title = ""
    for line in page.splitlines(keepends=True):
        if line.startswith("## "):
            title = line[3:].strip()
        found[title] = found.get(title, "") + line
    return found


def _with_goals_of(before: str, section: str, results: Results) -> str:
    old = {line.split(" | ")[0]: line for line in before.splitlines() if line.startswith("| ")}
    not_run = {f"| {outcome.goal}" for outcome in judge(results) if outcome.verdict is Verdict.NOT_RUN}
    lines = section.splitlines()
    return "\n".join(old.get(goal, line) if (goal := line.split(" | ")[0]) in not_run else line for line in lines)


def _bars(results: Results, scenario: str, variant: str, key: str) -> list[Bar]:
    rows = []
    for (its_scenario, its_variant, system), runs in results.runs.items():
        if (its_scenario, its_variant) == (scenario, variant) and (found := spread(runs, key)):
            rows.append(Bar(system, found.median, found.low, found.high, system == OURS))
    return sorted(rows, key=lambda row: -row.value)


def _page(results: Results, about: Mapping[str, object], plots: Mapping[str, str], peers: Sequence[Peer]) -> list[str]:
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench`, which runs Redrive, its ceilings (the least code that does the same work) and its",
        "peers on the same jobs, on this machine, interleaved and repeated. Absolute figures differ from run to run",
        "by a factor of two; only ratios taken within one run count. Commits are durable everywhere",
        "(`fsync` and `synchronous_commit` on).",
        "",
        f"Last run: {about.get('taken_at', 'never')}, {about.get('cores', '?')} cores, "
        f"Python {about.get('python', '?')}, PostgreSQL {about.get('postgres', '?')}.",
        "",
        "## Goals",
        "",
        *goals_table(judge(results)),
        "",
        "## Delivery",
        "",
        "The job: POST 512 bytes to a receiver on the same machine. *webhook*: it answers 200. *flaky*: it answers 503",
        "once for every job, then 200. *×2*: two worker processes. Jobs per second from the first request until all",
        "is settled: median, and lowest to highest where repeated. *spike* is a bare worker without attempts, fences,",
        "time-outs or guards: the ceiling.",
        "",
        *figures_table(results, "deliver", DELIVER_VARIANTS),
        "",
    ]
    lines += _with_plots(plots, "bench-deliver", "bench-retry")
    lines += ["### What a delivered job costs the database", ""]
    lines += _cost_table(results)
    lines += [
        "",
        *_with_plots(plots, "bench-wal"),
        "### The peers",
        "",
        *ABOUT_PEERS,
        "",
        "| System | Version | Settings |",
        "|---|---|---|",
    ]
    lines += [f"| {peer.name} | {peer.version} | {peer.settings} |" for peer in peers]
    lines += ["", "## Ingest", "", "Events per second, each answered after its commit.", ""]
    lines += figures_table(results, "ingest", ("single", "batch"))
    lines += ["", *_with_plots(plots, "bench-ingest", "bench-batch"), "## Latency when idle", ""]
    lines += ["From the request to the receiver's answer, beside a bare commit and request; milliseconds.", ""]
    for key in ("p50_ms", "p99_ms"):
        lines += [f"{key[:-3]}:", "", *figures_table(results, "idle", ("latency",), key), ""]
    lines += ["## Latency under load", "", *_under_load(results)]
    lines += ["", "## Order", "", *_order(results)]
    lines += ["", "## Workflows", "", *_workflows(results)]
    lines += ["", "## Consumers of RabbitMQ", "", *_rabbitmq(results)]
    lines += ["", "## A noisy neighbour", "", *_fairness(results)]
    lines += ["", "## An endpoint that comes back", "", *_recovery(results, plots)]
    lines += ["", "## Pages", "", *_pages(results)]
    lines += ["", "## Load tests that were promised", "", *_promises(results)]
    lines += ["", "## Numbers over many tasks", "", *_numbers(results)]
    return lines


def _under_load(results: Results) -> list[str]:
    """1 000 deliveries that fail at the same moment; and many who ask, while a worker is busy."""
    failing, asking = ("lateness", "1000 due at once", OURS), ("status", "under load", OURS)
    rows = {
        "a failure → its retry is scheduled, 1 000 at once": (failing, "scheduled_"),
        "a retry's due time → it begins, 1 000 at once": (failing, ""),
        "`GET /v1/events/{id}/status`, 64 clients beside a busy worker": (asking, ""),
    }
    lines = ["| Milliseconds | p50 | p95 | p99 |", "|---|---|---|---|"]
    for text, (place, prefix) in rows.items():
        cells = [_cell(results, place, f"{prefix}p{share}_ms") for share in (50, 95, 99)]
        lines.append(f"| {text} | {' | '.join(cells)} |")
    return lines


def _promises(results: Results) -> list[str]:
    failing, inbox = ("promises", "failures", OURS), ("promises", "failed inbox", OURS)
    rows = {
        "1 000 deliveries fail at once, until their retries are scheduled": (failing, "scheduled_"),
        "status of an event, 10 000 clients spread over 10 s": (("promises", "status spread", OURS), ""),
        "status of an event, 10 000 clients at the same moment": (("promises", "status at once", OURS), ""),
        "failed inbox with 10 000 events, the first page of 50": (inbox, "first_"),
        "failed inbox, a page at nine tenths of the way": (inbox, "deep_"),
    }
    lines = [
        "`python -m bench.promises`. Real processes, each client with a connection of its own; milliseconds. Those who",
        "ask at the same moment wait for each other: what counts is that all are answered.",
        "",
        "| | p50 | p95 | p99 |",
        "|---|---|---|---|",
    ]
    for text, (place, prefix) in rows.items():
        cells = [_cell(results, place, f"{prefix}p{share}_ms") for share in (50, 95, 99)]
        lines.append(f"| {text} | {' | '.join(cells)} |")
    walk = _cell(results, inbox, "walk_s"), _cell(results, inbox, "walk_pages")
    lines += [
        "",
        f"A walk over all 10 000 failed events takes {walk[0]} s for {walk[1]} pages. It finds each event once: else",
        "there would be no figures. Meanwhile the machine's load average, without us near zero, was",
        f"{_cell(results, inbox, 'load')}.",
    ]
    return lines


def _pages(results: Results) -> list[str]:
    lines = [
        "One request at a time, signed in, until the last byte of the document: median of 40, milliseconds.",
        "Transferred: what Chromium takes for its first view of the list, with styles and scripts, thousands of bytes",
        "as they come over the wire.",
        "",
        "| | 1 000 dead letters | 200 000 |",
        "|---|---|---|",
    ]
    for key, text in (PAGES | {"view_kb": "transferred for the first view"}).items():
        lines.append(f"| {text} | {_cell(results, FEW_LETTERS, key)} | {_cell(results, MANY_LETTERS, key)} |")
    return lines


def _order(results: Results) -> list[str]:
    lines = [
        "`python -m bench.order`. Of an ordered endpoint one message is under way at a time. What waits behind it",
        "should cost nobody anything: here a lane whose head waits for its retry, with few and with many behind it,",
        "asked in turn; medians, milliseconds.",
        "",
        "| | 1 000 waiting | 200 000 |",
        "|---|---|---|",
    ]
    for key, text in BESIDE_A_LANE.items():
        lines.append(f"| {text} | {_cell(results, FEW_WAITING, key)} | {_cell(results, MANY_WAITING, key)} |")
    lines += [
        "",
        "One worker process. Every lane arrived in its order, and nothing twice: else there would be no figures.",
        "*Until all had one*: from the first arrival anywhere until each endpoint had had its first, seconds.",
        "",
        "| | messages/s | until all had one |",
        "|---|---|---|",
    ]
    for variant, text in ORDER.items():
        place = ("order", variant, OURS)
        lines.append(f"| {text} | {_cell(results, place, 'per_s')} | {_cell(results, place, 'all_begun_s')} |")
    return lines


def _workflows(results: Results) -> list[str]:
    costs = ("wal_bytes_per_job", "commits_per_job", "dead_rows_per_job")
    lines = [
        "`python -m bench.workflows`. One worker process. A plain task waits in its table when the clock starts. A",
        "step is put there by the one before it, with its input, in the transaction that settles that: its figures",
        "hold what handing in a task costs, too. Every run took its steps in their order, each once: else there would",
        "be no figures.",
        "",
        "| | per second | WAL bytes each | commits each | dead rows each |",
        "|---|---|---|---|---|",
    ]
    for variant, text in WORKFLOWS.items():
        place = ("workflows", variant, OURS)
        cells = [_cell(results, place, key) for key in ("per_s", *costs)]
        lines.append(f"| {text} | {' | '.join(cells)} |")
    lines += [
        "",
        "A run of five calls, alone on an idle system, `redrive serve` with one worker process: from the request that",
        "begins it to the arrival of a call, milliseconds.",
        "",
        "| | p50 | p95 | p99 |",
        "|---|---|---|---|",
    ]
    for prefix, text in (("first_", "its first call"), ("", "its last call")):
        cells = [_cell(results, ("workflows", "idle run", OURS), f"{prefix}p{share}_ms") for share in (50, 95, 99)]
        lines.append(f"| {text} | {' | '.join(cells)} |")
    return lines


def _rabbitmq(results: Results) -> list[str]:
    return [
        "`python -m bench.rabbitmq`. One process consumes a queue of RabbitMQ 3.10 that is already filled with",
        "persistent messages of 512 bytes of JSON, and acknowledges each after its work. Messages per second, from",
        "the first that the handler gets to the last that succeeds: median, and lowest to highest. *No-op*: the",
        "handler does nothing. *One in ten fails once*: it fails at the first try of one message in ten, and each",
        "system tries again in its own way, as soon as it can; what it publishes for that, the broker confirms.",
        "Quorum queues, unless said otherwise. aio-pika alone is the least that does the work at all: it neither",
        "waits before a retry, nor counts them, nor gives up. *Left*: the most messages that were in the queue again",
        "when a consumer had ended, though all had succeeded.",
        "",
        *_consumers(results),
        "",
        "| System | Settings |",
        "|---|---|",
        *(f"| {system.name} | {system.settings} |" for system in CONSUMERS),
    ]


def _consumers(results: Results) -> list[str]:
    lines = [f"| System | {' | '.join(JOBS)} | left |", "|---|" + "---|" * (len(JOBS) + 1)]
    for label in (system.labelled(kind) for system in CONSUMERS for kind in system.kinds):
        places = [("rabbitmq", job, label) for job in JOBS]
        left = [run.extra.get("left", 0) for place in places for run in results.of(*place)]
        cells = [_cell(results, place, "per_s") for place in places]
        lines.append(f"| {label} | {' | '.join(cells)} | {max(left, default=0):.0f} |")
    return lines


def _fairness(results: Results) -> list[str]:
    lines = [
        "`python -m bench.fairness`. One tenant has a million due tasks for endpoints that take 30 s to answer;",
        "another sends an event every 20 ms to a receiver that answers at once. From its request to the arrival,",
        "milliseconds; `redrive serve` with one worker process. *Against idle*: the ratio of the p99. Behind it, what",
        "a claim of 100 tasks, their settlement and a survey of what is due take by themselves, medians.",
        "",
        "| | p50 | p95 | p99 | max | against idle | claim | settle | survey | worker's CPU, % |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    idle = spread(results.of("fairness", "idle", OURS), "p99_ms")
    keys = ("claim_ms", "settle_ms", "survey_ms", "worker_cpu_pct")
    for variant, text in FAIRNESS.items():
        place = ("fairness", variant, OURS)
        p99 = spread(results.of(*place), "p99_ms")
        ratio = f"{p99.median / idle.median:.2f} ×" if p99 and idle and idle.median else ""
        cells = [_cell(results, place, f"{name}_ms") for name in ("p50", "p95", "p99", "max")]
        cells += [ratio, *(_cell(results, place, key) for key in keys)]
        lines.append(f"| {text} | {' | '.join(cells)} |")
    return lines


def _numbers(results: Results) -> list[str]:
    lines = [
        "`python -m bench.observability`. Two installations with four orgs each, whose tasks ended over the last 25",
        "days: 10 000 in all, and 10 000 000. What one of these orgs is told of its deliveries, asked of both in turn",
        "on one connection; milliseconds, medians. The goal is a ratio of at most 1.3.",
        "",
        "| Asked for | 10 000 | 10 000 000 | ratio |",
        "|---|---|---|---|",
    ]
    for name, path in NUMBERS.items():
        few, many = (spread(results.of("observability", variant, OURS), f"{name}_ms") for variant in ("few", "many"))
        if few and many:
            cells = (number(few.median), number(many.median), f"{many.median / few.median:.2f} ×")
            lines.append(f"| `GET {path}` | {' | '.join(cells)} |")
    return lines


def _recovery_series(results: Results) -> list[Panel]:
    runs = results.of(*RECOVERING)
    return [Panel(text, runs[-1].series[key]) for key, text in RECOVERY_PANELS.items()] if runs else []


def _recovery(results: Results, plots: Mapping[str, str]) -> list[str]:
    facts = {
        "until all was delivered and settled, s": "seconds",
        "until its first success, s": "first_success_s",
        "most requests in one second": "most_per_s",
        "most at once (50 allowed)": "most_in_flight",
        "tries that failed before the breaker opened": "tries_before_open",
    }
    lines = [
        "`python -m bench.recovery`. 10 000 tasks wait for an endpoint that answers 503, with `max_in_flight` 50; its",
        "breaker is open. It comes back, and takes 20 ms for each answer. All arrived, each once. Another endpoint of",
        "the same tenant got an event every 20 ms all the while.",
        "",
        *_with_plots(plots, "recovery"),
        "| Since it came back | |",
        "|---|---|",
    ]
    lines += [f"| {text} | {_cell(results, RECOVERING, key)} |" for text, key in facts.items()]
    lines += ["", "| The other endpoint, milliseconds | p50 | p95 | p99 | max |", "|---|---|---|---|---|"]
    for variant, text in (("idle", "when all was delivered"), ("meanwhile", "meanwhile")):
        place = ("recovery", f"other endpoint, {variant}", OURS)
        cells = [_cell(results, place, f"{name}_ms") for name in ("p50", "p95", "p99", "max")]
        lines.append(f"| {text} | {' | '.join(cells)} |")
    return lines


def _with_plots(plots: Mapping[str, str], *names: str) -> list[str]:
    return [line for name in names if name in plots for line in (plots[name], "")]


def _cost_table(results: Results) -> list[str]:
    lines = [f"| System | {' | '.join(COSTS.values())} |", "|---|---|---|---|"]
    for (scenario, variant, system), runs in results.runs.items():
        if (scenario, variant) == ("deliver", "webhook") and spread(runs, "wal_bytes_per_job"):
            cells = [number(found.median) if (found := spread(runs, key)) else "" for key in COSTS]
            lines.append(f"| {system} | {' | '.join(cells)} |")
    return lines
