"""Failures that were seen elsewhere, by a program that tried something itself, and reported here.

They are written down as a worker writes down its own: a lease, an attempt with its error, and what follows by the
policy, in one transaction. Called by retry_service.
"""

import time
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from redrive.core.decide import Decision, Die, Reason, decide
from redrive.core.outcome import Failure
from redrive.core.ports import NO_EXCHANGE, Job, Settled, Settlement
from redrive.store import audit, transitions
from redrive.store.audit import Act
from redrive.store.clock import Clock
from redrive.store.db import Database, Session
from redrive.store.events import NewEvent, accept
from redrive.store.orgs import new_id
from redrive.store.policies import add_terms, retries_granted
from redrive.store.retry_queue import Refusal
from redrive.store.tasks import Tasks


class Added(NamedTuple):
    """`verdict` is that of accepting the event; there is a task where it was accepted, or known before."""

    verdict: str
    task_id: UUID | None
    settled: Settled | None
    max_retries: int | None = None  # of the policy by which that was decided


async def add_failed(
    engine: Database,
    event: NewEvent,
    failure: Failure,
    clock: Clock,
    *,
    roll: float,
    max_retries: int | None = None,
) -> Added:
    """Accept an event for one endpoint or handler, and its first try as failed. A known event is left as it is.
    `max_retries`: other than its policy's.
    """
    while (added := await _add_failed(engine, event, failure, clock, roll, max_retries)) is None:
        pass  # it was known, and removed before it was looked at: now it is not
    return added


async def _add_failed(
    engine: Database, event: NewEvent, failure: Failure, clock: Clock, roll: float, max_retries: int | None
) -> Added | None:
    async with engine.transaction() as session:
        (receipt,) = await accept(session, [event], clock)
        if receipt.verdict not in ("accepted", "duplicate"):
            return Added(receipt.verdict, None, None)
        row = await session.fetchrow("task_of_event", event.org_id, event.id)
        if row is None:
            assert receipt.verdict == "duplicate", "an event for one endpoint or handler has one task"
            return None
        task_id: UUID = row["id"]
        if receipt.verdict == "duplicate":
            return Added(receipt.verdict, task_id, None)
        tasks = Tasks(session, clock)
        job = await _lease(session, event.org_id, task_id, clock)
        policy = (await tasks.policies([(job.org_id, job.policy_id)]))[job.policy_id]
        is_own = max_retries is not None and policy.max_retries != max_retries
        policy = replace(policy, max_retries=max_retries) if is_own else policy
        decision = decide(policy, failure, failures=1, age=timedelta(0), roll=roll)
        transitions.tell_accepted(session, [(event, receipt)])
        settled = await _settle(tasks, job, failure, decision)
        if is_own:
            terms_id = await add_terms(session.of(job.org_id), policy)
            await session.execute("set_task_policy", job.org_id, task_id, terms_id)
        return Added(receipt.verdict, task_id, settled, policy.max_retries)


async def mark_failed(session: Session, task_id: UUID, failure: Failure, act: Act, clock: Clock) -> Refusal | None:
    """The last try of a waiting entry was made elsewhere and failed: it is dead, whatever retries were left."""
    entry = await session.fetchrow("lock_task", session.org_id, task_id)
    if entry is None or entry["attempts"] == 0:
        return Refusal.UNKNOWN
    match entry["state"]:
        case "waiting":
            job = await _lease(session, session.org_id, task_id, clock)
            settled = await _settle(Tasks(session, clock), job, failure, Die(Reason.EXHAUSTED, failure.category))
            await audit.record(session, act, "task.fail", "task", task_id)
            moved = transitions.Moved(job.event_id, task_id, retries_granted(entry, job.attempts + 1))
            assert settled.settled_at is not None, "a failure was settled"
            how = (session, act, [moved], [failure.message])
            await transitions.tell_given_up(*how, reason=Reason.EXHAUSTED, failed_at=settled.settled_at)
            return None
        case "leased":
            return Refusal.IN_PROGRESS
        case "held":
            return Refusal.HELD
    return Refusal.NOT_OPEN


async def _lease(session: Session, org_id: UUID, task_id: UUID, clock: Clock) -> Job:
    row = await session.fetchrow("lease_task", org_id, task_id, clock.now(), new_id())
    assert row is not None, "it waits, and is locked by this transaction"
    *facts, submitted_by = row
    return Job(*facts)._replace(submitted_by=submitted_by)


async def _settle(tasks: Tasks, job: Job, failure: Failure, decision: Decision) -> Settled:
    (settled,) = await tasks.settle([Settlement(job, failure, decision, NO_EXCHANGE, 0.0, ended_s=time.perf_counter())])
    assert settled.held_lease, "nobody else has seen this lease"
    return settled
