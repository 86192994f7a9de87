"""The numbers of the installation as families of prometheus_client. Pure. What each of them counts: docs/metrics.md.

Names without a prefix are those that were promised. No label names an org or an endpoint.
"""

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from redrive.core import jobs as kinds
from redrive.core.alerts import RULES
from redrive.core.decide import Reason
from redrive.core.outcome import Category
from redrive.core.pulse import RETRY_SLOTS, WAIT_BOUNDS_S, WAIT_MARKS_S, below_marks
from redrive.core.run_states import RunStatus
from redrive.observe.exposition import histogram
from redrive.store.counters import events_by_status
from redrive.store.installation import Numbers
from redrive.store.rollups import Death

QUIET = "quiet"  # permanent, under a policy that takes it quietly: alert rules leave these deaths out
TASK_STATES = ("waiting", "leased", "held", "succeeded", "dead")
LETTER_STATES = ("open", "replaying", "resolved", "ignored", "deleted")
EVENT_STATES = {"inbox": "received", "acked": "acknowledged", "routed": "routed"}
HEALTH = ("ok", "failing", "open", "disabled", "paused")
_WORKFLOW = (
    ("workflow_step_attempts", "Tries of workflow steps, lost ones included.", "workflow.step_attempts"),
    ("workflow_step_retries", "Tries of workflow steps after a failed one.", "workflow.step_retries"),
    ("workflow_dlq_moves", "Workflow steps that became dead letters.", "workflow.dlq_moves"),
    ("workflow_dlq_replays", "Dead letters of workflow steps that were replayed.", "workflow.dlq_replays"),
    (
        "workflow_dlq_replays_refused",
        "Replays of workflow steps that were refused: the dead letter was resolved already.",
        "workflow.dlq_replays_refused",
    ),
)
_QUEUES: tuple[tuple[type[CounterMetricFamily | GaugeMetricFamily], str, str, str], ...] = (
    (GaugeMetricFamily, "redrive_broker_messages", "Messages that wait in a queue of the broker.", "messages"),
    (GaugeMetricFamily, "redrive_broker_consumers", "Consumers of a queue of the broker.", "consumers"),
    (CounterMetricFamily, "redrive_broker_collected", "Messages of a queue that became dead letters.", "collected"),
    (
        CounterMetricFamily,
        "redrive_broker_duplicates",
        "Messages of a queue that were dead letters before.",
        "duplicates",
    ),
)


def families(numbers: Numbers) -> Iterator[Metric]:
    yield from _events(numbers)
    yield from _letters(numbers)
    yield from _tasks(numbers)
    for name, help, kept_as in _WORKFLOW:
        yield CounterMetricFamily(name, help, value=numbers.counts.get(kept_as, 0))
    yield from _surroundings(numbers)
    yield from _jobs(numbers)
    firing = {rule: numbers.alerts.get(rule, 0) for rule in RULES}
    yield _gauges("redrive_alerts_firing", "Alerts of Redrive's own that fire, by their rule.", "rule", firing)
    for kind, name, help, told_as in _QUEUES if numbers.queues else ():
        family = kind(name, help, labels=["queue"])
        for row in numbers.queues:
            if row[told_as] is not None:
                family.add_metric([row["queue"]], row[told_as])
        yield family


def _events(numbers: Numbers) -> Iterator[Metric]:
    totals, counts = numbers.totals, numbers.counts
    yield CounterMetricFamily("events_created", "Events that were stored.", value=totals.created)
    yield CounterMetricFamily(
        "events_delivered",
        "Events whose deliveries all succeeded, and events acknowledged in the inbox.",
        value=totals.events_routed + totals.acknowledged,
    )
    yield CounterMetricFamily(
        "events_failed", "Events whose deliveries ended, one at least in failure.", value=totals.events_failed
    )
    yield CounterMetricFamily(
        "redrive_events_redriven",
        "Failed events that were redriven.",
        value=totals.events_redriven,
    )
    standing = events_by_status(counts)
    yield GaugeMetricFamily(
        "events_queued", "Events with a delivery that waits, is tried or is held.", value=standing["queued"]
    )
    yield GaugeMetricFamily("events_received", "Events that wait in inboxes.", value=standing["received"])
    deliveries = CounterMetricFamily("redrive_deliveries", "Deliveries that ended.", labels=["result"])
    deliveries.add_metric(["succeeded"], totals.delivered)
    deliveries.add_metric(["failed"], totals.failed)
    yield deliveries
    yield histogram(
        "time_to_delivery_seconds",
        "How long deliveries took, from when their event was stored, or a step of a workflow might begin, to their"
        " success.",
        WAIT_BOUNDS_S,
        [({}, below_marks(totals.waits, WAIT_BOUNDS_S), totals.waited_s)],
    )
    yield histogram(
        "redrive_first_attempt_delivery_seconds",
        "Seconds from event to delivery, of deliveries that needed no retry.",
        WAIT_MARKS_S,
        [({}, below_marks(totals.firsts, WAIT_MARKS_S), totals.waited_first_s)],
    )
    yield histogram(
        "retry_attempts",
        "Retries that deliveries took until they succeeded or failed for good.",
        range(RETRY_SLOTS - 1),
        [({}, totals.ended_after, totals.retried)],
    )
    yield CounterMetricFamily(
        "redrive_inbox_acknowledged", "Events acknowledged in the inbox.", value=totals.acknowledged
    )
    stored = {shown: counts.get(f"event.{name}", 0) for name, shown in EVENT_STATES.items()}
    yield _gauges("redrive_events", "Events that are stored, by whom they went to.", "state", stored)
    yield GaugeMetricFamily("redrive_events_bytes", "Payloads that are stored.", value=counts.get("event.bytes", 0))


def _letters(numbers: Numbers) -> Iterator[Metric]:
    moved = CounterMetricFamily(
        "redrive_dead_letters_moved",
        "Dead letters that came, by why nothing more was tried and what the last try failed of.",
        labels=["reason", "category"],
    )
    # All of them from the start, as 0: the first one that comes is an increase. Others would be of a newer Redrive.
    reasons = [*(reason.value for reason in Reason), QUIET]
    for death in (Death(reason, category.value) for reason in reasons for category in Category):
        moved.add_metric(death, numbers.totals.deaths.get(death, 0))
    yield moved
    yield CounterMetricFamily("redrive_redriven", "Dead letters that were redriven.", value=numbers.totals.redriven)
    states = {state: numbers.counts.get(f"dead.{state}", 0) for state in LETTER_STATES}
    yield _gauges("redrive_dead_letters", "Dead letters that are kept, by their state.", "state", states)


def _tasks(numbers: Numbers) -> Iterator[Metric]:
    totals, counts = numbers.totals, numbers.counts
    states = {state: counts.get(f"task.{state}", 0) for state in TASK_STATES}
    yield _gauges("redrive_tasks", "Tasks that are kept, by their state.", "state", states)
    yield GaugeMetricFamily(
        "redrive_retry_queue_tasks", "Open tasks that have failed before.", value=counts.get("retrying", 0)
    )
    yield CounterMetricFamily("redrive_task_attempts", "Tries that ended, lost ones included.", value=totals.attempts)
    yield CounterMetricFamily("redrive_task_retries", "Tries that were not the first.", value=totals.retries)
    yield CounterMetricFamily("redrive_breaker_openings", "Breakers that opened.", value=totals.breaker_openings)
    yield GaugeMetricFamily(
        "redrive_oldest_due_age_seconds", "For how long the task is due that waits longest.", value=numbers.oldest_due_s
    )
    runs = {status.value.lower(): counts.get(f"run.{status.value}", 0) for status in RunStatus}
    yield _gauges("redrive_runs", "Runs of workflows that are kept, by their status.", "status", runs)


def _surroundings(numbers: Numbers) -> Iterator[Metric]:
    health = {name: numbers.endpoints.get(name, 0) for name in HEALTH}
    yield _gauges("redrive_endpoints", "Endpoints, by how they do.", "health", health)
    yield GaugeMetricFamily("redrive_workers_alive", "Workers heard of in the last minute.", value=numbers.workers)
    yield GaugeMetricFamily(
        "redrive_transaction_age_seconds",
        "For how long the oldest transaction of the database is open.",
        value=numbers.transaction_s,
    )
    yield GaugeMetricFamily(
        "redrive_xmin_age_transactions",
        "How many transactions ago a row must have died to be removed by vacuum.",
        value=numbers.xmin_age,
    )
    yield GaugeMetricFamily("redrive_schema_version", "The last migration.", value=numbers.schema_version)
    yield GaugeMetricFamily(
        "redrive_counts_age_seconds",
        "How old the numbers are that are not counted at each scrape.",
        value=numbers.age_s,
    )


def _jobs(numbers: Numbers) -> Iterator[Metric]:
    """Of those that are expected to run. The label is not `job`: Prometheus says that of what it scrapes."""
    known = [job for job in numbers.jobs if job.name in kinds.KINDS and job.left_at is None]
    yield _gauges(
        "redrive_job_idle_seconds",
        "How long ago a background job last succeeded, in whichever process.",
        "name",
        {job.name: job.idle_s for job in known},
    )
    yield _gauges(
        "redrive_job_interval_seconds",
        "How often a background job is expected to succeed.",
        "name",
        {job.name: job.every_s for job in known},
    )
    yield _gauges(
        "redrive_job_failing",
        "1: the last turn of a background job failed.",
        "name",
        {job.name: float(job.is_failing) for job in known},
    )


def _gauges(name: str, help: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, help, labels=[label])
    for value, n in values.items():
        family.add_metric([value], n)
    return family
