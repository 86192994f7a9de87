"""The conservation proof: that nothing accepted has left the books, on a live database.

Reads only, in one snapshot, over all orgs: work that goes on meanwhile neither disturbs it nor is disturbed. Each
rule is one query, sql/check_<name>.sql, which answers with what breaks it. Called by `redrive check` and by tests.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from redrive.store.db import connect, query

MAX_OFFENCES = 10  # named per rule; the queries read one more, to tell that there are more
DEFAULT_GRACE_S = 60.0
QUERY_TIMEOUT_S = 1_800.0

# Whole tables are read and joined. The engine's own settings are for look-ups and would take forever.
_TERMS = "SET LOCAL ROLE redrive_engine; SET LOCAL jit = off; SET LOCAL work_mem = '64MB'"


@dataclass(frozen=True, slots=True)
class Rule:
    """What must hold, and what it means where it does not. `timed`: the query takes the time and the grace."""

    name: str
    sentence: str
    meaning: str
    timed: bool = False


RULES: tuple[Rule, ...] = (
    Rule(
        "event_tasks",
        "Every event has the tasks that it was fanned out to.",
        "Tasks of an accepted event are gone: nobody will deliver it.",
    ),
    Rule(
        "task_event",
        "Every task belongs to an event.",
        "The task has no payload and cannot be tried.",
    ),
    Rule(
        "task_terms",
        "Every task's policy and endpoint exist.",
        "Workers pass the task over: it stays where it is.",
    ),
    Rule(
        "lease",
        "A leased task has a holder, a fence, and an end within the hour.",
        "The task is held by nobody, or for too long.",
    ),
    Rule(
        "held",
        "Something holds a held task: a disabled or paused endpoint, a paused org or installation.",
        "No worker releases the task: start one (`redrive worker`), or skip the task.",
        timed=True,
    ),
    Rule(
        "open_try",
        "A leased task has one open try, and no attempt is ahead of its task.",
        "A try was recorded that no lease allowed: two workers may have had the task at once.",
    ),
    Rule(
        "fences",
        "Every lease that ended left exactly one attempt.",
        "A try was made of which nothing is known.",
    ),
    Rule(
        "attempt_task",
        "Every attempt belongs to a task.",
        "A task that was tried is gone.",
    ),
    Rule(
        "attempts",
        "A task counts its tries right.",
        "It will be retried too often, or not often enough.",
    ),
    Rule(
        "success",
        "A succeeded task has one successful attempt, its last; others have none.",
        "A success is claimed that nobody saw, or one was seen and not kept.",
    ),
    Rule(
        "dead_letter",
        "Every dead task stands among the dead letters, with its reason.",
        "Something failed for good and nobody can see it.",
    ),
    Rule(
        "letter_state",
        "A dead letter's state agrees with its task.",
        "People see something that is not so.",
    ),
    Rule(
        "edits",
        "The edit that a task is to send exists, and every edit has a task.",
        "The original would be sent instead of what a person wrote.",
    ),
    Rule(
        "audited",
        "Whatever a person did with a dead letter is in the audit.",
        "It cannot be told who did it, or the audit was changed.",
    ),
    Rule(
        "due",
        "A waiting task is due within its policy's reach.",
        "The task will not be retried in time, or never.",
        timed=True,
    ),
    Rule(
        "overdue",
        "Nothing is overdue beyond the grace.",
        "No worker takes it: start one for this queue (`redrive worker`, with --app for handlers), or more of them.",
        timed=True,
    ),
    Rule(
        "runs",
        "A run that is under way has one open step, and one that waits for people an open dead letter.",
        "The run stands still, and nobody will go on with it: replay it from the step that it has come to.",
    ),
    Rule(
        "broker",
        "What came from a broker knows the way back, and nothing else is to go there.",
        "A message cannot be redriven to the queue that it died in.",
    ),
    Rule(
        "lanes",
        "What waits behind others of its lane waits for a head, or for a person where the lane is halted.",
        "The lane stands still: no worker gives it a head (start one), or a halt outlived its dead letter.",
        timed=True,
    ),
    Rule(
        "operations",
        "An operation's sums are what its items say, and a completed one has done them all.",
        "A bulk action says that it did something which it did not, or the other way round.",
        timed=True,
    ),
    Rule(
        "counters",
        "The counters are what counting gives.",
        "Totals in lists and on the dashboard are wrong.",
    ),
    Rule(
        "letter_counts",
        "Each cause of dead letters has as many as are counted for it.",
        "The list of groups is wrong.",
    ),
    Rule(
        "rollups",
        "What is told of an hour is the sum of its minutes, and of a day that of its hours.",
        "Numbers of deliveries by endpoint, event type or external system are wrong.",
        timed=True,
    ),
)


class Offence(NamedTuple):
    """One row that breaks a rule: the id of an event, a task or an operation, for counts the org's."""

    org_id: UUID
    id: UUID
    detail: str


@dataclass(frozen=True, slots=True)
class Violation:
    rule: Rule
    offences: list[Offence]
    more: bool


@dataclass(frozen=True, slots=True)
class Books:
    """Where everything accepted is. Both sides of each sum are counted."""

    org: str
    events: int = 0
    received: int = 0
    queued: int = 0
    delivered: int = 0
    failed: int = 0
    tasks: int = 0
    waiting: int = 0
    leased: int = 0
    held: int = 0
    succeeded: int = 0
    dead: int = 0
    dead_open: int = 0
    dead_resolved: int = 0
    dead_ignored: int = 0
    dead_deleted: int = 0
    dead_parked: int = 0  # steps of runs that are replayed from an earlier step
    replaying: int = 0

    @property
    def balanced(self) -> bool:
        return (
            self.events == self.received + self.queued + self.delivered + self.failed
            and self.tasks == self.waiting + self.leased + self.held + self.succeeded + self.dead
            and self.dead
            == self.dead_open + self.dead_resolved + self.dead_ignored + self.dead_deleted + self.dead_parked
        )


@dataclass(frozen=True, slots=True)
class Report:
    at: datetime
    books: list[Books]  # one per org, by name
    violations: list[Violation]

    @property
    def total(self) -> Books:
        counts = {
            field.name: sum(getattr(books, field.name) for books in self.books)
            for field in fields(Books)
            if field.name != "org"
        }
        return Books("all orgs", **counts)

    @property
    def clean(self) -> bool:
        return not self.violations and all(books.balanced for books in self.books)


async def check(
    url: str,
    *,
    now: datetime | None = None,
    grace_s: float = DEFAULT_GRACE_S,
    rules: Sequence[Rule] = RULES,
) -> Report:
    """Hold the database against the rules. `now` is for tests with a clock of their own."""
    connection = await connect(url, name="redrive-check", command_timeout_s=QUERY_TIMEOUT_S)
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            await connection.execute(_TERMS)
            at: datetime = now or await connection.fetchval("SELECT transaction_timestamp()")
            rows = await connection.fetch(query("check_books"))
            books = [
                Books(row["org"], **{name: int(n or 0) for name, n in row.items() if name != "org"}) for row in rows
            ]
            violations = []
            for rule in rules:
                found = await connection.fetch(query(f"check_{rule.name}"), *((now, grace_s) if rule.timed else ()))
                if found:
                    offences = [Offence(row["org_id"], row["id"], row["detail"]) for row in found]
                    violations.append(Violation(rule, offences[:MAX_OFFENCES], len(offences) > MAX_OFFENCES))
    finally:
        await connection.close()
    return Report(at, books, violations)
