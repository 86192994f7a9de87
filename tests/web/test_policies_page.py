"""The list of policies and the editor of one."""

import json
from urllib.parse import quote

import pytest

from api.conftest import Api
from redrive.core.presets import PRESETS
from support.page import Page, read

HOSTILE = '<img src=x onerror=alert(1)>"'


async def put(api: Api, name: str, **spec: object) -> None:
    made = await api.owner.request("PUT", f"/v1/policies/{name}", spec)
    assert made.status == 200, made.body


async def plotted(api: Api, given: object) -> Page:
    return await read(api.viewer, f"/policies/plot?policy={quote(json.dumps(given))}")


async def test_the_presets_are_listed_with_what_they_mean_and_who_names_them(api: Api) -> None:
    await api.endpoint(policy="relay")
    await put(api, "money", kind="list", delays_s=[5], event_types=["invoice.*", HOSTILE], default=True)
    page = await read(api.viewer, "/policies")
    assert {link.text for link in page.all("a", class_="strong-link")} == set(PRESETS) | {"money"}
    assert page.has("span", text="1 s, 2 s, 4 s, 8 s … times 2, at most 1 h")
    assert page.has("span", text="1 endpoint")
    assert page.has("code", text="invoice.*")
    assert page.has("code", text=HOSTILE)
    assert page.has("span", class_="badge info", text="default")
    assert len(page.all("svg")) == len(PRESETS) + 1


async def test_a_long_list_of_policies_goes_on_behind_its_page(api: Api) -> None:
    for number in range(50):
        await put(api, f"p{number:02}", kind="manual")
    first = await read(api.owner, "/policies")
    second = await read(api.owner, first.one("a", rel="next").attributes["href"])
    names = [{link.text for link in page.all("a", class_="strong-link")} for page in (first, second)]
    assert [len(each) for each in names] == [50, 7]
    assert not names[0] & names[1]
    assert "57 policies" in first.text


async def test_the_editor_holds_every_field_of_the_policy(api: Api) -> None:
    await put(
        api,
        "mine",
        kind="exponential",
        base_s=0.5,
        factor=3,
        cap_s=7200,
        jitter=0.07,
        max_retries=None,
        max_age_s=604_800,
        timeout_s=12,
        max_retry_after_s=90,
        classify={"retry": ["timeout", 409], "fail": ["unknown", "4xx"]},
        retention={"delivered_s": 86_400, "failed_s": None, "dead_s": 60},
        event_types=["order.*", "invoice.paid"],
        default=True,
        notify=False,
        quiet_permanent=True,
    )
    page = await read(api.owner, "/policies/mine")
    wanted = {
        "base_s": "0.5 s",
        "factor": "3",
        "cap_s": "2 h",
        "jitter": "7",
        "max_retries": "",
        "max_age_s": "7 d",
        "timeout_s": "12 s",
        "max_retry_after_s": "90 s",
        "classify.retry": "409",
        "classify.fail": "4xx",
        "retention.delivered_s": "1 d",
        "retention.failed_s": "",
        "retention.dead_s": "1 min",
    }
    assert {name: page.one("input", name=name).attributes["value"] for name in wanted} == wanted
    assert page.one("input", name="kind", checked="").attributes["value"] == "exponential"
    assert page.one("textarea", name="event_types").pieces == ["order.*\ninvoice.paid"]
    ticked = {each.attributes["name"] for each in page.all("input", type="checkbox", checked="")}
    retried = {"timeout", "network", "rate_limited", "server_error"}
    assert ticked == {"default", "quiet_permanent"} | {f"category.{name}" for name in retried}


async def test_the_schedule_is_a_plot_and_a_table(api: Api) -> None:
    page = await read(api.viewer, "/policies/workflow")
    assert page.has("svg")
    cells = [cell.text for cell in page.all("td")]
    assert [cells[at : at + 4] for at in range(0, len(cells), 4)] == [
        ["1", "2 s", "1.5 s – 2.5 s", "2 s"],
        ["2", "4 s", "3 s – 5 s", "6 s"],
        ["3", "8 s", "6 s – 10 s", "14 s"],
    ]


async def test_a_draft_is_plotted_with_the_rules_by_which_it_would_be_saved(api: Api) -> None:
    good = await plotted(api, {"kind": "list", "delays_s": [1, 2], "max_retries": 2})
    assert good.status == 200
    assert good.has("svg")
    assert len(good.all("tr")) == 3
    bad = await plotted(api, {"kind": "list", "delays_s": [-1], "max_retries": None})
    assert bad.has("li", text="delays_s.0: must be between 0 and 2592000, not -1")
    assert not bad.has("svg")
    by_hand = await plotted(api, {"kind": "manual"})
    assert "until a person retries it" in by_hand.all("p")[0].text


async def test_what_is_hostile_in_a_draft_is_text(api: Api) -> None:
    page = await plotted(api, {"kind": HOSTILE, HOSTILE: 1})
    assert page.has("li")
    assert not page.has("img")


@pytest.mark.parametrize("name", ["new", "plot"])
async def test_a_policy_that_is_called_like_a_page_of_ours_is_reached_from_everywhere(api: Api, name: str) -> None:
    await put(api, name, kind="manual")
    endpoint = await api.endpoint(policy=name)
    letter = await api.dead_task()
    for path in ("/policies", "/endpoints", f"/endpoints/{endpoint['id']}", f"/app/admin/dlq/{letter['id']}"):
        href = (await read(api.owner, path)).one("a", text=name).attributes["href"]
        assert (await read(api.owner, href)).one("h1").text == name


LONE = r'{"a\ud800": 1}'  # half a character, which no page can be written with


@pytest.mark.parametrize("draft", ["", "[]", "{", "[" * 5_000, '{"kind": "manual"}' + " " * 9_000, LONE])
async def test_what_is_no_policy_is_refused(api: Api, draft: str) -> None:
    assert (await read(api.viewer, f"/policies/plot?policy={quote(draft)}")).status == 400


async def test_only_who_may_manage_may_edit(api: Api) -> None:
    owner = await read(api.owner, "/policies/workflow")
    assert owner.has("form", data_policy="workflow")
    assert owner.buttons == {"Delete"}
    for client in (api.staff, api.viewer):
        page = await read(client, "/policies/workflow")
        assert page.status == 200
        assert not page.has("form", data_policy="workflow")
        assert page.buttons == set()
        assert not (await read(client, "/policies")).has("a", href="/policies/new")


async def test_deleting_is_offered_only_for_what_nothing_needs(api: Api) -> None:
    used = await api.endpoint(policy="relay")
    await put(api, "usual", kind="manual", default=True)
    page = await read(api.owner, "/policies/relay")
    assert page.buttons == set()
    assert page.has("a", href=f"/endpoints/{used['id']}", text=used["name"])
    assert (await read(api.owner, "/policies/usual")).buttons == set()
    assert (await read(api.owner, "/policies/integration")).buttons == set()


async def test_a_new_policy_begins_like_another(api: Api) -> None:
    page = await read(api.owner, "/policies/new?like=triggers")
    assert page.one("input", id="f-delays_s").attributes["value"] == "1 min, 5 min, 15 min"
    assert page.has("input", name="name", value="")
    assert (await read(api.owner, "/policies/new?like=%00")).status == 200


async def test_a_policy_called_as_an_address_of_ours_has_a_page(api: Api) -> None:
    await put(api, "new", kind="manual")
    listed = await read(api.owner, "/policies")
    assert listed.one("a", class_="strong-link", text="new").attributes["href"] == "/policies/new/edit"
    assert (await read(api.owner, "/policies/new/edit")).has("form", data_policy="new")


@pytest.mark.parametrize("name", ["none-such", "%00", "a%20b"])
async def test_an_unknown_policy_is_a_page_that_says_so(api: Api, name: str) -> None:
    assert (await read(api.owner, f"/policies/{name}")).status == 404


async def test_another_orgs_policy_is_unknown(api: Api) -> None:
    await put(api, "mine", kind="manual")
    assert (await read(api.stranger, "/policies/mine")).status == 404
