"""The page of alerts: what fires, what it is about, the rules in a form, who is told; and the word above every page."""

from uuid import UUID

from api.conftest import Api
from redrive.core.alerts import RULES
from redrive.core.breaker import BreakerState
from redrive.store.alert_rounds import AlertRounds
from redrive.store.endpoint_states import BreakerStates
from support.page import read

HOSTILE = '<img src=x onerror=alert(1)>"'


async def look(api: Api) -> None:
    await AlertRounds(api.context.engine_db, api.context.clock, every_s=0).look()


async def test_what_fires_comes_first_then_who_is_told_the_rules_and_what_fired(api: Api) -> None:
    calm = await read(api.viewer, "/alerts")
    assert calm.has("p", class_="empty-title", text="No alert fires")
    assert calm.has("p", class_="empty-title", text="Nothing has fired yet")
    assert "To nobody yet" in calm.text
    endpoint = await api.endpoint(name=HOSTILE, event_types=["invoice.*", "redrive.alert.*"])
    states = BreakerStates(api.context.engine_db, api.context.clock)
    letter = await api.dead_task()
    closed = BreakerState.CLOSED
    assert await states.open_breaker(api.org_id, UUID(endpoint["id"]), taken_for=closed, reason=HOSTILE)
    await look(api)
    page = await read(api.owner, "/alerts")
    assert {found.text.strip() for found in page.all("h3")} == {
        f"warning {RULES[rule].title}" for rule in ("endpoint_open", "dead_letter_arrived")
    }
    assert HOSTILE in page.text
    assert page.has("p", class_="empty-title", text="Nothing is over yet")
    assert not page.has("img")
    assert page.one("span", **{"data-count": "alerts"}).text == "2"
    assert page.has("a", href=f"/endpoints/{endpoint['id']}", text=HOSTILE)
    await api.owner.post(f"/v1/dead-letters/{letter['id']}/resolve")
    await look(api)
    after = await read(api.owner, "/alerts")
    assert "No dead letter is open any more." in after.text
    assert after.one("span", **{"data-count": "alerts"}).text == "1"


async def test_a_rule_is_a_form_for_those_who_may_and_to_be_read_for_others(api: Api) -> None:
    await api.owner.request("PUT", "/v1/alerts/rules/failure_rate", {"threshold": 0.125, "window_s": 120})
    page = await read(api.owner, "/alerts")
    fields = [field.attributes for field in page.all("input") if "id" in field.attributes]
    values = {field["id"]: field["value"] for field in fields}
    assert values["failure_rate-threshold"] == "12.5"
    assert values["failure_rate-window_s"] == "2 min"
    assert values["failure_rate-min_volume"] == "20"
    assert page.has("button", text="Back to the defaults")
    assert page.has("button", text="Test")
    assert not page.has("details", id="rule-no_worker")
    seen = await read(api.viewer, "/alerts")
    assert not seen.has("button", text="Save")
    assert "disabled" in seen.one("input", id="failure_rate-threshold").attributes


async def test_an_error_that_fires_is_told_above_every_page(api: Api) -> None:
    endpoint = await api.endpoint()
    assert not (await read(api.viewer, "/events")).has("a", href="/alerts", text="Alerts", class_="")
    await api.tasks.disable_endpoint(api.org_id, UUID(endpoint["id"]), "Gone.", tried_url=endpoint["url"])
    await look(api)
    told = [notice.text for notice in (await read(api.viewer, "/events")).all("p", class_="notice bad")]
    assert "An alert fires: Redrive disabled an endpoint. Alerts" in told
    await api.owner.post(f"/v1/endpoints/{endpoint['id']}/enable")
    await look(api)
    after = await read(api.viewer, "/events")
    assert not any("alert" in notice.text for notice in after.all("p", class_="notice bad"))
