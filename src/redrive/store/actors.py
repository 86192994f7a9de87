"""Who acted, by name: what the audit and the operations keep as `user:<id>` and `key:<id>`. Read by the pages.

As the engine's role, for the ids that an org's own rows hold: an OWNER acts where they are no member, and whoever left
is still the one who did it. Never for ids that somebody typed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from redrive.store.db import Database, Session
from redrive.store.keys import Kind
from redrive.store.orgs import as_id


@dataclass(frozen=True, slots=True)
class ActorName:
    """`email`: of a member; None for keys, and for people who are no members of this org."""

    name: str
    email: str | None = None


async def actor_names(engine: Database, org_id: UUID, actors: Iterable[str | None]) -> Mapping[str, ActorName]:
    """By what is stored. What has no name is missing: links, the engine, the command line, another org's keys."""
    wanted: dict[str, set[UUID]] = {Kind.USER: set(), Kind.KEY: set()}
    for actor in actors:
        kind, _, text = (actor or "").partition(":")
        if kind in wanted and (id_ := as_id(text)) is not None:
            wanted[kind].add(id_)
    found: dict[str, ActorName] = {}
    if ids := list(wanted[Kind.USER]):
        for row in await engine.fetch("actor_users", org_id, ids):
            found[f"{Kind.USER}:{row['id']}"] = ActorName(row["name"], row["email"])
    if ids := list(wanted[Kind.KEY]):
        for row in await engine.fetch("actor_keys", org_id, ids):
            found[f"{Kind.KEY}:{row['id']}"] = ActorName(row["name"])
    return found


async def member_called(session: Session, email: str) -> str | None:
    """The actor that a member of the session's org is; None where there is no such member."""
    row = await session.fetchrow("find_member", session.org_id, email.lower())
    return f"{Kind.USER}:{row['id']}" if row else None
