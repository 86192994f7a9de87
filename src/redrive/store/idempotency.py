"""Idempotency keys of things with ids of their own: the first request makes it, the same request again finds it.

Called by the API in the transaction that makes the thing. (An event's id is derived from its key instead.)
"""

from dataclasses import dataclass
from uuid import UUID

from redrive.store.db import Session


@dataclass(frozen=True, slots=True)
class Made:
    """What an earlier request under the same key made, and whether it asked for the same."""

    subject_id: UUID
    same_body: bool


async def claim(session: Session, scope: str, key: str, body_digest: bytes) -> Made | None:
    """None: the key is ours now, make the thing and call `fulfil`."""
    while await session.fetchrow("claim_key", session.org_id, scope, key, body_digest) is None:
        row = await session.fetchrow("get_claim", session.org_id, scope, key)
        if row is not None:  # else the janitor forgot the key in between: it is free again
            return Made(row["subject_id"], row["body_digest"] == body_digest)
    return None


async def fulfil(session: Session, scope: str, key: str, subject_id: UUID) -> None:
    await session.execute("fulfil_claim", session.org_id, scope, key, subject_id)
