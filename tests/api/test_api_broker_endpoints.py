"""Endpoints of kind rabbitmq over HTTP: what they must have, what they cannot have, and whose they are."""

from typing import Any

import pytest

from redrive.api.endpoint_input import check_broker
from redrive.api.problems import Problem
from redrive.core.broker import RABBITMQ_QUEUE
from support.engine import claim_due

from .conftest import URL, Api


async def made(api: Api, **fields: object) -> dict[str, Any]:
    return await api.endpoint(**{"kind": "rabbitmq", "url": None, "exchange": "orders", **fields})


async def test_an_exchange_takes_the_place_of_a_url_and_its_tasks_wait_for_workers_of_rabbitmq(
    broker_api: Api,
) -> None:
    endpoint = await made(broker_api, event_types=["no.other"], headers={"x-token": "canary"})
    assert (endpoint["exchange"], endpoint["routing_key"], endpoint["url"]) == ("orders", None, None)
    assert endpoint["secret"].startswith("whsec_")
    shown = await broker_api.viewer.get(f"/v1/endpoints/{endpoint['id']}")
    assert (shown.json["kind"], shown.json["exchange"]) == ("rabbitmq", "orders")
    assert b"canary" not in shown.body
    event_id = await broker_api.event("no.other")
    claimed = await claim_due(broker_api.tasks, queues=(RABBITMQ_QUEUE,))
    told = [(str(job.event_id), job.kind, str(job.endpoint_id)) for job in claimed.jobs]
    assert told == [(event_id, "rabbitmq", endpoint["id"])]


@pytest.mark.parametrize(
    ("given", "field", "message"),
    [
        ({}, "exchange", "needed"),
        ({"exchange": "orders", "url": URL}, "url", "it has an exchange"),
        (
            {"exchange": "orders", "ca_pem": None, "verify": {"scheme": "github", "secret": "x"}},
            "verify",
            "of kind relay",
        ),
        ({"exchange": ""}, "routing_key", "it names the queue"),
        ({"exchange": "", "routing_key": ""}, "routing_key", "it names the queue"),
        ({"exchange": "orders", "event_types": []}, "event_types", "at least 1"),
    ],
)
async def test_what_cannot_be_published_is_refused_with_its_place(
    broker_api: Api, given: dict[str, object], field: str, message: str
) -> None:
    answer = await broker_api.owner.post("/v1/endpoints", {"name": "n", "kind": "rabbitmq", **given})
    assert (answer.status, answer.errors[0][0][:2]) == (422, ["body", field])
    assert message in answer.errors[0][1]


async def test_a_change_of_the_route_is_judged_with_what_stays(broker_api: Api) -> None:
    endpoint = await made(broker_api)
    path = f"/v1/endpoints/{endpoint['id']}"

    async def changed(**fields: object) -> tuple[int, Any]:
        answer = await broker_api.owner.request("PATCH", path, fields)
        return answer.status, answer.json if answer.status == 200 else answer.errors[0][0]

    assert await changed(exchange="") == (422, ["body", "routing_key"])
    assert await changed(exchange=None) == (422, ["body", "exchange"])
    assert await changed(url=URL) == (422, ["body", "url"])
    status, after = await changed(exchange="", routing_key="a queue")
    assert (status, after["exchange"], after["routing_key"]) == (200, "", "a queue")
    assert await changed(routing_key=None) == (422, ["body", "routing_key"])
    status, after = await changed(exchange="fan", routing_key="")
    assert (status, after["exchange"], after["routing_key"]) == (200, "fan", "")
    back = {name: after[name] for name in ("name", "url", "exchange", "routing_key", "headers", "ca_pem")}
    assert (await changed(**back))[0] == 200


async def test_nobody_has_such_an_endpoint_without_a_broker_of_their_own() -> None:
    check_broker("ours", "ours")
    for broker_org, said in ((None, "REDRIVE_RABBITMQ_URL"), ("theirs", "REDRIVE_RABBITMQ_ORG")):
        with pytest.raises(Problem) as refused:
            check_broker(broker_org, "ours")
        assert said in refused.value.errors[0].msg
        assert "theirs" not in refused.value.errors[0].msg
