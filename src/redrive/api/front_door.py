"""POST /v1/events and /v1/events/batch on bare ASGI: the two routes that all traffic comes through.

No framework between the socket and the committer: what it would cost per request is more than everything here.
Called by server; hands events to committer and answers after the commit. What they are read as is said by event_input
and cloud_events.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from redrive.api import cloud_events
from redrive.api.answers import Send, send_json
from redrive.api.auth import Authenticator
from redrive.api.body import BodyReader, Receive
from redrive.api.cloud_events import CloudEvent, Mode, mode_of
from redrive.api.committer import Committer, Told
from redrive.api.event_input import (
    MAX_BATCH_BYTES,
    MAX_EVENT_BYTES,
    EventIn,
    idempotency_key_in,
    new_event,
    read_array,
    read_event,
    read_lines,
)
from redrive.api.meters import check_room, check_size, has_room
from redrive.api.problems import FieldError, Place, Problem, bad_query, forbidden, invalid, unauthorised
from redrive.core.ids import id_of_key
from redrive.core.permissions import Action
from redrive.observe import traces
from redrive.observe.traces import Entry
from redrive.store.events import MAX_PAYLOAD_BYTES, NewEvent, Receipt
from redrive.store.keys import Caller
from redrive.store.orgs import new_id

EVENTS_PATH = "/v1/events"
BATCH_PATH = "/v1/events/batch"
NDJSON_TYPES = frozenset(
    b"application/" + name for name in (b"x-ndjson", b"ndjson", b"jsonl", b"x-jsonl", b"jsonlines", b"x-jsonlines")
)

_READ_HEADERS = frozenset(
    {
        b"authorization",
        b"ce-specversion",
        b"content-length",
        b"content-type",
        b"cookie",
        b"host",
        b"idempotency-key",
        b"origin",
        b"sec-fetch-site",
        b"traceparent",
        b"tracestate",
        b"x-api-key",
        b"x-correlation-id",
        b"x-redrive-org",
    }
)

Where = Callable[..., Place]  # where in a request the field of a name stands
Rejected = dict[int, Sequence[FieldError]]  # by their place in a batch

_encode = msgspec.json.Encoder().encode


def read_headers(given: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """The headers that anything here looks at, by their names in lower case; of one given twice the last."""
    return {name: value for name, value in given if name in _READ_HEADERS}


class _Accepted(msgspec.Struct):
    event_id: UUID
    status: str
    deduplicated: bool


def _in_body(*steps: str | int) -> Place:
    return ("body", *steps)


class OneEvent(NamedTuple):
    """A request's only event, to be stored."""

    event: NewEvent
    id_is_new: bool
    where: Where = _in_body
    entry: Entry | None = None  # into a trace

    def answer(self, receipt: Receipt) -> bytes | Problem:
        """What follows from the receipt: the body of a 202, or a refusal."""
        refused = _refusal(receipt, self.where)
        if refused is not None:
            return refused
        deduplicated = receipt.verdict == "duplicate" and not self.id_is_new
        return _encode(_Accepted(self.event.id, receipt.status or "received", deduplicated))


class _Item(NamedTuple):
    """An event of a batch that is to be stored."""

    position: int
    event: NewEvent
    id_is_new: bool
    where: Where
    entry: Entry | None = None


class FrontDoor:
    def __init__(self, authenticator: Authenticator, committer: Committer, reader: BodyReader) -> None:
        self._authenticator = authenticator
        self._committer = committer
        self._reader = reader

    async def __call__(
        self,
        scope: dict[str, Any],
        headers: Mapping[bytes, bytes],
        receive: Receive,
        send: Send,
        correlation_id: str,
    ) -> None:
        if scope["query_string"]:
            raise bad_query(FieldError(("query",), "takes no parameters"))
        caller = await self._authenticator.admit(headers, scope["method"])
        if not caller.may(Action.PRODUCE):
            raise forbidden(caller, Action.PRODUCE)
        check_room(caller)
        key = idempotency_key_in(headers.get(b"idempotency-key"))
        mode = mode_of(headers)
        read = partial(self._reader.read, receive, headers.get(b"content-length"))
        if mode is not None:
            answer = await self._accept_cloud_events(caller, mode, scope, read, correlation_id, headers)
        elif scope["path"] == EVENTS_PATH:
            answer = await self._accept_one(
                _one_event(caller, await read(MAX_EVENT_BYTES), key, correlation_id, headers)
            )
        else:
            body = await read(MAX_BATCH_BYTES)
            by_line = headers.get(b"content-type", b"").partition(b";")[0].strip().lower() in NDJSON_TYPES
            given = read_lines(body) if by_line else read_array(body)
            rejected: Rejected = {}
            items = list(_items(caller, given, key, correlation_id, rejected, headers))
            answer = await self._accept_many(caller, items, rejected)
        await send_json(send, 202, answer, correlation_id)

    async def _accept_cloud_events(
        self,
        caller: Caller,
        mode: Mode,
        scope: dict[str, Any],
        read: Callable[[int], Awaitable[bytes]],
        correlation_id: str,
        headers: Mapping[bytes, bytes],
    ) -> bytes:
        if mode is Mode.BATCH:
            rejected: Rejected = {}
            given = cloud_events.read_batch(await read(MAX_BATCH_BYTES))
            items = list(_cloud_items(caller, given, correlation_id, rejected, headers))
            return await self._accept_many(caller, items, rejected)
        if scope["path"] != EVENTS_PATH:
            raise Problem(
                415, f"CloudEvents are taken here as {cloud_events.BATCH_TYPE}; single ones at {EVENTS_PATH}."
            )
        if mode is Mode.BINARY:
            one = cloud_events.read_binary(scope["headers"], await read(MAX_PAYLOAD_BYTES))
        else:
            one = cloud_events.read_structured(await read(cloud_events.MAX_STRUCTURED_BYTES))
        entry = _entry(headers)
        event = cloud_events.new_event(one, caller, correlation_id, entry)
        check_size(caller, event.body)
        return await self._accept_one(OneEvent(event, False, one.where, entry))

    def at_hand(self, headers: Mapping[bytes, bytes], body: bytes, correlation_id: str) -> OneEvent | None:
        """The event of a request to EVENTS_PATH that nothing speaks against and nothing must be looked up for.

        None for any other: __call__ says what is wrong with it, and asks the database who it is from.
        """
        caller = self._authenticator.remembered(headers, Action.PRODUCE)
        if caller is None or not has_room(caller) or self._committer.is_full:
            return None
        try:
            if mode_of(headers) is not None:
                return None
            key = idempotency_key_in(headers.get(b"idempotency-key"))
            one = _one_event(caller, body, key, correlation_id, headers)
        except Exception:  # noqa: BLE001 (__call__ meets it again, and tells)
            return None
        # Last: a request that goes the long way after all is counted there.
        return None if self._authenticator.meters.wait_s(caller) else one

    def hand_in(self, one: OneEvent, tell: Told) -> None:
        """Have it committed. Right after at_hand: what it saw may change with the next turn of the loop."""
        entries = None if one.entry is None else {one.event.id: one.entry}
        self._committer.hand_in((one.event,), tell, entries=entries)

    async def _accept_one(self, one: OneEvent) -> bytes:
        entries = None if one.entry is None else {one.event.id: one.entry}
        (receipt,) = await self._committer.commit((one.event,), entries=entries)
        answer = one.answer(receipt)
        if isinstance(answer, Problem):
            raise answer
        return answer

    async def _accept_many(self, caller: Caller, items: Sequence[_Item], rejected: Rejected) -> bytes:
        receipts: list[Receipt] = []
        if items:
            entries = {item.event.id: item.entry for item in items if item.entry is not None}
            events = [item.event for item in items]
            receipts = await self._committer.commit(events, alone=True, entries=entries)
        deduplicated = 0
        for item, receipt in zip(items, receipts, strict=True):
            refused = _refusal(receipt, item.where)
            if refused is not None:
                rejected[item.position] = refused.errors
            elif receipt.verdict == "duplicate" and not item.id_is_new:
                deduplicated += 1
        stored = len(items) - sum(1 for item in items if item.position in rejected)
        return _encode(
            {
                "accepted": stored - deduplicated,
                "deduplicated": deduplicated,
                "rejected": [
                    {"index": index, "errors": [error.shape() for error in rejected[index]]}
                    for index in sorted(rejected)
                ],
            }
        )


def _entry(headers: Mapping[bytes, bytes]) -> Entry | None:
    return traces.entry(headers.get(b"traceparent"), headers.get(b"tracestate"))


def _one_event(
    caller: Caller, body: bytes, key: str | None, correlation_id: str, headers: Mapping[bytes, bytes]
) -> OneEvent:
    given = read_event(body)
    event_id = _id_of(given, caller, key)
    entry = _entry(headers)
    event = new_event(given, caller, event_id, correlation_id, ("body",), entry)
    check_size(caller, event.body)
    return OneEvent(event, given.event_id is None and key is None, entry=entry)


def _items(
    caller: Caller,
    given: Iterator[EventIn | FieldError],
    key: str | None,
    correlation_id: str,
    rejected: Rejected,
    headers: Mapping[bytes, bytes],
) -> Iterator[_Item]:
    """What can be stored; what cannot is added to `rejected`."""
    for index, event in enumerate(given):
        if isinstance(event, FieldError):
            rejected[index] = (event,)
            continue
        # A line break cannot stand in a key of one event: the two never meet.
        event_key = None if key is None else f"{key}\n{index}"
        try:
            event_id = _id_of(event, caller, event_key)
            entry = _entry(headers)
            stored = new_event(event, caller, event_id, correlation_id, ("body", index), entry)
            check_size(caller, stored.body)
        except Problem as problem:
            rejected[index] = problem.errors or (FieldError(("body", index), problem.detail),)
            continue
        yield _Item(index, stored, event.event_id is None and key is None, partial(_in_body, index), entry)


def _cloud_items(
    caller: Caller,
    given: Iterator[CloudEvent | Problem],
    correlation_id: str,
    rejected: Rejected,
    headers: Mapping[bytes, bytes],
) -> Iterator[_Item]:
    for index, read in enumerate(given):
        try:
            if isinstance(read, Problem):
                raise read
            entry = _entry(headers)
            event = cloud_events.new_event(read, caller, correlation_id, entry)
            check_size(caller, event.body)
        except Problem as problem:
            rejected[index] = problem.errors or (FieldError(("body", index), problem.detail),)
            continue
        yield _Item(index, event, False, read.where, entry)


def _id_of(given: EventIn, caller: Caller, key: str | None) -> UUID:
    """The id of an event: the producer's own (a key adds nothing to it), or the one of its key, or a new one."""
    if given.event_id is not None:
        return given.event_id
    return new_id() if key is None else id_of_key(caller.org_id, "event", key)


def _refusal(receipt: Receipt, where: Where) -> Problem | None:
    """The answer to an event that was not stored. A duplicate of an id that we made is our own second try.

    Whoever repeats the same id or key with other content is told so: silence would lose one of the two.
    """
    match receipt.verdict:
        case "accepted" | "duplicate":
            return None
        case "conflict":
            message = "This event id or Idempotency-Key was used for an event with other content or terms."
            return Problem(409, message, errors=[FieldError(where("event_id"), message)])
        case "no_endpoint":
            return invalid(FieldError(where("endpoint_id"), "There is no such endpoint"))
        case "no_policy":
            return invalid(FieldError(where("policy"), "There is no such policy"))
        case "unstorable":
            return invalid(FieldError(where(), "The database refuses this event"))
        case "no_org":
            return unauthorised()
    raise AssertionError(f"unknown verdict {receipt.verdict}")
