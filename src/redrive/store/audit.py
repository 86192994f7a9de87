"""The audit: one row per action of a person or of the engine on their behalf, in the action's own transaction."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from datetime import datetime
from uuid import UUID

import msgspec

from redrive.core.redact import redact_text, redact_value
from redrive.store.db import Record, Session
from redrive.store.paging import Page, page_of


@dataclass(frozen=True, slots=True)
class Act:
    """Who acts, why, and from where. What looks secret in `because` is redacted."""

    actor: str
    because: str | None = None
    correlation_id: str | None = None
    source: str | None = None  # the way in and the address: "api 10.1.2.3"

    def __post_init__(self) -> None:
        if self.because is not None:
            object.__setattr__(self, "because", redact_text(self.because))


@dataclass(frozen=True, slots=True)
class AuditFilter:
    actor: str | None = None
    action: str | None = None
    subject_kind: str | None = None
    subject_id: UUID | None = None
    since: datetime | None = None
    until: datetime | None = None


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
        _storable(before),
        _storable(after),
        act.source,
    )


def _storable(value: object) -> str | None:
    """As JSON, without what looks secret and without NUL, which PostgreSQL's jsonb does not take."""
    if value is None:
        return None
    return msgspec.json.encode(redact_value(msgspec.to_builtins(value))).decode()


async def list_audit_of(session: Session, subject_ids: Sequence[UUID]) -> list[Record]:
    """What was done to these things, oldest first."""
    return await session.fetch("list_audit_of", session.org_id, list(subject_ids))


async def list_audit(session: Session, chosen: AuditFilter, *, limit: int, after: Sequence[object] | None) -> Page:
    """Newest first, not counted: it only ever grows."""
    rows = await session.fetch("list_audit", session.org_id, *astuple(chosen), *(after or (None, None)), limit + 1)
    return page_of(rows, limit, ("at", "id"))
