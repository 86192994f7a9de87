"""The list of endpoints, one of them, and the forms that make and change one."""

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from api.conftest import URL, Api
from redrive.core.breaker import BreakerState
from redrive.core.broker import RABBITMQ_QUEUE
from redrive.core.ports import HealthReport, WorkerCard
from redrive.store.clock import DatabaseClock
from redrive.store.endpoint_history import HistoryPoint, Ledger
from redrive.store.endpoint_states import BreakerStates
from redrive.store.workers import Workers
from redrive.web import words
from redrive.web.endpoint_chart import drawn_history
from support.page import read

HOSTILE = '<img src=x onerror=alert(1)>"'
SECRET_URL = "https://user:hunter2@receiver.example.com/hooks?token=hunter3"
ACTIONS = {"Test delivery", "Pause", "Disable", "Rotate secret", "Delete"}


async def test_endpoints_are_listed_with_how_they_do(api: Api) -> None:
    made = await api.endpoint(name="billing", event_types=["invoice.*"], policy="relay")
    await api.event("invoice.paid")
    for job in await api.claim():
        await api.succeed(job)
    await api.dead_task()
    page = await read(api.viewer, "/endpoints")
    assert page.has("a", href=f"/endpoints/{made['id']}", text="billing")
    assert page.has("a", href="/policies/relay", text="relay")
    assert page.one("span", class_="badge bad", title="1 of the last 2 tries").text == words.percent(0.5)
    dead = page.one("a", href=f"/integrations/logs/dead-letter-queue?endpoint={made['id']}")
    assert dead.text == "1"
    assert page.has("span", text="HTTP 500")
    assert page.has("span", class_="badge ok", text="enabled")


async def test_states_are_told_with_their_reasons(api: Api) -> None:
    off = await api.endpoint(name="off")
    await api.owner.post(f"/v1/endpoints/{off['id']}/disable", {"because": f"broken {HOSTILE}"})
    held = await api.endpoint(name="held")
    await api.owner.post(f"/v1/endpoints/{held['id']}/pause", {"because": "maintenance"})
    page = await read(api.owner, "/endpoints")
    assert page.has("span", class_="badge bad", text="disabled")
    assert page.has("span", class_="badge held", text="paused")
    assert not page.has("img")
    told = await read(api.owner, f"/endpoints/{off['id']}")
    said = [notice.text.partition(": ")[2] for notice in told.all("p", class_="notice bad")]
    assert f"broken {HOSTILE}. Its deliveries are held." in said
    told = await read(api.owner, f"/endpoints/{held['id']}")
    said = [notice.text.partition(": ")[2] for notice in told.all("p", class_="notice warn")]
    assert "maintenance. Its deliveries are held." in said


async def test_one_endpoint_shows_its_deliveries_with_links_to_their_logs(api: Api) -> None:
    made = await api.endpoint(event_types=["invoice.*"])
    letter = await api.dead_task()
    page = await read(api.viewer, f"/endpoints/{made['id']}")
    assert page.has("a", href=f"/integrations/logs/{letter['id']}", text="invoice.paid")
    assert page.has("span", class_="badge failed", text="dead letter")
    none = await read(api.viewer, f"/endpoints/{made['id']}?status=delivered")
    assert not none.has("a", class_="strong-link")
    assert none.one("a", aria_current="page", href=f"/endpoints/{made['id']}?status=delivered").text == "Delivered"
    assert page.has("span", class_="hint", text="0 of the last 1 try")


async def test_deliveries_go_on_behind_a_cursor(api: Api) -> None:
    made = await api.endpoint(event_types=["invoice.*"])
    events = [{"event_type": "invoice.paid", "payload": n} for n in range(26)]
    assert (await api.owner.post("/v1/events/batch", events)).status in (200, 202)
    first = await read(api.owner, f"/endpoints/{made['id']}?status=pending")
    second = await read(api.owner, first.one("a", rel="next").attributes["href"])
    shown = [{link.attributes["href"] for link in page.all("a", class_="strong-link")} for page in (first, second)]
    assert [len(each) for each in shown] == [25, 1]
    assert not shown[0] & shown[1]
    assert "25 deliveries on this page" in first.text
    assert "1 delivery on this page" in second.text
    assert second.has("a", href=f"/endpoints/{made['id']}?status=pending", text="First page")


async def test_only_who_may_manage_is_offered_anything(api: Api) -> None:
    made = await api.endpoint()
    path = f"/endpoints/{made['id']}"
    owner = await read(api.owner, path)
    assert owner.buttons == ACTIONS
    assert owner.has("form", data_recover=f"/v1{path}/recover")
    assert owner.has("a", href=f"{path}/edit")
    for client in (api.staff, api.viewer):
        page = await read(client, path)
        assert page.status == 200
        assert page.buttons == set()
        assert not page.has("form", data_recover=f"/v1{path}/recover")
        assert not page.has("a", href=f"{path}/edit")
        assert not (await read(client, "/endpoints")).has("a", href="/endpoints/new")
        for form in ("/endpoints/new", f"{path}/edit"):
            assert not (await read(client, form)).has("form", data_api="")


async def test_what_is_done_is_offered_the_other_way_round(api: Api) -> None:
    made = await api.endpoint()
    for action in ("pause", "disable"):
        await api.owner.post(f"/v1/endpoints/{made['id']}/{action}")
    page = await read(api.owner, f"/endpoints/{made['id']}")
    assert page.buttons == (ACTIONS - {"Pause", "Disable"}) | {"Resume", "Enable"}


async def test_what_may_be_secret_in_a_url_is_for_those_who_may_change_it(api: Api) -> None:
    made = await api.endpoint(url=SECRET_URL.replace("user:hunter2@", ""))
    for path in ("/endpoints", f"/endpoints/{made['id']}", f"/endpoints/{made['id']}/edit"):
        assert b"hunter" not in (await read(api.staff, path)).answer.body
        assert b"hunter3" in (await read(api.owner, path)).answer.body


async def test_values_of_headers_are_shown_to_nobody(api: Api) -> None:
    made = await api.endpoint(headers={"x-api-key": "hunter2"})
    for path in (f"/endpoints/{made['id']}", f"/endpoints/{made['id']}/edit"):
        page = await read(api.owner, path)
        assert b"hunter2" not in page.answer.body
        assert b"x-api-key" in page.answer.body
    assert page.one("textarea", name="headers").text == "x-api-key: [redacted]"


async def test_a_dangerous_thing_asks_first_by_its_name(api: Api) -> None:
    made = await api.endpoint(name=f"billing {HOSTILE}")
    page = await read(api.owner, f"/endpoints/{made['id']}")
    delete = page.one("button", text="Delete").attributes
    assert (delete["data-ask"], delete["data-confirm"]) == (f"Delete billing {HOSTILE}?", "Delete")
    assert delete["data-method"] == "DELETE"
    assert page.one("h1").text == f"billing {HOSTILE}"
    assert not page.has("img")


async def test_the_form_of_one_holds_what_it_has(api: Api) -> None:
    made = await api.endpoint(
        name="billing", event_types=["a.*", "b"], policy="relay", timeout_s=90, rate_per_s=0.5, ordered=True
    )
    page = await read(api.owner, f"/endpoints/{made['id']}/edit")
    form = page.one("form", data_api="").attributes
    assert (form["data-method"], form["data-path"]) == ("PATCH", f"/v1/endpoints/{made['id']}")
    wanted = {"name": "billing", "url": URL, "policy": "relay", "timeout_s": "90 s", "rate_per_s": "0.5"}
    assert {name: page.one("input", name=name).attributes["value"] for name in wanted} == wanted
    assert page.one("textarea", name="event_types").pieces == ["a.*\nb"]
    assert "checked" in page.one("input", name="ordered").attributes


async def test_a_relay_shows_its_address_to_those_who_may_change_it_and_how_to_run_its_hub(api: Api) -> None:
    made = await api.endpoint(
        name="github", kind="relay", url=None, event_types=[], verify={"scheme": "github", "secret": "hunter2"}
    )
    page = await read(api.owner, f"/endpoints/{made['id']}")
    assert page.one("code", id="hook-url").text == made["hook_url"]
    assert page.has("button", data_copy_from="#hook-url")
    assert page.has("button", text="New address")
    assert "those of GitHub" in page.text
    assert f"redrive hub --edge … --endpoint {made['id']}" in page.text
    assert "None" not in page.text
    looked_at = await read(api.viewer, f"/endpoints/{made['id']}")
    assert looked_at.one("code", id="hook-url").text.endswith("/v1/hooks/[redacted]")
    assert not looked_at.has("button", data_copy_from="#hook-url")
    assert "relay, through a hub" in (await read(api.viewer, "/endpoints")).text


class Link:
    def post(self, text: str) -> None:
        """core.relay.HubLink: nobody reads it."""

    def end(self) -> None:
        """The same."""


async def test_a_relay_shows_whether_a_hub_is_connected(api: Api) -> None:
    made = await api.endpoint(name="github", kind="relay", url=None, event_types=[])
    path = f"/endpoints/{made['id']}"
    await api.nobody.request("POST", made["hook_url"][made["hook_url"].index("/v1/") :], body=b"1")

    async def told(badge: str) -> tuple[bool, bool, bool, int]:
        """Whether its page, its lane and the list of all say so, and what its health counts."""
        page, listed = await read(api.viewer, path), await read(api.viewer, "/endpoints")
        in_lane = badge in page.one("section", id="order").text
        health = (await api.viewer.get(f"/v1{path}/health")).json
        return page.has("span", text=badge), in_lane, listed.has("span", text=badge), health["hubs"]

    alone = "No hub is connected to this API process. Webhooks are taken, and wait for one."
    assert await told("waits for a hub") == (True, True, True, 0)
    assert alone in (await read(api.viewer, path)).text

    assert api.context.hubs is not None
    seats = [api.context.hubs.join(api.org_id, UUID(made["id"]), "github", Link(), "http://x/") for _ in range(2)]
    assert await told("2 hubs connected") == (True, False, True, 2)
    assert await told("waits for a hub") == (False, False, False, 2)
    assert alone not in (await read(api.viewer, path)).text
    for seat in seats:
        assert seat is not None
        seat.leave()


async def test_the_forms_of_a_relay_have_no_url_and_never_show_the_secret(api: Api) -> None:
    new = await read(api.owner, "/endpoints/new?kind=relay")
    assert new.one("input", name="kind").attributes["value"] == "relay"
    assert new.one("input", name="policy").attributes["value"] == "relay"
    assert "checked" in new.one("input", name="ordered").attributes
    assert new.has("select", name="verify.scheme")
    assert not new.has("input", name="url")
    usual = await read(api.owner, "/endpoints/new")
    assert usual.has("input", name="url")
    assert not usual.has("select", name="verify.scheme")
    made = await api.endpoint(kind="relay", url=None, event_types=[], verify={"scheme": "slack", "secret": "hunter2"})
    edit = await read(api.owner, f"/endpoints/{made['id']}/edit")
    assert not edit.has("input", name="url")
    assert not edit.has("textarea", name="ca_pem")
    assert "selected" in edit.one("option", value="slack").attributes
    assert edit.has("button", text="Stop verifying")
    assert b"hunter2" not in edit.answer.body


async def test_an_exchange_of_rabbitmq_is_shown_and_made_where_others_have_a_url(broker_api: Api, api: Api) -> None:
    made = await broker_api.endpoint(kind="rabbitmq", url=None, exchange=f"orders {HOSTILE}", routing_key=None)
    path = f"/endpoints/{made['id']}"
    page = await read(broker_api.viewer, path)
    assert f"orders {HOSTILE} → each event's type" in page.text
    assert "None" not in page.text
    assert not page.has("img")
    assert f"orders {HOSTILE}" in (await read(broker_api.viewer, "/endpoints")).text
    edit = await read(broker_api.owner, f"{path}/edit")
    assert edit.one("input", name="exchange").attributes["value"] == f"orders {HOSTILE}"
    for field in (("input", "url"), ("textarea", "ca_pem"), ("select", "verify.scheme")):
        assert not edit.has(field[0], name=field[1])
    new = await read(broker_api.owner, "/endpoints/new?kind=rabbitmq")
    assert new.one("input", name="kind").attributes["value"] == "rabbitmq"
    assert new.one("input", name="exchange").attributes["data-empty"] == '""'
    elsewhere = await read(api.owner, "/endpoints/new?kind=rabbitmq")
    assert not elsewhere.has("a", text="Publish to RabbitMQ")
    assert elsewhere.has("input", name="url")


async def test_an_exchange_says_whether_any_worker_knows_rabbitmq(broker_api: Api) -> None:
    made = await broker_api.endpoint(kind="rabbitmq", url=None, exchange="orders")
    path = f"/endpoints/{made['id']}"
    assert "No worker knows RabbitMQ" in (await read(broker_api.viewer, path)).text
    workers = Workers(broker_api.context.engine_db, DatabaseClock())
    card = WorkerCard(uuid4(), "h", 1, "1", ("http", RABBITMQ_QUEUE), 9)
    await workers.beat(card)
    assert "No worker knows RabbitMQ" not in (await read(broker_api.viewer, path)).text
    await workers.leave(card.worker_id)


async def test_a_search_leads_to_the_endpoint_of_that_name_or_says_there_is_none(api: Api) -> None:
    made = await api.endpoint(name="billing & co")
    led = await api.owner.get("/endpoints?q=billing%20%26%20co")
    assert (led.status, led.headers["location"]) == (303, f"/endpoints/{made['id']}")
    for asked in ("nowhere", str(uuid4()), "%00"):
        page = await read(api.owner, f"/endpoints?q={asked}")
        assert page.status == 200
        assert page.has("p", role="alert")
    assert not (await read(api.owner, "/endpoints")).has("p", role="alert")


@pytest.mark.parametrize("tail", ["", "/edit"])
async def test_an_endpoint_that_is_not_there_is_a_page_that_says_so(api: Api, tail: str) -> None:
    made = await api.endpoint()
    path = f"/endpoints/{made['id']}{tail}"
    assert (await read(api.stranger, path)).status == 404
    assert (await read(api.owner, f"/endpoints/{uuid4()}{tail}")).status == 404
    assert (await read(api.owner, f"/endpoints/none{tail}")).status == 404
    await api.owner.request("DELETE", f"/v1/endpoints/{made['id']}")
    assert (await read(api.owner, path)).status == 404


async def test_an_org_without_endpoints_is_told_what_one_is(api: Api) -> None:
    page = await read(api.owner, "/endpoints")
    assert "Until there is one, events wait in the inbox." in page.text
    assert page.has("a", text="Make the first one")
    assert not (await read(api.viewer, "/endpoints")).has("a", text="Make the first one")


async def test_a_breaker_is_told_and_can_be_closed_by_those_who_may(api: Api) -> None:
    made = await api.endpoint(name="tripped")
    path = f"/endpoints/{made['id']}"
    states = BreakerStates(api.context.engine_db, DatabaseClock())
    place = api.org_id, UUID(made["id"])
    assert not (await read(api.owner, path)).has("svg", class_="chart chart-stacked chart-wide")
    await Ledger(api.context.engine_db, DatabaseClock()).add([HealthReport(*place, 3, 7, 800, 500, 9.0, 5.0, 1.0, 7)])
    why = f"14 of 20 tries failed. {HOSTILE}"
    assert await states.open_breaker(*place, taken_for=BreakerState.CLOSED, reason=why)
    page = await read(api.owner, path)
    assert page.buttons == ACTIONS | {"Close the breaker"}
    said = f"Its breaker is open: {why} Its deliveries are tried on schedule"
    assert any(notice.text.startswith(said) for notice in page.all("p", class_="notice warn"))
    assert page.has("span", class_="badge bad", text="breaker open")
    assert page.has("svg", class_="chart chart-stacked chart-wide")
    assert not page.has("img")
    assert "Close the breaker" not in (await read(api.viewer, path)).buttons
    assert (await read(api.viewer, "/endpoints")).has("span", class_="badge bad", text="breaker open")
    await api.owner.post(f"/v1{path}/close-breaker")
    page = await read(api.owner, path)
    assert page.buttons == ACTIONS
    assert page.has("span", class_="badge warn", text="breaker ramping")


async def test_failures_in_a_row_are_those_of_the_tries_shown(api: Api) -> None:
    """Workers also report since when an endpoint fails. Without a failed try to show, the page does not say so."""
    made = await api.endpoint(name="restarted")
    place, path = (api.org_id, UUID(made["id"])), f"/endpoints/{made['id']}"
    await Ledger(api.context.engine_db, DatabaseClock()).add([HealthReport(*place, 0, 5, 100, 50, None, 5.0, 60.0, 5)])
    page = await read(api.owner, path)
    facts = {title.text: value.text for title, value in zip(page.all("dt"), page.all("dd"), strict=True)}
    assert facts["Failures in a row"] == "0"
    assert "Nothing but failures" not in facts
    await api.dead_task()
    page = await read(api.owner, path)
    facts = {title.text: value.text for title, value in zip(page.all("dt"), page.all("dd"), strict=True)}
    assert facts["Failures in a row"].startswith("1 since ")


def test_a_day_s_tries_are_drawn_in_half_hours_and_older_ones_left_out() -> None:
    now = datetime(2031, 5, 4, 12, tzinfo=UTC)
    ages = (timedelta(minutes=5), timedelta(minutes=20), timedelta(hours=23), timedelta(hours=25))
    points = [HistoryPoint(now - age, 2, 1, 10.0, 20) for age in ages]
    chart = str(drawn_history(points, now))
    assert "succeeded: 4 at the end, from 0 to 4, 6 in all." in chart
    assert "failed: 2 at the end, from 0 to 2, 3 in all." in chart
    assert "04 May 11:30: succeeded 4, failed 2" in chart
