"""Policies by name. A stored version never changes: an edit adds one, and tasks keep the one they began with.

Which events a policy is for, its Binding, is no part of that: it counts when an event is accepted, and not after.
Called by the API and the CLI.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple
from uuid import UUID

import msgspec

from redrive.core.lifecycle import retry_attempts
from redrive.core.policy import Policy, PolicyError
from redrive.core.presets import DEFAULT_POLICY
from redrive.store import audit
from redrive.store.audit import Act
from redrive.store.db import Record, Session, like_pattern
from redrive.store.orgs import new_id

MAX_POLICIES = 1_000  # of an org, in force: their list is shown whole
MAX_BOUND_TYPES = 1_000  # of an org, all policies together: an event's type is compared with each
USERS_SHOWN = 5
OVERRIDE_NAME = "override"  # of terms that are a single task's own


class TooManyPolicies(Exception):
    """An org has as many policies as one may have."""


class TooManyBound(Exception):
    """An org's policies are bound to more event types than it may have."""


@dataclass(frozen=True, slots=True)
class Binding:
    """Which events a policy is for, besides those that name it: these types, or whatever no other one is for."""

    event_types: tuple[str, ...] = ()
    is_default: bool = False


UNBOUND = Binding()


class InUse(NamedTuple):
    """Why a policy cannot be deleted."""

    name: str
    endpoints: tuple[str, ...]  # the first of those that name it
    more: int
    is_default: bool
    is_fallback: bool  # of orgs without a default of their own

    @property
    def why(self) -> str:
        if self.is_fallback:
            return f'The policy "{self.name}" is the last resort for events that no other one is for. Edit it instead.'
        users = [f'the endpoint "{endpoint}"' for endpoint in self.endpoints]
        if self.more:
            users.append(f"{self.more} more endpoints")
        if self.is_default:
            users.append("the org, as its default")
        return f'The policy "{self.name}" is in use by {", ".join(users)}. Give them another one first.'


def policy_of(row: Record) -> Policy:
    return Policy.from_spec(msgspec.json.decode(row["spec"]))


async def add_terms(session: Session, policy: Policy) -> UUID:
    """The id of a policy for single tasks, which no list shows and no name leads to. The same terms are one row."""
    spec = msgspec.json.encode(policy.to_spec()).decode()
    row = await session.fetchrow("add_override_policy", session.org_id, OVERRIDE_NAME, spec, policy.timeout_s)
    assert row is not None
    terms_id: UUID = row["id"]
    return terms_id


async def terms_of(session: Session, name: str, max_retries: int | None) -> tuple[UUID, Policy] | None:
    """The policy in force under this name, with another number of retries where one is given. None: there is none."""
    row = await get_policy(session, name)
    if row is None:
        return None
    policy = policy_of(row)
    if max_retries is None or policy.max_retries == max_retries:
        return row["id"], policy
    policy = replace(policy, max_retries=max_retries)
    return await add_terms(session, policy), policy


def retries_granted(row: Record, failures: int) -> int:
    """For the log, as core.lifecycle has it; without the limit of a policy that this version cannot read."""
    try:
        return retry_attempts(failures, policy_of(row).max_retries)
    except PolicyError:
        return failures


def binding_of(row: Record) -> Binding:
    return Binding(tuple(row["event_types"]), row["is_default"])


async def list_policies(session: Session) -> list[Record]:
    return await session.fetch("list_policies", session.org_id)


async def get_policy(session: Session, name: str) -> Record | None:
    return await session.fetchrow("get_policy", session.org_id, name)


async def list_policy_users(session: Session, name: str, limit: int) -> list[Record]:
    """The first endpoints that name a policy, by name; `n` of each is how many there are."""
    return await session.fetch("list_policy_users", session.org_id, name, limit)


async def count_policy_users(session: Session) -> dict[str, int]:
    """How many endpoints name each policy that any names."""
    return {row["policy"]: row["n"] for row in await session.fetch("count_policy_users", session.org_id)}


async def fallback_of(session: Session) -> str:
    """The policy of tasks that nothing else names one for, in an org without a default: the installation's, or ours."""
    row = await session.fetchrow("fallback_policy", session.org_id)
    return DEFAULT_POLICY if row is None else str(row["name"])


async def put_policy(session: Session, name: str, policy: Policy, act: Act, binding: Binding = UNBOUND) -> Record:
    """Make or replace the policy of that name. Tasks accepted before keep theirs."""
    await session.execute("lock_policies", session.org_id)
    before = await get_policy(session, name)
    if before is None:
        others = await session.fetchrow("count_policies", session.org_id)
        if others is not None and others["n"] >= MAX_POLICIES:
            raise TooManyPolicies
    if binding.event_types:
        others = await session.fetchrow("count_bound_types", session.org_id, name)
        assert others is not None
        if others["n"] + len(binding.event_types) > MAX_BOUND_TYPES:
            raise TooManyBound
    if binding.is_default:
        for other in await session.fetch("clear_default", session.org_id, name):
            before_it, after_it = ({"name": other["name"], "default": is_default} for is_default in (True, False))
            await audit.record(session, act, "policy.default", "policy", other["id"], before=before_it, after=after_it)
    policy_id: UUID = new_id()
    spec = policy.to_spec()
    row = await session.fetchrow(
        "put_policy",
        session.org_id,
        name,
        policy_id,
        msgspec.json.encode(spec).decode(),
        policy.timeout_s,
        list(binding.event_types),
        [like_pattern(event_type) for event_type in binding.event_types],
        binding.is_default,
    )
    assert row is not None
    await audit.record(
        session,
        act,
        "policy.put",
        "policy",
        policy_id,
        before=_audited(before) if before else None,
        after=_audited(row),
    )
    return row


async def delete_policy(session: Session, name: str, act: Act) -> InUse | bool:
    """Take the policy of that name out of force. False where there is none; InUse where it is needed."""
    await session.execute("lock_policies", session.org_id)
    row = await session.fetchrow("lock_policy", session.org_id, name)
    if row is None:
        return False
    users = await list_policy_users(session, name, USERS_SHOWN)
    is_fallback = name in (DEFAULT_POLICY, await fallback_of(session))
    if users or row["is_default"] or is_fallback:
        more = users[0]["n"] - len(users) if users else 0
        return InUse(name, tuple(user["name"] for user in users), more, row["is_default"], is_fallback)
    await session.execute("retire_policy", session.org_id, row["id"])
    await audit.record(session, act, "policy.delete", "policy", row["id"], before=_audited(row))
    return True


def _audited(row: Record) -> Mapping[str, object]:
    binding = {"event_types": row["event_types"], "default": row["is_default"]}
    return {"name": row["name"], **msgspec.json.decode(row["spec"], type=dict[str, object]), **binding}
