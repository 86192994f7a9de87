"""Browser sessions, and the one-time links that begin one. Of a token only the hash is stored.

A session lasts 12 hours from its last use, 7 days at the most. It is looked up as the engine's role: which org it is in
is what it tells.
"""

import hashlib
import secrets
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from redrive.core.permissions import Role
from redrive.store import audit
from redrive.store.audit import Act
from redrive.store.clock import Clock
from redrive.store.db import Database, Record, Session
from redrive.store.keys import Caller, Kind
from redrive.store.orgs import OrgFacts, new_id

SESSION_LASTS = timedelta(hours=12)
SESSION_LASTS_AT_MOST = timedelta(days=7)
LINK_LASTS = timedelta(minutes=15)
LINK_NAME = "sign-in link"


class Link(NamedTuple):
    """Whom a sign-in link lets in: a user, or nobody in particular with a role."""

    org_id: UUID
    user_id: UUID | None
    role: Role | None


def new_token() -> str:
    return secrets.token_urlsafe(32)


def _digest(token: str) -> bytes:
    # Plain SHA-256: a token has 256 random bits. The hash is what is looked up, so the index tells nothing of a token.
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


async def open_session(
    session: Session,
    *,
    org_id: UUID,
    user_id: UUID | None,
    role: Role | None,
    source: str | None,
    clock: Clock,
    by_link: bool = False,
) -> tuple[str, UUID]:
    """A new session's token and id. `role`: of a link that names no user."""
    token, session_id = new_token(), new_id()
    await session.execute(
        "create_session",
        _digest(token),
        session_id,
        user_id,
        role,
        org_id,
        source,
        SESSION_LASTS,
        clock.now(),
        by_link,
    )
    return token, session_id


async def find_session(db: Database, token: str, clock: Clock) -> Caller | None:
    """Who a session stands for. None where it ended, or its user is a member of that org no longer."""
    row = await db.fetchrow("find_session", _digest(token), clock.now())
    if row is None:
        return None
    org = OrgFacts.of(row)
    if row["user_id"] is None:
        kind, caller_id, name, role = Kind.LINK, row["id"], LINK_NAME, Role(row["link_role"])
    else:
        if not row["is_owner"] and row["role"] is None:
            return None
        kind, caller_id, name = Kind.USER, row["user_id"], row["name"]
        role = Role.OWNER if row["is_owner"] else Role(row["role"])
    return Caller(
        org_id=org.org_id,
        id=caller_id,
        name=name,
        role=role,
        kind=kind,
        org_name=org.name,
        limits=org.limits,
        stored_bytes=org.stored_bytes,
        suspended=row["suspended_at"] is not None or row["disabled_at"] is not None,
    )


async def password_to_prove(db: Database, token: str, clock: Clock) -> Record | None:
    """Whose session it is, and the hash of the password that must be known to set a new one in it, where one must be.

    None: it has ended. That must not be read as nothing to prove: callers are remembered for a moment longer.
    """
    return await db.fetchrow("password_to_prove", _digest(token), clock.now())


async def extend_session(db: Database, token: str, clock: Clock) -> None:
    await db.execute("extend_session", _digest(token), SESSION_LASTS, SESSION_LASTS_AT_MOST, clock.now())


async def move_session(session: Session, token: str, org_id: UUID) -> bool:
    return await session.fetchrow("move_session", _digest(token), org_id) is not None


async def end_session(session: Session, token: str) -> None:
    await session.execute("end_session", _digest(token))


async def end_sessions_of(session: Session, user_id: UUID, *, but: str | None) -> None:
    """All of a user's, whose password is another now; but the one with this token."""
    await session.execute("end_sessions_of", user_id, _digest(but or ""))


async def make_link(session: Session, *, user_id: UUID | None, role: Role | None, act: Act, clock: Clock) -> str:
    """The token of a link that signs in to the session's org, once: as this user, or as nobody with this role."""
    assert (user_id is None) == (role is not None), "a link names a user or a role"
    token = new_token()
    await session.execute("create_link", _digest(token), user_id, role, session.org_id, LINK_LASTS, clock.now())
    after = {"user_id": user_id, "role": role}
    await audit.record(session, act, "session.link", "org", session.org_id, after=after)
    return token


async def use_link(db: Database, token: str, clock: Clock) -> Link | None:
    """What a link is good for; from now on for nothing. None where it was used, or came too late."""
    row = await db.fetchrow("use_link", _digest(token), clock.now())
    if row is None or not row["in_time"]:
        return None
    return Link(row["org_id"], row["user_id"], Role(row["role"]) if row["role"] else None)
