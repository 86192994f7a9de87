"""What engine, store and destinations hand to each other, and the ports through which they meet. Pure.

The engine asks a TaskStore for jobs, a Destination to carry each of them out, and the TaskStore again to settle
what followed. Neither knows the other. Jobs and settlements pass by the ten thousand: named tuples, not dataclasses.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol, runtime_checkable
from uuid import UUID

from redrive.core.breaker import BreakerState
from redrive.core.decide import Decision, Leniency
from redrive.core.notices import Call, Notice
from redrive.core.outcome import Outcome
from redrive.core.policy import Policy

HTTP_QUEUE = "http"
RELAY_QUEUE = "relay"
HANDLER_QUEUE_PREFIX = "handler:"
STEP_QUEUE = "step"  # of workflows: what needs nobody else
HTTP_STEP_QUEUE = "step.http"
STEP_HANDLER_PREFIX = "step:"


class Job(NamedTuple):
    """A task under lease. The field order is that of the claim query."""

    org_id: UUID
    id: UUID
    event_id: UUID
    endpoint_id: UUID | None
    policy_id: UUID
    kind: str
    queue: str
    event_type: str
    fence: int
    attempts: int  # tries of this generation made before this one; a redrive counts as one, unless it is of a step
    generation: int
    begun_at: datetime
    timeout_s: float
    lost: bool  # taken over from a worker that did not report
    claimed_at: datetime
    correlation_id: str | None
    body: bytes
    content_type: str
    headers: str | None = None  # to be sent with it: a JSON object of texts; the endpoint's win
    edited_headers: str | None = None  # the same, given by a person for this task: they win over all others
    lane: UUID | None = None  # in which it stays in order
    gap: int = 0  # how many died between it and the last one of its lane that was delivered
    out_of_order: bool = False  # redriven when later ones of its lane had been delivered
    max_block_s: float | None = None  # how long it may keep its lane once it fails
    blocked_since: datetime | None = None  # its first failed try, moved on by the time that it was due and not tried
    free_since: datetime | None = None  # when a person last ended a pause of it; None: never, or it was tried since
    run_id: UUID | None = None  # the run that it is a step of
    step: int | None = None  # which of its steps
    run_traceparent: str | None = None  # what the run was begun with
    submitted_by: str | None = None  # who handed its event in; None: Redrive itself
    trial: bool = False  # redriven in an early stage of an operation: one try

    @property
    def leniency(self) -> Leniency:
        """A person's retry survives any class of failure, but for steps, whose runs decide by class, and relays."""
        if self.trial:
            return Leniency.NONE
        if self.generation and self.kind not in (RELAY_QUEUE, STEP_QUEUE):
            return Leniency.ALL
        return Leniency.BY_CLASS


class Exchange(NamedTuple):
    """What went out and what came back, already redacted."""

    url: str | None = None
    request_headers: str | None = None  # JSON
    status_code: int | None = None
    response_headers: str | None = None  # JSON
    response_body: bytes | None = None
    truncated: bool = False
    method: str | None = None  # of HTTP, where it is another than POST


NO_EXCHANGE = Exchange()


class Try(NamedTuple):
    """One try of a job, as its destination saw it."""

    outcome: Outcome
    exchange: Exchange = NO_EXCHANGE
    output: bytes | None = None  # of a step: JSON, for the steps behind it
    output_is_cut: bool = False  # it was too large to be kept


class Released(NamedTuple):
    """The lease goes back and nothing is counted: no try was made, or it was broken off by a shutdown."""

    why: str
    possible_duplicate: bool = False
    delay_s: float = 0.0


class Settlement(NamedTuple):
    """What follows for a job. `outcome` is None where no try was made."""

    job: Job
    outcome: Outcome | None
    decision: Decision | Released
    exchange: Exchange
    took_s: float
    output: bytes | None = None
    output_is_cut: bool = False
    ended_s: float | None = None  # when the try ended, by time.perf_counter


class Settled(NamedTuple):
    """The store's answer to a settlement: whether the lease still held, when the next try is due, when it was written.

    The last three are known of failures only. `last_error`: of a task that died without another try.
    """

    settlement: Settlement
    held_lease: bool
    next_due_at: datetime | None
    settled_at: datetime | None = None
    last_error: str | None = None


class Floor(NamedTuple):
    """Where a claim begins in a stream: behind the last row taken."""

    due_at: datetime
    task_id: UUID


NO_ENDPOINT = UUID(int=0)  # the place of handlers


class Place(NamedTuple):
    """What is limited and served in turn: an endpoint, or a handler in one org."""

    queue: str
    org_id: UUID
    id: UUID  # the endpoint's, or NO_ENDPOINT


class Stream(NamedTuple):
    """Tasks that are claimed in the order of their due times: the first tries of a place, or its retries."""

    place: Place
    is_retry: bool


class Ask(NamedTuple):
    """How many tasks a claim may take of a stream, and from where on.

    `due_until`: only those that a person asked for now, due by then; no breaker and no limit holds them back.
    """

    stream: Stream
    most: int
    floor: Floor
    due_until: datetime | None = None


class Claim(NamedTuple):
    jobs: list[Job]
    held: int  # due, but not leased: something holds them, or is being changed at this moment
    ends: Mapping[Stream, Floor]  # where it stopped in the streams that may have more
    barred: frozenset[Place] = frozenset()  # to be owned first, or shut by their breaker
    late_s: Sequence[float] = ()  # of the retries among the jobs: for how long each was due, by the database's clock


class Survey(NamedTuple):
    """The streams that have live tasks, and when the first of each is due.

    `lost`: the first is under a lease that ran out. `deleted`: relays that are no more. Both are to be claimed whether
    their endpoint can be reached or not.
    """

    now: datetime
    due_at: Mapping[Stream, datetime]
    lost: frozenset[Stream] = frozenset()
    deleted: frozenset[Place] = frozenset()


class Woken(NamedTuple):
    """The streams of lanes that got a head. `more`: not all were looked at."""

    streams: list[Stream]
    more: bool


class Owned(NamedTuple):
    """An endpoint that a worker has to itself, and what it has to count there.

    `is_new`: another had it before, or nobody. `paced_until`: when its rate allows the next try.
    """

    place: Place
    max_in_flight: int | None
    rate_per_s: float | None
    paced_until: datetime | None
    breaker: str
    breaker_since: datetime | None
    is_new: bool
    now: datetime

    def moment(self, when: datetime | None, at: float) -> float:
        """On the worker's clock, where it is `at` now; None is now."""
        return at if when is None else at + (when - self.now).total_seconds()


class TaskStore(Protocol):
    """The engine's view of the store."""

    async def survey(self, queues: Sequence[str]) -> Survey: ...

    async def claim(self, asks: Sequence[Ask], *, limit: int, worker_id: UUID, margin_s: float) -> Claim: ...

    async def expedited(self, queues: Sequence[str]) -> list[Ask]:
        """What to claim for people who asked for a try now."""
        ...

    async def own(self, places: Sequence[Place], worker_id: UUID, for_s: float) -> list[Owned]:
        """Those of these endpoints that nobody else has."""
        ...

    async def disown(self, worker_id: UUID) -> None: ...

    async def wake_lanes(self, *, from_start: bool = False) -> Woken:
        """Give lanes a head to which something was added. What was added by a transaction that stayed open for long is
        found now and then, or now if it is looked for `from_start`.
        """
        ...

    async def settle(self, settlements: Sequence[Settlement], worker_id: UUID) -> list[Settled]: ...

    async def policies(self, keys: Sequence[tuple[UUID, UUID]]) -> dict[UUID, Policy]:
        """Those that this program understands; a newer one may have stored others."""
        ...

    async def disable_endpoint(
        self, org_id: UUID, endpoint_id: UUID, reason: str, *, tried_url: str | None = None
    ) -> bool:
        """`tried_url`: what was tried, redacted. False where the endpoint leads elsewhere by now, or is disabled."""
        ...

    async def release_held(self, limit: int) -> int:
        """Let held tasks go on that nothing holds any more; how many there were."""
        ...


class Destination(Protocol):
    """Something that can carry out jobs of some queues."""

    @property
    def queues(self) -> Sequence[str]: ...

    async def prepare(self, jobs: Sequence[Job]) -> None:
        """Load what a batch needs, once for all of them."""
        ...

    async def attempt(self, job: Job, now: datetime) -> Try | Released:
        """Try the job within its time-out. What goes wrong is an outcome, not an exception.

        Released where no try could be made for want of room: it must not cost the task an attempt.
        """
        ...

    async def aclose(self) -> None: ...


class Trying(Protocol):
    """A try under way."""

    def cancel(self) -> None:
        """Break it off. Its end is not reported."""
        ...


@runtime_checkable
class PromptDestination(Destination, Protocol):
    """A destination that begins a try at once and tells its end by a call: no task per try.

    Worth it where hundreds of tries are in flight and little is done for each of them: a task costs more than that.
    """

    def begin(self, job: Job, now: datetime, ended: Callable[[Try | Released], None]) -> Trying | Try | Released:
        """As `attempt`. What is known at once is returned; else `ended` is called with it, later and once."""
        ...


@runtime_checkable
class ReachingDestination(Destination, Protocol):
    """A destination that cannot reach every endpoint at every time: only tasks of those that it can are claimed."""

    def can_reach(self, endpoint_id: UUID) -> bool: ...


class EndpointTerms(NamedTuple):
    """What a delivery needs to know of its endpoint. Secrets inside: never log it."""

    org_id: UUID
    id: UUID
    name: str
    url: str
    secrets: tuple[bytes, ...]
    headers: tuple[tuple[str, str], ...]
    ca_pem: str | None
    deleted: bool
    problem: str | None = None  # why nothing can be delivered to it, for a person to read
    all_until: datetime | None = None  # from then on only the first secret signs; None: all of them do
    org_name: str = ""
    exchange: str | None = None  # of kind rabbitmq, which has no URL
    routing_key: str | None = None  # None: the event's type
    mail_to: tuple[str, ...] = ()  # of kind mail
    apprise_url: str = ""  # of kind apprise: a secret

    def __repr__(self) -> str:
        return f"EndpointTerms(id={self.id}, name={self.name!r})"


class EndpointBook(Protocol):
    """Where a destination looks endpoints up."""

    async def terms(self, keys: Sequence[tuple[UUID, UUID]]) -> list[EndpointTerms]: ...


class EndpointStates(Protocol):
    """The breakers of endpoints, which all workers share. Each step answers whether it changed something: False where
    another worker, or a person, was first.
    """

    async def open_breaker(self, org_id: UUID, endpoint_id: UUID, *, taken_for: BreakerState, reason: str) -> bool:
        """`taken_for`: what it was to the one who asks. `reason` is for a person."""
        ...

    async def begin_ramp(self, org_id: UUID, endpoint_id: UUID) -> bool:
        """From open, when a try came through."""
        ...

    async def close_breaker(self, org_id: UUID, endpoint_id: UUID) -> bool:
        """From a ramp that is over."""
        ...


class HealthReport(NamedTuple):
    """How the tries of an endpoint went since the last report. Ages are seconds; None: there was none."""

    org_id: UUID
    endpoint_id: UUID
    succeeded: int
    failed: int
    took_ms: int  # together
    slowest_ms: int
    success_age_s: float | None
    failing_age_s: float | None  # of the first failure behind the last success
    failure_age_s: float | None  # of the last failure
    failures: int  # behind the last success


class DisabledEndpoint(NamedTuple):
    org_id: UUID
    endpoint_id: UUID
    reason: str


class HealthLedger(Protocol):
    """Where workers say how endpoints do."""

    async def add(self, reports: Sequence[HealthReport]) -> None: ...

    async def disable_failing(self, after_s: float) -> list[DisabledEndpoint]:
        """Disable endpoints that did nothing but fail for so long, and answer those. Their tasks are held."""
        ...


class WorkerCard(NamedTuple):
    """Who a worker is."""

    worker_id: UUID
    host: str
    pid: int
    version: str
    queues: tuple[str, ...]
    concurrency: int


class WorkerBook(Protocol):
    """Where workers say that they are there."""

    async def beat(self, card: WorkerCard) -> None: ...

    async def leave(self, worker_id: UUID) -> None: ...


class Step(NamedTuple):
    """What a step of an operation came to. `rest_s`: how long nothing more is expected to be possible."""

    operation_id: UUID | None  # None: none needed one
    rest_s: float


class OperationStore(Protocol):
    """Bulk actions, moved on one short transaction at a time by whichever process comes first."""

    async def step(self) -> Step: ...


class NoticeStore(Protocol):
    """What people should hear of, and who tells it."""

    async def hand_over(self, limit: int, say: Callable[[Sequence[Notice]], None]) -> int:
        """Hand the oldest that nobody has told to those who asked for them, and mark them; how many there were.

        `say` is called with them before they are marked.
        """
        ...

    async def take_calls(self, *, limit: int, most_calls: int, lease_s: float) -> list[Call]:
        """Dead letters that a callback is to hear of; for so long nobody else takes them. Those that are over, too."""
        ...

    async def end_call(self, call: Call, *, again_in_s: float | None) -> None:
        """None: it needs no other one. Where the call was made again meanwhile, a failure says nothing any more."""
        ...
