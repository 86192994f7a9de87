"""Dead letters: what failed for good, and what a person does with it. Every action is audited where it happens."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal, NamedTuple
from uuid import UUID

from redrive.core.lifecycle import MARKS, DeadLetterState, EventStatus, TaskState
from redrive.core.policy import retry_delay
from redrive.store import audit, pausing, transitions
from redrive.store.audit import Act
from redrive.store.clock import Clock
from redrive.store.counters import count_of
from redrive.store.db import Record, Session, like_literal, like_pattern
from redrive.store.orgs import as_id
from redrive.store.paging import LOOK_FACTOR, MAX_COUNTED, MAX_LOOKED, Page, Sort, page_of, page_of_looks
from redrive.store.policies import policy_of
from redrive.store.retry_queue import Refusal
from redrive.store.trends import Span, Trend

Order = Literal["in_place", "tail"]
MAX_ARRIVALS = 5_000  # letters looked at for a chart: some half a millisecond more than for a few
KEY = ("letter_created_at", "id")
SORTS = ("created_at", "failed_at", "event_type", "external_system", "error", "retry_count")  # created: first failed
FIRST_FAILED = Sort("created_at", descends=True)
# Each has an index in the list's order.
LEADS = (
    "event_id",
    "correlation_id",
    "fingerprint",
    "endpoint_id",
    "event_type",
    "external_system",
    "category",
    "reason",
    "kind",
)


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Which dead letters. In `event_type` a `*` stands for anything: `invoice.*`; without one it is just that type.

    `since` and `until` ask when it first failed, which no redrive moves; `failed_since` and `failed_until` ask when it
    died.
    """

    state: str = "open"
    kind: str | None = None
    event_type: str | None = None
    external_system: str | None = None
    endpoint_id: UUID | None = None
    reason: str | None = None
    category: str | None = None
    fingerprint: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    q: str | None = None
    event_id: UUID | None = None
    correlation_id: str | None = None
    failed_since: datetime | None = None
    failed_until: datetime | None = None

    @property
    def first_failed(self) -> tuple[datetime | None, datetime | None]:
        return self.since, self.until

    @property
    def columns(self) -> tuple[object, ...]:
        return (
            self.state,
            self.kind,
            None if self.has_type_pattern else self.event_type,
            self.external_system,
            self.endpoint_id,
            self.reason,
            self.category,
            self.fingerprint,
            max((at for at in (self.failed_since, self.since) if at is not None), default=None),  # it fails, then dies
            self.failed_until,
            f"%{like_literal(self.q)}%" if self.q else None,
            like_pattern(self.event_type) if self.event_type is not None and self.has_type_pattern else None,
            self.event_id,
            self.correlation_id,
        )

    @property
    def has_type_pattern(self) -> bool:
        return self.event_type is not None and "*" in self.event_type

    @property
    def lead(self) -> str | None:
        """The filter whose index is read: of those given, the one that usually leaves fewest."""
        return next(iter(self._indexed), None)

    @property
    def filters_besides_lead(self) -> bool:
        """Whether anything is asked that the index of the lead cannot answer (it can answer for the times)."""
        is_between = self.since is not None or self.until is not None
        return self.q is not None or self.has_type_pattern or is_between or len(self._indexed) > 1

    @property
    def _indexed(self) -> list[str]:
        """The filters given that an index answers. It gives letters of one type by their age, of many it cannot."""
        return [
            name
            for name in LEADS
            if getattr(self, name) is not None and not (name == "event_type" and self.has_type_pattern)
        ]


async def list_dead_letters(
    session: Session,
    chosen: DeadLetterFilter,
    *,
    limit: int,
    after: Sequence[object] | None,
    sort: Sort = FIRST_FAILED,
) -> Page:
    """Sorted as asked while at most MAX_COUNTED match; beyond that by time of death, newest first (`is_by_time`).

    Then a page of several filters, of a pattern or of a text may be short, or empty, and yet have a next one: it ends
    where enough letters were looked at. With more than MAX_COUNTED that a filter leaves, the total is None.
    """
    chosen = await _with_id(session, chosen)
    total = await _total(session, chosen)
    is_walk = after is not None and isinstance(after[0], datetime)  # begun where they were too many
    if total is None or total > MAX_COUNTED or is_walk:
        walk = after if is_walk else None
        return replace(await _page(session, chosen, limit, walk), total=total, is_by_time=True)
    given = (*chosen.columns, chosen.lead, MAX_COUNTED + 1, *chosen.first_failed)
    place = after or (None, None)
    rows = await session.fetch(
        "sort_dead_letters", session.org_id, *given, sort.column, sort.descends, *place, limit + 1
    )
    return page_of(rows, limit, ("sort_key", "id"), total)


async def _with_id(session: Session, chosen: DeadLetterFilter) -> DeadLetterFilter:
    """Search by index where the text is the id of an event, or a correlation id."""
    if chosen.q is None:
        return chosen
    given = (chosen.q.strip(), as_id(chosen.q.strip()))
    row = await session.fetchrow("letter_of_id", session.org_id, chosen.state, *given)
    assert row is not None
    if row["is_event"]:
        return replace(chosen, q=None, event_id=given[1])
    return replace(chosen, q=None, correlation_id=given[0]) if row["is_correlation"] else chosen


async def _page(session: Session, chosen: DeadLetterFilter, limit: int, after: Sequence[object] | None) -> Page:
    async def read(look: int) -> list[Record]:
        place = after or (None, None)
        return await session.fetch(
            "list_dead_letters",
            session.org_id,
            *chosen.columns,
            *place,
            limit + 1,
            chosen.lead,
            look,
            *chosen.first_failed,
        )

    looks = (limit * LOOK_FACTOR, MAX_LOOKED) if chosen.filters_besides_lead else (limit + 1,)
    return await page_of_looks(read, looks, limit, KEY)


async def _total(session: Session, chosen: DeadLetterFilter) -> int | None:
    if chosen == DeadLetterFilter(state=chosen.state):
        return await count_of(session, f"dead.{chosen.state}")
    given = (*chosen.columns, chosen.lead, MAX_COUNTED + 1, *chosen.first_failed)
    row = await session.fetchrow("count_dead_letters", session.org_id, *given)
    return row["n"] if row else None


async def arrivals(
    session: Session, chosen: DeadLetterFilter, *, since: datetime, until: datetime, buckets: int
) -> Trend:
    """When the letters that match came, within a span of time; times in the filter narrow it. Where more letters than
    MAX_ARRIVALS would have to be looked at, only the newest are.
    """
    chosen = await _with_id(session, chosen)
    span = Span(since, until, buckets)
    within = replace(
        chosen,
        failed_since=max(since, chosen.failed_since or since),
        failed_until=min(until, chosen.failed_until or until),
    )
    place = (chosen.lead, MAX_ARRIVALS, since, span.bucket_s, *chosen.first_failed)
    rows = await session.fetch("letter_arrivals", session.org_id, *within.columns, *place)
    is_whole = rows[0]["looked"] < MAX_ARRIVALS
    return span.trend_of((row for row in rows if row["n"] or not is_whole), is_whole=is_whole)


async def get_dead_letter(session: Session, task_id: UUID) -> Record | None:
    """One dead letter, closed ones included; deleted ones are gone."""
    return await session.fetchrow("get_dead_letter", session.org_id, task_id)


class Goes(NamedTuple):
    """How a redriven task is tried."""

    first: bool = True  # where it is due at once: whatever a breaker or a limit says
    once: bool = False  # its first failure is its last


AS_ALWAYS = Goes()


async def redrive(
    session: Session,
    task_id: UUID,
    act: Act,
    clock: Clock,
    *,
    roll: float,
    at_once: bool = False,
    order: Order | None = None,
) -> Refusal | None:
    """Start a new generation: as after a first failure, with the policy's full retries, due in its first delay.

    Under a policy that never retries by itself the person has just asked for a try: it is due at once. Of a lane:
    `order` says whether it goes where it was, or behind the others.
    """
    row = await lock_redrivable(session, task_id, order)
    if isinstance(row, Refusal):
        return row
    if at_once and (await pausing.hold_of(session, task_id, clock)).shut:
        return Refusal.HELD
    delay = None if at_once else retry_delay(policy_of(row), 0, roll)
    await begin_generation(session, row, act, clock, delay=delay, edit=row["edit"], order=order)
    await audit.record(
        session,
        act,
        "dead_letter.retry",
        "dead_letter",
        task_id,
        before={"state": row["state"]},
        after=None if order is None else {"order": order},
    )
    return None


async def open_letters_of(session: Session, event_id: UUID) -> list[UUID]:
    """The tasks of an event whose dead letters are open, oldest first."""
    return [row["task_id"] for row in await session.fetch("open_letters_of", session.org_id, event_id)]


async def lock_redrivable(session: Session, task_id: UUID, order: Order | None = None) -> Record | Refusal:
    """Hold a dead letter still whose task is dead: it may begin anew. A place (`order`) has only one in a lane."""
    row = await session.fetchrow("lock_dead_letter", session.org_id, task_id)
    if row is None or row["state"] == "deleted":
        return Refusal.UNKNOWN
    if row["state"] == "replaying":
        return Refusal.REPLAYING
    if row["task_state"] != "dead":
        return Refusal.NOT_OPEN
    if row["run_is_under_way"] or await _is_overtaken(session, row["run_id"]):
        return Refusal.RUN_UNDER_WAY
    return Refusal.NO_LANE if order is not None and row["lane"] is None else row


async def _is_overtaken(session: Session, run_id: UUID | None) -> bool:
    """Whether somebody else has just redriven another step of the same run. From here on nobody can."""
    if run_id is None:
        return False
    await session.execute("lock_run", session.org_id, run_id)
    row = await session.fetchrow("is_run_under_way", session.org_id, run_id)
    return bool(row and row["is_so"])


async def begin_generation(
    session: Session,
    letter: Record,
    act: Act,
    clock: Clock,
    *,
    delay: timedelta | None,
    edit: int | None,
    policy_id: UUID | None = None,
    order: Order | None = None,
    goes: Goes = AS_ALWAYS,
) -> None:
    """Bring a locked dead letter's task back to life. Without a delay it is tried at once, whatever a breaker says.

    `edit` is the one in force from now on (None: none), `policy_id` the policy (None: as before), `order` where in its
    lane (None: in its place while the lane is halted, else at the tail).
    """
    delay_s = delay.total_seconds() if delay else 0.0
    given = (delay_s, act.actor, act.because, policy_id, edit, order, goes.first and delay is None, goes.once)
    await session.execute("redrive", session.org_id, letter["task_id"], clock.now(), *given)
    await transitions.tell(
        session,
        act,
        EventStatus.FAILED,
        EventStatus.QUEUED,
        event_id=letter["event_id"],
        task_id=letter["task_id"],
        retry_attempts=0 if letter["run_id"] is not None else 1,
    )


async def mark(session: Session, task_id: UUID, verb: str, act: Act) -> Refusal | None:
    """Resolve, ignore, delete or reopen (lifecycle.MARKS). A deleted one leaves the lists; its log and this entry in
    the audit stay.
    """
    row = await session.fetchrow("lock_dead_letter", session.org_id, task_id)
    if row is None:
        return Refusal.UNKNOWN
    wanted = MARKS[verb]
    refusal = refusal_to_mark(row["state"], wanted, row["task_state"])
    if refusal is not None or row["state"] == wanted:
        return refusal
    await session.execute("mark_dead_letter", session.org_id, task_id, wanted, act.actor, act.because)
    await audit.record(session, act, f"dead_letter.{verb}", "dead_letter", task_id, before={"state": row["state"]})
    await transitions.tell_letters(session, act, [(row["event_id"], task_id, row["state"])], wanted)
    return None


def refusal_to_mark(state: str | None, wanted: DeadLetterState, task_state: str) -> Refusal | None:
    """Why a person may not say this of a dead letter; None: they may, or it is so already."""
    if state in (None, DeadLetterState.DELETED):
        return Refusal.UNKNOWN
    if state == DeadLetterState.REPLAYING:
        return Refusal.REPLAYING
    is_settled = state == DeadLetterState.RESOLVED and (
        wanted == DeadLetterState.IGNORED or (wanted == DeadLetterState.OPEN and task_state != TaskState.DEAD)
    )
    return Refusal.NOT_OPEN if is_settled else None
