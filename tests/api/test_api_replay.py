"""Edit and replay over HTTP: what is sent, what is kept, what is shown, and everything that is refused."""

import json
from typing import Any
from uuid import uuid4

import pytest

from redrive.core.ports import Job
from redrive.store.check import check
from support.engine import claim_due

from .conftest import Api

CANARY = "swordfish-9c1e"


async def replay(api: Api, letter: dict[str, Any], given: object = None, *, body: bytes | None = None) -> Any:
    return await api.owner.request("POST", f"/v1/dead-letters/{letter['id']}/replay", given, body=body)


async def job_of(api: Api, letter: dict[str, Any]) -> Job:
    (job,) = [job for job in await api.claim() if str(job.id) == letter["id"]]
    return job


async def test_an_edited_payload_is_sent_byte_for_byte_and_shown_beside_the_original(api: Api) -> None:
    await api.endpoint()
    letter = await api.dead_task(payload={"invoice": 7, "card": {"token": CANARY}})
    edited = b'{"invoice":  8.00, "card": {"token": "other"} }'
    made = await replay(api, letter, body=b'{"now": true, "because": "wrong", "payload": ' + edited + b"}")
    assert (made.status, made.json["state"], made.json["status"]) == (200, "replaying", "pending")
    job = await job_of(api, letter)
    assert (job.body, str(job.event_id)) == (edited, letter["event_id"])
    await api.die(job)
    detail = (await api.viewer.get(f"/v1/dead-letters/{letter['id']}")).json
    hidden = {"token": "[redacted]"}
    assert detail["payload_snapshot"] == {"invoice": 7, "card": hidden}
    assert (detail["edit"], detail["edited_payload"]) == (1, {"invoice": 8.0, "card": hidden})
    (edit,) = detail["edits"]
    assert (edit["number"], edit["because"], edit["headers"], edit["edits_payload"]) == (1, "wrong", [], True)
    assert edit["by"].startswith("key:")
    assert edit["diff"] == [
        {"path": "/invoice", "change": "changed", "before": 7, "after": 8.0},
        {"path": "/card/token", "change": "changed", "before": "[redacted]", "after": "[redacted]"},
    ]
    log = (await api.viewer.get(f"/v1/logs/{letter['id']}")).json
    assert log["request"]["body"] == detail["edited_payload"]
    assert log["edits"] == detail["edits"]
    event = await api.owner.get(f"/v1/events/{letter['event_id']}")
    assert event.json["payload"]["card"]["token"] == CANARY


async def test_without_edits_nothing_is_said_of_any(api: Api) -> None:
    await api.endpoint()
    letter = await api.dead_task()
    detail = (await api.viewer.get(f"/v1/dead-letters/{letter['id']}")).json
    assert (detail["edits"], detail["edit"], detail["edited_payload"]) == ([], None, None)
    assert (await api.viewer.get(f"/v1/logs/{letter['id']}")).json["edits"] == []


async def test_headers_are_sent_and_only_their_names_are_shown(api: Api) -> None:
    await api.endpoint()
    letter = await api.dead_task()
    await replay(api, letter, {"headers": {"X-Tenant": CANARY}, "now": True})
    job = await job_of(api, letter)
    assert json.loads(job.edited_headers or "") == {"X-Tenant": CANARY}
    answers = [await api.owner.get(f"/v1/{place}/{letter['id']}") for place in ("dead-letters", "logs")]
    for each in (*answers, await api.owner.get("/v1/audit?limit=250")):
        assert CANARY.encode() not in each.body
    assert answers[0].json["edits"][0]["headers"] == ["X-Tenant"]


async def test_an_edit_can_be_discarded(api: Api) -> None:
    await api.endpoint()
    letter = await api.dead_task(payload={"n": 1})
    await replay(api, letter, {"payload": {"n": 2}, "now": True})
    await api.die(await job_of(api, letter))
    await replay(api, letter, {"discard_edit": True, "now": True})
    job = await job_of(api, letter)
    assert json.loads(job.body) == {"n": 1}
    detail = (await api.viewer.get(f"/v1/dead-letters/{letter['id']}")).json
    assert (detail["edit"], detail["edited_payload"], len(detail["edits"])) == (None, None, 2)


@pytest.mark.parametrize("given", [None, {}, {"mode": "STEP_ONLY"}, {"payload": None, "headers": None, "mode": None}])
async def test_a_replay_without_changes_is_a_retry(api: Api, given: object) -> None:
    await api.endpoint()
    letter = await api.dead_task(payload={"n": 1})
    made = await replay(api, letter, given)
    assert (made.status, made.json["state"], made.json["policy"]) == (200, "replaying", "integration")
    assert made.json["next_retry_at"] is not None
    assert (await api.viewer.get(f"/v1/dead-letters/{letter['id']}")).json["edits"] == []


async def test_a_policy_can_be_given_for_this_letter_alone(api: Api) -> None:
    await api.endpoint()
    letter, named = await api.dead_task(), await api.dead_task()
    shown = (await api.owner.get("/v1/policies/immediate")).json
    made = await replay(api, letter, {"override_retry_policy": shown | {"max_retries": 9}})
    assert (made.json["policy"], made.json["max_retries"], made.json["retry_policy"]) == ("override", 9, "immediate")
    made = await replay(api, named, {"override_retry_policy": "relay"})
    assert made.json["policy"] == "relay"
    names = [policy["name"] for policy in (await api.owner.get("/v1/policies")).json["data"]]
    assert "override" not in names


async def test_a_payload_may_be_as_large_as_an_event_s(api: Api) -> None:
    await api.endpoint()
    letter = await api.dead_task()
    most = b'"' + b"x" * (1_048_576 - 2) + b'"'
    assert (await replay(api, letter, body=b'{"payload": ' + most[:-1] + b'x"}')).status == 413
    assert (await replay(api, letter, body=b'{"now": true, "payload": ' + most + b"}")).status == 200
    assert (await job_of(api, letter)).body == most
    assert (await api.viewer.get(f"/v1/dead-letters/{letter['id']}")).status == 200


@pytest.mark.parametrize(
    ("given", "loc", "says"),
    [
        ({"mode": "FROM_STEP"}, ["body", "mode"], "not a workflow step"),
        ({"from_step_index": 0}, ["body", "from_step_index"], "not a workflow step"),
        ({"mode": "ALL"}, ["body", "mode"], "'STEP_ONLY' or 'FROM_STEP'"),
        ({"from_step_index": -1}, ["body", "from_step_index"], "greater than or equal to 0"),
        ({"nonsense": 1}, ["body", "nonsense"], "unknown field"),
        ({"now": "yes"}, ["body", "now"], "boolean"),
        ({"headers": {"Authorization": "x"}}, ["body", "headers"], "change the endpoint's headers instead"),
        ({"headers": {"Cookie": "x"}}, ["body", "headers"], "change the endpoint's headers instead"),
        ({"headers": {"x-api-key": "x"}}, ["body", "headers"], "change the endpoint's headers instead"),
        ({"headers": {"Host": "x"}}, ["body", "headers"], "set by Redrive itself"),
        ({"headers": {"X-A": "a\r\nb"}}, ["body", "headers"], "printable ASCII"),
        ({"headers": {"X-A": "[redacted]"}}, ["body", "headers"], "give its value"),
        ({"override_retry_policy": {"kind": "x"}}, ["body", "override_retry_policy", "kind"], "must be one of"),
        ({"override_retry_policy": {"kind": "list", "delays_s": [-1]}}, None, "between 0 and"),
    ],
)
async def test_what_cannot_be_done_is_refused_with_its_place(
    shared_api: Api, given: object, loc: list[str] | None, says: str
) -> None:
    letter = await _any_letter(shared_api)
    refused = await replay(shared_api, letter, given)
    assert refused.status == 422, refused.body
    assert any((loc is None or loc == place) and says in message for place, message in refused.errors), refused.body
    assert (await shared_api.viewer.get(f"/v1/dead-letters/{letter['id']}")).json["state"] == "open"


@pytest.mark.parametrize(
    "payload", [b"NaN", b"1e999", b'"\\ud800"', b"1" * 5_000, b"[" * 70 + b"]" * 70, b'"\xff"', b"{"]
)
async def test_a_payload_is_as_strictly_read_as_an_event_s(shared_api: Api, payload: bytes) -> None:
    letter = await _any_letter(shared_api)
    assert (await replay(shared_api, letter, body=b'{"payload": ' + payload + b"}")).status == 422


async def test_an_unknown_policy_is_named(shared_api: Api) -> None:
    letter = await _any_letter(shared_api)
    refused = await replay(shared_api, letter, {"override_retry_policy": "nonsense"})
    assert refused.errors == [(["body", "override_retry_policy"], "there is no policy named 'nonsense'")]
    assert refused.status == 422


async def test_a_handler_s_task_takes_a_payload_but_no_headers(api: Api) -> None:
    async with api.context.engine_db.transaction() as session:
        name = await session._connection.fetchval("SELECT name FROM redrive.org WHERE org_id = $1", api.org_id)
    await api.sql("SELECT redrive.enqueue('h', '1', NULL, $1)", name)
    claimed = await claim_due(api.tasks, queues=["handler:h"])
    (job,) = [job for job in claimed.jobs if job.org_id == api.org_id]
    await api.die(job)
    letter = {"id": str(job.id)}
    refused = await replay(api, letter, {"headers": {"X-A": "b"}})
    assert refused.errors == [(["body", "headers"], "a task of the kind handler is sent without headers")]
    assert (await replay(api, letter, {"payload": {"n": 2}})).status == 200


async def test_a_letter_that_is_replaying_is_not_replayed_again(api: Api) -> None:
    await api.endpoint()
    letter = await api.dead_task()
    assert (await replay(api, letter, {"payload": 1})).status == 200
    again = await replay(api, letter, {"payload": 2})
    assert (again.status, "is being replayed already" in again.json["detail"]) == (409, True)
    for method, path in (("POST", "/retry"), ("POST", "/resolve"), ("POST", "/ignore"), ("DELETE", "")):
        refused = await api.owner.request(method, f"/v1/dead-letters/{letter['id']}{path}")
        assert (refused.status, refused.json["detail"]) == (409, again.json["detail"]), path  # no try is under way yet
    assert len((await api.viewer.get(f"/v1/dead-letters/{letter['id']}")).json["edits"]) == 1


async def test_a_replay_stands_in_the_books(own_api: Api) -> None:
    await own_api.endpoint()
    letter = await own_api.dead_task()
    assert (await replay(own_api, letter, {"payload": 1, "now": True})).status == 200
    (job,) = await own_api.claim()
    await own_api.die(job)
    report = await check(own_api.url)
    assert report.clean, [(one.rule.name, one.offences) for one in report.violations]


async def test_who_may_not_judge_may_not_replay(shared_api: Api) -> None:
    letter = await _any_letter(shared_api)
    path = f"/v1/dead-letters/{letter['id']}/replay"
    given = {"payload": 1}
    assert (await shared_api.nobody.post(path, given)).status == 401
    for client in (shared_api.staff, shared_api.viewer):
        assert (await client.post(path, given)).status == 403
    strange = await shared_api.stranger.post(path, given)
    unknown = await shared_api.owner.post(f"/v1/dead-letters/{uuid4()}/replay", {"mode": "FROM_STEP"})
    no_id = await shared_api.owner.post("/v1/dead-letters/x/replay", given)
    assert {(each.status, each.json["detail"]) for each in (strange, unknown, no_id)} == {
        (404, "There is no such dead letter.")
    }
    assert (await shared_api.owner.post(f"{path}?x=1", given)).status == 400


async def test_the_workflow_path_takes_camel_case(api: Api) -> None:
    await api.endpoint()
    letter = await api.dead_task()
    given = {"mode": "STEP_ONLY", "overrideRetryPolicy": {"baseDelayMs": 500, "factor": 2, "maxRetries": 2}}
    made = await api.owner.post(f"/api/v1/workflow-dlq/{letter['id']}/replay", given)
    assert (made.status, made.json["state"], made.json["max_retries"]) == (200, "replaying", 2)


async def _any_letter(api: Api) -> dict[str, Any]:
    """One that stays open: nothing is done to it."""
    found = (await api.owner.get("/v1/dead-letters?event_type=stays.open")).json["data"]
    if found:
        letter: dict[str, Any] = found[0]
        return letter
    await api.endpoint(event_types=["stays.open"])
    return await api.dead_task(event_type="stays.open")
