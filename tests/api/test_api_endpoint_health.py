"""How an endpoint does, over HTTP: its breaker, its history; and what an open breaker holds."""

from typing import Any
from uuid import UUID

import pytest

from redrive.api.schemas.endpoint_health import EndpointHealthShown
from redrive.core.breaker import BreakerState
from redrive.core.ports import HealthReport
from redrive.store.clock import DatabaseClock
from redrive.store.endpoint_history import Ledger
from redrive.store.endpoint_states import BreakerStates
from support.http import Answer

from .conftest import Api

WHY = "16 of the last 20 tries failed, the last one with: HTTP 503 Service Unavailable"


async def trip(api: Api, endpoint_id: str) -> None:
    states = BreakerStates(api.context.engine_db, DatabaseClock())
    assert await states.open_breaker(api.org_id, UUID(endpoint_id), taken_for=BreakerState.CLOSED, reason=WHY)


async def report(api: Api, endpoint_id: str) -> None:
    ledger = Ledger(api.context.engine_db, DatabaseClock())
    await ledger.add([HealthReport(api.org_id, UUID(endpoint_id), 3, 1, 800, 500, 10.0, 5.0, 5.0, 1)])


def shown(answer: Answer) -> dict[str, Any]:
    assert answer.status == 200, answer.body
    EndpointHealthShown.model_validate(answer.json)
    shape: dict[str, Any] = answer.json
    return shape


async def test_an_endpoint_that_nothing_is_known_of_is_well(api: Api) -> None:
    endpoint_id = (await api.endpoint())["id"]
    health = shown(await api.viewer.get(f"/v1/endpoints/{endpoint_id}/health"))
    assert health["breaker"] == {"state": "closed", "since": None, "reason": None}
    assert (health["failures"], health["failing_since"], health["history"], health["hubs"]) == (0, None, [], None)


async def test_the_health_of_an_endpoint_tells_its_breaker_and_how_its_tries_went(api: Api) -> None:
    endpoint_id = (await api.endpoint())["id"]
    await report(api, endpoint_id)
    await trip(api, endpoint_id)
    health = shown(await api.owner.get(f"/v1/endpoints/{endpoint_id}/health"))
    assert (health["breaker"]["state"], health["breaker"]["reason"]) == ("open", WHY)
    assert health["last_success_at"] < health["failing_since"] == health["last_failure_at"] < health["breaker"]["since"]
    (point,) = health["history"]
    assert (point["succeeded"], point["failed"], point["average_ms"], point["slowest_ms"]) == (3, 1, 200, 500)
    longer = shown(await api.owner.get(f"/v1/endpoints/{endpoint_id}/health?since=2026-01-01T00:00:00Z"))
    assert (longer["bucket_s"], health["bucket_s"]) == (3_600, 300)
    assert [(p["succeeded"], p["failed"]) for p in longer["history"]] == [(3, 1)]


@pytest.mark.parametrize("since", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
async def test_any_time_may_be_asked_for(api: Api, since: str) -> None:
    endpoint_id = (await api.endpoint())["id"]
    shown(await api.owner.get(f"/v1/endpoints/{endpoint_id}/health?since={since}"))


async def test_a_person_closes_a_breaker_once_and_is_named(api: Api) -> None:
    endpoint_id = (await api.endpoint())["id"]
    await trip(api, endpoint_id)
    path = f"/v1/endpoints/{endpoint_id}/close-breaker"
    assert (await api.viewer.post(path)).status == 403
    closed = shown(await api.owner.post(path, {"because": "it is back"}))
    assert closed["breaker"]["state"] == "ramping"
    again = shown(await api.owner.post(path, {"because": "it is back, really"}))
    assert again["breaker"] == closed["breaker"]
    audit = (await api.owner.get(f"/v1/audit?subject_id={endpoint_id}&limit=3")).json["data"]
    assert [(entry["action"], entry["because"]) for entry in audit] == [
        ("endpoint.breaker_close", "it is back"),
        ("endpoint.breaker_open", WHY),
        ("endpoint.create", None),
    ]
    assert audit[0]["actor"].startswith("key:")
    assert audit[1]["actor"] == "engine"


async def test_what_an_open_breaker_holds_is_said_to_be_held(own_api: Api) -> None:
    api = own_api
    endpoint = await api.endpoint()
    entry = await api.failed_task()
    await trip(api, endpoint["id"])
    assert (await api.owner.get(f"/v1/retry-queue/{entry['id']}")).json["held"] is False  # it is not due yet
    await api.owner.post(f"/v1/retry-queue/{entry['id']}/retry")
    for path in ("/v1/retry-queue", f"/v1/retry-queue/{entry['id']}"):
        answer = (await api.owner.get(path)).json
        (found,) = answer.get("data", [answer])
        assert found["held"] is True
