"""Policies by name. A stored version never changes: an edit adds one, and tasks keep the one they began with."""

from uuid import UUID

import msgspec

from redrive.core.policy import Policy
from redrive.store import audit
from redrive.store.audit import Act
from redrive.store.db import Record, Session
from redrive.store.orgs import new_id


def policy_of(row: Record) -> Policy:
    return Policy.from_spec(msgspec.json.decode(row["spec"]))


async def list_policies(session: Session) -> list[Record]:
    return await session.fetch("list_policies", session.org_id)


async def get_policy(session: Session, name: str) -> Record | None:
    return await session.fetchrow("get_policy", session.org_id, name)


async def put_policy(session: Session, name: str, policy: Policy, act: Act) -> Record:
    """Make or replace the policy of that name. Tasks accepted before keep theirs."""
    before = await get_policy(session, name)
    policy_id: UUID = new_id()
    spec = policy.to_spec()
    row = await session.fetchrow(
        "put_policy", session.org_id, name, policy_id, msgspec.json.encode(spec).decode(), policy.timeout_s
    )
    assert row is not None
    await audit.record(
        session,
        act,
        "policy.put",
        "policy",
        policy_id,
        before={"name": name, **msgspec.json.decode(before["spec"], type=dict[str, object])} if before else None,
        after={"name": name, **spec},
    )
    return row
