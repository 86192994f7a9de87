"""Every metric that Redrive has, by the name that it is scraped by, and what our documents and files name."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.metrics_core import Metric

from redrive.api.installation_metrics import families
from redrive.core.pulse import RETRY_SLOTS
from redrive.observe import process_metrics as numbers
from redrive.store.installation import Numbers
from redrive.store.rollups import Totals

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "deploy" / "grafana" / "redrive.json"
RULES = ROOT / "deploy" / "prometheus" / "redrive.rules.yml"
_PARTS = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("_total",)}
_NOT_OURS = {"up", "ALERTS"}  # Prometheus makes them
_WORD = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_QUOTED = re.compile(r'"[^"]*"')
_LABELS = re.compile(r"\b(?:by|without|on|ignoring)\s*\([^)]*\)|\{[^}]*\}|\[[^\]]*\]")
_PROMQL = {
    "sum",
    "max",
    "min",
    "count",
    "rate",
    "increase",
    "histogram_quantile",
    "clamp_min",
    "vector",
    "and",
    "unless",
    "on",
    "by",
    "or",
}


def all_metrics() -> dict[str, str]:
    """Name as it is documented (a counter's with `_total`) → type."""
    return dict(_names())


def _names() -> Iterator[tuple[str, str]]:
    aside = CollectorRegistry()
    processes = (numbers.OF_WORKERS, numbers.OF_SERVERS, numbers.OF_CONSUMERS, numbers.OF_HUBS)
    for tally in {tally for each in (*processes, numbers.server_gauges(float, float)) for tally in each}:
        yield (f"{tally.name}_total" if tally.kind == "counter" else tally.name), tally.kind
    others: list[Metric] = [*ProcessCollector(registry=aside).collect(), *GCCollector(registry=aside).collect()]
    for family in [*others, *families(nothing())]:
        yield (f"{family.name}_total" if family.type == "counter" else family.name), family.type


def nothing() -> Numbers:
    """An installation in which nothing has happened, but for a queue of a broker."""
    queue: Any = {"queue": "q", "messages": 0, "consumers": 0, "collected": 0, "duplicates": 0}
    none = Totals(0, 0, 0, 0, 0, 0, 0, 0, {}, (0,) * RETRY_SLOTS, 0, {}, 0.0, {}, 0.0, 0, 0, 0)
    return Numbers(none, {}, {}, [queue], {}, [], 0.0, 0, 0.0, 0, 1, 0.0)


def series_names() -> set[str]:
    """As an expression names them."""
    return {
        name + part for name, kind in all_metrics().items() for part in _PARTS.get(kind, ("",)) if kind == "histogram"
    } | {name for name, kind in all_metrics().items() if kind != "histogram"}


def dashboard_expressions() -> list[str]:
    """With what Grafana fills in."""
    board = json.loads(DASHBOARD.read_text())
    given = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    given += [each["expr"] for each in board["annotations"]["list"]]
    return [expr.replace("$__rate_interval", "5m").replace("$__range", "6h") for expr in given]


def named_in(expression: str) -> set[str]:
    """The series that an expression asks for."""
    bare = _LABELS.sub(" ", _QUOTED.sub('""', expression))
    return set(_WORD.findall(bare)) - _PROMQL - _NOT_OURS
