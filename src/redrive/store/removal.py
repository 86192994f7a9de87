"""Removing one event for good, because a person says so: with its tasks, their attempts, and so their logs.

Serves the API; audited in the same transaction. What policies remove is retention's business.
"""

from uuid import UUID

from redrive.store import audit, transitions
from redrive.store.audit import Act
from redrive.store.db import Session
from redrive.store.lanes import lift_halts
from redrive.store.retry_queue import Refusal


async def delete_event(session: Session, event_id: UUID, act: Act) -> Refusal | None:
    """The audit keeps what it was: its type, where it stood, and a digest of its payload.

    A lane that it halted goes on.
    """
    tasks = await session.fetch("lock_event_tasks", session.org_id, event_id)
    described = await session.fetchrow("describe_event", session.org_id, event_id)
    if described is None:
        return Refusal.UNKNOWN
    was = dict(described)
    # Fewer locked than it has: it was handed in just after the look for its tasks, which are under way.
    of_log = {name: was.pop(name) for name in ("submitted_by", "correlation_id")}
    if any(task["open"] for task in tasks) or was.pop("tasks") != len(tasks):
        return Refusal.IN_PROGRESS
    if any(task["run_id"] is not None for task in tasks):
        return Refusal.OF_RUN
    await lift_halts(session, task_ids=[task["id"] for task in tasks])
    gone = await session.fetchrow("delete_events", session.org_id, [event_id])
    if gone is None or gone["events"] == 0:  # without tasks nothing was held: somebody else was first
        return Refusal.UNKNOWN
    await audit.record(session, act, "event.delete", "event", event_id, before=was)
    transitions.tell_deleted(session, act, event_id, str(was["status"]), of_log)
    return None
