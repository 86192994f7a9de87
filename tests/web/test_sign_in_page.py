"""Signing in: where it leads, what it says, and what is left behind."""

from uuid import UUID

import pytest

from api.conftest import Api
from api.people import OURS, person, signed_in
from redrive.store.audit import Act
from redrive.store.sessions import make_link
from redrive.web.pages.sign_in import safe_next
from support.page import read


@pytest.mark.parametrize(
    "elsewhere",
    [
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example/",
        "\\\\evil.example",
        "/\t/evil.example",
        "/\n//evil.example",
        "javascript:alert(1)",
        "evil.example",
        "",
    ],
)
def test_an_address_elsewhere_is_never_where_signing_in_leads(elsewhere: str) -> None:
    assert safe_next(elsewhere) == "/"


@pytest.mark.parametrize("ours", ["/", "/audit?actor=me&since=2h", "/operations/0190?state=failed", "/a//b"])
def test_a_page_of_ours_is(ours: str) -> None:
    assert safe_next(ours) == ours


async def test_whoever_is_not_signed_in_is_sent_to_do_so_and_comes_back(api: Api) -> None:
    sent = await api.nobody.get("/audit?actor=me&since=2h", Accept="text/html")
    assert (sent.status, sent.headers["location"]) == (303, "/sign-in?next=%2Faudit%3Factor%3Dme%26since%3D2h")
    page = await read(api.nobody, sent.headers["location"])
    (form,) = [each for each in page.all("form") if "data-sign-in" in each.attributes]
    assert form.attributes["data-next"] == "/audit?actor=me&since=2h"
    trapped = await read(api.nobody, "/sign-in?next=//evil.example/")
    (form,) = [each for each in trapped.all("form") if "data-sign-in" in each.attributes]
    assert form.attributes["data-next"] == "/"


async def test_a_used_link_leads_to_a_page_that_says_what_to_do(api: Api) -> None:
    sent = await api.nobody.get("/login?token=used", Accept="text/html")
    assert (sent.status, sent.headers["location"]) == (303, "/sign-in?link=used")
    page = await read(api.nobody, sent.headers["location"])
    assert "Ask for a new one" in page.one("p", class_="notice bad").text


async def test_a_link_of_somebody_who_is_suspended_says_so_not_that_it_was_used(api: Api) -> None:
    ada = await person(api, "STAFF")
    await api.owner.request("PATCH", f"/v1/users/{ada['id']}", {"suspended": True})
    async with api.context.engine_db.tenant(api.org_id) as session:
        token = await make_link(session, user_id=UUID(ada["id"]), role=None, act=Act("test"), clock=api.context.clock)
    sent = await api.nobody.get(f"/login?token={token}", Accept="text/html")
    assert (sent.status, sent.headers["location"]) == (303, "/sign-in?link=suspended")
    said = (await read(api.nobody, sent.headers["location"])).one("p", class_="notice bad").text
    assert "suspended" in said
    assert "An ADMIN of the org can change that." in said


async def test_who_is_signed_in_already_goes_on_to_where_they_wanted(api: Api) -> None:
    client = await signed_in(api, await person(api, "STAFF"))
    for path, location in (
        ("/sign-in", "/"),
        ("/sign-in?next=%2Faudit%3Factor%3Dme%26q%3Da%2520b", "/audit?actor=me&q=a%20b"),
        ("/sign-in?next=%2Faudit%3Fq%3Dgr%C3%BC%C3%9Fe", "/audit?q=gr%C3%BC%C3%9Fe"),
        ("/sign-in?next=//evil.example/", "/"),
    ):
        sent = await client.get(path, Accept="text/html")
        assert (sent.status, sent.headers.get("location")) == (303, location)
    for path in ("/sign-in?anew", "/sign-in?link=used"):
        assert (await read(client, path)).status == 200


async def test_a_session_that_is_refused_everywhere_can_be_replaced(own_api: Api) -> None:
    ada = await person(own_api, "STAFF")
    client = await signed_in(own_api, ada)
    await own_api.owner.request("PATCH", f"/v1/users/{ada['id']}", {"suspended": True})
    assert (await read(client, "/sign-in?next=/audit")).status == 200


async def test_who_failed_too_often_is_told_how_long_to_wait(own_api: Api) -> None:
    ada = await person(own_api, "STAFF")
    wrong = {"email": ada["email"], "password": "no horse battery"}
    answers = [await own_api.nobody.post("/v1/session", wrong) for _ in range(6)]
    assert answers[0].json["detail"] == "The e-mail or the password is wrong."
    assert answers[-1].status == 429
    assert answers[-1].json["detail"].startswith("Too many passwords were wrong. Try again in ")
    assert answers[-1].json["detail"].endswith((" s.", " min."))
    assert int(answers[-1].headers["retry-after"]) > 0


async def test_who_is_suspended_while_signed_in_is_told_so_and_can_sign_in_as_somebody_else(own_api: Api) -> None:
    ada = await person(own_api, "STAFF")
    client = await signed_in(own_api, ada)
    await own_api.owner.request("PATCH", f"/v1/users/{ada['id']}", {"suspended": True})
    page = await read(client, "/settings")
    assert page.status == 403
    assert "suspended" in page.text
    assert page.has("a", href="/sign-in?anew", text="Sign in as somebody else")


async def test_after_signing_out_no_page_is_left_to_be_seen(api: Api) -> None:
    client = await signed_in(api, await person(api, "ADMIN"))
    shown = await client.get("/settings", Accept="text/html")
    assert shown.headers["cache-control"] == "no-store"
    cookie = f"redrive_session={client.cookies['redrive_session']}"
    assert (await client.request("DELETE", "/v1/session", headers=OURS)).status == 204
    assert not client.cookies
    again = await api.nobody.get("/settings", Accept="text/html", Cookie=cookie)
    assert (again.status, again.headers["location"]) == (303, "/sign-in?next=%2Fsettings")
