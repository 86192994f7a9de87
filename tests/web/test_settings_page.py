"""The settings: what each role is shown of them and offered to do."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from api.conftest import Api
from api.people import OURS, PASSWORD, keyed, other_org, person, signed_in, write
from redrive.core.permissions import Role
from redrive.core.ports import WorkerCard
from redrive.store.workers import Workers
from support.page import read

HOSTILE = '<img src=x onerror=alert(1)>"'
PATHS = ("/settings", "/settings/users", "/settings/keys", "/settings/orgs", "/settings/account")


@pytest.mark.parametrize(
    ("role", "seen", "tabs"),
    [
        (Role.OWNER, [200, 200, 200, 200, 200], ["Org", "Users", "Keys", "All orgs", "You"]),
        (Role.ADMIN, [200, 200, 200, 403, 200], ["Org", "Users", "Keys", "You"]),
        (Role.IT_MANAGER, [200, 403, 403, 403, 200], ["Org", "You"]),
        (Role.STAFF, [200, 403, 403, 403, 200], ["Org", "You"]),
        (Role.VIEWER, [200, 403, 403, 403, 200], ["Org", "You"]),
    ],
)
async def test_each_role_sees_the_settings_that_it_may_use(
    api: Api, role: Role, seen: list[int], tabs: list[str]
) -> None:
    client = await signed_in(api, await person(api, role))
    assert [(await read(client, path)).status for path in PATHS] == seen
    page = await read(client, "/settings")
    links = [each.text for each in page.all("a") if each.attributes.get("href") in PATHS]
    assert [text for text in links if text not in ("Settings", "Your account")] == tabs


@pytest.mark.parametrize(
    ("role", "offered", "may_name"),
    [
        (Role.OWNER, {"Pause this org", "Pause the whole installation"}, True),
        (Role.IT_MANAGER, {"Pause this org"}, False),
        (Role.STAFF, set(), False),
        (Role.VIEWER, set(), False),
    ],
)
async def test_pausing_and_limits_are_offered_to_those_who_may(
    api: Api, role: Role, offered: set[str], may_name: bool
) -> None:
    page = await read(await keyed(api, role), "/settings")
    assert page.buttons == offered
    assert page.has("input", name="limits.max_endpoints") == may_name
    assert "0 bytes of 107 GB" in page.text


async def test_a_pause_is_shown_with_who_since_when_and_why(api: Api) -> None:
    ada = await person(api, "ADMIN")
    client = await signed_in(api, ada)
    paused = await client.request("POST", "/v1/retries/pause", {"because": f"moving {HOSTILE}"}, headers=OURS)
    assert paused.status == 200
    page = await read(api.staff, "/settings")
    assert page.has("span", class_="badge held", text="paused")
    assert page.has("span", text="Ada")
    assert f"moving {HOSTILE}" in page.text
    assert not page.has("img")
    assert page.buttons == set()
    assert "Resume this org" in (await read(api.owner, "/settings")).buttons
    assert "Retries are paused for this org" in page.text  # on every page


async def test_workers_are_counted_for_everybody_and_named_to_owners(api: Api) -> None:
    host = f"host-{uuid4().hex}"
    card = WorkerCard(uuid4(), host, 4242, "9.9.9", ("http",), 64)
    await Workers(api.context.engine_db, api.context.clock).beat(card)
    try:
        page = await read(api.owner, "/settings")
        assert page.has("span", text=f"{host} process 4242")
        assert page.has("span", class_="badge ok", text="at work")
        staff = await read(api.staff, "/settings")
        assert "1 worker at work" in staff.text
        assert host not in staff.text
    finally:
        await Workers(api.context.engine_db, api.context.clock).leave(card.worker_id)
    assert "No worker has been heard of today" in (await read(api.staff, "/settings")).text


async def test_users_are_listed_with_what_may_be_done_to_each(api: Api) -> None:
    olivia, ada = await person(api, "OWNER"), await person(api, "ADMIN")
    sam = await person(api, "STAFF", email=f"sam{uuid4().hex}@example.com")
    client = await signed_in(api, ada)
    page = await read(client, "/settings/users")
    acts = {each.attributes["data-path"] for each in page.all("button") if "data-path" in each.attributes}
    assert acts == {f"/v1/users/{sam['id']}"}  # not oneself, and not those above
    changes = {each.attributes["data-path-of"] for each in page.all("button") if "data-path-of" in each.attributes}
    assert changes == {f"/v1/users/{sam['id']}", f"/v1/users/{ada['id']}"}
    assert {option.attributes["value"] for option in page.all("option")} == set(Role) - {Role.OWNER}
    assert "3 users" in page.text
    assert olivia["email"] in page.text
    owners = await read(await signed_in(api, olivia), "/settings/users")
    assert {option.attributes["value"] for option in owners.all("option")} == set(Role)
    assert owners.has("input", id="c-password")
    assert not page.has("input", id="c-password")


async def test_a_suspended_user_can_be_let_in_again(api: Api) -> None:
    sam = await person(api, "STAFF")
    await api.owner.request("PATCH", f"/v1/users/{sam['id']}", {"suspended": True})
    page = await read(api.owner, "/settings/users")
    assert page.has("span", class_="badge bad", text="suspended")
    assert page.one("button", text="Unsuspend").attributes["data-body"] == '{"suspended":false}'
    assert page.buttons == {"Unsuspend", "Remove"}


async def test_keys_are_listed_by_state_and_only_live_ones_can_be_revoked(api: Api) -> None:
    ends = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    made = {
        name: (await api.owner.post("/v1/keys", {"name": name, "role": "STAFF", **more})).json
        for name, more in (
            (HOSTILE, {"scope": "read"}),
            ("gone", {}),
            ("over", {"expires_at": ends}),
        )
    }
    await api.owner.request("DELETE", f"/v1/keys/{made['gone']['id']}")
    await write(api, "UPDATE redrive.api_key SET expires_at = now() - interval '1 d' WHERE id = $1", made["over"]["id"])
    page = await read(api.owner, "/settings/keys")
    assert page.has("strong", text=HOSTILE)
    assert not page.has("img")
    assert page.has("span", class_="badge", text="only read")
    assert page.has("span", class_="badge bad", text="revoked")
    assert page.has("span", class_="badge quiet", text="expired")
    revocable = {each.attributes["data-path"].rpartition("/")[2] for each in page.all("button", text="Revoke")}
    assert made[HOSTILE]["id"] in revocable
    assert not revocable & {made["gone"]["id"], made["over"]["id"]}
    assert made[HOSTILE]["key"].encode() not in page.answer.body
    assert made[HOSTILE]["hint"] in page.text


async def test_an_admin_is_not_offered_to_revoke_a_key_of_an_owner(api: Api) -> None:
    page = await read(await keyed(api, "ADMIN"), "/settings/keys")
    owners = api.owner.key
    assert owners is not None
    rows = [each.text for each in page.all("tr")]
    assert any(row.startswith("owner") and "Revoke" not in row for row in rows)
    assert any(row.startswith("staff") and "Revoke" in row for row in rows)


async def test_an_owner_sees_every_org_and_switches_by_session_only(api: Api) -> None:
    _, name = await other_org(api)
    olivia = await signed_in(api, await person(api, "OWNER"))
    path, found = "/settings/orgs", None
    while found is None:
        page = await read(olivia, path)
        found = next((each for each in page.all("tr") if each.text.startswith(name)), None)
        if found is None:
            path = page.one("a", rel="next").attributes["href"]
    assert "Switch to it" in found.text
    assert "Switch to it" not in (await read(api.owner, "/settings/orgs")).text


async def test_whoever_has_an_account_here_may_change_their_own_name_and_password(api: Api) -> None:
    vera = await person(api, "VIEWER")
    client = await signed_in(api, vera)
    page = await read(client, "/settings/account")
    forms = {form.attributes["data-path"] for form in page.all("form") if "data-api" in form.attributes}
    assert forms == {f"/v1/users/{vera['id']}"}
    assert page.has("input", name="current_password")
    given = {"password": "another battery horse", "current_password": PASSWORD}
    assert (await client.request("PATCH", f"/v1/users/{vera['id']}", given, headers=OURS)).status == 200
    assert "asked for with an API key" in (await read(api.owner, "/settings/account")).text


async def test_an_owner_in_an_org_that_is_not_theirs_is_told_where_to_change_their_account(api: Api) -> None:
    org_id, name = await other_org(api)
    olivia = await signed_in(api, await person(api, "OWNER", org_id=org_id), org=name)
    moved = await olivia.request("PATCH", "/v1/session", {"org": str(api.org_id)}, headers=OURS)
    assert moved.status == 200
    page = await read(olivia, "/settings/account")
    assert "You are no member of this org" in page.text
    assert not [form for form in page.all("form") if "data-api" in form.attributes]


async def test_the_users_go_on_behind_a_cursor(api: Api) -> None:
    await write(
        api,
        "WITH made AS (INSERT INTO redrive.user_account (id, email, name)"
        " SELECT redrive.uuid7(), md5(random()::text) || '@example.com', 'n' || n FROM generate_series(1, 51) n"
        " RETURNING id) INSERT INTO redrive.membership (org_id, user_id, role) SELECT $1, id, 'STAFF' FROM made",
        api.org_id,
    )
    first = await read(api.owner, "/settings/users")
    assert "51 users, 50 on this page" in first.text
    second = await read(api.owner, first.one("a", rel="next").attributes["href"])
    assert len([row for row in second.all("tr") if "data-id" in row.attributes]) == 1
    assert second.has("a", href="/settings/users", text="First page")
