"""Alerts over HTTP: incidents, rules with their limits and readings, the test, and who may."""

from redrive.core.alerts import RULES
from redrive.core.presets import PRESETS
from redrive.store.alert_rounds import AlertRounds
from redrive.store.orgs import ensure_org

from .conftest import Api


async def look(api: Api) -> int:
    return await AlertRounds(api.context.engine_db, api.context.clock, every_s=0).look() or 0


async def test_an_incident_is_listed_while_it_fires_and_after(api: Api) -> None:
    await api.endpoint()
    letter = await api.dead_task()
    assert await look(api) >= 1  # other tests share the database
    (alert,) = (await api.viewer.get("/v1/alerts?state=firing")).json["data"]
    assert (alert["rule"], alert["state"], alert["over_at"]) == ("dead_letter_arrived", "firing", None)
    assert alert["subject"] == {"kind": "org", "id": str(api.org_id), "name": None}
    assert alert["saw"]["open"] == 1
    assert (await api.viewer.get(f"/v1/alerts/{alert['id']}")).json == alert
    assert (await api.owner.get("/v1/alerts?state=over")).json["data"] == []
    assert (await api.stranger.get("/v1/alerts")).json["data"] == []
    assert (await api.stranger.get(f"/v1/alerts/{alert['id']}")).status == 404
    assert (await api.owner.post(f"/v1/dead-letters/{letter['id']}/resolve")).status == 200
    assert await look(api) >= 1  # other tests share the database
    (over,) = (await api.owner.get("/v1/alerts?state=over&rule=dead_letter_arrived")).json["data"]
    assert (over["id"], over["state"], over["over_text"]) == (alert["id"], "over", "No dead letter is open any more.")
    for query in ("state=on", "rules=x", "limit=0", "since=5"):
        assert (await api.owner.get(f"/v1/alerts?{query}")).status == 400, query


async def test_pages_are_newest_first_and_lead_to_the_end(api: Api) -> None:
    letters = []
    await api.endpoint()
    for _ in range(3):
        letters.append((await api.dead_task())["id"])
        await look(api)
        await api.owner.post(f"/v1/dead-letters/{letters[-1]}/resolve")
        await look(api)
    seen: list[str] = []
    path = "/v1/alerts?limit=2"
    while True:
        page = (await api.owner.get(path)).json
        seen += [alert["opened_at"] for alert in page["data"]]
        if not page["pagination"]["has_more"]:
            break
        path = f"/v1/alerts?limit=2&cursor={page['pagination']['cursor']}"
    assert len(seen) == 3
    assert seen == sorted(seen, reverse=True)


async def test_a_rule_is_set_within_its_limits_reset_and_audited(api: Api) -> None:
    rules = {rule["rule"]: rule for rule in (await api.viewer.get("/v1/alerts/rules")).json["data"]}
    assert list(rules) == [name for name, rule in RULES.items() if rule.scope != "installation"]
    assert rules["failure_rate"]["parameters"][0]["value"] == 0.05
    assert rules["dead_letters_open"]["readings"][0]["saw"] == {"open": 0, "threshold": 50}
    path = "/v1/alerts/rules/dead_letters_open"
    put = await api.owner.request("PUT", path, {"threshold": 0, "enabled": True})
    assert (put.status, put.json["is_set"], put.json["parameters"][0]["value"]) == (200, True, 0)
    await api.endpoint()
    await api.dead_task()
    await look(api)
    assert {alert["rule"] for alert in (await api.owner.get("/v1/alerts")).json["data"]} >= {"dead_letters_open"}
    for wrong in ({"threshold": -1}, {"threshold": 1.5}, {"limit": 3}, {"enabled": "yes"}):
        refused = await api.owner.request("PUT", path, wrong)
        assert (refused.status, refused.json["errors"][0]["loc"]) == (422, ["body", next(iter(wrong))]), wrong
    assert (await api.owner.request("DELETE", path)).status == 204
    assert (await api.owner.request("DELETE", path)).status == 204
    again = (await api.owner.get("/v1/alerts/rules")).json["data"]
    assert next(rule for rule in again if rule["rule"] == "dead_letters_open")["is_set"] is False
    for huge in (b"1" + b"0" * 400, b"-1" + b"0" * 400, b"1e999"):
        refused = await api.owner.request("PUT", path, body=b'{"threshold": ' + huge + b"}")
        assert (refused.status, refused.json["errors"][0]["loc"]) == (422, ["body", "threshold"]), huge
    audited = (await api.owner.get("/v1/audit?subject_kind=alert_rule")).json["data"]
    assert [entry["action"] for entry in audited] == ["alert_rule.reset", "alert_rule.put"]
    assert (audited[1]["before"]["threshold"], audited[1]["after"]["threshold"]) == (50, 0)
    assert (await api.owner.request("PUT", "/v1/alerts/rules/nothing", {})).status == 404
    assert (await api.stranger.request("PUT", "/v1/alerts/rules/no_worker", {})).status == 404
    for client, status in ((api.staff, 403), (api.viewer, 403), (api.nobody, 401)):
        assert (await client.request("PUT", path, {})).status == status
        assert (await client.request("DELETE", path)).status == status
        assert (await client.post("/v1/alerts/test")).status == status


async def test_the_installation_s_rules_are_those_of_the_org_default(own_api: Api) -> None:
    api = own_api  # where nothing waits: how long it has waited is a matter of speed
    await ensure_org(api.context.engine_db, "default", PRESETS, overridden=frozenset())
    there = {"X-Redrive-Org": "default"}
    rules = (await api.owner.request("GET", "/v1/alerts/rules", headers=there)).json["data"]
    assert [rule["rule"] for rule in rules] == list(RULES)
    readings = {rule["rule"]: [seen["standing"] for seen in rule["readings"]] for rule in rules}
    assert (readings["no_worker"], readings["job_stale"], readings["long_transaction"]) == (["clear"], [], ["clear"])
    put = await api.owner.request("PUT", "/v1/alerts/rules/no_worker", {"threshold_s": 45}, headers=there)
    assert put.json["parameters"][0]["value"] == 45
    assert (await api.owner.request("PUT", "/v1/alerts/rules/no_worker", {})).status == 404


async def test_a_test_says_who_gets_it_and_is_a_notice(api: Api) -> None:
    nobody = (await api.owner.post("/v1/alerts/test")).json
    assert nobody["endpoints"] == []
    await api.endpoint(name="everything", event_types=["*"])
    ops = await api.endpoint(name="ops", event_types=["redrive.alert.*"])
    told = (await api.owner.post("/v1/alerts/test")).json
    assert told["endpoints"] == [{"id": ops["id"], "name": "ops", "kind": "http", "disabled": False}]
    (notice, _) = (await api.owner.get("/v1/notices?kind=alert.test")).json["data"]
    assert (notice["id"], notice["severity"]) == (told["notice_id"], "info")
    answers = [(await api.owner.post("/v1/alerts/test")).status for _ in range(19)]
    assert answers == [200] * 18 + [429]
