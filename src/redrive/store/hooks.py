"""Addresses that webhooks come in at: which endpoint a token belongs to, and who is said to hand in what comes there.

A token has 256 random bits. It is stored as a hash, found through its first bytes and compared in constant time, as API
keys are; and sealed, so that it can be shown again. Asked by api.hook_door for every webhook, as the engine's role.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from redrive.core.inbound import Scheme
from redrive.core.permissions import Role, Scope
from redrive.store.clock import Clock
from redrive.store.db import Database, Session
from redrive.store.events import Receipt
from redrive.store.keys import Caller, Kind
from redrive.store.orgs import OrgFacts
from redrive.store.seal import Sealer

MAX_TOKEN_CHARS = 128
_LOOKUP_BYTES = 6
_NOBODY = bytes(32)


class HookToken(NamedTuple):
    """A token as it is stored."""

    lookup: bytes
    hash: bytes
    sealed: bytes


class Verification(NamedTuple):
    """How the sender of webhooks signs them. The secret is never shown."""

    scheme: Scheme
    secret: str

    def __repr__(self) -> str:
        return f"Verification({self.scheme})"


@dataclass(frozen=True, slots=True)
class Hook:
    """Where a webhook belongs, as of one moment of the database's clock."""

    endpoint_id: UUID
    caller: Caller
    now: datetime
    verify_scheme: Scheme | None
    verify_sealed: bytes | None = field(repr=False)

    def verification(self, sealer: Sealer) -> Verification | None:
        """SealError where this installation's key does not open the secret."""
        if self.verify_scheme is None or self.verify_sealed is None:
            return None
        return open_verification(sealer, self.caller.org_id, self.endpoint_id, self.verify_scheme, self.verify_sealed)


def new_token() -> str:
    return secrets.token_urlsafe(32)


def stored_token(sealer: Sealer, org_id: UUID, endpoint_id: UUID, token: str) -> HookToken:
    digest = _digest(token)
    return HookToken(digest[:_LOOKUP_BYTES], digest, sealer.seal(token.encode(), _owner("hook", org_id, endpoint_id)))


def open_token(sealer: Sealer, org_id: UUID, endpoint_id: UUID, sealed: bytes) -> str:
    return sealer.unseal(sealed, _owner("hook", org_id, endpoint_id)).decode()


def seal_verification(sealer: Sealer, org_id: UUID, endpoint_id: UUID, secret: str) -> bytes:
    return sealer.seal(secret.encode(), _owner("verify", org_id, endpoint_id))


def open_verification(sealer: Sealer, org_id: UUID, endpoint_id: UUID, scheme: str, sealed: bytes) -> Verification:
    return Verification(Scheme(scheme), sealer.unseal(sealed, _owner("verify", org_id, endpoint_id)).decode())


async def find_hook(db: Database, token: str, clock: Clock) -> Hook | None:
    """The same work whether there is one or not."""
    digest = _digest(token)
    rows = await db.fetch("find_hook", digest[:_LOOKUP_BYTES], clock.now())
    found = None
    for row in rows:
        if hmac.compare_digest(row["hook_hash"], digest):
            found = row
    if not rows:
        hmac.compare_digest(_NOBODY, digest)
    if found is None:
        return None
    org = OrgFacts.of(found)
    caller = Caller(
        org_id=org.org_id,
        id=found["id"],
        name=found["name"],
        role=Role.IT_MANAGER,
        scope=Scope.PRODUCE,
        kind=Kind.HOOK,
        org_name=org.name,
        limits=org.limits,
        stored_bytes=org.stored_bytes,
    )
    scheme = Scheme(found["verify_scheme"]) if found["verify_scheme"] else None
    return Hook(found["id"], caller, found["now"], scheme, found["verify_sealed"])


async def repetition(db: Database | Session, org_id: UUID, event_id: UUID, body: bytes) -> Receipt:
    """What a webhook is whose id is known under other headers: a repetition where its body is the same."""
    row = await db.fetchrow("same_webhook", org_id, event_id, body)
    if row is None or not row["is_same"]:
        return Receipt("conflict", None)
    return Receipt("duplicate", row["status"])


def _digest(token: str) -> bytes:
    # Plain SHA-256: a token has 256 random bits, so there is nothing to stretch.
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _owner(what: str, org_id: UUID, endpoint_id: UUID) -> str:
    return f"{what}:{org_id}:{endpoint_id}"
