"""Log lines of what people do with events, and of what becomes of runs: one per transition, after its commit. Called by
the store's actions.

The engine's own transitions of events are logged by the worker that made them.
"""

from functools import partial
from uuid import UUID

import structlog

from redrive.core.lifecycle import EventStatus
from redrive.observe.watch import Watched
from redrive.store.audit import Act
from redrive.store.db import Record, Session

log = Watched(structlog.get_logger("redrive.transitions"))


def tell(
    session: Session,
    act: Act,
    old: EventStatus,
    new: EventStatus,
    *,
    event_id: UUID,
    task_id: UUID | None = None,
    retry_attempts: int = 0,
    org_id: UUID | None = None,
) -> None:
    """Say it once it is so: a transaction that is rolled back has changed nothing. `org_id`: unless the session's."""
    session.after_commit(
        partial(
            log.info,
            "status_transition",
            event_id=str(event_id),
            task=None if task_id is None else str(task_id),
            org_id=str(org_id or session.org_id),
            user_id=act.actor,
            old_status=old.value,
            new_status=new.value,
            retry_attempts=retry_attempts,
            correlation_id=act.correlation_id,
        )
    )


def tell_run(
    session: Session,
    old: str | None,
    new: str,
    *,
    org_id: UUID,
    run_id: UUID,
    workflow: str,
    correlation_id: str | None,
    actor: str | None = None,
) -> None:
    """The same of a run. `old` is None where it begins; `actor` where a person did it."""
    session.after_commit(
        partial(
            log.info,
            "run_transition",
            run_id=str(run_id),
            workflow=workflow,
            org_id=str(org_id),
            user_id=actor,
            old_status=old,
            new_status=new,
            correlation_id=correlation_id,
        )
    )


def tell_of(session: Session, run: Record, new: str, actor: str | None = None) -> None:
    """The same of a run whose row is at hand, as it was."""
    tell_run(
        session,
        run["status"],
        str(new),
        org_id=run["org_id"],
        run_id=run["id"],
        workflow=run["workflow"],
        correlation_id=run["correlation_id"],
        actor=actor,
    )
