"""Nobody sets what is Redrive's to set: a field that is not taken is refused, and so is a value that is not known."""

import json
from typing import Any
from uuid import uuid4

import pytest

from .conftest import URL, Api

OURS = {
    "org_id": str(uuid4()),
    "state": "succeeded",
    "status": "delivered",
    "fence": 7,
    "tasks": 0,
    "received_at": "2020-01-01T00:00:00Z",
    "content_type": "text/html",
    "handler": "mail",
}
EVENT = {"event_type": "a", "payload": 1}
ENDPOINT = {"name": "mine", "url": URL}


@pytest.mark.parametrize("name", OURS)
async def test_an_event_takes_no_field_of_ours(shared_api: Api, name: str) -> None:
    given = {**EVENT, name: OURS[name]}
    answer = await shared_api.owner.post("/v1/events", given)
    assert (answer.status, answer.errors[0][0]) == (422, ["body", name])
    batch = (await shared_api.owner.post("/v1/events/batch", [EVENT, given])).json
    assert (batch["accepted"], [r["errors"][0]["loc"] for r in batch["rejected"]]) == (1, [["body", 1, name]])


@pytest.mark.parametrize("name", [*OURS, "id", "secret", "disabled_at", "deleted_at", "created_at"])
async def test_an_endpoint_takes_no_field_of_ours(api: Api, name: str) -> None:
    value = OURS.get(name, "x")
    answer = await api.owner.post("/v1/endpoints", {**ENDPOINT, name: value})
    assert (answer.status, answer.errors[0][0]) == (422, ["body", name])
    made = await api.endpoint()
    changed = await api.owner.request("PATCH", f"/v1/endpoints/{made['id']}", {name: value})
    assert (changed.status, changed.errors[0][0]) == (422, ["body", name])


async def test_a_cloud_event_s_extensions_set_nothing_of_ours(api: Api) -> None:
    """An extension may have any name: it is passed on, and means nothing here."""
    names = {name.replace("_", ""): str(value) for name, value in OURS.items()}
    event: dict[str, Any] = {"id": "1", "source": "/s", "type": "a", "specversion": "1.0", **names}
    headers = {"content-type": "application/cloudevents+json"}
    answer = await api.owner.request("POST", "/v1/events", body=json.dumps(event).encode(), headers=headers)
    assert (answer.status, answer.json["status"]) == (202, "received")
    shown = (await api.owner.get(f"/v1/events/{answer.json['event_id']}")).json
    assert shown["received_at"] > "2026"
    refused = await api.owner.request(
        "POST", "/v1/events", body=json.dumps({**event, "org_id": "x"}).encode(), headers=headers
    )
    assert (refused.status, refused.errors[0][0]) == (422, ["body", "org_id"])


@pytest.mark.parametrize(
    ("path", "given", "place", "allowed"),
    [
        ("/v1/endpoints", {**ENDPOINT, "kind": "fax"}, ["body", "kind"], ("http", "relay", "rabbitmq")),
        ("/v1/policies/preview", {"kind": "weekly"}, ["body", "kind"], ("list", "exponential", "immediate", "manual")),
    ],
)
async def test_an_unknown_value_is_answered_with_the_known_ones(
    shared_api: Api, path: str, given: dict[str, Any], place: list[str], allowed: tuple[str, ...]
) -> None:
    answer = await shared_api.owner.post(path, given)
    assert (answer.status, answer.errors[0][0]) == (422, place)
    assert all(value in answer.errors[0][1] for value in allowed)


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/events?status=lost", ("received", "queued", "delivered", "failed")),
        ("/v1/retry-queue?status=lost", ("pending", "in_progress")),
        ("/v1/dead-letters?state=lost", ("open", "replaying", "resolved", "ignored")),
    ],
)
async def test_an_unknown_filter_value_is_answered_with_the_known_ones(
    shared_api: Api, path: str, allowed: tuple[str, ...]
) -> None:
    answer = await shared_api.owner.get(path)
    assert answer.status == 400
    assert all(value in answer.errors[0][1] for value in allowed)
