"""What became of tries, as log lines: one per transition, in the words of events. Called by engine.worker, and by
engine.janitor for what nobody tried any more.

A line of its own for each task that an event fanned out to: `old_status` and `new_status` are where that task takes it.
No payload, no header and no answer of a receiver comes here; error messages were redacted when they were made.
"""

import time
from collections.abc import Sequence
from datetime import datetime

import structlog

from redrive.core.decide import Die, Reason, RetryIn
from redrive.core.lifecycle import EventStatus, retry_attempts
from redrive.core.outcome import Failure, Success
from redrive.core.ports import Job, Released, Settled
from redrive.core.run_states import schedule_id
from redrive.core.sweep import ExpiredTask
from redrive.observe import lines
from redrive.observe.watch import Watched

log = Watched(structlog.get_logger("redrive.worker"))

Facts = dict[str, object]

_OF_THE_ERROR = frozenset({"error", "error_type"})
_MOVED = {"old_status": EventStatus.QUEUED.value, "new_status": EventStatus.DELIVERED.value}


def tell_delivered(jobs: Sequence[Job]) -> None:
    """First tries that succeeded: most of what happens, so they are told together."""
    if jobs and lines.are_wanted():
        lines.say_all("status_transition", [_facts(job, 0) | _MOVED for job in jobs])


def tell(result: Settled, max_retries: int | None) -> None:
    """Log what a settlement came to, but for a first try that succeeded. `max_retries` is the policy's."""
    job, outcome, decision, *_ = result.settlement
    failures = job.attempts + isinstance(outcome, Failure)
    is_permanent = isinstance(decision, Die) and decision.reason is Reason.PERMANENT
    facts = _facts(job, retry_attempts(failures, max_retries, is_permanent=is_permanent))
    if not result.held_lease:
        log.warning("lease_lost", **facts, fence=job.fence)
        return
    if isinstance(decision, Released):
        log.info("lease_returned", **facts, why=decision.why)
        return
    if outcome is None:
        del facts["attempt"]  # what would have been the next try was not made
    is_retry = outcome is not None and job.attempts > 0
    if is_retry:
        log.info("retry_attempted", **facts, result="succeeded" if isinstance(outcome, Success) else "failed")
    if isinstance(outcome, Success):
        _transition(facts, EventStatus.DELIVERED)
        return
    if outcome is not None:
        facts |= {"error": outcome.message, "error_type": outcome.category.value}
    if isinstance(decision, Die):
        last_error = outcome.message if outcome is not None else result.last_error
        log.error(
            "event_failed",
            **facts,
            reason=decision.reason.value,
            failed_at=_utc(result.settled_at),
            last_error=last_error,
        )
        _transition(facts, EventStatus.FAILED)
        return
    if job.run_id is not None and job.step is not None:
        facts["scheduled_as"] = schedule_id(str(job.run_id), job.step, failures + 1, job.generation)
    delay_ms = round(decision.delay.total_seconds() * 1000) if isinstance(decision, RetryIn) else None
    waits: Facts = {"next_retry_at": _utc(result.next_due_at), "retry_in_ms": delay_ms}
    if result.settlement.ended_s is not None:
        waits["scheduling_latency_ms"] = round((time.perf_counter() - result.settlement.ended_s) * 1000, 3)
    log.warning("delivery_failure", **facts, **waits)
    if delay_ms is not None:
        log.info("retry_scheduled", **{name: facts[name] for name in facts if name not in _OF_THE_ERROR}, **waits)
    _transition(facts, EventStatus.QUEUED)


def tell_taken_over(job: Job, max_retries: int | None) -> None:
    """The worker before did not report in time: its try counts as failed, whatever came of it."""
    facts = _facts(job, retry_attempts(job.attempts, max_retries))
    log.warning("lease_taken_over", **facts, fence=job.fence)


def tell_expired(tasks: Sequence[ExpiredTask]) -> None:
    """Tasks that died while they waited."""
    for task in tasks:
        facts = _facts(task, retry_attempts(task.attempts, task.max_retries))
        del facts["attempt"]
        log.error(
            "event_failed",
            **facts,
            reason=Reason.EXPIRED.value,
            failed_at=_utc(task.died_at),
            last_error=task.message,
        )
        _transition(facts, EventStatus.FAILED)


def _facts(task: Job | ExpiredTask, retries: int) -> Facts:
    facts: Facts = {
        "event_id": str(task.event_id),
        "task": str(task.id),
        "org_id": str(task.org_id),
        "attempt": task.attempts + 1,
        "retry_attempts": retries,
        "correlation_id": task.correlation_id,
        "event_type": task.event_type,
        "endpoint_id": None if task.endpoint_id is None else str(task.endpoint_id),
        **lines.who(task.submitted_by),
    }
    if task.run_id is None:
        return facts
    return facts | {"run_id": str(task.run_id), "step_index": task.step}


def _transition(facts: Facts, new: EventStatus) -> None:
    log.info("status_transition", **facts, old_status=EventStatus.QUEUED.value, new_status=new.value)


def _utc(moment: datetime | None) -> str | None:
    return lines.utc(moment) if moment else None
