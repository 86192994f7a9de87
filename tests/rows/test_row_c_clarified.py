"""Row C as clarified: the inbox's order, who did what in the log, what the lines say."""

import re
from datetime import timedelta
from uuid import uuid4

import pytest

from redrive import Redrive, RetryService
from support.engine import ManualClock
from support.holding import HoldingReceiver
from support.installation import Installation, installation
from support.processes import ADMIN_KEY, SECRET_KEY, Program, Served, run, serve
from support.receiver import Answer, open_receiver
from support.remote import Remote, at

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")


def _moves(program: Program, event_id: str) -> list[tuple[object, object]]:
    lines = [line for line in program.lines("status_transition") if line["event_id"] == event_id]
    return [(line["old_status"], line["new_status"]) for line in lines]


async def _open(served: Served) -> Remote:
    api = Remote(served.host, served.port, ADMIN_KEY)
    await api.policy("hasty", kind="list", delays_s=[0.05], max_retries=1)
    return api


async def test_c13_the_inbox_is_in_the_order_of_timestamps_and_ties_in_that_of_arrival(
    redrive: Installation, clock: ManualClock, receiver: HoldingReceiver
) -> None:
    receiver.usual = 403
    endpoint = await redrive.api.endpoint(receiver.url, policy="triggers")
    times = ["2030-03-01T10:00:00Z", None, "2024-01-01T00:00:00Z", "2030-03-01T10:00:00Z", "2027-01-01T00:00:00+02:00"]
    waiting, failed = [], []
    for given in times:
        stamp = {} if given is None else {"timestamp": given}
        nobody = {"event_type": "nobody.asked", "payload": 1, **stamp}
        waiting.append((await redrive.api.post("/v1/events", nobody))["event_id"])
        doomed = {"event_type": "a", "payload": 1, "endpoint_id": endpoint["id"], **stamp}
        failed.append((await redrive.api.post("/v1/events", doomed))["event_id"])
        clock.advance(1)
        await redrive.work()
    order = [2, 4, 0, 3, 1]  # the second has the time of its arrival, which is the test's
    for status, ids in (("received", waiting), ("failed", failed)):
        walked: list[str] = []
        cursor: dict[str, str] = {}
        while True:
            page = await redrive.api.get("/v1/inbox", status=status, limit="2", **cursor)
            walked += [event["event_id"] for event in page["events"]]
            if not page["pagination"]["has_more"]:
                break
            cursor = {"cursor": page["pagination"]["cursor"]}
        assert walked == [ids[place] for place in order], status


async def test_c13_api_clients_reach_the_inbox_without_v1_and_browsers_the_page(redrive: Installation) -> None:
    event_id = (await redrive.api.post("/v1/events", {"event_type": f"x.{uuid4().hex}", "payload": 1}))["event_id"]
    assert (await redrive.api.get("/inbox"))["events"] == (await redrive.api.get("/v1/inbox"))["events"]
    assert (await redrive.api.get("/inbox", status="failed"))["events"] == []
    assert await redrive.api.get(f"/events/{event_id}/status") == await redrive.api.status(event_id)
    acknowledged = await redrive.api.post(f"/events/{event_id}/ack")
    assert acknowledged["status"] == "delivered"
    redrive.api.http.key = None
    assert (await redrive.api.http.get(f"/events/{event_id}/status")).status == 401
    cookie = f"redrive_session={await redrive.session_token()}"
    page = await redrive.api.http.get("/inbox", Cookie=cookie, Accept="text/html")
    assert (page.status, page.headers["content-type"].partition(";")[0]) == (200, "text/html")


async def test_c16_c18_c21_c23_each_line_says_who_acted_who_handed_in_and_when(
    database_url: str, receiver: HoldingReceiver
) -> None:
    """By `redrive serve` itself: what it writes is what an operator reads."""
    env = {"REDRIVE_DATABASE_URL": database_url}
    async with serve(env=env) as served:
        api, program = await _open(served), served.program
        maker = await api.post("/v1/keys", {"name": "producer", "role": "ADMIN"})
        producer = Remote(served.host, served.port, maker["key"])
        endpoint = await api.endpoint(receiver.url, policy="hasty")
        receiver.usual = 503
        event_id = await producer.event(endpoint["id"])
        await api.failed(event_id)
        await program.said("status_transition", event_id=event_id, new_status="failed")
        assert _moves(program, event_id) == [
            (None, "received"),
            ("received", "queued"),
            ("queued", "queued"),
            ("queued", "failed"),
        ]
        letter = await api.letter(endpoint["id"])
        receiver.usual = 200
        await api.post(f"/v1/dead-letters/{letter['id']}/retry", {"now": True})
        await program.said("status_transition", event_id=event_id, new_status="delivered")

        own_key = next(key["id"] for key in (await api.get("/v1/keys"))["data"] if key["id"] != maker["id"])
        lines = [line for line in program.log if line.get("event_id") == event_id]
        by = {(line.get("old_status"), line.get("new_status")): line["actor"] for line in lines}
        assert by[None, "received"] == f"key:{maker['id']}"
        assert by["received", "queued"] == by["queued", "queued"] == by["queued", "failed"] == "system"
        assert by["failed", "queued"] == f"key:{own_key}"
        assert {line["key_id"] for line in lines} == {maker["id"]}
        assert all(line["correlation_id"] for line in lines)
        assert len({line["correlation_id"] for line in lines if line["actor"] == "system"}) == 1

        scheduled = await program.said("retry_scheduled", event_id=event_id)
        failure = await program.said("delivery_failure", event_id=event_id)
        assert scheduled["retry_in_ms"] == failure["retry_in_ms"] == 50
        assert 0 < scheduled["scheduling_latency_ms"] < 5_000
        assert "scheduled_in_ms" not in failure
        texts = [str(value) for line in lines for value in line.values()]
        assert [text for text in texts if TIME.match(text) and not text.endswith("Z")] == []

        inbox = (await producer.post("/v1/events", {"event_type": "nobody.asked", "payload": 1}))["event_id"]
        await producer.post(f"/v1/events/{inbox}/ack")
        await program.said("status_transition", event_id=inbox, new_status="delivered")
        assert _moves(program, inbox) == [(None, "received"), ("received", "delivered")]
        assert (await api.get(f"/v1/events/{inbox}"))["submitted_by"] == f"key:{maker['id']}"
        producer.close()
        api.close()


async def test_c16_every_task_has_a_correlation_id(database_url: str) -> None:
    async with installation(database_url) as redrive:
        app = Redrive(redrive.url)
        given = await app.enqueue("edi.orders", {"n": 1}, correlation_id="mine")
        made = await app.enqueue("edi.orders", {"n": 2})
        await app.close()
        async with RetryService(redrive.url, actor="cli:test") as service:
            entry = await service.report_failure("edi.orders", {"n": 3}, ConnectionError("down"))
        ids = [(await redrive.api.get(f"/v1/events/{event}"))["correlation_id"] for event in (given, made)]
        ids.append((await redrive.api.log(str(entry)))["correlation_id"])
    assert ids[0] == "mine"
    assert all(re.fullmatch("[0-9a-f]{32}", text) for text in ids[1:])
    assert len(set(ids)) == 3


async def test_c23_retry_after_can_be_switched_off(redrive: Installation, clock: ManualClock) -> None:
    async with open_receiver() as receiver:
        receiver.usual = lambda _: Answer(503, headers={"retry-after": "1800"})
        for name, honoured in (("polite", 3600), ("strict", 0)):
            delays = {"kind": "list", "delays_s": [60, 300, 900], "max_retry_after_s": honoured}
            await redrive.api.policy(name, **delays)
            endpoint = await redrive.api.endpoint(receiver.url, name=name, policy=name)
            event_id = await redrive.api.event(endpoint["id"])
            await redrive.work()
            status = await redrive.api.status(event_id)
            assert at(status["next_retry_at"]) == clock.now() + timedelta(seconds=1800 if honoured else 60)


async def test_c23_a_permanent_failure_counts_no_retry(redrive: Installation, receiver: HoldingReceiver) -> None:
    receiver.usual = 403
    endpoint = await redrive.api.endpoint(receiver.url, policy="triggers")
    event_id = await redrive.api.event(endpoint["id"])
    await redrive.work()
    status = await redrive.api.status(event_id)
    assert (status["status"], status["retry_attempts"]) == ("failed", 0)


async def test_c14_the_default_policy_of_an_org_is_a_setting(redrive: Installation, receiver: HoldingReceiver) -> None:
    receiver.usual = 503
    endpoint = await redrive.api.endpoint(receiver.url)

    async def policy_of_next() -> str:
        await redrive.api.event(endpoint["id"])
        await redrive.work()
        entries = (await redrive.api.get("/v1/retry-queue", limit="100"))["data"]
        return str(max(entries, key=lambda entry: entry["id"])["policy"])

    (org,) = (await redrive.api.get("/v1/orgs"))["data"]
    assert (org["default_policy"], await policy_of_next()) == ("integration", "integration")
    changed = await redrive.api.http.request("PUT", f"/v1/orgs/{org['id']}", {"default_policy": "triggers"})
    assert (changed.status, changed.json["default_policy"]) == (200, "triggers")
    assert await policy_of_next() == "triggers"
    assert (await redrive.api.get("/v1/policies/triggers"))["default"] is True
    refused = await redrive.api.http.request("PUT", f"/v1/orgs/{org['id']}", {"default_policy": "nothing"})
    assert refused.status == 422
    (audited,) = (await redrive.api.get("/v1/audit", action="org.update"))["data"]
    assert (audited["before"]["default_policy"], audited["after"]["default_policy"]) == ("integration", "triggers")


async def test_c14_the_installation_has_a_default_policy_and_presets_follow_their_variables(
    database_url: str, receiver: HoldingReceiver
) -> None:
    base = {"REDRIVE_DATABASE_URL": database_url}
    given = {"REDRIVE_DEFAULT_POLICY": "triggers", "MAX_RETRIES": "5", "RETRY_DELAYS": "1,2", "MAX_RETRY_ATTEMPTS": "2"}
    seen = []
    for env in (base | given, base):
        async with serve("--no-worker", env=env) as served:
            api = Remote(served.host, served.port, ADMIN_KEY)
            (org,) = (await api.get("/v1/orgs"))["data"]
            transformer, triggers = [await api.get(f"/v1/policies/{name}") for name in ("transformer", "triggers")]
            seen.append(
                (org["default_policy"], transformer["max_retries"], triggers["delays_s"], triggers["max_retries"])
            )
            if env != base:
                refused = await api.http.request("DELETE", "/v1/policies/triggers")
                assert (refused.status, "last resort" in refused.json["detail"]) == (409, True)
            api.close()
    assert seen == [("triggers", 5, [1.0, 2.0], 2), ("integration", 3, [60.0, 300.0, 900.0], 3)]
    env = base | {"REDRIVE_SECRET_KEY": SECRET_KEY, "REDRIVE_DEFAULT_POLICY": "nothing"}
    code, said = await run("serve", "--no-worker", "--port", "0", **env)
    assert code == 2
    assert "REDRIVE_DEFAULT_POLICY" in said
    assert "has no such policy" in said


async def test_c17_what_died_of_an_event_is_found_and_retried(
    redrive: Installation, clock: ManualClock, receiver: HoldingReceiver
) -> None:
    receiver.usual = 403
    for _ in range(2):
        await redrive.api.endpoint(receiver.url, event_types=["paid"], policy="triggers")
    ids = []
    for number in range(2):
        made = await redrive.api.http.post(
            "/v1/events", {"event_type": "paid", "payload": {"n": number}}, X_Correlation_Id=f"order-{number}"
        )
        ids.append(made.json["event_id"])
    await redrive.work()
    found = await redrive.api.get("/v1/dead-letters", event_id=ids[0])
    assert [letter["event_id"] for letter in found["data"]] == [ids[0]] * 2
    assert found["pagination"]["total_count"] == 2
    for query in ({"correlation_id": "order-1"}, {"q": "order-1"}, {"q": ids[1]}):
        letters = (await redrive.api.get("/v1/dead-letters", **query))["data"]
        assert [letter["event_id"] for letter in letters] == [ids[1]] * 2, query
    cookie = f"redrive_session={await redrive.session_token()}"
    page = (await redrive.api.http.get("/app/admin/dlq?q=order-1", Cookie=cookie)).body.decode()
    tasks = {letter["id"] for letter in letters}
    assert all(task in page for task in tasks)
    assert all(letter["id"] not in page for letter in found["data"])
    code, said = await run(
        "dead", "list", "--event", ids[0], "--json", REDRIVE_DATABASE_URL=redrive.url, REDRIVE_SECRET_KEY=SECRET_KEY
    )
    assert (code, said.count(f'"event_id": "{ids[0]}"') or said.count(f'"event_id":"{ids[0]}"')) == (0, 2)

    receiver.usual = 200
    retried = await redrive.api.post(f"/v1/events/{ids[0]}/retry", {"now": True, "because": "fixed"})
    assert (retried["status"], retried["refused"]) == ("queued", [])
    assert set(retried["retried"]) == {letter["id"] for letter in found["data"]}
    await redrive.work()
    assert (await redrive.api.status(ids[0]))["status"] == "delivered"
    assert (await redrive.api.status(ids[1]))["status"] == "failed"
    again = await redrive.api.http.post(f"/v1/events/{ids[0]}/retry")
    assert (again.status, "no open dead letter" in again.json["detail"]) == (409, True)
    assert (await redrive.api.http.post(f"/v1/events/{uuid4()}/retry")).status == 404
    stranger = await redrive.other_org("another")
    assert (await stranger.http.post(f"/v1/events/{ids[1]}/retry")).status == 404
    assert (await stranger.get("/v1/dead-letters", correlation_id="order-1"))["data"] == []
    stranger.close()


@pytest.mark.parametrize("given", ["shop-events", None])
async def test_c21_the_name_of_the_service_is_a_setting(database_url: str, given: str | None) -> None:
    env = {"REDRIVE_DATABASE_URL": database_url} | ({"REDRIVE_SERVICE_NAME": given} if given else {})
    async with serve(env=env) as served:
        api = Remote(served.host, served.port, ADMIN_KEY)
        await api.post("/v1/events", {"event_type": "nobody.asked", "payload": 1})
        await served.program.said("status_transition", new_status="received", service=given or "redrive-api")
        await served.program.said("worker_started", service=given or "redrive-worker")
        api.close()
    services = {line["service"] for line in served.program.log if "service" in line}
    assert services == ({given} if given else {"redrive", "redrive-api", "redrive-worker"})
