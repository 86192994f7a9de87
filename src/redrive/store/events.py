"""Events: what producers handed in. Accepted in batches, one commit for all that arrived together.

accept() is called by the API's committer and by the CLI; the reads serve the API.
"""

import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from redrive.core.channels import NOTICE_PREFIX, TEST_KINDS
from redrive.core.trace import kept_context, with_context_of
from redrive.store import audit, transitions
from redrive.store.audit import Act
from redrive.store.clock import Clock
from redrive.store.db import Database, Record, Session, array_or_null
from redrive.store.paging import Page, page_of
from redrive.store.policies import add_terms, policy_of

MAX_PAYLOAD_BYTES = 1_048_576
MAX_BATCH_EVENTS = 1_000
JSON_TYPE = "application/json"


def new_correlation_id() -> str:
    """For what came without one."""
    return os.urandom(16).hex()


class NewEvent(NamedTuple):
    org_id: UUID
    id: UUID
    event_type: str
    body: bytes
    occurred_at: datetime | None = None
    endpoint_id: UUID | None = None
    handler: str | None = None
    policy: str | None = None
    external_system: str | None = None
    ordering_key: str | None = None
    correlation_id: str | None = None
    content_type: str | None = None  # of the body; None: JSON
    headers: str | None = None  # to be sent with its deliveries: a JSON object of texts
    submitted_by: str | None = None  # an actor, like key:<id>; None: Redrive itself


class Receipt(NamedTuple):
    """The store's answer: `verdict` is accepted, duplicate, conflict, no_endpoint, no_policy or no_org."""

    verdict: str
    status: str | None


async def accept(
    db: Database | Session, events: Sequence[NewEvent], clock: Clock, *, ranks: Sequence[int] | None = None
) -> list[Receipt]:
    """Store events and fan them out, in one transaction. Answers in the order given.

    The same id twice in one batch is one event: the second is measured against the first. `ranks` tell in which order
    they came, where that is another one than the one given.
    """
    came = ranks if ranks is not None else range(len(events))
    places = {(event.org_id, event.id): place for place, event in reversed(list(enumerate(events)))}
    columns = map(array_or_null, zip(*(events[place] for place in places.values()), strict=True))
    rows = await db.fetch("accept", *columns, clock.now(), [came[place] for place in places.values()])
    usual, *others = [Receipt(verdict, status) for _, _, verdict, status in rows]
    if not others and len(places) == len(events):
        return [usual] * len(events)
    receipts = {(row["org_id"], row["event_id"]): other for row, other in zip(rows[1:], others, strict=True)}
    if any(receipt.verdict == "conflict" for receipt in others):
        asked = [events[place] for place in places.values()]
        conflicting = [event for event in asked if receipts.get(event[:2], usual).verdict == "conflict"]
        receipts |= await _apart_from_traces(db, conflicting, clock)
    answers = [receipts.get(event[:2], usual) for event in events]
    seen: set[tuple[object, ...]] = set()
    for place, event in enumerate(events):
        if event[:2] in seen:
            answers[place] = _repeated(event, events[places[event[:2]]], answers[place])
        seen.add(event[:2])
    return answers


async def _apart_from_traces(
    db: Database | Session, events: Sequence[NewEvent], clock: Clock
) -> dict[tuple[UUID, UUID], Receipt]:
    """The answers to events that are known otherwise, where the trace alone differs: who repeats a request is by then
    in another span, and means the same event all the same.
    """
    rows = await db.fetch("kept_headers", [event.org_id for event in events], [event.id for event in events])
    kept = {(row["org_id"], row["id"]): row["headers"] for row in rows}
    again = {
        event[:2]: event._replace(headers=with_context_of(event.headers, kept[event[:2]]))
        for event in events
        if event[:2] in kept and kept_context(event.headers) != kept_context(kept[event[:2]])
    }
    if not again:
        return {}
    receipts = await accept(db, list(again.values()), clock)
    return dict(zip(again, receipts, strict=True))


async def accept_test(session: Session, event: NewEvent, act: Act, clock: Clock) -> Receipt:
    """An event by which a person tries an endpoint, and in the same transaction its entry in the audit.

    One try on the terms of any other delivery: where it fails, it is ignored, and nobody is told but who sent it.
    """
    (receipt,) = await accept(session, [event], clock)
    if receipt.verdict == "accepted":
        assert event.endpoint_id is not None
        row = await session.fetchrow("terms_of_event", event.org_id, event.id)
        assert row is not None, "it was written in this transaction"
        once = await add_terms(session, replace(policy_of(row), max_retries=0, notify=False))
        await session.execute("queue_notices", [event.org_id], [event.id], TEST_KINDS, NOTICE_PREFIX)
        await session.execute("make_test", event.org_id, event.id, once)
        await audit.record(session, act, "endpoint.test", "endpoint", event.endpoint_id, after={"event_id": event.id})
        transitions.tell_accepted(session, [(event, receipt)])
    return receipt


def _repeated(event: NewEvent, first: NewEvent, receipt: Receipt) -> Receipt:
    """The answer to an event whose id came before in the same batch, where that one got `receipt`."""
    if receipt.verdict not in ("accepted", "duplicate"):
        return receipt
    return Receipt("duplicate" if _identity(event) == _identity(first) else "conflict", receipt.status)


def _identity(event: NewEvent) -> tuple[object, ...]:
    """What the same event has in common with its repetition; the SQL function compares the same."""
    return (
        event.body,
        event.event_type,
        event.endpoint_id,
        event.handler,
        event.policy,
        event.external_system,
        event.ordering_key,
        event.content_type or JSON_TYPE,
        with_context_of(event.headers, None) if event.headers is not None else None,
    )


async def get_event(session: Session, event_id: UUID) -> Record | None:
    return await session.fetchrow("get_event", session.org_id, event_id)


async def get_event_body(session: Session, event_id: UUID) -> bytes:
    """The payload of an event that is there, however large."""
    row = await session.fetchrow("get_event_body", session.org_id, event_id)
    body: bytes = row["body"] if row is not None else b""
    return body


async def get_event_status(session: Session, event_id: UUID) -> Record | None:
    return await session.fetchrow("get_event_statuses", session.org_id, [event_id])


async def get_event_statuses(session: Session, event_ids: Collection[UUID]) -> list[Record]:
    """Those that exist, in no order."""
    return await session.fetch("get_event_statuses", session.org_id, list(event_ids))


async def list_events(
    session: Session,
    *,
    status: str | None,
    event_type: str | None,
    limit: int,
    after: Sequence[object] | None,
) -> Page:
    """Newest first. The total is None with a type, and where it would take long to count."""
    by_task = status in ("queued", "failed")
    name = "list_unfinished_events" if by_task else "list_events"
    rows = await session.fetch(name, session.org_id, status, event_type, *(after or (None, None)), limit + 1)
    counted = None if event_type else await session.fetchrow("count_events", session.org_id, status)
    return page_of(rows, limit, ("received_at", "id"), counted["n"] if counted else None)


async def list_event_attempts(session: Session, event_id: UUID) -> list[Record]:
    """The tries of every task of an event, oldest first, the open ones included.

    The newest 1 000; `older` is true in their rows where there are more.
    """
    return await session.fetch("list_attempts", session.org_id, event_id, None)


async def list_event_tasks(session: Session, event_id: UUID) -> list[Record]:
    """The tasks that an event fanned out to, each with what became of it."""
    return await session.fetch("list_event_tasks", session.org_id, event_id)
