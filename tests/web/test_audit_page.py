"""The audit log as a page: filters in the address, names for actors, what changed, and the way out as a file."""

import csv
import io
import json
from urllib.parse import urlsplit

from api.conftest import Api
from api.people import OURS, other_org, person, signed_in, write
from support.page import read

HOSTILE = "<img src=x onerror=alert(1)>"


async def test_an_entry_tells_who_did_what_to_which_thing_and_why(api: Api) -> None:
    ada = await person(api, "ADMIN")
    client = await signed_in(api, ada)
    made = await client.request("POST", "/v1/keys", {"name": HOSTILE, "role": "STAFF"}, headers=OURS)
    page = await read(api.owner, "/audit?action=key.create")
    assert page.has("a", href=f"/audit?actor=user:{ada['id']}", title=ada["email"], text="Ada")
    assert page.has("a", href="/settings/keys", title=made.json["id"], text=HOSTILE)
    assert not page.has("img")
    assert page.has("dd", text="STAFF")
    assert "api 127.0.0.1" in page.text


async def test_a_change_shows_before_and_after(api: Api) -> None:
    ada = await person(api, "STAFF")
    await api.owner.request("PATCH", f"/v1/users/{ada['id']}", {"role": "VIEWER"})
    page = await read(api.owner, "/audit?action=user.update")
    assert [each.text for each in page.all("del")] == ["STAFF"]
    assert [each.text for each in page.all("ins")] == ["VIEWER"]


async def test_people_are_names_without_e_mails_to_those_who_may_not_see_them(api: Api) -> None:
    ada = await person(api, "STAFF")
    await signed_in(api, ada)
    page = await read(api.viewer, "/audit")
    assert page.has("code", text="session.login")
    assert "Ada" in page.text
    assert ada["email"].encode() not in page.answer.body
    assert b"127.0.0.1" not in page.answer.body
    refused = await read(api.viewer, f"/audit?actor={ada['email']}")
    assert "Only those who admit people" in refused.one("p", role="alert").text


async def test_the_filters_of_the_address_are_in_force(api: Api) -> None:
    ada = await person(api, "ADMIN")
    client = await signed_in(api, ada)
    endpoint = await api.endpoint(name="billing")
    by_ada = await read(client, "/audit?actor=me")
    assert {each.text for each in by_ada.all("code") if "." in each.text} == {"session.login"}
    assert by_ada.has("a", href="/audit", text="×Remove the filter actor")
    by_mail = await read(api.owner, f"/audit?actor={ada['email']}")
    assert {each.text for each in by_mail.all("code") if "." in each.text} == {"session.login"}
    of_endpoint = await read(api.owner, f"/audit?subject=endpoint&id={endpoint['id']}")
    assert of_endpoint.has("a", href=f"/endpoints/{endpoint['id']}", text="billing")
    assert {each.text for each in of_endpoint.all("code") if "." in each.text} == {"endpoint.create"}
    assert "No entries here" in (await read(api.owner, "/audit?until=2020-01-01")).text
    assert "key.create" not in (await read(api.owner, "/audit?since=1h&action=endpoint.create")).text


async def test_what_is_typed_into_the_box_becomes_filters_and_an_id_finds_its_thing(api: Api) -> None:
    endpoint = await api.endpoint(name="billing")
    typed = await api.owner.get("/audit?q=action%3Aendpoint.create+since%3A2h")
    assert (typed.status, typed.headers["location"]) == (303, "/audit?action=endpoint.create&since=2h")
    assert "billing" in (await read(api.owner, f"/audit?q={endpoint['id']}")).text
    lost = await read(api.owner, "/audit?q=gateway&since=soon")
    said = [each.text for each in lost.all("p", role="alert")]
    assert any("“gateway” is no id" in each for each in said)
    assert any("since:soon is no time" in each for each in said)


async def test_the_export_has_the_entries_of_the_filter_in_force(api: Api) -> None:
    endpoint = await api.endpoint(name="billing")
    await api.endpoint(name="other")
    page = await read(api.owner, f"/audit?action=endpoint.create&since=1h&q={endpoint['id']}")
    as_csv, as_lines = (link.attributes["href"] for link in page.all("a", download=""))
    assert "1h" not in urlsplit(as_csv).query  # a time of its own: a link that is followed later means the same
    rows = list(csv.DictReader(io.StringIO((await api.owner.get(as_csv)).body.decode())))
    assert [row["subject_id"] for row in rows] == [endpoint["id"]]
    lines = (await api.owner.get(as_lines)).body.splitlines()
    assert [json.loads(line)["subject_id"] for line in lines] == [endpoint["id"]]


async def test_the_log_goes_on_behind_a_cursor_that_is_good_for_this_filter_only(api: Api) -> None:
    for n in range(51):
        await write(
            api,
            "INSERT INTO redrive.audit (org_id, id, at, actor, action, subject_kind)"
            " VALUES ($1, redrive.uuid7(), clock_timestamp(), 'engine', $2, 'org')",
            api.org_id,
            f"test.n{n:02}",
        )
    first = await read(api.owner, "/audit?actor=engine")
    assert "Redrive itself" in first.text
    lead_on = first.one("a", rel="next").attributes["href"]
    second = await read(api.owner, lead_on)
    assert [each.text for each in second.all("code")] == ["test.n00"]
    assert ("50 entries on this page" in first.text, "1 entry on this page" in second.text) == (True, True)
    assert (await read(api.owner, lead_on.replace("engine", "nobody"))).status == 400


async def test_another_org_sees_none_of_it(api: Api) -> None:
    endpoint = await api.endpoint(name="billing")
    org_id, _ = await other_org(api)
    stranger = await signed_in(api, await person(api, "ADMIN", org_id=org_id))
    assert "No entries here" in (await read(stranger, f"/audit?id={endpoint['id']}")).text


async def test_what_one_operation_did_stands_on_one_line(api: Api) -> None:
    await api.endpoint()
    first = await api.dead_task()
    assert (await api.owner.post(f"/v1/dead-letters/{first['id']}/resolve")).status == 200
    ids = [(await api.dead_task())["id"] for _ in range(3)]
    done = await api.owner.post("/v1/dead-letters/bulk?wait=true", {"action": "ignore", "ids": ids})
    page = await read(api.owner, "/audit")
    operation = done.headers["x-operation-id"]
    assert "and 2 more on this page of this operation" in page.text
    assert len([cell for cell in page.all("code") if cell.text == "dead_letter.ignore"]) == 1
    assert page.has("a", href=f"/operations/{operation}", text="this operation")
    before = next(link for link in page.all("a") if link.text == "what came before it")
    earlier = await read(api.owner, before.attributes["href"])
    assert "dead_letter.ignore" not in {cell.text for cell in earlier.all("code")}
    assert "dead_letter.resolve" in {cell.text for cell in earlier.all("code")}
