"""People: accounts of the installation, and their memberships in orgs.

Members of an org are read as the app's role, which sees no others. Changes are the engine's: an account reaches beyond
an org. Each is made in a session of the org that it is audited in. Called by the API and by the CLI.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from redrive.core.permissions import Role
from redrive.store import audit
from redrive.store.audit import Act
from redrive.store.clock import Clock
from redrive.store.db import Database, Record, Session
from redrive.store.orgs import new_id
from redrive.store.paging import Page, page_of
from redrive.store.sessions import end_sessions_of

MAX_EMAIL_CHARS = 254
MAX_USER_NAME_CHARS = 100
MAX_ORGS_OF_USER = 1_000


MAX_MEMBERS = 10_000  # of an org


class Refusal(StrEnum):
    UNKNOWN = "There is no such user."
    MEMBER_ALREADY = "This e-mail belongs to a member of this org already. Change that user instead."
    HAS_ACCOUNT = "This e-mail has an account already, with a password of its own: leave `password` out."
    ELSEWHERE = "This e-mail has an account that was made in another org. An OWNER can add it to this one."
    SHARED = "This account is a member of other orgs too: its name is changed by its user, or by an OWNER."
    ABOVE = "Only an OWNER can make somebody an OWNER, or change one."
    TOO_MANY = f"An org has at most {MAX_MEMBERS} members. Remove one first."
    LAST_OWNER = "This is the last OWNER of the installation. Make somebody else an OWNER first."


@dataclass(frozen=True, slots=True)
class UserChange:
    """What is to be changed; None stays as it is."""

    name: str | None = None
    role: Role | None = None
    suspended: bool | None = None
    password_hash: str | None = None

    def audited(self) -> dict[str, object]:
        """That a password was set, not which."""
        given = {"name": self.name, "role": self.role, "suspended": self.suspended}
        shown: dict[str, object] = {name: value for name, value in given.items() if value is not None}
        return shown | ({"password": "changed"} if self.password_hash else {})


async def find_user(db: Database, email: str) -> Record | None:
    return await db.fetchrow("find_user", email.lower())


async def list_memberships(db: Database, user_id: UUID) -> list[Record]:
    return await db.fetch("list_memberships", user_id, MAX_ORGS_OF_USER)


async def note_login(session: Session, user_id: UUID, clock: Clock) -> None:
    await session.execute("note_login", user_id, clock.now())


async def list_users(session: Session, *, limit: int, after: Sequence[object] | None = None) -> Page:
    rows = await session.fetch("list_users", session.org_id, after[0] if after else None, limit + 1)
    total = await session.fetchrow("count_users", session.org_id)
    return page_of(rows, limit, ("id",), total["n"] if total else 0)


async def get_user(session: Session, user_id: UUID) -> Record | None:
    return await session.fetchrow("get_user", session.org_id, user_id)


async def add_user(
    session: Session, *, email: str, name: str, role: Role, password_hash: str | None, by: Role, act: Act
) -> Record | Refusal:
    """Make somebody a member of the session's org; with an account, where the e-mail has none.

    Whose an account is, nobody proves: it is whoever the org says that made it, with the password it chose. Who took
    such an account in by its e-mail would let that org in. So only an OWNER, who sees every org, does that.
    """
    if role == Role.OWNER and by != Role.OWNER:
        return Refusal.ABOVE
    members = await session.fetchrow("count_users", session.org_id)
    if members is not None and members["n"] >= MAX_MEMBERS:
        return Refusal.TOO_MANY
    made = await session.fetchrow("create_user", new_id(), email.lower(), name, password_hash)
    known = made or await session.fetchrow("find_user", email.lower())
    assert known is not None, "accounts are never deleted"
    user_id: UUID = known["id"]
    if made is None and password_hash is not None:
        return Refusal.HAS_ACCOUNT
    if made is None and by != Role.OWNER and await session.fetchrow("was_admitted", session.org_id, user_id) is None:
        return Refusal.ELSEWHERE
    if await session.fetchrow("create_membership", session.org_id, user_id, role) is None:
        return Refusal.MEMBER_ALREADY
    if role == Role.OWNER:
        await session.execute("update_account", user_id, None, None, True, None)
    await audit.record(session, act, "user.create", "user", user_id, after={"email": email.lower(), "role": role})
    return await _member(session, user_id)


async def change_user(
    session: Session,
    user_id: UUID,
    change: UserChange,
    *,
    by: Role,
    act: Act,
    is_self: bool = False,
    token: str | None = None,
) -> Record | Refusal:
    """A new password ends the user's sessions but the one with this `token`."""
    row = await _lock(session, user_id, change.role, by)
    if isinstance(row, Refusal):
        return row
    if change.name is not None and not is_self and by != Role.OWNER:
        orgs = await session.fetch("list_memberships", user_id, 2)
        if len(orgs) > 1:
            return Refusal.SHARED
    stays_owner = change.role in (None, Role.OWNER) and change.suspended is not True
    if row["is_owner"] and not stays_owner and await _is_last_owner(session, user_id):
        return Refusal.LAST_OWNER
    if row["is_owner"] and change.role is not None:
        await session.execute("disown_memberships", user_id, change.role)
    await session.execute("update_membership", session.org_id, user_id, change.role, change.suspended)
    owner = None if change.role is None else change.role == Role.OWNER
    # Whoever owns every org is not suspended in one: the account is disabled. It stays so where they are made less,
    # until an OWNER ends it.
    was_disabled = by == Role.OWNER and row["disabled_at"] is not None
    disabled = change.suspended if row["is_owner"] or owner or was_disabled else None
    await session.execute("update_account", user_id, change.name, change.password_hash, owner, disabled)
    if change.password_hash is not None:
        await end_sessions_of(session, user_id, but=token)
    before = {"name": row["name"], "role": row["role"], "suspended": is_suspended(row)}
    await audit.record(session, act, "user.update", "user", user_id, before=before, after=change.audited())
    return await _member(session, user_id)


async def remove_user(session: Session, user_id: UUID, *, by: Role, act: Act) -> Refusal | None:
    """Take the membership away. The account stays, for the other orgs and for what it did here."""
    row = await _lock(session, user_id, None, by)
    if isinstance(row, Refusal):
        return row
    if row["is_owner"]:
        if await _is_last_owner(session, user_id):
            return Refusal.LAST_OWNER
        await session.execute("disown_memberships", user_id, Role.ADMIN)
        await session.execute("update_account", user_id, None, None, False, None)
    await session.execute("delete_membership", session.org_id, user_id)
    before = {"email": row["email"], "role": row["role"]}
    await audit.record(session, act, "user.remove", "user", user_id, before=before)
    return None


def role_of(row: Record) -> Role:
    return Role.OWNER if row["is_owner"] else Role(row["role"])


def is_suspended(row: Record) -> bool:
    return row["suspended_at"] is not None or row["disabled_at"] is not None


async def _lock(session: Session, user_id: UUID, new_role: Role | None, by: Role) -> Record | Refusal:
    # The owners first: whoever locks them after somebody of them may meet another who does, too.
    await session.fetch("lock_owners")
    row = await session.fetchrow("lock_user", session.org_id, user_id)
    if row is None:
        return Refusal.UNKNOWN
    if by != Role.OWNER and (row["is_owner"] or row["role"] == Role.OWNER or new_role == Role.OWNER):
        return Refusal.ABOVE
    return row


async def _is_last_owner(session: Session, user_id: UUID) -> bool:
    owners = await session.fetch("lock_owners")
    return [row["id"] for row in owners] == [user_id]


async def _member(session: Session, user_id: UUID) -> Record:
    row = await get_user(session, user_id)
    assert row is not None, "it was written in this transaction"
    return row
