"""Keys, users, orgs and sessions, described."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import Field

from redrive.api.schemas.base import Answer, example
from redrive.core.permissions import Action, Role, Scope

_ID = "01a1e05b-5ad1-7b81-bb4b-58a3eab6dc35"
_ORG = "01a1e05b-5ad1-7b81-bb4b-000000000001"
_AT = "2026-11-15T17:57:25.844434Z"
_KEY = {
    "id": _ID,
    "name": "web shop",
    "role": "IT_MANAGER",
    "scope": "produce",
    "endpoint_id": None,
    "hint": "rdk_Xy3w…",
    "created_at": _AT,
    "expires_at": None,
    "revoked_at": None,
    "last_used_at": None,
}
_LIMITS = {
    "requests_per_s": 50_000,
    "burst": 100_000,
    "max_payload_bytes": 1_048_576,
    "max_stored_bytes": 107_374_182_400,
    "max_endpoints": 1_000,
}
_ORG_SHOWN = {
    "id": _ORG,
    "name": "acme",
    "created_at": _AT,
    "default_policy": "integration",
    "limits": _LIMITS,
    "usage": {"stored_bytes": 52_311, "endpoints": 3},
}


class Key(Answer):
    """A key; never the key itself."""

    model_config = example(_KEY)

    id: UUID
    name: str
    role: Role
    scope: Scope | None
    endpoint_id: UUID | None = Field(description="Of the scope relay: the only relay whose hubs it is for.")
    hint: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


class NewKey(Key):
    """This answer alone shows `key`; a repetition under the same Idempotency-Key does not."""

    model_config = example(_KEY | {"key": "rdk_Xy3w…"})

    key: str | None = None


class User(Answer):
    """A member of the org."""

    model_config = example(
        {
            "id": _ID,
            "email": "ada@example.com",
            "name": "Ada",
            "role": "ADMIN",
            "suspended": False,
            "created_at": _AT,
            "last_login_at": None,
        }
    )

    id: UUID
    email: str
    name: str
    role: Role
    suspended: bool
    created_at: datetime
    last_login_at: datetime | None


class OrgLimits(Answer):
    requests_per_s: int
    burst: int
    max_payload_bytes: int
    max_stored_bytes: int
    max_endpoints: int


class OrgUsage(Answer):
    stored_bytes: int
    endpoints: int


class Org(Answer):
    model_config = example(_ORG_SHOWN)

    id: UUID
    name: str
    created_at: datetime
    default_policy: str = Field(description="The policy of tasks without a more specific one.")
    limits: OrgLimits
    usage: OrgUsage


class NewOrg(Org):
    """This answer alone shows the org's first `key` (an ADMIN's); a repetition does not."""

    model_config = example(_ORG_SHOWN | {"key": "rdk_Xy3w…"})

    key: str | None = None


class OrgName(Answer):
    id: UUID
    name: str


class OrgRole(OrgName):
    role: Role


class Who(Answer):
    """Who is asking, and what they may do."""

    model_config = example(
        {
            "kind": "user",
            "id": _ID,
            "name": "Ada",
            "org": {"id": _ORG, "name": "acme"},
            "role": "STAFF",
            "scope": None,
            "permissions": ["read"],
            "orgs": [{"id": _ORG, "name": "acme", "role": "STAFF"}],
        }
    )

    kind: Literal["key", "user", "link"]
    id: UUID
    name: str
    org: OrgName
    role: Role
    scope: Scope | None
    permissions: list[Action]
    orgs: list[OrgRole]
