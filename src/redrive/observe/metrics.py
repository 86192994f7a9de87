"""Numbers for Prometheus, as text. Pure: they are kept in the database, which all processes share.

Totals of the installation: no label names an org.
"""

from collections.abc import Mapping
from typing import NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Counter(NamedTuple):
    """`kept_as`: its name among the database's counters."""

    name: str
    help: str
    kept_as: str


COUNTERS = (
    Counter("workflow_step_attempts_total", "Tries of workflow steps, lost ones included.", "workflow.step_attempts"),
    Counter("workflow_step_retries_total", "Tries of workflow steps after a failed one.", "workflow.step_retries"),
    Counter("workflow_dlq_moves_total", "Workflow steps that became dead letters.", "workflow.dlq_moves"),
    Counter("workflow_dlq_replays_total", "Dead letters of workflow steps that were replayed.", "workflow.dlq_replays"),
)


def exposition(counts: Mapping[str, int]) -> str:
    """The text that is scraped. What was never counted is 0."""
    lines: list[str] = []
    for counter in COUNTERS:
        lines.append(f"# HELP {counter.name} {counter.help}")
        lines.append(f"# TYPE {counter.name} counter")
        lines.append(f"{counter.name} {counts.get(counter.kept_as, 0)}")
    return "\n".join(lines) + "\n"
