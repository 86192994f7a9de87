"""Organisations: made with their presets, looked up by id or name, with their limits and what they use of them.

Called by app.py at start-up, by the API and by the CLI. Orgs are seen and changed as the engine's role: whoever may.
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import asyncpg
import msgspec

from redrive.core.ids import uuid7
from redrive.core.limits import Limits
from redrive.core.policy import Policy
from redrive.store import audit
from redrive.store.audit import Act
from redrive.store.db import Database, Record, Session
from redrive.store.paging import Page, page_of
from redrive.store.seal import Sealer, SealError

DEFAULT_ORG = "default"
MAX_ORG_NAME_CHARS = 100


class OrgNameTaken(Exception):
    """Another org has this name."""


class NoSuchPolicy(Exception):
    """The org has no policy of this name."""


@dataclass(frozen=True, slots=True)
class OrgFacts:
    """What every request needs to know of the org that it is for."""

    org_id: UUID
    name: str
    limits: Limits
    stored_bytes: int

    @classmethod
    def of(cls, row: Record) -> "OrgFacts":
        return cls(row["org_id"], row["org_name"], limits_of(row), row["stored_bytes"])


def limits_of(row: Record) -> Limits:
    spec: str | None = row["limits"]
    return Limits.from_spec(msgspec.json.decode(spec, type=dict[str, int]) if spec else None)


def new_id() -> UUID:
    return uuid7(time.time_ns() // 1_000_000, os.urandom(10))


async def find_org(db: Database, name: str) -> UUID | None:
    row = await db.fetchrow("find_org", name)
    return row["org_id"] if row else None


async def next_org(db: Database, after: str | None) -> tuple[UUID, str] | None:
    """The one whose name follows this, or the first of all; None after the last."""
    row = await db.fetchrow("next_org", after)
    return (row["org_id"], row["name"]) if row else None


async def ensure_org(db: Database, name: str, presets: Mapping[str, Policy], *, overridden: frozenset[str]) -> UUID:
    """The org of that name with its presets; made where absent. `overridden` presets follow the settings."""
    async with db.transaction() as session:
        row = await session.fetchrow("ensure_org", name, new_id())
        assert row is not None
        org_id: UUID = row["org_id"]
        await _ensure_presets(session, org_id, presets, overridden)
    return org_id


async def set_fallback(db: Database, org_id: UUID, name: str | None) -> bool:
    """Set the installation's default policy. False where this org has no policy of the name: nothing is changed."""
    async with db.tenant(org_id) as session:
        if name is not None and await session.fetchrow("get_policy", org_id, name) is None:
            return False
        await session.execute("set_fallback", name)
    return True


async def _ensure_presets(
    session: Session, org_id: UUID, presets: Mapping[str, Policy], overridden: frozenset[str]
) -> None:
    for preset, policy in presets.items():
        spec = msgspec.json.encode(policy.to_spec()).decode()
        await session.execute("ensure_preset", org_id, preset, new_id(), spec, policy.timeout_s, preset in overridden)


async def find_facts(db: Database, called: str) -> OrgFacts | None:
    """An org by what a request calls it: its id or its name."""
    row = await db.fetchrow("find_org_entry", called, as_id(called))
    return OrgFacts.of(row) if row else None


def as_id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


async def create_org(session: Session, name: str, presets: Mapping[str, Policy], act: Act) -> UUID:
    """A new org with its presets, in whose own audit it stands. OrgNameTaken where there is one."""
    org_id = new_id()
    if await session.fetchrow("create_org", org_id, name) is None:
        raise OrgNameTaken(name)
    await _ensure_presets(session, org_id, presets, frozenset())
    await audit.record(session.of(org_id), act, "org.create", "org", org_id, after={"name": name})
    return org_id


async def get_org(db: Database, org_id: UUID) -> Record | None:
    return await db.fetchrow("get_org", org_id)


async def list_orgs(
    db: Database, *, only: Sequence[UUID] | None, limit: int, after: Sequence[object] | None = None
) -> Page:
    """Oldest first; `only` these, or all."""
    rows = await db.fetch("list_orgs", only, after[0] if after else None, limit + 1)
    total = await db.fetchrow("count_orgs", only)
    return page_of(rows, limit, ("org_id",), total["n"] if total else 0)


async def update_org(
    db: Database,
    org_id: UUID,
    *,
    name: str | None,
    limits: Mapping[str, int],
    act: Act,
    default_policy: str | None = None,
) -> Record | None:
    """Change its name, its default policy, and the limits named; None where there is no such org.

    NoSuchPolicy where it has no policy of that name.
    """
    try:
        async with db.tenant(org_id) as session:
            if await session.fetchrow("lock_org", org_id) is None:
                return None
            before = await session.fetchrow("get_org", org_id)
            assert before is not None
            if name is not None:
                await session.execute("rename_org", org_id, name)
            if limits:
                spec = msgspec.json.decode(before["limits"] or "{}", type=dict[str, int]) | dict(limits)
                await session.execute("put_org_limits", org_id, msgspec.json.encode(spec).decode())
            if default_policy not in (None, before["default_policy"]):
                await session.execute("lock_policies", org_id)
                await session.fetch("clear_default", org_id, default_policy)
                if await session.fetchrow("set_default", org_id, default_policy) is None:
                    raise NoSuchPolicy
            after = await session.fetchrow("get_org", org_id)
            assert after is not None
            await audit.record(
                session, act, "org.update", "org", org_id, before=_audited(before), after=_audited(after)
            )
            return after
    except asyncpg.UniqueViolationError:
        raise OrgNameTaken(str(name)) from None


def _audited(row: Record) -> dict[str, object]:
    return {"name": row["name"], "limits": limits_of(row).to_spec(), "default_policy": row["default_policy"]}


async def prove_seal(db: Database, sealer: Sealer) -> None:
    """Refuse to run with a key other than the one that this database's secrets are sealed with."""
    row = await db.fetchrow("prove_seal", sealer.proof())
    assert row is not None
    if not sealer.proves(row["seal_check"]):
        raise SealError(
            "This database's secrets were sealed with another key. Set REDRIVE_SECRET_KEY to the one it was first "
            "started with, or copy secret.key from that installation's data folder."
        )
