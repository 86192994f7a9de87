"""Log lines of what people do with events, and of what becomes of runs: one per transition, after its commit. Called by
the store's actions.

The engine's own transitions of events are logged by the worker that made them.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import structlog

from redrive.core.decide import Reason
from redrive.core.lifecycle import EventStatus
from redrive.observe import lines
from redrive.observe.watch import Watched
from redrive.store.audit import Act
from redrive.store.db import Record, Session

if TYPE_CHECKING:
    from redrive.store.events import NewEvent, Receipt

log = Watched(structlog.get_logger("redrive.transitions"))


Facts = dict[str, object]

_QUEUED: Facts = {**lines.who(None), "old_status": "received", "new_status": "queued"}


class Moved(NamedTuple):
    """A task that takes its event elsewhere."""

    event_id: UUID
    task_id: UUID | None = None
    retry_attempts: int = 0


async def tell(
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
    await tell_all(session, act, old, new, [Moved(event_id, task_id, retry_attempts)], org_id=org_id)


async def tell_all(
    session: Session,
    act: Act,
    old: EventStatus,
    new: EventStatus,
    moved: Sequence[Moved],
    *,
    org_id: UUID | None = None,
) -> None:
    """The same of many: a bulk action says as much as each alone, together."""
    known = await _known(session, [one.event_id for one in moved], org_id)
    facts = [
        _of(session, act, one.event_id, one.task_id, org_id, known)
        | {"old_status": old.value, "new_status": new.value, "retry_attempts": one.retry_attempts}
        for one in moved
    ]
    session.after_commit(partial(lines.say_all, "status_transition", facts))


async def tell_given_up(
    session: Session,
    act: Act,
    moved: Sequence[Moved],
    errors: Sequence[str],
    *,
    reason: Reason,
    failed_at: datetime,
    org_id: UUID | None = None,
) -> None:
    """A person has given tasks up: they died by that. `errors`: the last of each, redacted when it was kept."""
    known = await _known(session, [one.event_id for one in moved], org_id)
    facts = [
        _of(session, act, one.event_id, one.task_id, org_id, known)
        | {"retry_attempts": one.retry_attempts, "reason": reason.value}
        | {"failed_at": lines.utc(failed_at), "last_error": error}
        for one, error in zip(moved, errors, strict=True)
    ]
    session.after_commit(partial(lines.say_all, "event_failed", facts, "error"))
    await tell_all(session, act, EventStatus.QUEUED, EventStatus.FAILED, moved, org_id=org_id)


async def tell_letters(
    session: Session, act: Act, letters: Sequence[tuple[UUID, UUID, str]], new: str, *, org_id: UUID | None = None
) -> None:
    """What a person said of dead letters: the event and the task of each, and what it was before."""
    known = await _known(session, [event_id for event_id, _, _ in letters], org_id)
    facts = [
        _of(session, act, event_id, task_id, org_id, known) | {"old_state": old, "new_state": str(new)}
        for event_id, task_id, old in letters
    ]
    session.after_commit(partial(lines.say_all, "dead_letter_transition", facts))


def tell_deleted(session: Session, act: Act, event_id: UUID, old: str, event: Mapping[str, Any]) -> None:
    """`event`: who handed it in, and its correlation id."""
    facts = _of(session, act, event_id, None, None, {event_id: event}) | {"old_status": old, "new_status": None}
    session.after_commit(partial(lines.say_all, "event_deleted", [facts]))


def accepted(events: "Iterable[tuple[NewEvent, Receipt]]") -> list[Facts]:
    """The first transitions of each: it is received, and queued if somebody is to get it."""
    facts: list[Facts] = []
    for event, receipt in events:
        if receipt.verdict != "accepted":
            continue
        created: Facts = {
            "event_id": event.id,
            "org_id": event.org_id,
            **lines.who(event.submitted_by, event.submitted_by),
            "old_status": None,
            "new_status": "received",
            "retry_attempts": 0,
            "correlation_id": event.correlation_id,
            "event_type": event.event_type,
        }
        facts.append(created)
        if receipt.status == "queued":
            facts.append(created | _QUEUED)
    return facts


def tell_accepted(session: Session, events: "Sequence[tuple[NewEvent, Receipt]]") -> None:
    """Events that Redrive itself hands in, or a person for a test."""
    session.after_commit(partial(lines.say_all, "status_transition", accepted(events)))


async def _known(session: Session, event_ids: Sequence[UUID], org_id: UUID | None) -> Mapping[UUID, Record]:
    """Who handed these events in, and their correlation ids."""
    rows = await session.fetch("submitters", org_id or session.org_id, list(set(event_ids)))
    return {row["id"]: row for row in rows}


def _of(
    session: Session,
    act: Act,
    event_id: UUID,
    task_id: UUID | None,
    org_id: UUID | None,
    known: Mapping[UUID, Record | Mapping[str, Any]],
) -> Facts:
    event = known[event_id]
    return {
        "event_id": str(event_id),
        "task": None if task_id is None else str(task_id),
        "org_id": str(org_id or session.org_id),
        **lines.who(event["submitted_by"], act.actor),
        "correlation_id": act.correlation_id or event["correlation_id"],
    }


def tell_run(
    session: Session,
    old: str | None,
    new: str,
    *,
    org_id: UUID,
    run_id: UUID,
    workflow: str,
    correlation_id: str | None,
    created_by: str | None = None,
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
            **lines.who(created_by, actor),
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
        created_by=run["created_by"],
        actor=actor,
    )
