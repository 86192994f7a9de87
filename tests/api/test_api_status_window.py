"""Status questions past the framework: the same answers as the route gives, and only to whom they are due."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pytest

from redrive.api.guard import Guard
from support.http import Answer, HttpClient

from .conftest import Api
from .people import keyed


@pytest.fixture
def by_the_route(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of requests that went the framework's way."""
    paths: list[str] = []
    call = Guard.__call__

    async def noted(self: Guard, scope: dict[str, Any], *args: Any) -> None:
        paths.append(scope["path"])
        await call(self, scope, *args)

    monkeypatch.setattr(Guard, "__call__", noted)
    return paths


def _seen(answers: Sequence[Answer]) -> list[tuple[int, bytes, dict[str, str]]]:
    """All but the date."""
    return [
        (
            answer.status,
            answer.body,
            {name.lower(): text for name, text in answer.headers.items() if name.lower() != "date"},
        )
        for answer in answers
    ]


async def _both_ways(client: HttpClient, path: str, org: str) -> list[Answer]:
    """Once past the framework if that may be, once by the route: an org that is named must be looked up."""
    return [
        await client.get(path, X_Correlation_Id="the-same"),
        await client.get(path, X_Correlation_Id="the-same", X_Redrive_Org=org),
    ]


async def test_both_ways_answer_alike(api: Api, by_the_route: list[str]) -> None:
    await api.endpoint()
    letter = await api.dead_task()
    queued = await api.event()
    await api.owner.get("/v1/stats")  # from here on the key is known
    for event_id, status in ((letter["event_id"], 200), (queued, 200), (str(uuid4()), 404)):
        path = f"/v1/events/{event_id}/status"
        by_the_route.clear()
        answers = await _both_ways(api.owner, path, str(api.org_id))
        assert by_the_route == [path], "the first went past it"
        assert answers[0].status == status
        first, second = _seen(answers)
        assert first == second


async def test_another_org_s_event_is_as_unknown_here_as_there(api: Api, by_the_route: list[str]) -> None:
    event_id = await api.event()
    await api.stranger.get("/v1/stats")
    by_the_route.clear()
    foreign, unknown = [
        await api.stranger.get(f"/v1/events/{one}/status", X_Correlation_Id="c") for one in (event_id, uuid4())
    ]
    assert by_the_route == []
    assert (foreign.status, foreign.body) == (unknown.status, unknown.body) == (404, foreign.body)


async def test_a_key_that_may_not_read_is_refused(api: Api) -> None:
    producer = await keyed(api, "IT_MANAGER", "produce")
    event_id = await api.event()
    assert (await producer.post("/v1/events", {"event_type": "a", "payload": 1})).status == 202
    for _ in range(2):
        assert (await producer.get(f"/v1/events/{event_id}/status")).status == 403


@pytest.mark.parametrize("suffix", ["?verbose=1", "/"])
async def test_what_is_not_asked_quite_like_this_is_the_route_s_business(
    api: Api, by_the_route: list[str], suffix: str
) -> None:
    event_id = await api.event()
    by_the_route.clear()
    answer = await api.owner.get(f"/v1/events/{event_id}/status{suffix}")
    assert len(by_the_route) == 1
    assert answer.status in (400, 404, 422)
