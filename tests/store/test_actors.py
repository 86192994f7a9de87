"""Who acted, by name: for the ids of an org's own rows, and no more than the org may know."""

from uuid import UUID, uuid4

from redrive.core.permissions import Role
from redrive.core.presets import PRESETS
from redrive.store import users
from redrive.store.actors import ActorName, actor_names, member_called
from redrive.store.audit import Act
from redrive.store.keys import new_key, store_key
from redrive.store.orgs import ensure_org
from support.engine import Engine


async def _person(engine: Engine, name: str, role: Role, org_id: UUID) -> tuple[UUID, str]:
    email = f"{uuid4().hex}@example.com"
    async with engine.db.tenant(org_id) as session:
        made = await users.add_user(
            session, email=email, name=name, role=role, password_hash=None, by=Role.OWNER, act=Act("test")
        )
    assert not isinstance(made, users.Refusal)
    return made["id"], email


async def _other_org(engine: Engine) -> UUID:
    return await ensure_org(engine.db, f"org {uuid4().hex}", PRESETS, overridden=frozenset())


async def test_members_and_keys_of_an_org_have_names(engine: Engine) -> None:
    ada, email = await _person(engine, "Ada", Role.STAFF, engine.org_id)
    key = await store_key(engine.db, engine.org_id, new_key(), name="web shop", role="ADMIN")
    actors = [f"user:{ada}", f"key:{key}", "engine", "cli:root", f"link:{ada}", "user:nobody", None]
    names = await actor_names(engine.db, engine.org_id, actors)
    assert names == {f"user:{ada}": ActorName("Ada", email), f"key:{key}": ActorName("web shop")}


async def test_whoever_left_is_still_named_but_without_an_e_mail(engine: Engine) -> None:
    ada, _ = await _person(engine, "Ada", Role.STAFF, engine.org_id)
    async with engine.db.tenant(engine.org_id) as session:
        assert await users.remove_user(session, ada, by=Role.OWNER, act=Act("test")) is None
    assert await actor_names(engine.db, engine.org_id, [f"user:{ada}"]) == {f"user:{ada}": ActorName("Ada", None)}


async def test_what_another_org_calls_its_key_is_not_told(engine: Engine) -> None:
    other = await _other_org(engine)
    key = await store_key(engine.db, other, new_key(), name="their secret project", role="OWNER")
    assert await actor_names(engine.db, engine.org_id, [f"key:{key}"]) == {}


async def test_a_member_is_found_by_e_mail_in_their_own_org_only(engine: Engine) -> None:
    ada, email = await _person(engine, "Ada", Role.STAFF, engine.org_id)
    other = await _other_org(engine)
    async with engine.app.tenant(engine.org_id) as session:
        assert await member_called(session, email.upper()) == f"user:{ada}"
        assert await member_called(session, "nobody@example.com") is None
    async with engine.app.tenant(other) as session:
        assert await member_called(session, email) is None
