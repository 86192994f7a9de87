"""Users over HTTP: members of an org, what may be changed of them and by whom."""

import asyncio
from uuid import UUID, uuid4

import pytest

from redrive.store import users
from redrive.store.audit import Act
from redrive.store.sessions import make_link

from .conftest import Api
from .people import OURS, PASSWORD, audited, keyed, other_org, person, signed_in, write


def _email() -> str:
    return f"{uuid4().hex}@example.com"


@pytest.fixture(autouse=True)
async def no_failures_before(api: Api) -> None:
    await write(api, "DELETE FROM redrive.login_attempt")


async def test_a_user_is_added_shown_changed_and_removed(api: Api) -> None:
    email = _email()
    made = await api.owner.post("/v1/users", {"email": email.upper(), "name": "Ada", "role": "ORG_ADMIN"})
    assert made.status == 201
    path = f"/v1/users/{made.json['id']}"
    assert (made.json["email"], made.json["role"], made.json["suspended"]) == (email, "ADMIN", False)
    assert made.json == (await api.owner.get(path)).json
    assert made.json in (await api.owner.get("/v1/users")).json["data"]
    changed = await api.owner.request("PATCH", path, {"name": "Ada L.", "role": "STAFF", "suspended": True})
    assert (changed.json["name"], changed.json["role"], changed.json["suspended"]) == ("Ada L.", "STAFF", True)
    assert (await api.owner.request("DELETE", path)).status == 204
    assert (await api.owner.get(path)).status == 404
    assert (await api.owner.request("DELETE", path)).status == 404
    actions = [len(await audited(api, f"user.{action}")) for action in ("create", "update", "remove")]
    assert actions == [1, 1, 1]


async def test_users_of_another_org_are_unknown(api: Api) -> None:
    ada = await person(api, "STAFF")
    for id_ in (ada["id"], uuid4(), "seven"):
        path = f"/v1/users/{id_}"
        for method, value in (("GET", None), ("PATCH", {"name": "x"}), ("DELETE", None)):
            answer = await api.stranger.request(method, path, value)
            assert (answer.status, answer.json["detail"]) == (404, "There is no such user."), method
    assert ada["email"] not in (await api.stranger.get("/v1/users")).body.decode()


async def test_an_account_may_be_in_several_orgs_and_keeps_its_password(api: Api) -> None:
    ada = await person(api, "STAFF")
    other_id, other = await other_org(api)
    theirs = await keyed(api, "ADMIN", org_id=other_id)
    value = {"email": ada["email"], "name": "Someone else", "role": "VIEWER"}
    assert (await theirs.post("/v1/users", {**value, "password": "another password"})).status == 409
    added = await api.owner.request("POST", "/v1/users", value, headers={"X-Redrive-Org": str(other_id)})
    assert (added.status, added.json["id"], added.json["name"], added.json["role"]) == (201, ada["id"], "Ada", "VIEWER")
    assert (await theirs.post("/v1/users", value)).status == 409
    path = f"/v1/users/{ada['id']}"
    for change in ({"password": "another password"}, {"name": "Someone else"}):
        assert (await theirs.request("PATCH", path, change)).status == 403
    assert (await api.owner.get(path)).json["name"] == "Ada"
    mine = await signed_in(api, ada, org=other)
    assert (await mine.request("PATCH", path, {"name": "Ada L."}, headers=OURS)).status == 200
    assert (await theirs.request("DELETE", path)).status == 204
    assert (await api.owner.get(path)).json["role"] == "STAFF"
    assert (await theirs.post("/v1/users", value)).status == 201  # one of theirs once
    await signed_in(api, ada)


async def test_no_org_comes_into_another_by_an_account_that_it_made_for_somebody(api: Api) -> None:
    other_id, _ = await other_org(api)
    theirs, ours = await keyed(api, "ADMIN", org_id=other_id), await keyed(api, "ADMIN")
    bob = {"email": _email(), "name": "Bob", "role": "ADMIN"}
    made = await theirs.post("/v1/users", {**bob, "password": PASSWORD})
    for _ in range(2):  # a member there, and no longer one
        refused = await ours.post("/v1/users", bob)
        assert (refused.status, "An OWNER can" in refused.json["detail"]) == (403, True)
        assert "Bob" not in refused.body.decode()
        await theirs.request("DELETE", f"/v1/users/{made.json['id']}")
    login = await api.nobody.post("/v1/session", {"email": bob["email"], "password": PASSWORD, "org": str(api.org_id)})
    assert login.status == 404


async def test_anybody_changes_their_own_name_and_password_and_nothing_else(api: Api) -> None:
    ada = await person(api, "VIEWER")
    client, elsewhere = await signed_in(api, ada), await signed_in(api, ada)
    path = f"/v1/users/{ada['id']}"
    new = "a new password for ada"
    given = {"name": "A.", "password": new, "current_password": PASSWORD}
    assert (await client.request("PATCH", path, given, headers=OURS)).status == 200
    for value in ({"role": "ADMIN"}, {"suspended": False}, {"name": "x", "role": "VIEWER"}):
        assert (await client.request("PATCH", path, value, headers=OURS)).status == 403
    assert (await client.get(path)).json["name"] == "A."
    bob = await person(api, "VIEWER")
    assert (await client.get(f"/v1/users/{bob['id']}")).status == 403
    assert (await client.request("PATCH", f"/v1/users/{bob['id']}", {"name": "x"}, headers=OURS)).status == 403
    assert (await client.get("/v1/users")).status == 403
    assert (await api.nobody.post("/v1/session", {"email": ada["email"], "password": PASSWORD})).status == 401
    assert (await api.nobody.post("/v1/session", {"email": ada["email"], "password": new})).status == 200
    async with asyncio.timeout(5):  # remembered for 2 s at most
        while (await elsewhere.get(path)).status != 401:
            await asyncio.sleep(0.05)
    assert (await client.get(path)).status == 200  # the session that changed it stays
    assert new not in str(await audited(api, "user.update"))


async def test_a_session_left_open_does_not_give_the_account_away(api: Api) -> None:
    ada = await person(api, "OWNER")
    client = await signed_in(api, ada)
    path = f"/v1/users/{ada['id']}"
    new = "a new password for ada"
    missing = await client.request("PATCH", path, {"password": new}, headers=OURS)
    assert (missing.status, missing.json["errors"][0]["loc"]) == (422, ["body", "current_password"])
    guesses = [
        await client.request("PATCH", path, {"password": new, "current_password": f"guess {n}"}, headers=OURS)
        for n in range(6)
    ]
    assert [guess.status for guess in guesses] == [422] * 5 + [429]
    assert "guess" not in guesses[0].body.decode()
    failed = await audited(api, "session.login_failed")
    assert [(entry["actor"], str(entry["subject_id"])) for entry in failed] == [(f"user:{ada['id']}", ada["id"])] * 5


@pytest.mark.parametrize("ended_by", ["a new password", "another sign-in"])
async def test_a_session_that_has_ended_changes_no_password_though_it_is_remembered(api: Api, ended_by: str) -> None:
    ada, mallory = await person(api, "VIEWER"), await person(api, "VIEWER")
    client, stolen = await signed_in(api, ada), await signed_in(api, ada)
    path = f"/v1/users/{ada['id']}"
    assert (await stolen.get(path)).status == 200
    cookie = dict(stolen.cookies)
    if ended_by == "a new password":
        given = {"password": "a new password for ada", "current_password": PASSWORD}
        assert (await client.request("PATCH", path, given, headers=OURS)).status == 200
    else:
        login = {"email": mallory["email"], "password": PASSWORD}
        assert (await stolen.post("/v1/session", login)).status == 200
        stolen.cookies = cookie
    taken = await stolen.request("PATCH", path, {"password": "one of mallory's own"}, headers=OURS)
    assert taken.status == 401


async def test_who_came_by_a_link_or_has_no_password_sets_one(api: Api) -> None:
    ada = await person(api, "VIEWER")
    async with api.context.engine_db.tenant(api.org_id) as session:
        link = await make_link(session, user_id=UUID(ada["id"]), role=None, act=Act("test"), clock=api.context.clock)
    client = api.client(None)
    assert (await client.get(f"/login?token={link}")).status == 303
    new = "a new password for ada"
    assert (await client.request("PATCH", f"/v1/users/{ada['id']}", {"password": new}, headers=OURS)).status == 200
    assert (await api.nobody.post("/v1/session", {"email": ada["email"], "password": new})).status == 200
    again = await client.request("PATCH", f"/v1/users/{ada['id']}", {"password": "another one"}, headers=OURS)
    assert again.status == 422  # it is known now


async def test_no_admin_touches_an_owner_or_makes_one(api: Api) -> None:
    owner = await person(api, "OWNER")
    ada = await person(api, "STAFF")
    admin = await keyed(api, "ADMIN")
    path = f"/v1/users/{owner['id']}"
    for value in ({"name": "x"}, {"role": "VIEWER"}, {"suspended": True}):
        assert (await admin.request("PATCH", path, value)).status == 403
    assert (await admin.request("DELETE", path)).status == 403
    assert (await admin.request("PATCH", f"/v1/users/{ada['id']}", {"role": "SUPER_ADMIN"})).status == 403
    assert (await admin.post("/v1/users", {"email": _email(), "name": "x", "role": "OWNER"})).status == 403
    assert (await api.owner.get(path)).json["role"] == "OWNER"


async def test_the_last_owner_stays_and_can_sign_in(own_api: Api) -> None:
    api = own_api
    first, second = await person(api, "OWNER"), await person(api, "OWNER")
    path = f"/v1/users/{first['id']}"
    demotions = [("PATCH", {"role": "ADMIN"}), ("PATCH", {"suspended": True}), ("DELETE", None)]
    assert (await api.owner.request("PATCH", f"/v1/users/{second['id']}", {"suspended": True})).status == 200
    for method, value in demotions:
        refused = await api.owner.request(method, path, value)
        assert (refused.status, "last OWNER" in refused.json["detail"]) == (409, True)
    assert (await api.owner.request("PATCH", f"/v1/users/{second['id']}", {"suspended": False})).status == 200
    # Two who take away one each at the same moment do not take away both.
    answers = await asyncio.gather(
        *(
            api.client(api.owner.key).request("PATCH", f"/v1/users/{who['id']}", {"role": "ADMIN"})
            for who in (first, second)
        )
    )
    assert sorted(answer.status for answer in answers) == [200, 409]
    shown = (await api.owner.get("/v1/users")).json["data"]
    assert sorted(user["role"] for user in shown) == ["ADMIN", "OWNER"]


async def test_who_was_made_an_owner_is_one_in_every_org_until_that_is_taken_back(api: Api) -> None:
    ada = await person(api, "OWNER")
    await person(api, "OWNER")  # so that ada is not the last
    other_id, other = await other_org(api)
    client = await signed_in(api, ada, org=other)
    who = (await client.get("/v1/session")).json
    assert (who["role"], who["org"]["id"]) == ("OWNER", str(other_id))
    assert (await api.owner.request("PATCH", f"/v1/users/{ada['id']}", {"role": "STAFF"})).status == 200
    async with asyncio.timeout(5):
        while (await client.get("/v1/session")).status != 401:
            await asyncio.sleep(0.05)
    assert (await (await signed_in(api, ada)).get("/v1/session")).json["role"] == "STAFF"


async def test_an_owner_who_was_suspended_and_made_less_can_be_let_in_again(api: Api) -> None:
    ada = await person(api, "OWNER")
    await person(api, "OWNER")
    path = f"/v1/users/{ada['id']}"
    for change, is_suspended in (({"suspended": True}, True), ({"role": "STAFF"}, True), ({"suspended": False}, False)):
        changed = await api.owner.request("PATCH", path, change)
        assert (changed.status, changed.json["suspended"]) == (200, is_suspended), change
    assert (await (await signed_in(api, ada)).get("/v1/session")).json["role"] == "STAFF"


async def test_the_same_idempotency_key_adds_one_user(api: Api) -> None:
    key = {"Idempotency-Key": uuid4().hex}
    value = {"email": _email(), "name": "Ada", "role": "STAFF"}
    first = await api.owner.request("POST", "/v1/users", value, headers=key)
    again = await api.owner.request("POST", "/v1/users", value, headers=key)
    other = await api.owner.request("POST", "/v1/users", {**value, "role": "VIEWER"}, headers=key)
    assert (first.status, again.status, other.status) == (201, 201, 409)
    assert first.json == again.json


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"name": "a", "role": "STAFF"}, ["body", "email"]),
        ({"email": "nobody", "name": "a", "role": "STAFF"}, ["body", "email"]),
        ({"email": "a@b.c", "name": "", "role": "STAFF"}, ["body", "name"]),
        ({"email": "a@b.c", "name": "a", "role": "staff"}, ["body", "role"]),
        ({"email": "a@b.c", "name": "a", "role": "STAFF", "password": "canary"}, ["body", "password"]),
        ({"email": "a@b.c", "name": "a", "role": "STAFF", "is_owner": True}, ["body", "is_owner"]),
    ],
)
async def test_a_user_that_cannot_be_added_is_told_where(shared_api: Api, value: object, place: list[str]) -> None:
    answer = await shared_api.owner.post("/v1/users", value)
    assert answer.status == 422
    assert [loc for loc, _ in answer.errors] == [place]
    assert "canary" not in answer.body.decode()
    if place == ["body", "password"]:
        assert answer.errors[0][1] == "must have 12 to 1024 characters"


async def test_an_org_has_no_more_members_than_it_may(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "MAX_MEMBERS", (await api.owner.get("/v1/users")).json["pagination"]["total_count"] + 1)
    first, second = [
        await api.owner.post("/v1/users", {"email": _email(), "name": "Ada", "role": "VIEWER"}) for _ in range(2)
    ]
    assert (first.status, second.status) == (201, 422)
    assert "Remove one first." in second.json["detail"]
