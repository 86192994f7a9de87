"""Who is asking: the key in a request's headers, looked up and remembered for a moment.

A caller is remembered for CALLER_TTL_S, so that a revoked key stops working within that time, in every process.
Used by front_door directly and by the routes as a dependency.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.security import APIKeyHeader, HTTPBearer

from redrive.api.problems import forbidden, unauthorised
from redrive.core.permissions import Action
from redrive.store.db import Database
from redrive.store.keys import Caller, authenticate

CALLER_TTL_S = 2.0
MAX_CALLERS_REMEMBERED = 10_000
MAX_KEY_BYTES = 512

# These two only describe the scheme in /openapi.json; the look-up is Authenticator's.
SCHEMES = (
    Depends(APIKeyHeader(name="X-API-Key", scheme_name="ApiKey", auto_error=False)),
    Depends(HTTPBearer(scheme_name="Bearer", auto_error=False)),
)


def key_in(api_key: bytes | None, authorization: bytes | None) -> bytes | None:
    """The key that a request carries; X-API-Key wins."""
    key = api_key
    if key is None and authorization is not None and authorization[:7].lower() == b"bearer ":
        key = authorization[7:].strip()
    return key if key and len(key) <= MAX_KEY_BYTES else None


class Authenticator:
    def __init__(self, db: Database) -> None:
        self._db = db
        # By the key's hash: a dump of this process's memory need not hold keys.
        self._remembered: dict[bytes, tuple[Caller, float]] = {}
        self._asked: dict[bytes, asyncio.Task[Caller | None]] = {}

    async def caller(self, key: bytes | None) -> Caller:
        """The key's owner, or Problem 401."""
        if key is None:
            raise unauthorised()
        found = self.remembered(key) or await self._ask(hashlib.sha256(key).digest(), key)
        if found is None:
            raise unauthorised()
        return found

    def remembered(self, key: bytes) -> Caller | None:
        """The key's owner, if the database said so less than CALLER_TTL_S ago."""
        known = self._remembered.get(hashlib.sha256(key).digest())
        return known[0] if known is not None and known[1] > time.monotonic() else None

    async def _ask(self, digest: bytes, key: bytes) -> Caller | None:
        """One look-up for all who ask for the same key at the same time."""
        task = self._asked.get(digest)
        if task is None:
            task = asyncio.create_task(self._look_up(digest, key))
            self._asked[digest] = task
            task.add_done_callback(lambda _: self._asked.pop(digest, None))
        return await asyncio.shield(task)

    async def _look_up(self, digest: bytes, key: bytes) -> Caller | None:
        # The time before the look-up: what it finds may be revoked while it runs.
        expires_at = time.monotonic() + CALLER_TTL_S
        caller = await authenticate(self._db, key.decode("utf-8", "surrogateescape"))
        if caller is None:
            self._remembered.pop(digest, None)
            return None
        if len(self._remembered) >= MAX_CALLERS_REMEMBERED:
            self._remembered.clear()
        self._remembered[digest] = (caller, expires_at)
        return caller


def _header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    return next((value for given, value in headers if given == name), None)


def allowed(action: Action) -> Callable[[Request], Coroutine[Any, Any, Caller]]:
    """A dependency: the caller, if their role may do this."""

    async def dependency(request: Request) -> Caller:
        headers = request.scope["headers"]
        key = key_in(_header(headers, b"x-api-key"), _header(headers, b"authorization"))
        authenticator: Authenticator = request.app.state.authenticator
        caller = await authenticator.caller(key)
        if not caller.may(action):
            raise forbidden(caller)
        return caller

    dependency.action = action  # type: ignore[attr-defined]
    return dependency


def action_of(dependency: object) -> Action | None:
    """What a dependency made by `allowed` asks for; None for any other."""
    action: Action | None = getattr(dependency, "action", None)
    return action


Reader = Annotated[Caller, Depends(allowed(Action.READ))]
Producer = Annotated[Caller, Depends(allowed(Action.PRODUCE))]
Operator = Annotated[Caller, Depends(allowed(Action.RETRY))]
Judge = Annotated[Caller, Depends(allowed(Action.JUDGE))]
Manager = Annotated[Caller, Depends(allowed(Action.MANAGE))]
