"""Every number that a process keeps of itself: the catalogue, and the few who add to it. See docs/metrics.md.

One set for each process, whatever runs in it. The engine tells WorkerNotes through core.meter; the API and the store
add to theirs directly. observe.exposition shows them all with the label `process`.
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence

from redrive.core.outcome import Success
from redrive.core.ports import Claim, Settled
from redrive.observe.tallies import FINE_S, LATE_S, SIZES, TRY_S, Counter, Gauge, Histogram, Tally

NO_CATEGORY = "none"
OTHER = "other"
KINDS = ("http", "relay", "rabbitmq", "mail", "apprise", "handler", "step")
LEVELS = ("debug", "info", "warning", "error", "critical")
STATUS_CLASSES = {1: "1xx", 2: "2xx", 3: "3xx", 4: "4xx", 5: "5xx"}
REFUSALS = {413: "413", 429: "429", 503: "503", 507: "507"}  # too large, too fast, not now, no room
PROBES = frozenset({"healthz", "readyz"})  # whoever asks is told how it is, whatever the status

# -- workers -----------------------------------------------------------------------------------------------------------

ATTEMPTS = Counter(
    "redrive_attempts",
    "Tries that ended, by the kind of task, their result, and what the failed ones failed of.",
    ("kind", "result", "category"),
)
RETRIES = Counter("redrive_retries", "Tries of tasks that had failed before in their generation.", ("kind",))
ATTEMPT_SECONDS = Histogram(
    "redrive_attempt_duration_seconds", "How long tries took, by this process's clock.", TRY_S, ("kind",)
)
RETRY_LATENESS = Histogram(
    "redrive_retry_lateness_seconds",
    "How long after its due time a retry was claimed; both times are the database's.",
    LATE_S,
)
CLAIM_SECONDS = Histogram("redrive_claim_seconds", "How long claims took, round trip included.", FINE_S)
CLAIM_TASKS = Histogram("redrive_claim_tasks", "Tasks that a claim leased, of claims that leased any.", SIZES)
CLAIM_FAILURES = Counter("redrive_claim_failures", "Claims that failed: the database was away, or refused.")
SETTLE_SECONDS = Histogram("redrive_settle_seconds", "How long it took to write a batch of results.", FINE_S)
SETTLE_TASKS = Histogram("redrive_settle_tasks", "Results that were written together.", SIZES)
SCHEDULING_SECONDS = Histogram(
    "redrive_retry_scheduling_seconds",
    "How long it took from the end of a failed try until its retry was scheduled.",
    FINE_S,
)
LEASES_LOST = Counter("redrive_leases_lost", "Results that came after their lease had been taken over.")
LEASES_RELEASED = Counter("redrive_leases_released", "Leases given back without a try that counts.")
IN_FLIGHT = Gauge("redrive_attempts_in_flight", "Tries under way.")
LEASES_HELD = Gauge("redrive_leases_held", "Tasks that this process holds: tries, and results not written yet.")
CONCURRENCY = Gauge("redrive_attempts_limit", "Tries that may be under way at once.")

# -- the API -----------------------------------------------------------------------------------------------------------

REQUESTS = Counter("redrive_http_requests", "Requests that were answered, by what they were for.", ("route", "status"))
REFUSED = Counter(
    "redrive_http_requests_refused",
    "Requests refused for what they cost: 413 too large, 429 too many, 503 not now, 507 no room.",
    ("status",),
    [(status,) for status in REFUSALS.values()],
)
REQUEST_SECONDS = Histogram(
    "redrive_http_request_seconds",
    "How long requests took until their answer began, by method and route.",
    FINE_S,
    ("method", "route"),
)
COMMIT_SECONDS = Histogram("redrive_ingest_commit_seconds", "How long commits of accepted events took.", FINE_S)
COMMIT_EVENTS = Histogram("redrive_ingest_commit_events", "Events that shared a commit.", SIZES)
INGEST_WAITING = Gauge("redrive_ingest_waiting_events", "Events that were handed in and wait for their commit.")
STATUS_QUERIES = Counter("event_status_queries", "Questions after the status of an event.")
HUBS = Gauge("redrive_hubs_connected", "Hubs of relays that are connected to this process.")
STREAMS = Gauge("redrive_streams", "Streams of server-sent events that are open, by what they are of.", ("of",))
SCRAPE_FAILURES = Counter("redrive_scrape_failures", "Workers of this server that did not answer a scrape in time.")

# -- consumers of a broker ---------------------------------------------------------------------------------------------

CONSUMED = Counter("redrive_consumed", "Messages of a queue that were dealt with for good.", ("queue",))
CONSUMER_RETRIED = Counter(
    "redrive_consumer_retried", "Messages of a queue that were put off after a failure.", ("queue", "category")
)
CONSUMER_DEAD = Counter(
    "redrive_consumer_dead_lettered",
    "Messages of a queue that were moved to its dead-letter queue.",
    ("queue", "reason", "category"),
)
CONSUMER_SECONDS = Histogram(
    "redrive_consumer_duration_seconds", "How long handlers of messages took.", TRY_S, ("queue",)
)

# -- hubs of relays ----------------------------------------------------------------------------------------------------

HUB_FORWARDED = Counter(
    "redrive_hub_forwarded", "Webhooks that were forwarded, by the class of the answer, or none.", ("status",)
)
HUB_SECONDS = Histogram("redrive_hub_forward_seconds", "How long the service here took to answer, or not to.", TRY_S)
HUB_UNHEARD = Counter("redrive_hub_unheard", "Answers that the edge did not hear of: it delivers those again.")
HUB_CONNECTED = Gauge("redrive_hub_edge_connected", "1: the edge has welcomed this hub; 0: it is away.")

# -- every process -----------------------------------------------------------------------------------------------------

DATABASE_WAITS = Counter("redrive_database_waits", "Times that a connection had to be waited for.", ("role",))
DATABASE_WAIT_SECONDS = Counter("redrive_database_wait_seconds", "Seconds spent waiting for connections.", ("role",))
LISTENING = Gauge("redrive_listen_connected", "1: wake-ups come in; 0: the connection for them is lost.")
LOG_LINES = Counter("redrive_log_lines", "Lines for the log.", ("level",), [(level,) for level in LEVELS])
LOG_LINES_LOST = Counter(
    "redrive_log_lines_lost", "Lines that the log did not take: its disk is full, or nobody reads."
)
BUILD = Gauge("redrive_build_info", "Always 1; the version is in the label.", ("version",))

_OF_ALL: tuple[Tally, ...] = (DATABASE_WAITS, DATABASE_WAIT_SECONDS, LISTENING, LOG_LINES, LOG_LINES_LOST, BUILD)
OF_WORKERS: tuple[Tally, ...] = (
    ATTEMPTS,
    RETRIES,
    ATTEMPT_SECONDS,
    RETRY_LATENESS,
    CLAIM_SECONDS,
    CLAIM_TASKS,
    CLAIM_FAILURES,
    SETTLE_SECONDS,
    SETTLE_TASKS,
    SCHEDULING_SECONDS,
    LEASES_LOST,
    LEASES_RELEASED,
    IN_FLIGHT,
    LEASES_HELD,
    CONCURRENCY,
    *_OF_ALL,
)
# Relays are delivered where their hubs are connected: there is a worker in the API's process.
OF_SERVERS: tuple[Tally, ...] = (
    REQUESTS,
    REFUSED,
    REQUEST_SECONDS,
    COMMIT_SECONDS,
    COMMIT_EVENTS,
    INGEST_WAITING,
    STATUS_QUERIES,
    HUBS,
    STREAMS,
    SCRAPE_FAILURES,
    *OF_WORKERS,
)
OF_HUBS: tuple[Tally, ...] = (HUB_FORWARDED, HUB_SECONDS, HUB_UNHEARD, HUB_CONNECTED, *_OF_ALL)
OF_CONSUMERS: tuple[Tally, ...] = (CONSUMED, CONSUMER_RETRIED, CONSUMER_DEAD, CONSUMER_SECONDS, *_OF_ALL)
_KINDS = frozenset(KINDS)


def server_gauges(is_up: Callable[[], float], tells: Callable[[], float]) -> tuple[Gauge, Gauge]:
    """What an API server says of itself: whether the database answered, and whether it tells of the installation."""
    up = Gauge("redrive_database_up", "1: the database answered this scrape; 0: it did not.")
    teller = Gauge("redrive_tells_installation", "1: this server tells of the installation; 0: another does.")
    up.ask(is_up)
    teller.ask(tells)
    return up, teller


def kind_of(kind: str) -> str:
    """The kind of a task as a label: a newer Redrive may have stored others."""
    return kind if kind in _KINDS else OTHER


class WorkerNotes:
    """core.meter.WorkerMeter."""

    def __init__(self) -> None:
        self._succeeded = {label: (label, "succeeded", NO_CATEGORY) for label in (*KINDS, OTHER)}

    def claimed(self, claim: Claim, took_s: float) -> None:
        CLAIM_SECONDS.note(took_s)
        if claim.jobs:
            CLAIM_TASKS.note(len(claim.jobs))
        if claim.late_s:
            RETRY_LATENESS.of().note_all(claim.late_s)

    def claim_failed(self) -> None:
        CLAIM_FAILURES.add()

    def settled(self, settled: Sequence[Settled], took_s: float) -> None:
        SETTLE_SECONDS.note(took_s)
        SETTLE_TASKS.note(len(settled))
        # Nearly all are successes of one kind at their first try: what is the same for all is done once for the batch.
        last_kind = label = ""
        counts: list[int] = []
        bounds = ATTEMPT_SECONDS.bounds
        successes = 0
        spent_s = 0.0
        for (job, outcome, _, _, took_s, _, _, ended_s), held_lease, next_due_at, _, _ in settled:
            if not held_lease:
                LEASES_LOST.add()
            if outcome is None:
                LEASES_RELEASED.add()
                continue
            if job.kind != last_kind:
                self._add(label, successes, spent_s)
                last_kind, label, successes, spent_s = job.kind, kind_of(job.kind), 0, 0.0
                counts = ATTEMPT_SECONDS.of((label,)).counts
            counts[bisect_left(bounds, took_s)] += 1
            spent_s += took_s
            if job.attempts:
                RETRIES.add((label,))
            if isinstance(outcome, Success):
                successes += 1
            else:
                if next_due_at is not None and ended_s is not None:
                    SCHEDULING_SECONDS.note(time.perf_counter() - ended_s)
                ATTEMPTS.add((label, "failed", outcome.category._value_))  # the plain text: its hash costs nothing
        self._add(label, successes, spent_s)

    def _add(self, label: str, successes: int, spent_s: float) -> None:
        if label:
            ATTEMPTS.add(self._succeeded[label], successes)
            ATTEMPT_SECONDS.of((label,)).sum += spent_s


class ConsumerNotes:
    """core.meter.ConsumerMeter. Queues are named by the program that consumes them."""

    def succeeded(self, queue: str, took_s: float) -> None:
        CONSUMED.add((queue,))
        CONSUMER_SECONDS.note(took_s, (queue,))

    def retried(self, queue: str, category: str, took_s: float) -> None:
        CONSUMER_RETRIED.add((queue, category))
        CONSUMER_SECONDS.note(took_s, (queue,))

    def died(self, queue: str, reason: str, category: str, took_s: float | None) -> None:
        CONSUMER_DEAD.add((queue, reason, category))
        if took_s is not None:
            CONSUMER_SECONDS.note(took_s, (queue,))


def note_request(route: str, status: int) -> None:
    """An answer begins. `route` is a class of routes, never a path."""
    REQUESTS.add((route, STATUS_CLASSES.get(status // 100, OTHER)))
    if status in REFUSALS and route not in PROBES:
        REFUSED.add((REFUSALS[status],))


def note_forwarded(status: int | None, took_s: float, *, acknowledged: bool) -> None:
    """A hub has forwarded a webhook. `status`: None where the service did not answer."""
    HUB_FORWARDED.add((NO_CATEGORY if status is None else STATUS_CLASSES.get(status // 100, OTHER),))
    HUB_SECONDS.note(took_s)
    if not acknowledged:
        HUB_UNHEARD.add()
