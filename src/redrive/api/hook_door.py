"""POST /v1/hooks/{token} on bare ASGI: a webhook from outside, stored byte for byte before it is answered.

No key: the token in the address says whose it is. Called by server; hands events to the committer, as front_door does.
core.inbound says what is read of a webhook.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import msgspec
import structlog

from redrive.api.answers import Send, send_json, send_text
from redrive.api.auth import Authenticator
from redrive.api.body import BodyReader, Receive
from redrive.api.committer import Committer
from redrive.api.context import ApiContext
from redrive.api.endpoint_view import HOOKS_PATH
from redrive.api.meters import check_room, check_size
from redrive.api.problems import Problem, not_found, unavailable
from redrive.core import inbound
from redrive.core.ids import id_of_key
from redrive.core.inbound import BadHeaders, Scheme
from redrive.core.trace import TRACEPARENT, TRACESTATE, as_text, with_context
from redrive.observe import traces
from redrive.observe.traces import Entry
from redrive.store.events import MAX_PAYLOAD_BYTES, NewEvent, Receipt
from redrive.store.hooks import MAX_TOKEN_CHARS, Hook, find_hook, repetition
from redrive.store.orgs import new_id
from redrive.store.seal import SealError

log = structlog.get_logger("redrive.hooks")

_encode = msgspec.json.Encoder().encode


class _Taken(msgspec.Struct):
    event_id: UUID
    status: str
    deduplicated: bool


class HookDoor:
    def __init__(
        self, context: ApiContext, authenticator: Authenticator, committer: Committer, reader: BodyReader
    ) -> None:
        self._context = context
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
        if scope["method"] != "POST":
            raise Problem(405, "Webhooks are sent by POST.", headers=(("allow", "POST"),))
        hook = await self._hook(scope["path"].removeprefix(HOOKS_PATH))
        self._authenticator.meters.take(hook.caller)
        check_room(hook.caller)
        body = await self._reader.read(receive, headers.get(b"content-length"), MAX_PAYLOAD_BYTES)
        check_size(hook.caller, body)
        given = inbound.readable(scope["headers"])
        scheme = self._verify(hook, given, body)
        if scheme is Scheme.SLACK and (challenge := inbound.slack_challenge(body)) is not None:
            await send_text(send, 200, challenge, correlation_id)
            return
        entry = traces.entry(given.get(TRACEPARENT), given.get(TRACESTATE))
        event, id_is_new = _event(hook, given, body, correlation_id, entry)
        receipt = await self._receipt(hook, event, entry)
        deduplicated = receipt.verdict == "duplicate" and not id_is_new
        await send_json(
            send, 202, _encode(_Taken(event.id, receipt.status or "received", deduplicated)), correlation_id
        )

    async def _hook(self, token: str) -> Hook:
        hook = None
        if len(token) <= MAX_TOKEN_CHARS:
            hook = await find_hook(self._context.engine_db, token, self._context.clock)
        if hook is None:
            raise not_found("hook")
        return hook

    def _verify(self, hook: Hook, headers: Mapping[str, str], body: bytes) -> Scheme | None:
        """How it was verified; Problem 401 where that failed."""
        try:
            verification = hook.verification(self._context.sealer)
        except SealError as error:
            log.error("hook_unreadable", endpoint_id=str(hook.endpoint_id), why=str(error))
            raise unavailable("This webhook cannot be verified at this moment.", retry_after_s=60) from None
        if verification is None:
            return None
        scheme, secret = verification
        why = inbound.refusal(scheme, secret, headers, body, now=int(hook.now.timestamp()))
        if why is not None:
            log.warning("webhook_refused", endpoint_id=str(hook.endpoint_id), scheme=scheme.value, why=why)
            raise Problem(401, why)
        return scheme

    async def _receipt(self, hook: Hook, event: NewEvent, entry: Entry | None) -> Receipt:
        """Once it is durable. A repetition is known by its id and its body: its headers tell its own time."""
        entries = None if entry is None else {event.id: entry}
        (receipt,) = await self._committer.commit((event,), entries=entries)
        if receipt.verdict == "conflict":
            receipt = await repetition(self._context.engine_db, event.org_id, event.id, event.body)
        match receipt.verdict:
            case "accepted" | "duplicate":
                return receipt
            case "conflict":
                raise Problem(409, "A webhook with this id and another body was taken before.")
            case "no_endpoint" | "no_org":  # deleted a moment ago
                raise not_found("hook")
            case "unstorable":
                raise Problem(422, "The database refuses this webhook.")
        raise AssertionError(f"unknown verdict {receipt.verdict}")


def _event(
    hook: Hook, headers: Mapping[str, str], body: bytes, correlation_id: str, entry: Entry | None
) -> tuple[NewEvent, bool]:
    """The webhook as it is stored, and whether its id is one that we made."""
    try:
        kept = inbound.kept_headers(headers)
        content_type = inbound.content_type_of(headers)
    except BadHeaders as bad:
        raise Problem(431, str(bad)) from None
    kept = with_context(kept, entry.traceparent, entry.tracestate) if entry else with_context(kept, None)
    org_id = hook.caller.org_id
    sender_id = inbound.sender_id_of(headers)
    # A line break cannot stand in a producer's key: the two never meet.
    key = None if sender_id is None else f"hook\n{hook.endpoint_id}\n{sender_id}"
    event = NewEvent(
        org_id,
        new_id() if key is None else id_of_key(org_id, "event", key),
        inbound.event_type_of(headers),
        body,
        endpoint_id=hook.endpoint_id,
        correlation_id=correlation_id,
        content_type=content_type,
        headers=as_text(kept) if kept else None,
        submitted_by=hook.caller.actor,
    )
    return event, key is None
