"""API keys: 256 random bits, stored as a hash, shown once.

Found through the first bytes of the hash and compared in constant time, so that neither the index nor the clock
tells anything of a key.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from redrive.core.permissions import Action, Role, Scope, may
from redrive.store import audit
from redrive.store.audit import Act
from redrive.store.db import Database, Record, Session
from redrive.store.orgs import new_id

KEY_PREFIX = "rdk_"
_LOOKUP_BYTES = 6


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is asking: an API key of an org, with its role and what it is limited to."""

    org_id: UUID
    key_id: UUID
    name: str
    role: Role
    scope: Scope | None = None

    def may(self, action: Action) -> bool:
        return may(self.role, action, self.scope)

    @property
    def actor(self) -> str:
        return f"key:{self.key_id}"


def new_key() -> str:
    return KEY_PREFIX + secrets.token_urlsafe(32)


def _digest(key: str) -> bytes:
    # Plain SHA-256: a key has 256 random bits, so there is nothing to stretch.
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


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
    hint = key[:8] + "…" if key.startswith(KEY_PREFIX) else "(chosen)"
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
            return Caller(
                org_id=row["org_id"],
                key_id=row["id"],
                name=row["name"],
                role=Role(row["role"]),
                scope=Scope(row["scope"]) if row["scope"] else None,
            )
    return None


async def list_keys(session: Session) -> list[Record]:
    return await session.fetch("list_keys", session.org_id)


async def revoke_key(session: Session, key_id: UUID, act: Act) -> bool:
    if await session.fetchrow("revoke_key", session.org_id, key_id) is None:
        return False
    await audit.record(session, act, "key.revoke", "key", key_id)
    return True


async def has_keys(db: Database, org_id: UUID) -> bool:
    row = await db.fetchrow("has_keys", org_id)
    return bool(row and row["has_keys"])
