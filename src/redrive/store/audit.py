"""The audit: one row per action of a person or of the engine on their behalf, in the action's own transaction."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import msgspec

from redrive.store.db import Record, Session


@dataclass(frozen=True, slots=True)
class Act:
    """Who acts, why, and from where."""

    actor: str
    because: str | None = None
    correlation_id: str | None = None
    source: str | None = None  # the way in and the address: "api 10.1.2.3"


async def record(
    session: Session,
    act: Act,
    action: str,
    subject_kind: str,
    subject_id: UUID,
    *,
    before: object = None,
    after: object = None,
) -> None:
    await session.execute(
        "record_audit",
        session.org_id,
        act.actor,
        action,
        subject_kind,
        subject_id,
        act.because,
        act.correlation_id,
        None if before is None else msgspec.json.encode(before).decode(),
        None if after is None else msgspec.json.encode(after).decode(),
        act.source,
    )


async def list_audit_of(session: Session, subject_ids: Sequence[UUID]) -> list[Record]:
    """What was done to these things, oldest first."""
    return await session.fetch("list_audit_of", session.org_id, list(subject_ids))
