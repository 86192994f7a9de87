"""Integration logs: one record per task, read from the task and its attempts. It outlives the dead letter."""

from uuid import UUID

from redrive.store.db import Record, Session


async def get_log(session: Session, log_id: UUID) -> Record | None:
    return await session.fetchrow("get_log", session.org_id, log_id)


async def list_task_attempts(session: Session, task_id: UUID) -> list[Record]:
    """The tries of a task, of all generations, oldest first; an open lease is a try without an end.

    The newest 1 000; `older` is true in their rows where there are more.
    """
    return await session.fetch("list_attempts", session.org_id, None, task_id)
