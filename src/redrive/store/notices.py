"""Notices, as the herald tells them and as people read them.

Written by the database's function redrive.note and its triggers on dead letters; handed over here. Called by
engine.herald and engine.callbacks through core.ports.NoticeStore; list_notices serves the API and the command line.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import structlog

from redrive.core.channels import NOTICE_KINDS, NOTICE_PREFIX
from redrive.core.notices import Call, Notice
from redrive.store.clock import Clock
from redrive.store.db import Database, Record, Session
from redrive.store.events import MAX_BATCH_EVENTS, NewEvent, accept, new_correlation_id
from redrive.store.paging import Page, page_of
from redrive.store.transitions import tell_accepted

FOLD_AFTER_S = 60.0  # how long further ones are only counted before they are told together
CALL_WINDOW_S = 3_600.0  # what is older is no news to a callback

log = structlog.get_logger("redrive.notices")


class Notices:
    """core.ports.NoticeStore on PostgreSQL, as the engine."""

    def __init__(self, engine: Database, clock: Clock) -> None:
        self._db = engine
        self._clock = clock

    async def hand_over(self, limit: int, say: Callable[[Sequence[Notice]], None]) -> int:
        """What is handed over, and that it was, in one transaction. `say` is called before it commits."""
        look = await self._db.fetchrow("look_for_notices", self._clock.now(), FOLD_AFTER_S)
        if look is None or not look["found"]:
            return 0
        async with self._db.transaction() as session:
            await session.execute("fold_notices", self._clock.now(), FOLD_AFTER_S)
            notices = [_notice(row) for row in await session.fetch("take_notices", limit)]
            if notices:
                await self._send(session, notices)
                say(notices)
                ids = [[notice.org_id for notice in notices], [notice.id for notice in notices]]
                await session.execute("mark_told", self._clock.now(), *ids)
        return len(notices)

    async def _send(self, session: Session, notices: Sequence[Notice]) -> None:
        """An event for each endpoint that asked for it. Their ids are the notices': there can be no second one."""
        orgs, types = [notice.org_id for notice in notices], [notice.event_type for notice in notices]
        rows = await session.fetch("notice_subscribers", orgs, types)
        events = [_event(notices[row["place"] - 1], row) for row in rows]
        for start in range(0, len(events), MAX_BATCH_EVENTS):
            some = events[start : start + MAX_BATCH_EVENTS]
            receipts = await accept(session, some, self._clock)
            tell_accepted(session, list(zip(some, receipts, strict=True)))
            for event, receipt in zip(some, receipts, strict=True):
                if receipt.verdict not in ("accepted", "duplicate"):
                    log.warning("notice_not_sent", endpoint_id=str(event.endpoint_id), verdict=receipt.verdict)
            ids = [[event.org_id for event in some], [event.id for event in some]]
            await session.execute("queue_notices", *ids, NOTICE_KINDS, NOTICE_PREFIX)

    async def take_calls(self, *, limit: int, most_calls: int, lease_s: float) -> list[Call]:
        rows = await self._db.fetch("take_calls", self._clock.now(), CALL_WINDOW_S, most_calls, lease_s, limit)
        return [Call(_notice(row), row["calls"], row["is_over"]) for row in rows]

    async def end_call(self, call: Call, *, again_in_s: float | None) -> None:
        notice = call.notice
        await self._db.execute("end_call", self._clock.now(), notice.org_id, notice.id, again_in_s, call.calls)


async def list_notices(session: Session, *, kind: str | None, limit: int, after: Sequence[object] | None) -> Page:
    """Newest first."""
    rows = await session.fetch("list_notices", session.org_id, kind, *(after or (None, None)), limit + 1)
    return page_of(rows, limit, ("at", "id"))


def _notice(row: Record) -> Notice:
    facts: dict[str, Any] = msgspec.json.decode(row["facts"])
    return Notice(**{name: row[name] for name in Notice._fields if name != "facts"}, facts=facts)


def _event(notice: Notice, row: Record) -> NewEvent:
    body = {
        "id": notice.id,
        "at": notice.at,
        "org": notice.org,
        "kind": notice.kind,
        "severity": notice.severity,
        "subject": {"kind": notice.subject_kind, "id": notice.subject_id},
        "text": notice.text,
        "facts": notice.facts,
    }
    return NewEvent(
        notice.org_id,
        notice.event_id_for(row["endpoint_id"]),
        notice.event_type,
        msgspec.json.encode(body),
        occurred_at=notice.at,
        endpoint_id=row["endpoint_id"],
        correlation_id=new_correlation_id(),
    )
