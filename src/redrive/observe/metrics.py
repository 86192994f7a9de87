"""Numbers for Prometheus, as text. Pure: they are kept in the database, which all processes share.

Totals of the installation: no label names an org.
"""

from collections.abc import Mapping, Sequence
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


class QueueMetric(NamedTuple):
    """`told_as`: its name in what is known of a queue."""

    name: str
    kind: str
    help: str
    told_as: str


QUEUE_METRICS = (
    QueueMetric("redrive_broker_messages", "gauge", "Messages that wait in a queue of the broker.", "messages"),
    QueueMetric("redrive_broker_consumers", "gauge", "Consumers of a queue of the broker.", "consumers"),
    QueueMetric(
        "redrive_broker_collected_total", "counter", "Messages of a queue that became dead letters.", "collected"
    ),
    QueueMetric(
        "redrive_broker_duplicates_total", "counter", "Messages of a queue that were dead letters before.", "duplicates"
    ),
)
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def exposition(counts: Mapping[str, int], queues: Sequence[tuple[str, Mapping[str, int | None]]] = ()) -> str:
    """The text that is scraped. What was never counted is 0; what is not known of a queue is left out."""
    lines: list[str] = []
    for counter in COUNTERS:
        lines.append(f"# HELP {counter.name} {counter.help}")
        lines.append(f"# TYPE {counter.name} counter")
        lines.append(f"{counter.name} {counts.get(counter.kept_as, 0)}")
    for metric in QUEUE_METRICS if queues else ():
        lines.append(f"# HELP {metric.name} {metric.help}")
        lines.append(f"# TYPE {metric.name} {metric.kind}")
        for queue, told in queues:
            if (value := told[metric.told_as]) is not None:
                lines.append(f'{metric.name}{{queue="{queue.translate(_ESCAPES)}"}} {value}')
    return "\n".join(lines) + "\n"
