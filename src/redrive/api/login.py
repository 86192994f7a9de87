"""Signing in: by password or by a one-time link; both end in a new session. Called by the routes of sessions and users.

Whoever fails is told the same whether the e-mail has an account or not, after the same work.
"""

from math import ceil
from uuid import UUID

from pydantic import SecretStr

from redrive.api.context import ApiContext
from redrive.api.people_input import LoginIn
from redrive.api.problems import FieldError, Problem, invalid, not_found, session_ended, suspended, too_many
from redrive.store import audit, logins, orgs, sessions, users
from redrive.store.audit import Act
from redrive.store.db import Record
from redrive.store.keys import Caller, Kind
from redrive.store.passwords import is_password
from redrive.store.sessions import Link

PRESENT = ("body", "current_password")


class Login:
    """One sign-in. `old_token`: of the session that the browser had, which ends."""

    def __init__(self, context: ApiContext, *, address: str, correlation_id: str, old_token: str | None) -> None:
        self._context = context
        self._db = context.engine_db
        self._address = address
        self._source = f"api {address}"
        self._correlation_id = correlation_id
        self._old_token = old_token

    async def by_password(self, given: LoginIn) -> str:
        """The new session's token, or Problem 401, 403, 404, 429."""
        clock = self._context.clock
        await _count_try(self._context, given.email, self._address)
        user = await users.find_user(self._db, given.email)
        right = await is_password(user["password_hash"] if user else None, given.password.get_secret_value())
        if user is None or not right:
            if user is not None:
                await self._note_failure(user)
            raise Problem(401, "The e-mail or the password is wrong.")
        await logins.forgive(self._db, given.email, self._address, clock)
        org_id = await self._org_of(user, given.org)
        return await self._begin(Link(org_id, user["id"], None), by_link=False)

    async def by_link(self, token: str) -> str:
        link = await sessions.use_link(self._db, token, self._context.clock)
        if link is None:
            raise Problem(
                401,
                "This sign-in link was used, or is older than 15 minutes. `redrive login-link` prints a new one.",
            )
        return await self._begin(link, by_link=True)

    async def _begin(self, link: Link, *, by_link: bool) -> str:
        async with self._db.tenant(link.org_id) as session:
            if self._old_token is not None:
                await sessions.end_session(session, self._old_token)
            token, session_id = await sessions.open_session(
                session,
                org_id=link.org_id,
                user_id=link.user_id,
                role=link.role,
                source=self._source,
                clock=self._context.clock,
                by_link=by_link,
            )
            if link.user_id is not None:
                await users.note_login(session, link.user_id, self._context.clock)
            actor = f"{Kind.LINK}:{session_id}" if link.user_id is None else f"{Kind.USER}:{link.user_id}"
            await audit.record(session, self._act(actor), "session.login", "session", session_id)
        return token

    async def _org_of(self, user: Record, called: str | None) -> UUID:
        """Where a user begins: in the org they name, else in the first that they are an active member of."""
        memberships = await users.list_memberships(self._db, user["id"])
        if user["disabled_at"] is not None:
            raise suspended()
        if called is not None:
            wanted = await orgs.find_facts(self._db, called)
            memberships = [row for row in memberships if wanted is not None and row["org_id"] == wanted.org_id]
            if wanted is None or not (memberships or user["is_owner"]):
                raise not_found("org")
            if not memberships:
                return wanted.org_id
        active = [row for row in memberships if row["suspended_at"] is None]
        if active:
            first: UUID = active[0]["org_id"]
            return first
        if memberships:
            raise suspended()
        if not user["is_owner"]:
            raise Problem(403, "This account is a member of no org. An ADMIN of one can add it.")
        page = await orgs.list_orgs(self._db, only=None, limit=1)
        oldest: UUID = page.rows[0]["org_id"]
        return oldest

    async def _note_failure(self, user: Record) -> None:
        memberships = await users.list_memberships(self._db, user["id"])
        for row in memberships[:1]:
            async with self._db.tenant(row["org_id"]) as session:
                act = self._act("nobody")
                await audit.record(session, act, "session.login_failed", "user", user["id"])

    def _act(self, actor: str) -> Act:
        return Act(actor, None, self._correlation_id, self._source)


async def prove_password(
    context: ApiContext, caller: Caller, token: str, given: SecretStr | None, *, address: str, act: Act
) -> None:
    """Whoever sets a new password of their own knows the present one: a session left open is not enough.

    Wrong ones count as failed sign-ins. Not asked of those who came by a link, or have none. Problem 401, 422, 429.
    """
    asked = await sessions.password_to_prove(context.engine_db, token, context.clock)
    if asked is None:
        raise session_ended()
    if asked["password_hash"] is None:
        return
    if given is None:
        raise invalid(FieldError(PRESENT, "is needed: the password that you have now"))
    await _count_try(context, asked["email"], address)
    if not await is_password(asked["password_hash"], given.get_secret_value()):
        async with context.engine_db.tenant(caller.org_id) as session:
            await audit.record(session, act, "session.login_failed", "user", asked["id"])
        raise invalid(FieldError(PRESENT, "is not the password that you have now"))
    await logins.forgive(context.engine_db, asked["email"], address, context.clock)


async def _count_try(context: ApiContext, email: str, address: str) -> None:
    wait_s = await logins.begin(context.engine_db, email, address, context.clock)
    if wait_s:
        raise too_many(f"Too many passwords were wrong. Try again in {_waiting(wait_s)}.", wait_s)


def _waiting(wait_s: float) -> str:
    """Rounded up: whoever comes back then must not be told to wait again."""
    seconds = max(1, ceil(wait_s))
    return f"{seconds} s" if seconds <= 120 else f"{ceil(seconds / 60)} min"


async def admitted(context: ApiContext, token: str) -> Caller:
    """Who has just signed in. A link may name somebody who is suspended by now, or a member no longer: 403."""
    caller = await sessions.find_session(context.engine_db, token, context.clock)
    if caller is None or caller.suspended:
        raise suspended()
    return caller
