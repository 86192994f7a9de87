"""Notices: what people should hear of, and the shapes in which they are told. Pure.

Written by the database in the transaction that makes them so; told by engine.herald and engine.callbacks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID, uuid5

SYSTEM_PREFIX = "redrive."  # of the event types that notices are told by; the database knows it too
DEAD_LETTER = "dead_letter"


class Notice(NamedTuple):
    org_id: UUID
    org: str  # its name
    id: UUID
    at: datetime
    kind: str
    severity: str
    subject_kind: str
    subject_id: UUID | None
    text: str
    facts: Mapping[str, Any]

    @property
    def event_type(self) -> str:
        return SYSTEM_PREFIX + self.kind

    def event_id_for(self, endpoint_id: UUID) -> UUID:
        """The same whoever tells it, and however often."""
        return uuid5(self.id, str(endpoint_id))


class Call(NamedTuple):
    """A callback to be made, for the n-th time. `is_over`: not again, for its last call never ended."""

    notice: Notice
    calls: int
    is_over: bool = False


@dataclass(frozen=True, slots=True)
class DeadLetterNotice:
    """What a callback gets: one task that died. With `more`, so many that died in a minute with too many to be told one
    by one: then there is no single task, and the fields behind it are None.
    """

    id: UUID
    org: str
    at: datetime
    text: str
    more: int = 0
    task_id: UUID | None = None
    event_id: UUID | None = None
    event_type: str | None = None
    external_system: str | None = None
    endpoint_id: UUID | None = None
    endpoint: str | None = None
    reason: str | None = None
    category: str | None = None
    fingerprint: str | None = None

    @classmethod
    def of(cls, notice: Notice) -> "DeadLetterNotice":
        facts = notice.facts
        return cls(
            id=notice.id,
            org=notice.org,
            at=notice.at,
            text=notice.text,
            more=facts.get("more", 0),
            task_id=_id(facts.get("task_id")),
            event_id=_id(facts.get("event_id")),
            event_type=facts.get("event_type"),
            external_system=facts.get("external_system"),
            endpoint_id=_id(facts.get("endpoint_id")),
            endpoint=facts.get("endpoint"),
            reason=facts.get("reason"),
            category=facts.get("category"),
            fingerprint=facts.get("fingerprint"),
        )


def _id(text: str | None) -> UUID | None:
    return None if text is None else UUID(text)
