"""The numbers that alerts are judged by: few indexed queries for a page of orgs, whatever they have stored.

Called by store.alert_rounds for everybody, and by store.alerts for the one org that a person looks at.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import msgspec

from redrive.core.alert_sights import (
    GONE_AFTER_S,
    AllTerms,
    EndpointReading,
    InstallationReading,
    JobReading,
    OrgReading,
    TransactionReading,
)
from redrive.core.alerts import CLEARS_AT, RULES, default_terms, stored_terms
from redrive.core.jobs import HEARTBEAT
from redrive.store.clock import Clock
from redrive.store.db import Database, Session
from redrive.store.jobs import list_jobs
from redrive.store.stats import MAX_ROWS_LOOKED_AT

MAX_STREAMS = 100_000  # looked at for what is due: endpoints and handlers that have tasks
MAX_ENDPOINTS = 10_000  # in trouble by one rule, of a page of orgs; those that fire already are looked at in any case
MAX_TRANSACTIONS = 20

_DEFAULTS: AllTerms = {name: default_terms(rule) for name, rule in RULES.items()}


class Due(NamedTuple):
    """For how long tasks are due: by org, and the oldest that workers could do. `is_whole`: no stream was left out."""

    by_org: Mapping[UUID, float]
    work_s: float | None = None
    is_whole: bool = True


Endpoints = Mapping[UUID, Sequence[EndpointReading]]


def terms_of(specs: str | None) -> AllTerms:
    """Every rule as an org has it. `specs`: JSON of what it has set, by rule."""
    if specs is None:
        return _DEFAULTS
    given: dict[str, dict[str, object]] = msgspec.json.decode(specs)
    return {name: stored_terms(rule, given.get(name, {})) for name, rule in RULES.items()}


async def due(db: Database | Session, now: datetime) -> Due:
    rows = await db.fetch("alert_due", now, MAX_STREAMS)
    work = [row["work_age_s"] for row in rows if row["work_age_s"] is not None]
    by_org = {row["org_id"]: row["due_age_s"] for row in rows if row["due_age_s"] is not None}
    return Due(by_org, max(work, default=None), max((row["streams"] for row in rows), default=0) < MAX_STREAMS)


async def endpoints(session: Session, orgs: Sequence[UUID], firing: Sequence[tuple[UUID, UUID]] = ()) -> Endpoints:
    """Those in trouble, and those that an incident is about (`firing`: org and id), as they are now."""
    those = [org_id for org_id, _ in firing], [endpoint_id for _, endpoint_id in firing]
    rows = await session.fetch("alert_endpoints", list(orgs), MAX_ENDPOINTS, *those)
    found: defaultdict[UUID, list[EndpointReading]] = defaultdict(list)
    for row in rows:
        found[row["org_id"]].append(EndpointReading(*(row[name] for name in EndpointReading._fields)))
    return found


async def of_orgs(
    session: Session,
    now: datetime | None,
    terms: Mapping[UUID, AllTerms],
    late: Due,
    troubled: Endpoints,
) -> list[OrgReading]:
    windows = (
        [of["failure_rate"]["window_s"] for of in terms.values()],
        [of["slow_delivery"]["window_s"] for of in terms.values()],
    )
    rows = await session.fetch("alert_numbers", now, list(terms), *windows)
    return [
        OrgReading(
            row["org_id"],
            row["delivered"],
            row["failed"],
            dict(zip(row["slots"] or (), row["counts"] or (), strict=True)),
            row["dead_letters"],
            row["letter_age_s"],
            late.by_org.get(row["org_id"]),
            troubled.get(row["org_id"], ()),
            late.is_whole,
        )
        for row in rows
    ]


async def of_org(session: Session, terms: AllTerms, clock: Clock) -> OrgReading:
    """What one org's rules see now. As the app, which sees that one."""
    troubled = await endpoints(session, [session.org_id])
    oldest = await session.fetchrow("oldest_due", session.org_id, clock.now(), MAX_ROWS_LOOKED_AT)
    is_late = oldest is not None and oldest["due_at"] is not None
    late = Due({session.org_id: (oldest["now"] - oldest["due_at"]).total_seconds()} if oldest and is_late else {})
    (reading,) = await of_orgs(session, clock.now(), {session.org_id: terms}, late, troubled)
    return reading


async def of_installation(
    db: Database | Session, clock: Clock, terms: AllTerms, *, work_s: float | None, watched_s: float
) -> InstallationReading:
    """As the engine: transactions of others are nothing to the app."""
    workers = await db.fetchrow("alert_workers", clock.now(), HEARTBEAT.name)
    assert workers is not None
    old_s = terms["long_transaction"]["threshold_s"] * CLEARS_AT
    open_now = await db.fetch("alert_transactions", clock.now(), old_s, MAX_TRANSACTIONS)
    jobs = [
        JobReading(
            job.name,
            job.every_s,
            job.idle_s,
            job.error if job.is_failing else None,
            job.unseen_s,
            has_left=job.left_at is not None,
        )
        for job in await list_jobs(db, clock)
        if job.left_s is None or job.left_s < GONE_AFTER_S
    ]
    return InstallationReading(
        workers["silent_s"],
        work_s,
        watched_s,
        jobs,
        [TransactionReading(*(row[name] for name in TransactionReading._fields)) for row in open_now],
        workers["left_s"],
    )
