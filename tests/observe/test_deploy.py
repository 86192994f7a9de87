"""What is shipped for Prometheus and Grafana: it is valid, and asks only for what there is."""

import json
import re
from pathlib import Path

from support.prometheus import needs_prometheus, promtool

from .catalogue import DASHBOARD, ROOT, RULES, all_metrics, dashboard_expressions, named_in, series_names

_RECORDED = re.compile(r"record: (\S+)")
_EXPRESSION = re.compile(r"^\s+expr: (.+)$", re.MULTILINE)


def test_rules_and_dashboard_name_only_series_that_are_exposed_or_recorded() -> None:
    rules = RULES.read_text()
    known = series_names() | set(_RECORDED.findall(rules))
    asked = {name for expr in [*_EXPRESSION.findall(rules), *dashboard_expressions()] for name in named_in(expr)}
    assert asked - known == set()
    assert len(asked) > 50  # most of what there is


def test_the_dashboard_is_whole() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    ids = [panel["id"] for panel in panels]
    assert len(ids) == len(set(ids))
    for panel in panels:
        assert panel["type"] == "row" or panel["targets"], panel["title"]
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24


def test_the_page_of_metrics_names_every_metric_with_its_type_and_no_other() -> None:
    rows = re.findall(r"^\| `([a-z_0-9]+)`[^|]*\| (\w+) \|", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE)
    assert dict(rows) == all_metrics()
    assert len(rows) == len(dict(rows))


@needs_prometheus
async def test_promtool_finds_no_fault_with_rules_their_tests_and_every_expression(tmp_path: Path) -> None:
    await promtool("check", "config", str(RULES.with_name("prometheus.yml")))
    await promtool("test", "rules", str(RULES.with_name("redrive.rules.test.yml")))
    asked = [{"record": f"of:panel:{n}", "expr": expr} for n, expr in enumerate(dashboard_expressions())]
    (tmp_path / "dashboard.yml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": asked}]}))
    await promtool("check", "rules", str(RULES), str(tmp_path / "dashboard.yml"))
