"""People for tests of the API: users with passwords, and clients that are signed in."""

from typing import Any
from uuid import UUID, uuid4

from redrive.core.permissions import Role
from redrive.core.presets import PRESETS
from redrive.store import users
from redrive.store.audit import Act
from redrive.store.keys import new_key, store_key
from redrive.store.orgs import ensure_org
from redrive.store.passwords import hash_password
from support.http import HttpClient

from .conftest import Api

PASSWORD = "correct horse battery"
OURS = {"Sec-Fetch-Site": "same-origin"}


async def keyed(api: Api, role: str, scope: str | None = None, org_id: UUID | None = None) -> HttpClient:
    key = new_key()
    await store_key(api.context.engine_db, org_id or api.org_id, key, name=role.lower(), role=role, scope=scope)
    return api.client(key)


async def other_org(api: Api) -> tuple[UUID, str]:
    name = f"org {uuid4().hex}"
    return await ensure_org(api.context.engine_db, name, PRESETS, overridden=frozenset()), name


async def person(api: Api, role: str, *, org_id: UUID | None = None, email: str | None = None) -> dict[str, Any]:
    """A user with PASSWORD, member of the org; id and e-mail."""
    email = email or f"{uuid4().hex}@example.com"
    known = await users.find_user(api.context.engine_db, email)
    hashed = None if known else await hash_password(PASSWORD)
    async with api.context.engine_db.tenant(org_id or api.org_id) as session:
        made = await users.add_user(
            session,
            email=email,
            name="Ada",
            role=Role(role),
            password_hash=hashed,
            by=Role.OWNER,
            act=Act("test"),
        )
    assert not isinstance(made, users.Refusal)
    return {"id": str(made["id"]), "email": email}


async def signed_in(api: Api, who: dict[str, Any], **more: object) -> HttpClient:
    client = api.client(None)
    made = await client.post("/v1/session", {"email": who["email"], "password": PASSWORD, **more})
    assert made.status == 200, made.body
    return client


async def audited(api: Api, action: str, org_id: UUID | None = None) -> list[dict[str, Any]]:
    async with api.context.engine_db.transaction() as session:
        rows = await session._connection.fetch(
            "SELECT * FROM redrive.audit WHERE org_id = $1 AND action = $2 ORDER BY id", org_id or api.org_id, action
        )
    return [dict(row) for row in rows]


async def write(api: Api, statement: str, *args: object) -> None:
    """As the engine, which sees every org."""
    async with api.context.engine_db.transaction() as session:
        await session._connection.execute(statement, *args)
