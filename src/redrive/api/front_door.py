"""POST /v1/events and /v1/events/batch on bare ASGI: the two routes that all traffic comes through.

No framework between the socket and the committer: what it would cost per request is more than everything here.
Called by server; hands events to committer and answers after the commit.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from redrive.api.answers import Send, send_json
from redrive.api.auth import Authenticator, key_in
from redrive.api.body import BodyReader, Receive
from redrive.api.committer import Committer, Told
from redrive.api.event_input import (
    MAX_BATCH_BYTES,
    MAX_EVENT_BYTES,
    EventIn,
    id_of_key,
    idempotency_key_in,
    new_event,
    read_array,
    read_event,
    read_lines,
)
from redrive.api.problems import FieldError, Place, Problem, bad_query, forbidden, invalid, unauthorised
from redrive.core.permissions import Action
from redrive.store.events import NewEvent, Receipt
from redrive.store.keys import Caller
from redrive.store.orgs import new_id

EVENTS_PATH = "/v1/events"
BATCH_PATH = "/v1/events/batch"
NDJSON_TYPE = b"application/x-ndjson"

_READ_HEADERS = frozenset(
    {b"authorization", b"content-length", b"content-type", b"idempotency-key", b"x-api-key", b"x-correlation-id"}
)

_encode = msgspec.json.Encoder().encode


def read_headers(given: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """The headers that anything here looks at, by their names in lower case; of one given twice the last."""
    return {name: value for name, value in given if name in _READ_HEADERS}


class _Accepted(msgspec.Struct):
    event_id: UUID
    status: str
    deduplicated: bool


class OneEvent(NamedTuple):
    """A request's only event, to be stored."""

    event: NewEvent
    id_is_new: bool

    def answer(self, receipt: Receipt) -> bytes | Problem:
        """What follows from the receipt: the body of a 202, or a refusal."""
        refused = _refusal(receipt, ("body",))
        if refused is not None:
            return refused
        deduplicated = receipt.verdict == "duplicate" and not self.id_is_new
        return _encode(_Accepted(self.event.id, receipt.status or "received", deduplicated))


class _Item(NamedTuple):
    """An event of a batch that is to be stored."""

    position: int
    event: NewEvent
    id_is_new: bool


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
        caller = await self._authenticator.caller(key_in(headers.get(b"x-api-key"), headers.get(b"authorization")))
        if not caller.may(Action.PRODUCE):
            raise forbidden(caller)
        key = idempotency_key_in(headers.get(b"idempotency-key"))
        length = headers.get(b"content-length")
        if scope["path"] == EVENTS_PATH:
            body = await self._reader.read(receive, length, MAX_EVENT_BYTES)
            answer = await self._accept_one(caller, body, key, correlation_id)
        else:
            body = await self._reader.read(receive, length, MAX_BATCH_BYTES)
            by_line = headers.get(b"content-type", b"").partition(b";")[0].strip().lower() == NDJSON_TYPE
            given = read_lines(body) if by_line else read_array(body)
            answer = await self._accept_many(caller, given, key, correlation_id)
        await send_json(send, 202, answer, correlation_id)

    def at_hand(self, headers: Mapping[bytes, bytes], body: bytes, correlation_id: str) -> OneEvent | None:
        """The event of a request to EVENTS_PATH that nothing speaks against and nothing must be looked up for.

        None for any other: __call__ says what is wrong with it, and asks the database who it is from.
        """
        key = key_in(headers.get(b"x-api-key"), headers.get(b"authorization"))
        caller = None if key is None else self._authenticator.remembered(key)
        if caller is None or not caller.may(Action.PRODUCE) or self._committer.is_full:
            return None
        try:
            return _one_event(caller, body, idempotency_key_in(headers.get(b"idempotency-key")), correlation_id)
        except Exception:  # noqa: BLE001 (__call__ meets it again, and tells)
            return None

    def hand_in(self, one: OneEvent, tell: Told) -> None:
        """Have it committed. Right after at_hand: what it saw may change with the next turn of the loop."""
        self._committer.hand_in((one.event,), tell)

    async def _accept_one(self, caller: Caller, body: bytes, key: str | None, correlation_id: str) -> bytes:
        one = _one_event(caller, body, key, correlation_id)
        (receipt,) = await self._committer.commit((one.event,))
        answer = one.answer(receipt)
        if isinstance(answer, Problem):
            raise answer
        return answer

    async def _accept_many(
        self, caller: Caller, given: Iterator[EventIn | FieldError], key: str | None, correlation_id: str
    ) -> bytes:
        rejected: dict[int, Sequence[FieldError]] = {}
        items = list(_items(caller, given, key, correlation_id, rejected))
        receipts: list[Receipt] = []
        if items:
            receipts = await self._committer.commit([item.event for item in items], alone=True)
        deduplicated = 0
        for item, receipt in zip(items, receipts, strict=True):
            refused = _refusal(receipt, ("body", item.position))
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


def _one_event(caller: Caller, body: bytes, key: str | None, correlation_id: str) -> OneEvent:
    given = read_event(body)
    event_id = _id_of(given, caller, key, ("body",))
    event = new_event(given, caller.org_id, event_id, correlation_id, ("body",))
    return OneEvent(event, given.event_id is None and key is None)


def _items(
    caller: Caller,
    given: Iterator[EventIn | FieldError],
    key: str | None,
    correlation_id: str,
    rejected: dict[int, Sequence[FieldError]],
) -> Iterator[_Item]:
    """What can be stored; what cannot is added to `rejected`."""
    for index, event in enumerate(given):
        if isinstance(event, FieldError):
            rejected[index] = (event,)
            continue
        # A line break cannot stand in a key of one event: the two never meet.
        event_key = None if key is None else f"{key}\n{index}"
        try:
            event_id = _id_of(event, caller, event_key, ("body", index))
            stored = new_event(event, caller.org_id, event_id, correlation_id, ("body", index))
        except Problem as problem:
            rejected[index] = problem.errors or (FieldError(("body", index), problem.detail),)
            continue
        yield _Item(index, stored, event.event_id is None and key is None)


def _id_of(given: EventIn, caller: Caller, key: str | None, place: Place) -> UUID:
    """The id of an event: the producer's own, or the one that its key stands for, or a new one."""
    if given.event_id is None:
        return new_id() if key is None else id_of_key(caller.org_id, "event", key)
    if key is not None:
        message = "cannot be given together with an Idempotency-Key; send one of them"
        raise invalid(FieldError((*place, "event_id"), message))
    return given.event_id


def _refusal(receipt: Receipt, place: Place) -> Problem | None:
    """The answer to an event that was not stored. A duplicate of an id that we made is our own second try.

    Whoever repeats the same id or key with other content is told so: silence would lose one of the two.
    """
    match receipt.verdict:
        case "accepted" | "duplicate":
            return None
        case "conflict":
            message = "This event id or Idempotency-Key was used for an event with other content or terms."
            return Problem(409, message, errors=[FieldError((*place, "event_id"), message)])
        case "no_endpoint":
            return invalid(FieldError((*place, "endpoint_id"), "There is no such endpoint"))
        case "no_policy":
            return invalid(FieldError((*place, "policy"), "There is no such policy"))
        case "unstorable":
            return invalid(FieldError(place, "The database refuses this event"))
        case "no_org":
            return unauthorised()
    raise AssertionError(f"unknown verdict {receipt.verdict}")
