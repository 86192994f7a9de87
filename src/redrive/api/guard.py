"""Stands before the routes: correlation id, bounded body, strict JSON, safe headers, errors as problem+json.

Wraps the framework's app; called by server for everything but the hot routes.
"""

import re
from collections.abc import Mapping
from typing import Any

from redrive.api.aliases import snake_cased
from redrive.api.answers import SAFETY_HEADERS, Send
from redrive.api.auth import Authenticator
from redrive.api.body import BodyReader, BodyRefused, Message, Receive
from redrive.api.event_input import MAX_EVENT_BYTES
from redrive.api.json_rules import BadJson, decode_strictly
from redrive.api.problems import FieldError, invalid, unauthorised

MAX_BODY_BYTES = 524_288  # room for the ids of a bulk action
# Of who is not known, as everybody is who signs in: bodies that are being read take room from all others.
MAX_UNKNOWN_BYTES = 16_384
# As much as an event's.
_WITH_PAYLOAD = re.compile(r"/v1/(?:dead-letters/[^/]+/replay|runs/[^/]+/replay|workflows/[^/]+/runs)")
_BODILESS = frozenset({"GET", "HEAD", "OPTIONS"})


class Guard:
    def __init__(self, app: Any, authenticator: Authenticator, reader: BodyReader) -> None:
        self._app = app
        self._authenticator = authenticator
        self._reader = reader

    async def __call__(
        self,
        scope: dict[str, Any],
        headers: Mapping[bytes, bytes],
        receive: Receive,
        send: Send,
        correlation_id: str,
    ) -> None:
        body = b""
        if scope["method"] not in _BODILESS:
            body = await self._read(scope, headers, receive)
        state = scope.setdefault("state", {})
        if body:
            _check(body)
            if state.get("camel_case"):
                state["camel_cased"] = body  # errors name what was sent
                body = snake_cased(body)
            # A body is JSON whatever it is labelled: `curl -d` calls everything a form.
            others = [(name, value) for name, value in scope["headers"] if name != b"content-type"]
            scope["headers"] = [*others, (b"content-type", b"application/json")]
        state["correlation_id"] = correlation_id
        await self._app(scope, _Replay(body, receive), _with_headers(send, correlation_id))

    async def _read(self, scope: dict[str, Any], headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
        limit_bytes = MAX_EVENT_BYTES if _WITH_PAYLOAD.fullmatch(scope["path"]) else MAX_BODY_BYTES
        is_known = await self._authenticator.known(headers, scope["method"]) is not None
        try:
            return await self._reader.read(
                receive, headers.get(b"content-length"), limit_bytes if is_known else MAX_UNKNOWN_BYTES
            )
        except BodyRefused as refused:
            if is_known or refused.status != 413:
                raise
            raise BodyRefused.of(unauthorised()) from None


class _Replay:
    """Hands the body that was read to the framework, then whatever follows on the connection."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


def _check(body: bytes) -> None:
    try:
        decode_strictly(body)
    except BadJson as bad:
        raise invalid(FieldError(("body", *bad.place), bad.message)) from None


def _with_headers(send: Send, correlation_id: str) -> Send:
    extra = [(b"x-correlation-id", correlation_id.encode("ascii")), *SAFETY_HEADERS]

    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = list(message.get("headers", ()))
            names = {name for name, _ in given}
            # A route may say itself how long its answer is good for.
            message["headers"] = [*given, *(header for header in extra if header[0] not in names)]
        await send(message)

    return wrapped
