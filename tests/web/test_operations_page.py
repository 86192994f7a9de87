"""The list of operations, and the page of one."""

from typing import Any
from uuid import uuid4

import pytest

from api.conftest import Api
from api.people import other_org, person, signed_in
from redrive.store import operations
from redrive.store.operation_steps import OperationSteps
from redrive.web.pages.operations import OperationsPage
from support.page import read

HOSTILE = "<script>alert(1)</script>"


async def _letters(api: Api, count: int, event_type: str = "invoice.paid") -> list[str]:
    await api.endpoint(event_types=[event_type])
    return [(await api.dead_task(event_type=event_type))["id"] for _ in range(count)]


async def _begun(api: Api, **given: object) -> dict[str, Any]:
    made = await api.owner.post("/v1/dead-letters/bulk", {"action": "resolve", **given})
    assert made.status == 202, made.body
    shape: dict[str, Any] = made.json
    return shape


async def _stepped(api: Api, operation_id: str) -> None:
    steps = OperationSteps(api.context.engine_db, api.context.clock)
    for _ in range(20):
        await steps.step()
        if (await api.owner.get(f"/v1/operations/{operation_id}")).json["finished_at"]:
            return


async def test_an_operation_is_listed_with_what_was_chosen_its_progress_and_who_began_it(api: Api) -> None:
    await _letters(api, 2)
    ada = await person(api, "ADMIN")
    client = await signed_in(api, ada)
    given = {"action": "resolve", "filter": {"event_type": "invoice.paid"}, "because": f"counted {HOSTILE}"}
    made = await client.post("/v1/dead-letters/bulk", given, Sec_Fetch_Site="same-origin")
    await _stepped(api, made.json["id"])
    page = await read(api.owner, "/operations")
    assert page.has("a", href=f"/operations/{made.json['id']}", text="Resolve 2 dead letters")
    assert page.has("span", class_="badge", text="type: invoice.paid")
    assert page.has("span", class_="badge delivered", text="completed")
    assert "2/2 succeeded, 0/2 failed" in page.text
    assert page.has("span", title=ada["email"], text="Ada")
    assert f"counted {HOSTILE}" in page.text  # as text
    assert "1 operation" in page.text


async def test_of_very_many_operations_it_is_said_how_many_there_are_at_least(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "MAX_COUNTED", 1)
    monkeypatch.setattr(OperationsPage, "counted_to", 1)
    for _ in range(2):
        await _begun(api, filter={"event_type": "nothing.like.it"})
    assert "more than 1 operation" in (await read(api.owner, "/operations")).one("div", class_="pager").text


async def test_an_e_mail_is_shown_to_those_who_may_see_people_only(api: Api) -> None:
    letters = await _letters(api, 1)
    ada = await person(api, "ADMIN")
    client = await signed_in(api, ada)
    await client.post("/v1/dead-letters/bulk", {"action": "resolve", "ids": letters}, Sec_Fetch_Site="same-origin")
    page = await read(api.staff, "/operations")
    assert "Ada" in page.text
    assert ada["email"].encode() not in page.answer.body


async def test_the_state_in_the_address_is_in_force_and_an_unknown_one_is_said_to_be(api: Api) -> None:
    letters = await _letters(api, 1)
    await _stepped(api, (await _begun(api, ids=letters))["id"])
    assert "Resolve 1 dead letter" in (await read(api.owner, "/operations?state=completed")).text
    assert "All have ended" in (await read(api.owner, "/operations?state=active")).text
    paused = await read(api.owner, "/operations?state=paused")
    assert "Resolve" not in paused.text
    assert paused.has("option", value="paused", selected="")
    assert "None is paused" in paused.text
    assert "no state of an operation" in (await read(api.owner, "/operations?state=lost")).one("p", role="alert").text


async def test_one_shows_its_terms_and_what_became_of_each_item(api: Api) -> None:
    letters = await _letters(api, 2)
    unknown = "0190c1a2-7b3c-7d4e-8f50-6a7b8c9d0e1f"
    made = await _begun(api, ids=[*letters, unknown], because="stock was counted")
    await _stepped(api, made["id"])
    page = await read(api.owner, f"/operations/{made['id']}")
    assert page.one("h1").text == "Resolve 3 dead letters"
    assert "Bulk resolve complete. 2 succeeded, 1 failed." in page.text
    assert "stock was counted" in page.text
    assert page.has("a", href=f"/integrations/logs/{letters[0]}", text="View Log")
    assert "There is no such entry here." in page.text
    failed = await read(api.owner, f"/operations/{made['id']}?state=failed")
    assert not failed.has("a", href=f"/integrations/logs/{letters[0]}")
    assert "There is no such entry here." in failed.text
    waiting = await read(api.owner, f"/operations/{made['id']}?state=waiting")
    assert "None waiting" in waiting.text


async def test_a_canary_shows_its_stages_and_why_it_paused_itself(api: Api) -> None:
    letters = await _letters(api, 1)
    unknown = [f"0190c1a2-7b3c-7d4e-8f50-6a7b8c9d0e{n:02x}" for n in range(3)]
    made = await _begun(api, ids=[*unknown, *letters], canary={"stages": [50], "max_failure_rate": 0.1})
    steps = OperationSteps(api.context.engine_db, api.context.clock)
    for _ in range(5):
        await steps.step()
    page = await read(api.owner, f"/operations/{made['id']}")
    assert "Paused by itself after the first 50 %" in page.text
    assert [item.text for item in page.all("li", class_="done")] == ["50 % 2 in all, done"]
    assert page.has("li", class_="now", aria_current="step", text="100 % 4 in all, now")
    assert page.buttons == {"Resume", "Cancel operation"}


async def test_whoever_may_not_act_sees_no_buttons(api: Api) -> None:
    letters = await _letters(api, 2)
    made = await _begun(api, ids=letters, rate_per_s=0.01)
    owners = await read(api.owner, f"/operations/{made['id']}")
    assert owners.buttons == {"Pause", "Cancel operation"}
    assert "at most 0.01 per second" in owners.text
    for client in (api.staff, api.viewer):
        page = await read(client, f"/operations/{made['id']}")
        assert page.status == 200
        assert page.buttons == set()
        assert (await client.post(f"/v1/operations/{made['id']}/pause")).status == 403


async def test_items_go_on_behind_a_cursor_of_this_operation_only(api: Api) -> None:
    ids = [f"0190c1a2-7b3c-7d4e-8f50-6a7b8c9d{n:04x}" for n in range(60)]
    made, other = await _begun(api, ids=ids), await _begun(api, ids=ids[:1])
    first = await read(api.owner, f"/operations/{made['id']}")
    (lead_on,) = first.all("a", rel="next")
    second = await read(api.owner, lead_on.attributes["href"])
    assert "60 items, 50 on this page" in first.text
    assert "60 items, 10 on this page" in second.text
    assert second.has("span", text="51")
    assert second.has("span", text="60")
    elsewhere = lead_on.attributes["href"].replace(made["id"], other["id"])
    assert (await read(api.owner, elsewhere)).status == 400


async def test_an_operation_that_is_unknown_or_anothers_is_a_page_that_says_so(api: Api) -> None:
    made = await _begun(api, ids=["0190c1a2-7b3c-7d4e-8f50-6a7b8c9d0e1f"])
    org_id, _ = await other_org(api)
    stranger = await signed_in(api, await person(api, "ADMIN", org_id=org_id))
    for client, path in (
        (stranger, f"/operations/{made['id']}"),
        (api.owner, "/operations/0190c1a2-7b3c-7d4e-8f50-6a7b8c9d0e1f"),
        (api.owner, "/operations/nonsense"),
    ):
        page = await read(client, path)
        assert (page.status, page.one("h1").text) == (404, "Nothing here")


async def test_without_operations_the_page_says_what_would_stand_here(api: Api) -> None:
    assert "No operations yet" in (await read(api.viewer, "/operations")).text


@pytest.mark.parametrize(("good", "bad", "kind"), [(1, 0, "delivered"), (1, 1, "failed"), (0, 1, "failed")])
async def test_one_that_has_ended_looks_as_good_as_what_came_of_it(api: Api, good: int, bad: int, kind: str) -> None:
    await api.endpoint()
    ids = [(await api.dead_task())["id"] for _ in range(good)] + [str(uuid4()) for _ in range(bad)]
    done = await api.owner.post("/v1/dead-letters/bulk?wait=true", {"action": "ignore", "ids": ids})
    for path in ("/operations", f"/operations/{done.headers['x-operation-id']}"):
        assert (await read(api.owner, path)).has("span", class_=f"badge {kind}", text="completed")
