"""`redrive login-link`, `users`, `orgs`, and keys with a scope: as a person at the terminal has them."""

import json
from uuid import UUID

from redrive.core.permissions import Action
from redrive.store import keys, users
from redrive.store.clock import DatabaseClock
from redrive.store.endpoints import EndpointSpec
from redrive.store.passwords import is_password
from redrive.store.sessions import use_link

from .command import redrive
from .world import ACT, World, endpoints

PASSWORD = "correct horse battery"


def _token(url: str) -> str:
    place, _, token = url.strip().partition("/login?token=")
    assert place.startswith("http")
    return token


async def test_a_login_link_is_printed_alone_and_is_good_once(world: World) -> None:
    printed = await redrive("login-link", url=world.url)
    assert printed.code == 0, printed.err
    assert printed.out.startswith("http://127.0.0.1:8787/login?token=")
    assert "15 minutes" in printed.err
    link = await use_link(world.engine, _token(printed.out), DatabaseClock())
    assert link is not None
    assert (link.org_id, link.user_id, link.role) == (world.org_id, None, "OWNER")
    assert await use_link(world.engine, _token(printed.out), DatabaseClock()) is None


async def test_a_login_link_takes_a_role_or_a_user_and_the_address_that_people_use(world: World) -> None:
    words = ("--role", "ORG_ADMIN", "--url", "https://redrive.example.com/", "--json")
    made = (await redrive("login-link", *words, url=world.url)).object
    assert made["sign_in_url"].startswith("https://redrive.example.com/login?token=")
    assert made["expires_in_s"] == 900
    link = await use_link(world.engine, _token(made["sign_in_url"]), DatabaseClock())
    assert link is not None
    assert link.role == "ADMIN"
    added = await redrive("users", "add", "ada@example.com", "--name", "Ada", "--json", url=world.url)
    of_user = await redrive("login-link", "--email", "Ada@example.com", "--json", url=world.url)
    link = await use_link(world.engine, _token(of_user.object["sign_in_url"]), DatabaseClock())
    assert link is not None
    assert (str(link.user_id), link.role) == (added.object["id"], None)


async def test_a_login_link_that_makes_no_sense_is_refused(world: World) -> None:
    for words, code in (
        (("--role", "KING"), 2),
        (("--role", "OWNER", "--email", "a@example.com"), 2),
        (("--url", "redrive.example.com"), 2),
        (("--email", "nobody@example.com"), 1),
        (("--org", "nothing"), 1),
    ):
        ended = await redrive("login-link", *words, url=world.url)
        assert (ended.code, ended.out) == (code, ""), words


async def test_users_are_added_listed_changed_and_removed(world: World) -> None:
    words = ("users", "add", "Ada@Example.com", "--name", "Ada", "--role", "ORG_ADMIN", "--password", "--json")
    made = await redrive(*words, url=world.url, stdin=f"{PASSWORD}\n".encode())
    assert made.code == 0, made.err
    assert (made.object["email"], made.object["role"]) == ("ada@example.com", "ADMIN")
    assert PASSWORD not in made.out + made.err
    stored = await users.find_user(world.engine, "ada@example.com")
    assert stored is not None
    assert await is_password(stored["password_hash"], PASSWORD)
    assert "ada@example.com" in (await redrive("users", "list", url=world.url)).out
    changed = await redrive("users", "set", "ada@example.com", "--role", "STAFF", "--suspend", "--json", url=world.url)
    assert (changed.object["role"], changed.object["suspended"]) == ("STAFF", True)
    back = await redrive("users", "set", "ada@example.com", "--unsuspend", "--name", "A.", "--json", url=world.url)
    assert (back.object["suspended"], back.object["name"]) == (False, "A.")
    assert (await redrive("users", "remove", "ada@example.com", url=world.url)).code == 0
    assert (await redrive("users", "list", "--json", url=world.url)).objects == []
    assert (await redrive("users", "remove", "ada@example.com", url=world.url)).code == 1


async def test_what_cannot_be_done_to_a_user_is_explained(world: World) -> None:
    owner = await redrive("users", "add", "o@example.com", "--name", "O", "--role", "OWNER", url=world.url)
    assert owner.code == 0, owner.err
    last = await redrive("users", "set", "o@example.com", "--role", "ADMIN", url=world.url)
    assert (last.code, "last OWNER" in last.err) == (1, True)
    again = await redrive("users", "add", "o@example.com", "--name", "O", url=world.url)
    assert (again.code, "member of this org already" in again.err) == (1, True)
    for words, code in (
        (("add", "nobody", "--name", "x"), 2),
        (("add", "a@b.c", "--name", "x", "--role", "KING"), 2),
        (("add", "a@b.c", "--name", "x", "--password"), 2),  # nothing on stdin
        (("set", "o@example.com"), 2),
        (("set", "nobody@example.com", "--suspend"), 1),
    ):
        ended = await redrive("users", *words, url=world.url)
        assert (ended.code, ended.out) == (code, ""), words


async def test_an_org_is_made_with_a_key_and_listed(world: World) -> None:
    made = (await redrive("orgs", "create", "acme", "--json", url=world.url)).object
    caller = await keys.authenticate(world.engine, made["key"])
    assert caller is not None
    assert (caller.org_id, caller.org_name, caller.role) == (UUID(made["id"]), "acme", "ADMIN")
    listed = await redrive("orgs", "list", "--json", url=world.url)
    assert [org["name"] for org in listed.objects] == ["default", "acme"]
    assert "acme" in (await redrive("orgs", "list", url=world.url)).out
    again = await redrive("orgs", "create", "acme", url=world.url)
    assert (again.code, again.out) == (1, "")
    assert (await redrive("orgs", "create", "", url=world.url)).code == 2


async def test_a_key_may_be_limited_to_one_thing(world: World) -> None:
    words = ("keys", "create", "--name", "shop", "--role", "IT_MANAGER", "--scope", "produce", "--json")
    made = (await redrive(*words, url=world.url)).object
    caller = await keys.authenticate(world.engine, made["key"])
    assert caller is not None
    assert (caller.role, caller.scope) == ("IT_MANAGER", "produce")
    assert "produce" in (await redrive("keys", "list", url=world.url)).out
    assert (await redrive("keys", "create", "--name", "x", "--scope", "all", url=world.url)).code == 2


async def test_b8_a_key_for_the_hub_of_one_relay(world: World) -> None:
    async with world.app.tenant(world.org_id) as session:
        row, _ = await endpoints().create(session, EndpointSpec("github", None, kind="relay"), ACT)
    words = ("keys", "create", "--name", "laptop", "--scope", "relay", "--endpoint", "github", "--json")
    made = (await redrive(*words, url=world.url)).object
    assert (made["scope"], made["endpoint_id"]) == ("relay", str(row["id"]))
    caller = await keys.authenticate(world.engine, made["key"])
    assert caller is not None
    assert (caller.scope, caller.endpoint_id) == ("relay", row["id"])
    assert [action for action in Action if caller.may(action)] == [Action.CONNECT]
    for wrong in (
        ("--scope", "relay", "--endpoint", "billing"),
        ("--endpoint", "github"),
        ("--scope", "relay", "--role", "VIEWER"),
    ):
        refused = await redrive("keys", "create", "--name", "x", *wrong, url=world.url)
        assert (refused.code, refused.out) == (2, "")
    unknown = ("keys", "create", "--name", "x", "--scope", "relay", "--endpoint", "none")
    assert (await redrive(*unknown, url=world.url)).code == 1


async def test_the_commands_leave_no_secret_in_the_audit(world: World) -> None:
    link = (await redrive("login-link", url=world.url)).out
    made = (await redrive("keys", "create", "--name", "x", "--json", url=world.url)).object
    async with world.engine.transaction() as session:
        rows = await session._connection.fetch("SELECT * FROM redrive.audit")
    text = json.dumps([dict(row) for row in rows], default=str)
    assert "session.link" in text
    assert _token(link) not in text
    assert made["key"] not in text
