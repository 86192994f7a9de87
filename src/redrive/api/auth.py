"""Who is asking: the key or the session's cookie in a request's headers, looked up and remembered for a moment.

A caller is remembered for CALLER_TTL_S, so that a revoked key stops working within that time, in every process.
Used by front_door directly and by the routes as a dependency.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Annotated, Any, Generic, TypeVar

import structlog
from fastapi import Depends, Request
from fastapi.security import APIKeyCookie, APIKeyHeader, HTTPBearer

from redrive.api.browser import COOKIE, SAFE_METHODS, refuse_foreign_pages, token_in
from redrive.api.meters import Meters
from redrive.api.outage import OUTAGES
from redrive.api.problems import Problem, forbidden, limited, not_found, session_ended, suspended, unauthorised
from redrive.core.permissions import Action, Scope
from redrive.store.clock import Clock, DatabaseClock
from redrive.store.db import Database
from redrive.store.keys import Caller, authenticate, note_use
from redrive.store.orgs import MAX_ORG_NAME_CHARS, OrgFacts, as_id, find_facts
from redrive.store.sessions import extend_session, find_session

ANYBODY = "any"  # in the place of an action: whoever has a key or a session
CALLER_TTL_S = 2.0
MAX_CALLERS_REMEMBERED = 10_000
MAX_KEY_BYTES = 512
NOTE_EVERY_S = 60.0  # that a key or a session was used

T = TypeVar("T")
Look = Callable[[], Coroutine[Any, Any, T | None]]

log = structlog.get_logger("redrive.api")

# These only describe the schemes in /openapi.json; the look-up is Authenticator's.
SCHEMES = (
    Depends(APIKeyHeader(name="X-API-Key", scheme_name="ApiKey", auto_error=False)),
    Depends(HTTPBearer(scheme_name="Bearer", auto_error=False)),
    Depends(APIKeyCookie(name=COOKIE, scheme_name="Session", auto_error=False)),
)


def key_in(api_key: bytes | None, authorization: bytes | None) -> bytes | None:
    """The key that a request carries; X-API-Key wins."""
    key = api_key
    if key is None and authorization is not None and authorization[:7].lower() == b"bearer ":
        key = authorization[7:].strip()
    return key if key and len(key) <= MAX_KEY_BYTES else None


class _Memory(Generic[T]):
    """What the database said less than CALLER_TTL_S ago. One look-up for all who ask for the same at the same time."""

    def __init__(self) -> None:
        # By hash: a dump of this process's memory need not hold keys.
        self._remembered: dict[bytes, tuple[T, float]] = {}
        self._asked: dict[bytes, asyncio.Task[T | None]] = {}

    def get(self, digest: bytes) -> T | None:
        known = self._remembered.get(digest)
        return known[0] if known is not None and known[1] > time.monotonic() else None

    def forget(self, digest: bytes) -> None:
        self._remembered.pop(digest, None)
        self._asked.pop(digest, None)

    async def ask(self, digest: bytes, look: Look[T]) -> T | None:
        known = self.get(digest)
        if known is not None:
            return known
        task = self._asked.get(digest)
        if task is None:
            task = asyncio.create_task(self._look_up(digest, look))
            self._asked[digest] = task
        return await asyncio.shield(task)

    async def _look_up(self, digest: bytes, look: Look[T]) -> T | None:
        # The time before the look-up: what it finds may be revoked while it runs.
        expires_at = time.monotonic() + CALLER_TTL_S
        me = asyncio.current_task()
        try:
            found = await look()
            if self._asked.get(digest) is me:  # else forgotten meanwhile: what was found may be of before
                if found is None:
                    self._remembered.pop(digest, None)
                else:
                    if len(self._remembered) >= MAX_CALLERS_REMEMBERED:
                        self._remembered.clear()
                    self._remembered[digest] = (found, expires_at)
            return found
        finally:
            if self._asked.get(digest) is me:
                del self._asked[digest]


class Authenticator:
    def __init__(self, db: Database, clock: Clock | None = None) -> None:
        self._db = db
        self._clock = clock or DatabaseClock()
        # Apart: what is given as a key must never be found as a session, whose rules are others.
        self._callers: _Memory[Caller] = _Memory()
        self._sessions: _Memory[Caller] = _Memory()
        self._orgs: _Memory[OrgFacts] = _Memory()
        self._noted_at: dict[bytes, float] = {}
        self._noting: set[asyncio.Task[None]] = set()
        self.meters = Meters()

    async def admit(self, headers: Mapping[bytes, bytes], method: str) -> Caller:
        """Who is asking, and in which org; or why not: 401, 403, 404 for the org, 429."""
        caller = await self._identify(headers, method)
        named = headers.get(b"x-redrive-org")
        if named is not None:
            caller = await self._within(caller, named)
        self.meters.take(caller)
        return caller

    async def known(self, headers: Mapping[bytes, bytes], method: str, *, is_use: bool = True) -> Caller | None:
        """Who is asking, in the org that is theirs. Not counted: that is the business of `admit`.

        `is_use`: somebody does something. A stream that only stays open keeps no session from growing old.
        """
        try:
            return await self._identify(headers, method, is_use=is_use)
        except Problem:
            return None

    async def _identify(self, headers: Mapping[bytes, bytes], method: str, *, is_use: bool = True) -> Caller:
        key = key_in(headers.get(b"x-api-key"), headers.get(b"authorization"))
        token = token_in(headers.get(b"cookie")) if key is None else None
        if token is None:
            caller = await self.caller(key)
        else:
            if method not in SAFE_METHODS:
                refuse_foreign_pages(headers)
            caller = await self._session(token, is_use=is_use)
        if caller.suspended:
            raise suspended()
        return caller

    async def caller(self, key: bytes | None) -> Caller:
        """The key's owner, or Problem 401."""
        if key is None:
            raise unauthorised()
        digest = hashlib.sha256(key).digest()
        text = key.decode("utf-8", "surrogateescape")
        found = await self._callers.ask(digest, lambda: authenticate(self._db, text))
        if found is None:
            raise unauthorised()
        self._note(digest, lambda: note_use(self._db, found.org_id, found.id))
        return found

    def remembered(self, headers: Mapping[bytes, bytes], action: Action) -> Caller | None:
        """Who asks with a key, for those that nothing must be looked up for, and who may do this. Not counted yet.

        The key's owner, if the database said so less than CALLER_TTL_S ago. None: `admit` knows more.
        """
        key = key_in(headers.get(b"x-api-key"), headers.get(b"authorization"))
        if key is None or b"x-redrive-org" in headers:
            return None
        caller = self._callers.get(hashlib.sha256(key).digest())
        return caller if caller is not None and caller.may(action) else None

    def forget_session(self, token: str) -> None:
        """It ended, or moved to another org."""
        self._sessions.forget(_session_digest(token))

    async def close(self) -> None:
        await asyncio.gather(*self._noting)

    async def _session(self, token: str, *, is_use: bool) -> Caller:
        digest = _session_digest(token)
        found = await self._sessions.ask(digest, lambda: find_session(self._db, token, self._clock))
        if found is None:
            raise session_ended()
        if is_use:
            self._note(digest, lambda: extend_session(self._db, token, self._clock))
        return found

    async def _within(self, caller: Caller, named: bytes) -> Caller:
        """The caller in the org that the request names. Those who do not own the installation have one: their own."""
        called = named.decode("utf-8", "replace").strip()
        if called == caller.org_name or as_id(called) == caller.org_id:
            return caller
        if not caller.may(Action.OWN) or not 1 <= len(called) <= MAX_ORG_NAME_CHARS or not called.isprintable():
            raise not_found("org")
        digest = hashlib.sha256(called.encode()).digest()
        org = await self._orgs.ask(digest, lambda: find_facts(self._db, called))
        if org is None:
            raise not_found("org")
        return caller.within(org)

    def _note(self, digest: bytes, write: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Write down that it was used, at most once a minute, behind the back of the request."""
        now_s = time.monotonic()
        noted_at = self._noted_at.get(digest)
        if noted_at is not None and now_s - noted_at < NOTE_EVERY_S:
            return
        if len(self._noted_at) >= MAX_CALLERS_REMEMBERED:
            self._noted_at.clear()
        self._noted_at[digest] = now_s
        task = asyncio.create_task(_noted(write))
        self._noting.add(task)
        task.add_done_callback(self._noting.discard)


async def _noted(write: Callable[[], Coroutine[Any, Any, None]]) -> None:
    try:
        await write()
    except OUTAGES as error:
        log.warning("use_not_noted", error_type=type(error).__name__)


def _session_digest(token: str) -> bytes:
    # Not the digest that is stored.
    return hashlib.sha256(b"session " + token.encode("utf-8", "surrogatepass")).digest()


def allowed(action: Action | None) -> Callable[[Request], Coroutine[Any, Any, Caller]]:
    """A dependency: the caller, if their role may do this; None is for everybody who is known."""

    async def dependency(request: Request) -> Caller:
        authenticator: Authenticator = request.app.state.authenticator
        caller = await authenticator.admit(dict(request.scope["headers"]), request.method)
        if action is not None and not caller.may(action):
            raise forbidden(caller, action)
        if caller.scope is Scope.RELAY:  # not even who it is: it may connect a hub, and nothing else
            raise limited(caller)
        return caller

    dependency.admits = action or ANYBODY  # type: ignore[attr-defined]
    return dependency


def admits(dependency: object) -> str | None:
    """Whom a dependency made by `allowed` lets pass: those who may do an action, or ANYBODY; None for any other."""
    admitted: str | None = getattr(dependency, "admits", None)
    return admitted


Known = Annotated[Caller, Depends(allowed(None))]
Reader = Annotated[Caller, Depends(allowed(Action.READ))]
Producer = Annotated[Caller, Depends(allowed(Action.PRODUCE))]
Consumer = Annotated[Caller, Depends(allowed(Action.CONSUME))]
Operator = Annotated[Caller, Depends(allowed(Action.RETRY))]
Judge = Annotated[Caller, Depends(allowed(Action.JUDGE))]
Manager = Annotated[Caller, Depends(allowed(Action.MANAGE))]
Admitter = Annotated[Caller, Depends(allowed(Action.ADMIT))]
OwnerOnly = Annotated[Caller, Depends(allowed(Action.OWN))]
