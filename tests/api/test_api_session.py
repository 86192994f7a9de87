"""Sessions: signing in by password or link, the cookie and what protects it, switching orgs, throttling."""

import asyncio
from uuid import UUID, uuid4

import pytest

from redrive.api import auth
from redrive.core.permissions import Action, Role
from redrive.store.audit import Act
from redrive.store.sessions import make_link
from support.http import Answer

from .conftest import Api
from .people import OURS, PASSWORD, audited, keyed, other_org, person, signed_in, write

LOGIN_SOURCE = "api 127.0.0.1"


async def _as_from(api: Api, email: str, password: str, address: str) -> Answer:
    """A login from an address of its own: the tests' shared one must not run out of tries."""
    return await api.nobody.request(
        "POST", "/v1/session", {"email": email, "password": password}, headers={"X-Forwarded-For": address}
    )


@pytest.fixture(autouse=True)
async def own_address(api: Api) -> None:
    """What other tests failed at from this address is forgotten."""
    await write(api, "DELETE FROM redrive.login_attempt")


async def test_signing_in_gives_a_session_and_says_who_one_is(api: Api) -> None:
    ada = await person(api, "STAFF")
    client = api.client(None)
    made = await client.post("/v1/session", {"email": ada["email"].upper(), "password": PASSWORD})
    assert made.status == 200
    cookie = made.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert "Path=/" in cookie
    assert "Secure" not in cookie  # it did not come over https
    who = (await client.get("/v1/session")).json
    assert who == made.json
    assert (who["kind"], who["id"], who["name"], who["role"], who["scope"]) == ("user", ada["id"], "Ada", "STAFF", None)
    assert who["org"]["id"] == str(api.org_id)
    assert who["permissions"] == ["read"]
    assert [(org["id"], org["role"]) for org in who["orgs"]] == [(str(api.org_id), "STAFF")]
    (entry,) = await audited(api, "session.login")
    assert (entry["actor"], entry["source"]) == (f"user:{ada['id']}", LOGIN_SOURCE)
    assert PASSWORD not in str(entry)


async def test_a_key_is_told_who_it_is_even_one_that_may_only_produce(api: Api) -> None:
    client = await keyed(api, "IT_MANAGER", "produce")
    who = (await client.get("/v1/session")).json
    assert (who["kind"], who["role"], who["scope"], who["permissions"]) == ("key", "IT_MANAGER", "produce", ["produce"])
    owner = (await api.owner.get("/v1/session")).json
    assert owner["permissions"] == [str(action) for action in Action]
    assert str(api.org_id) in {org["id"] for org in owner["orgs"]}  # however many orgs there are
    for method, value in (("PATCH", {"org": "default"}), ("DELETE", None)):
        assert (await client.request(method, "/v1/session", value)).status == 403


async def test_the_cookie_is_secure_behind_a_trusted_proxy_only(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    ada = await person(api, "VIEWER")
    value = {"email": ada["email"], "password": PASSWORD}
    said = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "203.0.113.9, 198.51.100.7"}
    plain = await api.client(None).request("POST", "/v1/session", value, headers=said)
    assert "Secure" not in plain.headers["set-cookie"]
    _trust_proxy(api, monkeypatch)
    secure = await api.client(None).request("POST", "/v1/session", value, headers=said)
    assert "Secure" in secure.headers["set-cookie"]
    assert [entry["source"] for entry in await audited(api, "session.login")] == [LOGIN_SOURCE, "api 198.51.100.7"]


def _trust_proxy(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(api.context), "trust_proxy", property(lambda _: True))


async def test_a_session_does_what_its_role_may_and_no_more(api: Api) -> None:
    admin = await signed_in(api, await person(api, "ADMIN"))
    viewer = await signed_in(api, await person(api, "VIEWER"))
    event = {"event_type": "a", "payload": 1}
    assert (await admin.post("/v1/events", event, **OURS)).status == 202
    assert (await viewer.post("/v1/events", event, **OURS)).status == 403
    assert (await admin.get("/v1/keys")).status == 200
    assert (await viewer.get("/v1/keys")).status == 403


@pytest.mark.parametrize(
    ("headers", "passes"),
    [
        ({}, False),
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "none"}, True),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "here"}, False),
        ({"Origin": "here"}, True),
        ({"Origin": "https://evil.example"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": "http://[bad"}, False),
    ],
)
async def test_what_changes_something_with_a_cookie_must_come_from_our_own_pages(
    api: Api, headers: dict[str, str], passes: bool
) -> None:
    client = await signed_in(api, await person(api, "ADMIN"))
    sent = {name: f"http://{api.host}:{api.port}" if text == "here" else text for name, text in headers.items()}
    for path in ("/v1/endpoints", "/v1/events"):
        refused = await client.request("POST", path, {}, headers=sent)
        assert refused.status == (422 if passes else 403)
    assert (await client.request("GET", "/v1/events", headers=sent)).status == 200  # reading is free
    with_key = {**sent, "X-API-Key": str(api.owner.key)}
    assert (await client.request("POST", "/v1/events", {}, headers=with_key)).status == 422  # a key needs no origin


async def test_a_page_of_another_site_cannot_sign_anybody_in(api: Api) -> None:
    ada = await person(api, "VIEWER")
    value = {"email": ada["email"], "password": PASSWORD}
    answer = await api.nobody.request("POST", "/v1/session", value, headers={"Origin": "https://evil.example"})
    assert answer.status == 403


async def test_signing_in_again_ends_the_session_before_and_signing_out_ends_this(api: Api) -> None:
    ada = await person(api, "VIEWER")
    client = await signed_in(api, ada)
    old = dict(client.cookies)
    await client.post("/v1/session", {"email": ada["email"], "password": PASSWORD})
    assert client.cookies != old
    stale = api.client(None)
    stale.cookies = old
    assert (await stale.get("/v1/session")).status == 401
    assert (await client.request("DELETE", "/v1/session")).status == 403  # a page elsewhere cannot
    kept = dict(client.cookies)
    assert (await client.request("DELETE", "/v1/session", headers=OURS)).status == 204
    assert client.cookies == {}
    client.cookies = kept
    ended = await client.get("/v1/session")
    assert (ended.status, "redrive login-link" in ended.json["detail"]) == (401, True)
    assert len(await audited(api, "session.logout")) == 1


async def test_an_unknown_e_mail_and_a_wrong_password_are_told_the_same(api: Api) -> None:
    ada = await person(api, "VIEWER")
    answers = [
        await api.nobody.request(
            "POST",
            "/v1/session",
            {"email": email, "password": "wrong, wrong"},
            headers={"X-Correlation-Id": "same"},
        )
        for email in (ada["email"], "nobody@example.com")
    ]
    assert [answer.status for answer in answers] == [401, 401]
    assert answers[0].body == answers[1].body
    assert "set-cookie" not in answers[0].headers
    (entry,) = await audited(api, "session.login_failed")
    assert (str(entry["subject_id"]), entry["source"]) == (ada["id"], LOGIN_SOURCE)


@pytest.mark.parametrize("known", [True, False])
async def test_after_five_failures_an_e_mail_waits_longer_each_time(
    api: Api, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    _trust_proxy(api, monkeypatch)
    email = (await person(api, "VIEWER"))["email"] if known else f"{uuid4().hex}@example.com"
    for n in range(5):
        assert (await _as_from(api, email, "wrong, wrong", f"203.0.113.{n}")).status == 401
    blocked = await _as_from(api, email, PASSWORD, "203.0.113.50")
    assert blocked.status == 429
    first_wait_s = int(blocked.headers["retry-after"])
    assert 25 <= first_wait_s <= 30
    await write(api, "UPDATE redrive.login_attempt SET last_at = last_at - interval '40 s'")
    assert (await _as_from(api, email, "wrong, wrong", "203.0.113.51")).status == 401
    assert int((await _as_from(api, email, PASSWORD, "203.0.113.52")).headers["retry-after"]) > first_wait_s
    await write(api, "UPDATE redrive.login_attempt SET last_at = last_at - interval '15 min'")
    assert (await _as_from(api, email, PASSWORD, "203.0.113.53")).status == (200 if known else 401)


async def test_an_address_that_tries_many_e_mails_waits_too_and_a_success_keeps_its_count(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    _trust_proxy(api, monkeypatch)
    ada = await person(api, "VIEWER")
    for n in range(4):
        assert (await _as_from(api, f"{n}@example.com", "wrong, wrong", "203.0.113.7")).status == 401
    assert (await _as_from(api, ada["email"], PASSWORD, "203.0.113.7")).status == 200
    assert (await _as_from(api, "5@example.com", "wrong, wrong", "203.0.113.7")).status == 401
    assert (await _as_from(api, ada["email"], PASSWORD, "203.0.113.7")).status == 429
    assert (await _as_from(api, ada["email"], PASSWORD, "203.0.113.8")).status == 200


async def test_a_success_forgets_the_failures_of_its_e_mail(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    _trust_proxy(api, monkeypatch)
    ada = await person(api, "VIEWER")
    for n in range(8):
        password = PASSWORD if n in (3, 7) else "wrong, wrong"
        status = (await _as_from(api, ada["email"], password, f"203.0.113.{n}")).status
        assert status == (200 if n in (3, 7) else 401)


async def test_tries_at_the_same_moment_are_all_counted_and_old_counts_go(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    _trust_proxy(api, monkeypatch)
    email = f"{uuid4().hex}@example.com"
    await write(
        api,
        "INSERT INTO redrive.login_attempt SELECT sha256(n::text::bytea), 9, now() - interval '1 h'"
        " FROM generate_series(1, 50) n",
    )
    clients = [api.client(None) for _ in range(12)]
    answers = await asyncio.gather(
        *(
            client.request(
                "POST",
                "/v1/session",
                {"email": email, "password": "wrong, wrong"},
                headers={"X-Forwarded-For": f"203.0.113.{n}"},
            )
            for n, client in enumerate(clients)
        )
    )
    assert sorted(answer.status for answer in answers) == [401] * 5 + [429] * 7
    async with api.context.engine_db.transaction() as session:
        old = await session._connection.fetchval("SELECT count(*) FROM redrive.login_attempt WHERE failures = 9")
    assert old == 0


async def test_a_suspended_member_is_refused_at_the_login_and_at_every_request(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "CALLER_TTL_S", 0.0)
    ada = await person(api, "ADMIN")
    client = await signed_in(api, ada)
    assert (await client.get("/v1/events")).status == 200
    changed = await api.owner.request("PATCH", f"/v1/users/{ada['id']}", {"suspended": True})
    assert (changed.status, changed.json["suspended"]) == (200, True)
    assert (await client.get("/v1/events")).status == 403
    assert (await client.get("/v1/session")).status == 403
    again = await api.nobody.post("/v1/session", {"email": ada["email"], "password": PASSWORD})
    assert (again.status, "suspended" in again.json["detail"]) == (403, True)
    assert (await api.owner.request("PATCH", f"/v1/users/{ada['id']}", {"suspended": False})).status == 200
    assert (await client.get("/v1/events")).status == 200
    assert (await api.owner.request("DELETE", f"/v1/users/{ada['id']}")).status == 204
    assert (await client.get("/v1/events")).status == 401


async def test_a_session_s_token_is_no_key_however_it_is_dressed_up(api: Api) -> None:
    ada = await person(api, "ADMIN")
    client = await signed_in(api, ada)
    token = client.cookies["redrive_session"]
    for dressed in (token, f"session {token}"):
        assert (await client.get("/v1/session")).status == 200  # remembered for a moment
        stranger = api.client(dressed)
        assert (await stranger.post("/v1/events", {"event_type": "a", "payload": 1})).status == 401
        assert (await stranger.get("/v1/session")).status == 401


async def test_a_member_of_two_orgs_chooses_and_switches_and_sees_each_alone(api: Api) -> None:
    ada = await person(api, "ADMIN")
    other_id, other = await other_org(api)
    await person(api, "VIEWER", org_id=other_id, email=ada["email"])
    third_id, third = await other_org(api)
    event_id = await api.event()
    client = await signed_in(api, ada)
    assert (await client.get(f"/v1/events/{event_id}")).status == 200
    switched = await client.request("PATCH", "/v1/session", {"org": other}, headers=OURS)
    assert (switched.status, switched.json["org"]["id"], switched.json["role"]) == (200, str(other_id), "VIEWER")
    assert {org["id"]: org["role"] for org in switched.json["orgs"]} == {
        str(api.org_id): "ADMIN",
        str(other_id): "VIEWER",
    }
    assert (await client.get(f"/v1/events/{event_id}")).status == 404
    assert (await client.get("/v1/users")).status == 403
    for unknown in (third, str(third_id), "nothing", str(uuid4())):
        refused = await client.request(
            "PATCH", "/v1/session", {"org": unknown}, headers={**OURS, "X-Correlation-Id": "same"}
        )
        assert (refused.status, refused.json["detail"]) == (404, "There is no such org.")
        login = await api.nobody.post("/v1/session", {"email": ada["email"], "password": PASSWORD, "org": unknown})
        assert login.status == 404
    there = await signed_in(api, ada, org=str(other_id))
    assert (await there.get("/v1/session")).json["org"]["name"] == other


async def test_a_session_ends_twelve_hours_after_its_last_use_and_seven_days_after_its_first(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "CALLER_TTL_S", 0.0)
    monkeypatch.setattr(auth, "NOTE_EVERY_S", 0.0)
    ada = await person(api, "VIEWER")
    client = await signed_in(api, ada)

    async def left_h() -> float:
        async with api.context.engine_db.transaction() as session:
            hours: float = await session._connection.fetchval(
                "SELECT extract(epoch FROM expires_at - clock_timestamp())::float8 / 3600 FROM redrive.session"
                " WHERE user_id = $1",
                UUID(ada["id"]),
            )
            return hours

    async def used_until(low: float, high: float) -> None:
        async with asyncio.timeout(5):
            while True:
                assert (await client.get("/v1/session")).status == 200
                if low < await left_h() <= high:
                    return

    of_user = "WHERE user_id = $1"
    await write(api, f"UPDATE redrive.session SET expires_at = now() + interval '1 h' {of_user}", UUID(ada["id"]))
    await used_until(11.9, 12.0)
    await write(
        api, f"UPDATE redrive.session SET created_at = now() - interval '6 days 22 hours' {of_user}", UUID(ada["id"])
    )
    await used_until(1.9, 2.0)
    await write(
        api,
        f"UPDATE redrive.session SET created_at = now() - interval '8 d', expires_at = now() {of_user}",
        UUID(ada["id"]),
    )
    assert (await client.get("/v1/session")).status == 401


async def _link(api: Api, *, user_id: UUID | None = None, role: Role | None = None) -> str:
    async with api.context.engine_db.tenant(api.org_id) as session:
        return await make_link(session, user_id=user_id, role=role, act=Act("test"), clock=api.context.clock)


@pytest.mark.parametrize("role", ["OWNER", "VIEWER"])
async def test_a_sign_in_link_lets_in_once_with_its_role(api: Api, role: str) -> None:
    token = await _link(api, role=Role(role))
    client = api.client(None)
    first = await client.get(f"/login?token={token}")
    assert (first.status, first.headers["location"]) == (303, "/")
    assert first.headers["referrer-policy"] == "no-referrer"
    who = (await client.get("/v1/session")).json
    assert (who["kind"], who["role"], who["org"]["id"]) == ("link", role, str(api.org_id))
    assert (await client.post("/v1/endpoints", {}, **OURS)).status == (422 if role == "OWNER" else 403)
    assert (await client.request("PATCH", "/v1/session", {"org": "nothing"}, headers=OURS)).status == 404
    again = await api.client(None).get(f"/login?token={token}")
    assert (again.status, "redrive login-link" in again.json["detail"]) == (401, True)
    assert token not in again.body.decode()
    (entry,) = await audited(api, "session.login")
    assert entry["actor"] == f"link:{who['id']}"


async def test_a_sign_in_link_of_a_user_is_that_user_and_an_old_or_unknown_one_is_nobody(api: Api) -> None:
    ada = await person(api, "STAFF")
    token = await _link(api, user_id=UUID(ada["id"]))
    client = api.client(None)
    assert (await client.get(f"/login?token={token}")).status == 303
    assert (await client.get("/v1/session")).json["id"] == ada["id"]
    late = await _link(api, role=Role.OWNER)
    await write(api, "UPDATE redrive.login_link SET expires_at = now()")
    for bad in (late, "unknown", "", "%00", "x" * 5_000):
        assert (await client.get(f"/login?token={bad}")).status == 401
    assert (await client.get("/login")).status == 401


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({}, ["body", "email"]),
        ({"email": "x", "password": "y"}, ["body", "email"]),
        ({"email": "a@b\u0000.c", "password": "y"}, ["body", "email"]),
        ({"email": "a@b.c", "password": 7}, ["body", "password"]),
        ({"email": "a@b.c", "password": "y" * 1_025}, ["body", "password"]),
        ({"email": "a@b.c", "password": "y", "more": 1}, ["body", "more"]),
        ({"email": "a@b.c", "password": "y", "org": ""}, ["body", "org"]),
    ],
)
async def test_a_login_that_makes_no_sense_is_told_where(api: Api, value: object, place: list[str]) -> None:
    answer = await api.nobody.post("/v1/session", value)
    assert answer.status == 422
    assert place in [loc for loc, _ in answer.errors]
    assert "yyyy" not in answer.body.decode()
