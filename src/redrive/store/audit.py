"""The audit: one row per action of a person or of the engine on their behalf, in the action's own transaction."""

import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from datetime import datetime
from uuid import UUID

import msgspec

from redrive.store.db import Record, Session
from redrive.store.paging import Page, page_of

_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")  # the escape, not a backslash before the letters


@dataclass(frozen=True, slots=True)
class Act:
    """Who acts, why, and from where."""

    actor: str
    because: str | None = None
    correlation_id: str | None = None
    source: str | None = None  # the way in and the address: "api 10.1.2.3"


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
    """As JSON that PostgreSQL takes: its jsonb has no NUL, which the names in a payload may hold."""
    if value is None:
        return None
    return _NUL.sub(r"\1\\ufffd", msgspec.json.encode(value).decode())


async def list_audit_of(session: Session, subject_ids: Sequence[UUID]) -> list[Record]:
    """What was done to these things, oldest first."""
    return await session.fetch("list_audit_of", session.org_id, list(subject_ids))


async def list_audit(session: Session, chosen: AuditFilter, *, limit: int, after: Sequence[object] | None) -> Page:
    """Newest first, not counted: it only ever grows."""
    rows = await session.fetch("list_audit", session.org_id, *astuple(chosen), *(after or (None, None)), limit + 1)
    return page_of(rows, limit, ("at", "id"))
