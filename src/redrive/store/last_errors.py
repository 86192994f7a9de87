"""How tasks last failed. The dead letter of a task that ends without another try shows that error beside the reason."""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from redrive.core.outcome import Category
from redrive.store.db import Database, Session


class LastError(NamedTuple):
    category: Category
    message: str


# What the database writes down of a lease that ran out.
LOST = LastError(Category.TIMEOUT, "The worker did not report before its lease ended: it died, hung, or was cut off.")


async def last_errors(
    db: Database | Session, org_ids: Sequence[UUID], task_ids: Sequence[UUID]
) -> dict[UUID, LastError]:
    """By task. Tasks that never failed are missing."""
    rows = await db.fetch("last_errors", list(org_ids), list(task_ids)) if task_ids else ()
    return {row["id"]: LastError(Category(row["category"]), row["error_message"]) for row in rows}
