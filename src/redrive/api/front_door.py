"""POST /v1/events and /v1/events/batch on bare ASGI: the two routes that all traffic comes through.

No framework between the socket and the committer: what it would cost per request is more than everything here.
Called by server; hands events to committer and answers after the commit.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from redrive.api.answers import Send, send_json
from redrive.api.auth import Authenticator, key_in
from redrive.api.body import BodyReader, Receive
from redrive.api.committer import Committer
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
from redrive.api.permissions import Action, may
from redrive.api.problems import FieldError, Place, Problem, bad_query, forbidden, invalid, unauthorised
from redrive.store.events import NewEvent, Receipt
from redrive.store.keys import Caller
from redrive.store.orgs import new_id

EVENTS_PATH = "/v1/events"
BATCH_PATH = "/v1/events/batch"
NDJSON_TYPE = b"application/x-ndjson"

_encode = msgspec.json.Encoder().encode


class _Accepted(msgspec.Struct):
    event_id: str
    status: str
    deduplicated: bool


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
        if not may(caller.role, Action.PRODUCE):
            raise forbidden(caller.role)
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

    async def _accept_one(self, caller: Caller, body: bytes, key: str | None, correlation_id: str) -> bytes:
        given = read_event(body)
        event_id = _id_of(given, caller, key, ("body",))
        id_is_new = given.event_id is None and key is None
        event = new_event(given, caller.org_id, event_id, correlation_id, ("body",))
        (receipt,) = await self._committer.commit((event,))
        refused = _refusal(receipt, ("body",))
        if refused is not None:
            raise refused
        deduplicated = receipt.verdict == "duplicate" and not id_is_new
        return _encode(_Accepted(str(event_id), receipt.status or "received", deduplicated))

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
