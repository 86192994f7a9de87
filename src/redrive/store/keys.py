"""API keys: 256 random bits, stored as a hash, shown once. And who is asking, by key or otherwise.

Found through the first bytes of the hash and compared in constant time, so that neither the index nor the clock
tells anything of a key.
"""

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from uuid import UUID

from redrive.core.limits import DEFAULT_LIMITS, Limits
from redrive.core.permissions import Action, Role, Scope, may
from redrive.store import audit
from redrive.store.audit import Act
from redrive.store.db import Database, Record, Session
from redrive.store.orgs import OrgFacts, new_id
from redrive.store.paging import Page, page_of

MAX_LIVE_KEYS = 1_000  # of an org
KEY_PREFIX = "rdk_"
_LOOKUP_BYTES = 6


class Kind(StrEnum):
    """What somebody shows to be let in."""

    KEY = "key"
    USER = "user"  # a session of a person with an account
    LINK = "link"  # a session begun by a sign-in link that names nobody
    HOOK = "hook"  # the token in a relay endpoint's address; the id is the endpoint's


class TooManyKeys(Exception):
    """An org has as many keys as one may have; the text says what to do."""


class BadHubKey(Exception):
    """A key of scope relay that could not be used, by `field`."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(problem)
        self.field = field


@dataclass(frozen=True)
class Caller:
    """Who is asking, in which org, with which role, and what they are limited to."""

    org_id: UUID
    id: UUID  # of the key, the user, or the link's session
    name: str
    role: Role
    scope: Scope | None = None
    endpoint_id: UUID | None = None  # of a key of scope relay: the only relay that it is for
    kind: Kind = Kind.KEY
    org_name: str = ""
    limits: Limits = DEFAULT_LIMITS  # of the org
    stored_bytes: int = 0  # of the org, a moment ago
    suspended: bool = False

    def may(self, action: Action) -> bool:
        return may(self.role, action, self.scope)

    @cached_property
    def actor(self) -> str:
        return f"{self.kind}:{self.id}"

    def within(self, org: OrgFacts) -> "Caller":
        """The same person or key, acting in another org."""
        return replace(self, org_id=org.org_id, org_name=org.name, limits=org.limits, stored_bytes=org.stored_bytes)


def new_key() -> str:
    return KEY_PREFIX + secrets.token_urlsafe(32)


def _digest(key: str) -> bytes:
    # Plain SHA-256: a key has 256 random bits, so there is nothing to stretch.
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def _hint(key: str) -> str:
    """What a person may see of a key."""
    return key[:8] + "…" if key.startswith(KEY_PREFIX) else "(chosen)"


async def store_key(
    db: Database,
    org_id: UUID,
    key: str,
    *,
    name: str,
    role: str,
    scope: str | None = None,
    by: str = "installation",
    expires_at: datetime | None = None,
) -> UUID:
    """Store a key's hash; the same key again is the same row."""
    digest = _digest(key)
    hint = _hint(key)
    row = await db.fetchrow(
        "store_key", org_id, new_id(), name, role, hint, digest[:_LOOKUP_BYTES], digest, expires_at, by, scope
    )
    assert row is not None
    key_id: UUID = row["id"]
    return key_id


async def authenticate(db: Database, key: str) -> Caller | None:
    digest = _digest(key)
    for row in await db.fetch("find_key", digest[:_LOOKUP_BYTES]):
        if hmac.compare_digest(row["hash"], digest):
            org = OrgFacts.of(row)
            return Caller(
                org_id=org.org_id,
                id=row["id"],
                name=row["name"],
                role=Role(row["role"]),
                scope=Scope(row["scope"]) if row["scope"] else None,
                endpoint_id=row["endpoint_id"],
                org_name=org.name,
                limits=org.limits,
                stored_bytes=org.stored_bytes,
            )
    return None


async def note_use(db: Database, org_id: UUID, key_id: UUID) -> None:
    """That a key was used just now. Kept to the minute."""
    await db.execute("note_key_use", org_id, key_id, None)


async def create_key(
    session: Session,
    *,
    name: str,
    role: Role,
    scope: Scope | None,
    expires_at: datetime | None,
    act: Act,
    endpoint_id: UUID | None = None,
) -> tuple[Record, str]:
    """Create a key of the session's org; answer its row and the key, which is not stored.

    `endpoint_id`: the only relay that a key of scope relay is for. TooManyKeys and BadHubKey say what is wrong.
    """
    await _check_hub_key(session, role, scope, endpoint_id)
    live = await session.fetchrow("count_live_keys", session.org_id)
    if live is not None and live["n"] >= MAX_LIVE_KEYS:
        raise TooManyKeys(f"An org has at most {MAX_LIVE_KEYS} keys that are neither revoked nor expired. Revoke one.")
    key = new_key()
    digest = _digest(key)
    row = await session.fetchrow(
        "create_key",
        session.org_id,
        new_id(),
        name,
        role,
        _hint(key),
        digest[:_LOOKUP_BYTES],
        digest,
        expires_at,
        scope,
        endpoint_id,
    )
    assert row is not None
    after: dict[str, object] = {"name": name, "role": role, "scope": scope, "expires_at": expires_at}
    if endpoint_id is not None:
        after["endpoint_id"] = endpoint_id
    await audit.record(session, act, "key.create", "key", row["id"], after=after)
    return row, key


async def _check_hub_key(session: Session, role: Role, scope: Scope | None, endpoint_id: UUID | None) -> None:
    if scope is Scope.RELAY and not may(role, Action.CONNECT, scope):
        able = ", ".join(each for each in Role if may(each, Action.CONNECT))
        raise BadHubKey("role", f"must be one of {able} for the scope relay")
    if endpoint_id is None:
        return
    if scope is not Scope.RELAY:
        raise BadHubKey("endpoint_id", "is for keys of the scope relay only")
    if await session.fetchrow("find_relay", session.org_id, endpoint_id) is None:
        raise BadHubKey("endpoint_id", "must be the id of a relay of this org")


async def list_keys(session: Session, *, limit: int, after: Sequence[object] | None = None) -> Page:
    rows = await session.fetch("list_keys", session.org_id, after[0] if after else None, limit + 1)
    total = await session.fetchrow("count_keys", session.org_id)
    return page_of(rows, limit, ("id",), total["n"] if total else 0)


async def get_key(session: Session, key_id: UUID) -> Record | None:
    return await session.fetchrow("get_key", session.org_id, key_id)


async def revoke_key(session: Session, key_id: UUID, act: Act) -> bool:
    if await session.fetchrow("revoke_key", session.org_id, key_id) is None:
        return False
    await audit.record(session, act, "key.revoke", "key", key_id)
    return True


async def has_keys(db: Database, org_id: UUID) -> bool:
    row = await db.fetchrow("has_keys", org_id)
    return bool(row and row["has_keys"])
