"""/metrics: open to the machine itself, with a key of an owner to others, who may stand behind a proxy. It always
answers.
"""

import re
import secrets
import socket

import asyncpg
import pytest
from hypothesis import given, settings
from hypothesis.strategies import lists, sampled_from, text
from prometheus_client.parser import text_string_to_metric_families

from redrive.api import metrics_desk
from redrive.api.metrics_desk import MetricsDesk
from redrive.api.route_classes import RouteClasses
from redrive.observe.exposition import ProcessNumbers, write
from redrive.observe.metrics_server import SOCKET_VARIABLE, always_ready, serving_metrics
from redrive.observe.process_metrics import OF_WORKERS
from redrive.store.embedded import EmbeddedPostgres
from support.http import HttpClient

from .conftest import Api

Samples = dict[tuple[str, ...], float]


def _samples(exposed: str) -> Samples:
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(exposed)
        for sample in family.samples
    }


async def _scrape(client: HttpClient) -> Samples:
    answer = await client.get("/metrics")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    return _samples(answer.body.decode())


async def test_from_this_machine_no_key_is_needed_and_through_a_proxy_one_is(api: Api) -> None:
    here = await api.nobody.get("/metrics")
    assert (here.status, b"# TYPE workflow_dlq_moves_total counter" in here.body) == (200, True)
    for name in ("X_Forwarded_For", "Forwarded", "Via"):
        assert (await api.nobody.request("GET", "/metrics", headers={name: "10.1.2.3"})).status == 401
        assert (await api.owner.request("GET", "/metrics", headers={name: "10.1.2.3"})).status == 200


async def test_numbers_of_all_orgs_are_for_owners_whose_key_may_be_limited_to_reading(api: Api) -> None:
    elsewhere = {"X-Forwarded-For": "10.1.2.3"}
    for client in (api.staff, api.viewer):
        refused = await client.request("GET", "/metrics", headers=elsewhere)
        assert (refused.status, "it takes OWNER" in refused.json["detail"]) == (403, True)
    for scope, status in (("read", 200), ("produce", 403)):
        made = await api.owner.post("/v1/keys", {"name": f"only to {scope}", "role": "OWNER", "scope": scope})
        limited = api.client(made.json["key"])
        assert (await limited.request("GET", "/metrics", headers=elsewhere)).status == status
        assert (await limited.request("GET", "/v1/orgs", headers={"X-Redrive-Org": "another"})).status == 404


async def test_requests_are_counted_by_what_they_were_for_whatever_became_of_them(api: Api) -> None:
    before = await _scrape(api.nobody)
    event_id = await api.event()
    for _ in range(3):
        assert (await api.owner.get(f"/v1/events/{event_id}/status")).status == 200
    assert (await api.owner.get(f"/v1/events/{api.org_id}/status")).status == 404
    assert (await api.owner.get(f"/v1/events/{event_id}/status?odd=1")).status == 400
    assert (await api.owner.get(f"/v1/no-{event_id}")).status == 404
    assert (await api.nobody.post("/v1/events", {"event_type": "a", "payload": 1})).status == 401
    assert (await api.owner.request("POST", "/v1/events", body=b"x" * 2_000_000)).status == 413
    after = await _scrape(api.nobody)

    def grew(*name: str) -> float:
        return after.get(name, 0) - before.get(name, 0)

    assert grew("redrive_http_requests_total", "api", "events", "2xx") == 1
    assert grew("redrive_http_requests_total", "api", "events", "4xx") == 2
    assert grew("redrive_http_requests_total", "api", "event_status", "2xx") == 3
    assert grew("redrive_http_requests_total", "api", "event_status", "4xx") == 2
    assert grew("redrive_http_requests_total", "api", "other", "4xx") == 1
    assert grew("redrive_http_requests_refused_total", "api", "413") == 1
    assert grew("event_status_queries_total", "api") == 4
    assert grew("redrive_ingest_commit_events_sum", "api") == 1
    assert grew("events_created_total") == 1


async def test_a_probe_that_is_told_not_ready_is_no_request_that_was_refused(own_api: Api) -> None:
    """A server beside a standby hears one every few seconds."""
    (row,) = await own_api.sql("SELECT current_database() AS name")
    await own_api.sql(f"ALTER DATABASE {row['name']} SET default_transaction_read_only = on")
    await own_api.sql(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
    refused, probed = (
        ("redrive_http_requests_refused_total", "api", "503"),
        ("redrive_http_requests_total", "api", "readyz", "5xx"),
    )
    before = await _scrape(own_api.nobody)
    for _ in range(3):
        assert (await own_api.nobody.get("/readyz")).status == 503
    told = await _scrape(own_api.nobody)
    assert (told[refused], told[probed]) == (before[refused], before.get(probed, 0) + 3)
    assert (await own_api.owner.post("/v1/events", {"event_type": "a", "payload": 1})).status == 503
    assert (await _scrape(own_api.nobody))[refused] == before[refused] + 1


@settings(max_examples=25, deadline=None)
@given(
    path=lists(
        text(max_size=5) | sampled_from(["v1", "events", "batch", "status", "dead-letters", ""]), max_size=5
    ).map("/".join)
)
def test_whatever_is_asked_for_has_one_of_few_classes(path: str) -> None:
    classes = RouteClasses(["/v1/events", "/v1/dead-letters/{id}", "/metrics"], ["/", "/runs/{id}"])
    known = {"events", "events_batch", "event_status", "dead_letters", "hooks", "metrics", "pages", "other"}
    assert classes.of(path) in known
    assert classes.of(f"/{path}") in known


async def test_while_the_database_is_away_a_process_still_tells_of_itself(
    own_api: Api, postgres: EmbeddedPostgres
) -> None:
    with_database = await _scrape(own_api.nobody)
    assert with_database["redrive_database_up", "api"] == 1
    assert ("events_created_total",) in with_database
    (row,) = await own_api.sql("SELECT current_database() AS name")
    beside = await asyncpg.connect(postgres.superuser_url)
    await beside.execute(f"ALTER DATABASE {row['name']} ALLOW_CONNECTIONS false")
    await beside.execute(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = $1", row["name"]
    )
    await beside.close()
    without = await _scrape(own_api.nobody)
    assert without["redrive_database_up", "api"] == 0
    assert ("events_created_total",) not in without
    assert without["process_resident_memory_bytes", "api"] > 0


async def test_workers_of_this_server_are_shown_and_one_that_is_silent_is_left_out_and_counted(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_desk, "CHILD_WITHIN_S", 0.3)
    doors = {name: secrets.token_hex(16) for name in ("worker-1", "worker-2", "worker-3")}
    desk = MetricsDesk(api.context, doors)
    monkeypatch.setenv(SOCKET_VARIABLE, doors["worker-1"])
    own = ProcessNumbers("worker-1", OF_WORKERS)
    with socket.socket(socket.AF_UNIX) as hanging:
        hanging.bind(b"\0" + bytes.fromhex(doors["worker-2"]))
        hanging.listen()
        async with serving_metrics(lambda accept: write([own], accept), always_ready, host="127.0.0.1", port=None):
            first = _samples((await desk.text(""))[0])
            second = _samples((await desk.text(""))[0])
    assert ("redrive_claim_failures_total", "worker-1") in first
    assert ("redrive_claim_failures_total", "api") in first
    assert not {"worker-2", "worker-3"} & {part for name in first for part in name}
    failures = ("redrive_scrape_failures_total", "api")
    assert second[failures] - first[failures] == 2


async def test_c16_c21_requests_are_timed_by_route_on_the_fast_paths_too(own_api: Api) -> None:
    async def timed() -> dict[tuple[str, str], float]:
        text = (await own_api.nobody.get("/metrics")).body.decode()
        found = re.findall(r'redrive_http_request_seconds_count\{method="(\w+)",.*?route="([^"]+)"\} (\S+)', text)
        return {(method, route): float(n) for method, route, n in found}

    before = await timed()
    made = (await own_api.owner.post("/v1/events", {"event_type": "a", "payload": 1})).json
    batch = [{"event_type": "a", "payload": 1}]
    await own_api.owner.post("/v1/events/batch", batch)
    for path in (f"/v1/events/{made['event_id']}/status", f"/v1/events/{made['event_id']}", "/v1/inbox"):
        for _ in range(3):  # the first one looks the caller up, the others take the fast path
            assert (await own_api.owner.get(path)).status == 200
    assert (await own_api.owner.get("/v1/inbox?status=failed")).status == 200
    for n in range(5):
        assert (await own_api.owner.get(f"/v1/nothing/{n}")).status == 404
        await own_api.owner.request("PROPFIND", f"/pot/{n}")
    after = await timed()
    assert {
        key: n - before.get(key, 0) for key, n in after.items() if n != before.get(key, 0) and key[1] != "/metrics"
    } == {
        ("POST", "/v1/events"): 1,
        ("POST", "/v1/events/batch"): 1,
        ("GET", "/v1/events/{event_id}/status"): 3,
        ("GET", "/v1/events/{event_id}"): 3,
        ("GET", "/v1/inbox"): 3,
        ("GET", "/v1/inbox?status=failed"): 1,
        ("GET", "other"): 5,
        ("other", "other"): 5,
    }
