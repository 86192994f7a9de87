"""The audit over HTTP: what was done is found by who, what, which and when, and leaves as CSV or NDJSON."""

import csv
import io
import json
from uuid import uuid4

import pytest

from redrive.api.routes import audit as audit_routes
from redrive.store import audit
from redrive.store.audit import Act

from .conftest import URL, Api


async def _acts(api: Api, count: int, *, actor: str = "key:a", action: str = "thing.do", because: str = "x") -> None:
    async with api.context.app_db.tenant(api.org_id) as session:
        for _ in range(count):
            await audit.record(session, Act(actor, because, "c-1", "api ::1"), action, "thing", uuid4(), after={"n": 1})


async def test_every_change_is_there_with_who_what_which_when_from_where_and_why(api: Api) -> None:
    letter = await api.dead_task(payload={"a": 1}) if await api.endpoint() else {}
    path = f"/v1/dead-letters/{letter['id']}/resolve"
    done = await api.owner.post(path, {"because": "paid by hand"}, X_Correlation_Id="night-7")
    assert done.status == 200
    (entry,) = (await api.owner.get("/v1/audit?action=dead_letter.resolve")).json["data"]
    assert entry["actor"].startswith("key:")
    assert entry["source"].startswith("api 127.0.0.1")
    assert (entry["subject_kind"], entry["subject_id"]) == ("dead_letter", letter["id"])
    assert (entry["because"], entry["correlation_id"]) == ("paid by hand", "night-7")
    assert (entry["before"], entry["after"]) == ({"state": "open"}, None)
    assert entry["at"].endswith("Z")


async def test_before_and_after_of_a_changed_endpoint_are_kept_without_secrets(api: Api) -> None:
    endpoint = await api.endpoint(url=f"{URL}?token=hidden", headers={"x-secret": "hidden too"})
    await api.owner.request("PATCH", f"/v1/endpoints/{endpoint['id']}", {"name": "renamed", "url": URL})
    answer = await api.owner.get(f"/v1/audit?subject_id={endpoint['id']}")
    change, creation = answer.json["data"]
    assert (creation["action"], change["action"]) == ("endpoint.create", "endpoint.update")
    assert (change["before"]["name"], change["after"]["name"]) == (endpoint["name"], "renamed")
    assert change["after"]["headers"] == ["x-secret"]
    assert b"hidden" not in answer.body


async def test_pages_are_newest_first_and_lead_to_the_end(api: Api) -> None:
    await _acts(api, 7)
    seen: list[tuple[str, str]] = []
    path = "/v1/audit?subject_kind=thing&limit=3"
    while True:
        page = (await api.viewer.get(path)).json
        seen += [(entry["at"], entry["id"]) for entry in page["data"]]
        if not page["pagination"]["has_more"]:
            break
        path = f"/v1/audit?subject_kind=thing&limit=3&cursor={page['pagination']['cursor']}"
    assert len(seen) == 7 == len(set(seen))
    assert seen == sorted(seen, reverse=True)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("actor=key:b", 2),
        ("action=thing.undo", 2),
        ("actor=key:a&action=thing.undo", 0),
        ("subject_kind=thing", 5),
        ("subject_id=01890000-0000-7000-8000-000000000000", 0),
        ("subject_kind=thing&since=2000-01-01T00:00:00Z", 5),
        ("until=2000-01-01T00:00:00Z", 0),
    ],
)
async def test_it_is_filtered_by_who_what_which_and_when(api: Api, query: str, found: int) -> None:
    await _acts(api, 3)
    await _acts(api, 2, actor="key:b", action="thing.undo")
    assert len((await api.owner.get(f"/v1/audit?{query}")).json["data"]) == found
    exported = await api.owner.get(f"/v1/audit/export?{query}")
    assert len(exported.body.splitlines()) == found


async def test_an_export_spans_batches_and_defuses_formulas(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_routes, "EXPORT_BATCH_ROWS", 2)
    await _acts(api, 5, because='=HYPERLINK("http://evil")')
    lines = (await api.owner.get("/v1/audit/export?subject_kind=thing&format=ndjson")).body.splitlines()
    assert [json.loads(line)["because"] for line in lines] == ['=HYPERLINK("http://evil")'] * 5
    answer = await api.owner.get("/v1/audit/export?subject_kind=thing&format=csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert "attachment" in answer.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(answer.body.decode())))
    assert [row["because"] for row in rows] == ['\'=HYPERLINK("http://evil")'] * 5
    assert {row["after"] for row in rows} == {'{"n": 1}'}


async def test_another_orgs_audit_is_not_there_and_bad_questions_are_refused(api: Api) -> None:
    await _acts(api, 1)
    assert (await api.stranger.get("/v1/audit?subject_kind=thing")).json["data"] == []
    assert (await api.stranger.get("/v1/audit/export?subject_kind=thing")).body == b""
    assert (await api.nobody.get("/v1/audit")).status == 401
    for query in ("who=me", "subject_id=seven", "format=xml", "since=yesterday", "limit=0", "cursor=abc"):
        assert (await api.owner.get(f"/v1/audit?{query}")).status == 400, query
    for query in ("limit=5", "format=json", "cursor=abc"):
        assert (await api.owner.get(f"/v1/audit/export?{query}")).status == 400, query


async def test_people_s_e_mails_and_addresses_are_for_those_who_may_see_the_people(api: Api) -> None:
    made = await api.owner.post("/v1/users", {"email": "ada@example.com", "name": "Ada", "role": "VIEWER"})
    assert made.status == 201, made.body
    path = "/v1/audit?action=user.create"
    (seen,) = (await api.owner.get(path)).json["data"]
    assert (seen["after"]["email"], seen["source"]) == ("ada@example.com", "api 127.0.0.1")
    for reader in (api.viewer, api.staff):
        (seen,) = (await reader.get(path)).json["data"]
        assert (seen["action"], seen["after"], seen["source"]) == ("user.create", None, None)
        for form in ("csv", "ndjson"):
            assert b"ada@" not in (await reader.get(f"/v1/audit/export?format={form}")).body
