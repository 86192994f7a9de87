"""Messages that died in a broker become dead letters, and find their way back: core.broker's books on PostgreSQL.

They are written down as a worker writes down what it gives up itself: a lease, an attempt with the error, the death;
many of them by one commit. What they were in the broker stands beside that. Called by sources, which acknowledge a
message only then, and by the destination that publishes it again.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from hashlib import blake2b, sha256
from typing import NamedTuple
from uuid import UUID

import asyncpg

from redrive.core.broker import RABBITMQ_KIND, RETURN_QUEUE, DeadMessage, Origin, QueueState, Return
from redrive.core.decide import Die
from redrive.core.ports import NO_EXCHANGE, Job, Settlement
from redrive.core.trace import as_headers
from redrive.observe import lines
from redrive.store.clock import Clock
from redrive.store.db import Database, Record, Session, array_or_null, past_deadlocks
from redrive.store.events import new_correlation_id
from redrive.store.orgs import find_org, new_id
from redrive.store.tasks import Tasks

MAX_TYPE_CHARS = 200
MAX_TEXT_CHARS = 200
MAX_CORRELATION_CHARS = 128
MAX_PROBLEM_CHARS = 1_000
MAX_RETRIES_TOLD = 1_000_000  # a message may claim anything
STATEMENT_BYTES = 64 * 1024 * 1024  # of one statement's messages, unless one alone has more
MAX_QUEUES = 500  # of an org
QUEUE_TTL_S = 30 * 86_400.0  # since a collector last saw it
BINARY_TYPE = "application/octet-stream"
MAX_SHOWN_CHARS = 262_144  # of a message's properties, its deaths, and what its service said
MAX_OPEN_COUNTED = 1_000  # dead letters of a queue

# What is raised where a message cannot be stored, however often it is tried.
REFUSALS = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.ProgramLimitExceededError,
    UnicodeError,
)

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")  # PostgreSQL's text takes neither
_UNREADABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class _Kept(NamedTuple):
    """A message on its way to be a letter: under which event and task."""

    message: DeadMessage
    event_id: UUID
    task_id: UUID


class DeadMessages:
    """The book of one org."""

    def __init__(self, engine: Database, org_id: UUID, clock: Clock) -> None:
        self._engine = engine
        self._org_id = org_id
        self._clock = clock

    async def keep(self, messages: Sequence[DeadMessage]) -> list[bool]:
        messages = [replace(one, correlation_id=one.correlation_id or new_correlation_id()) for one in messages]
        ids = [_event_id(self._org_id, message) for message in messages]
        first = {event_id: place for place, event_id in reversed(list(enumerate(ids)))}
        new = [_Kept(messages[place], event_id, new_id()) for event_id, place in sorted(first.items())]
        letters = await past_deadlocks(partial(self._keep, new))
        if lines.are_wanted("error"):
            lines.say_all("event_failed", [self._told(letter) for letter in letters], "error")
        tasks = {letter.task_id for letter in letters}  # an event may have got another id
        stored = {kept.event_id for kept in new if kept.task_id in tasks}
        return [event_id in stored and first[event_id] == place for place, event_id in enumerate(ids)]

    def _told(self, kept: _Kept) -> dict[str, object]:
        message = kept.message
        return {
            "event_id": kept.event_id,
            "task": kept.task_id,
            "org_id": self._org_id,
            "queue": message.origin.queue,
            "message_id": message.message_id,
            "retry_attempts": _retries(message),
            "correlation_id": message.correlation_id,
            "reason": message.reason.value,
            "error_type": message.failure.category.value,
            "failed_at": None if message.failed_at is None else lines.utc(message.failed_at),
            "last_error": message.failure.message,
        }

    async def _keep(self, new: Sequence[_Kept]) -> list[_Kept]:
        """Those of these that are letters by this, as they were stored."""
        letters: list[_Kept] = []
        async with self._engine.transaction() as session:
            for part in _parts(new):
                letters += await self._keep_part(session, part)
        return letters

    async def _keep_part(self, session: Session, part: Sequence[_Kept]) -> list[_Kept]:
        letters = await self._keep_letters(session, part)
        stored = {letter.task_id for letter in letters}
        known = [kept for kept in part if kept.task_id not in stored]
        closed = await self._closed(session, known) if known else []
        if closed:
            letters += await self._keep_letters(session, [kept._replace(event_id=new_id()) for kept in closed])
        return letters

    async def _keep_letters(self, session: Session, part: Sequence[_Kept]) -> list[_Kept]:
        """Those whose events were not known."""
        rows = await session.fetch(
            "keep_dead_events", self._org_id, self._clock.now(), *_columns([_event_row(kept) for kept in part])
        )
        if not rows:
            return []
        stored: set[UUID] = {row["id"] for row in rows}
        now: datetime = rows[0]["received_at"]
        letters = [kept for kept in part if kept.event_id in stored]
        await self._bury(session, letters, now)
        await session.execute("keep_dead_messages", self._org_id, now, *_columns([_message_row(k) for k in letters]))
        return letters

    async def _closed(self, session: Session, known: Sequence[_Kept]) -> list[_Kept]:
        """Those that nobody would see any more: somebody brought the message back past us, and it died again."""
        rows = await session.fetch("unseen_dead_events", self._org_id, [kept.event_id for kept in known])
        unseen = {row["id"] for row in rows}
        return [kept for kept in known if kept.event_id in unseen]

    async def _bury(self, session: Session, letters: Sequence[_Kept], now: datetime) -> None:
        """A task for each, which dies at once."""
        terms = (self._org_id, now, new_id(), RETURN_QUEUE, RABBITMQ_KIND)
        rows = await session.fetch("keep_dead_tasks", *terms, *_columns([_task_row(kept) for kept in letters]))
        policies = {row["id"]: row["policy_id"] for row in rows}
        deaths = [
            Settlement(
                _job(self._org_id, kept, policies[kept.task_id], now),
                kept.message.failure,
                Die(kept.message.reason, kept.message.failure.category),
                NO_EXCHANGE,
                0.0,
            )
            for kept in letters
        ]
        settled = await Tasks(session, self._clock).settle(deaths)
        assert all(one.held_lease for one in settled), "nobody else has seen these leases"

    async def note(self, states: Sequence[QueueState]) -> None:
        newest = {_storable(state.queue): state for state in states}
        rows = [
            (
                queue,
                state.is_source,
                None if state.problem is None else _cut(state.problem, MAX_PROBLEM_CHARS),
                state.messages,
                state.consumers,
                state.collected,
                state.duplicates,
            )
            for queue, state in sorted(newest.items())
        ]
        if rows:
            now = self._clock.now()
            await self._engine.execute("forget_queues", self._org_id, now, QUEUE_TTL_S)
            await past_deadlocks(
                partial(self._engine.execute, "note_queues", self._org_id, now, MAX_QUEUES, *_columns(rows))
            )


class DeadMessagesOf:
    """The book of the org of a name, which is looked for when it is needed: it may be made later."""

    def __init__(self, engine: Database, org: str, clock: Clock) -> None:
        self._engine = engine
        self._org = org
        self._clock = clock

    async def keep(self, messages: Sequence[DeadMessage]) -> list[bool]:
        return await (await self._book()).keep(messages)

    async def note(self, states: Sequence[QueueState]) -> None:
        await (await self._book()).note(states)

    async def _book(self) -> DeadMessages:
        org_id = await find_org(self._engine, self._org)
        if org_id is None:
            raise LookupError(f'There is no org "{self._org}" (REDRIVE_RABBITMQ_ORG).')
        return DeadMessages(self._engine, org_id, self._clock)


class Returns:
    """core.broker.ReturnBook, over all orgs."""

    def __init__(self, engine: Database) -> None:
        self._engine = engine

    async def returns(self, keys: Sequence[tuple[UUID, UUID]]) -> list[Return]:
        rows = await self._engine.fetch("returns", [org for org, _ in keys], [task for _, task in keys])
        return [
            Return(row["org_id"], row["task_id"], _origin(row["origin"]), row["properties"], row["replays"])
            for row in rows
        ]


async def get_dead_message(session: Session, letter: Record) -> Record | None:
    """What a dead letter, or its log, was in a broker. None: it never was in one."""
    if letter["queue"] != RETURN_QUEUE:
        return None
    return await session.fetchrow("get_dead_message", session.org_id, letter["id"], MAX_SHOWN_CHARS)


async def list_queues(session: Session) -> list[Record]:
    """Those that are collected first, by their names; at most MAX_QUEUES. Open letters are counted to one more than
    MAX_OPEN_COUNTED.
    """
    return await session.fetch("list_queues", session.org_id, MAX_OPEN_COUNTED + 1)


async def has_queues(session: Session) -> bool:
    row = await session.fetchrow("has_queues", session.org_id)
    return row is not None and bool(row["has_queues"])


def _event_id(org_id: UUID, message: DeadMessage) -> UUID:
    """The same for the same message, so that the primary key itself refuses a second one (UUID version 8)."""
    if message.message_id is None:
        return new_id()
    redriven = message.redriven
    # Which letter, too: one that died again is a letter of its own, whose replays are counted from the beginning.
    again = (str(redriven.letter_id), str(redriven.replays)) if redriven else ("", "0")
    parts = (message.source, message.message_id, sha256(message.body).hexdigest(), *again)
    text = json.dumps(["dead message", *parts])  # quoted: no two lists of parts read the same
    digest = bytearray(blake2b(org_id.bytes + text.encode(), digest_size=16).digest())
    digest[6] = digest[6] & 0x0F | 0x80
    digest[8] = digest[8] & 0x3F | 0x80
    return UUID(bytes=bytes(digest))


def _parts(new: Sequence[_Kept]) -> Iterator[list[_Kept]]:
    """In their order, as many at a time as one statement may hold."""
    part: list[_Kept] = []
    size = 0
    for kept in new:
        if part and size + _size(kept.message) > STATEMENT_BYTES:
            yield part
            part, size = [], 0
        part.append(kept)
        size += _size(kept.message)
    if part:
        yield part


def _size(message: DeadMessage) -> int:
    return len(message.body) + len(message.properties) + len(message.deaths or "") + len(message.details or "")


def _columns(rows: Sequence[tuple[object, ...]]) -> list[Sequence[object] | None]:
    return [array_or_null(column) for column in zip(*rows, strict=True)]


def _event_row(kept: _Kept) -> tuple[object, ...]:
    message = kept.message
    return (
        kept.event_id,
        _type_of(message),
        _optional(message.service, MAX_TEXT_CHARS),
        _optional(message.correlation_id, MAX_CORRELATION_CHARS),
        _optional(message.content_type, MAX_TEXT_CHARS) or BINARY_TYPE,
        message.body,
        None if message.traceparent is None else as_headers(message.traceparent),
    )


def _task_row(kept: _Kept) -> tuple[object, ...]:
    message = kept.message
    return (
        kept.task_id,
        kept.event_id,
        _type_of(message),
        _optional(message.service, MAX_TEXT_CHARS),
        _retries(message),
        message.first_failed_at,
        message.failed_at,
    )


def _message_row(kept: _Kept) -> tuple[object, ...]:
    message, origin = kept.message, kept.message.origin
    return (
        kept.task_id,
        message.failed_at,
        _storable(message.source),
        _storable(origin.queue),
        _storable(origin.exchange),
        _storable(origin.routing_key),
        json.dumps({"exchange": origin.exchange, "routing_key": origin.routing_key, "queue": origin.queue}),
        None if message.message_id is None else _storable(message.message_id),
        None if message.service is None else _storable(message.service),
        _json_text(message.properties),
        None if message.deaths is None else _json_text(message.deaths),
        None if message.details is None else _json_text(message.details),
        _retries(message),
        message.redriven.letter_id if message.redriven else None,
        message.redriven.replays if message.redriven else 0,
    )


def _job(org_id: UUID, kept: _Kept, policy_id: UUID, now: datetime) -> Job:
    """The lease as settling asks for it; the body is not read there."""
    return Job(
        org_id=org_id,
        id=kept.task_id,
        event_id=kept.event_id,
        endpoint_id=None,
        policy_id=policy_id,
        kind=RABBITMQ_KIND,
        queue=RETURN_QUEUE,
        event_type=_type_of(kept.message),
        fence=1,
        attempts=_retries(kept.message),
        generation=0,
        begun_at=now,
        timeout_s=0.0,
        lost=False,
        claimed_at=now,
        correlation_id=None,
        body=b"",
        content_type=BINARY_TYPE,
    )


def _type_of(message: DeadMessage) -> str:
    """The queue that it died in, as the type of an event: a list by that shows what died there."""
    name = message.origin.queue or message.source
    return _UNREADABLE.sub("\ufffd", name)[:MAX_TYPE_CHARS] or "unknown"


def _retries(message: DeadMessage) -> int:
    return min(max(message.retries, 0), MAX_RETRIES_TOLD)


def _origin(stored: str) -> Origin:
    return Origin(**json.loads(stored))


def _storable(text: str) -> str:
    return _UNSTORABLE.sub("\ufffd", text)


def _cut(text: str, limit: int) -> str:
    return _storable(text)[:limit]


def _optional(text: str | None, limit: int) -> str | None:
    return (_UNREADABLE.sub("\ufffd", text)[:limit] or None) if text else None


def _json_text(text: str) -> str:
    """JSON as PostgreSQL takes it: half of a pair stands in a text only, where it may be escaped."""
    return text.encode("utf-8", "backslashreplace").decode()
