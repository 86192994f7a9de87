"""Lanes over HTTP: what waits for what, a halt that a person lifts, and where in its lane a dead letter goes."""

from typing import Any
from uuid import uuid4

import pytest

from redrive.api.schemas.dead_letters import DeadLetterDetail
from redrive.api.schemas.lanes import LaneShown
from redrive.core.ports import Job
from support.http import Answer

from .conftest import Api


async def lane_of(api: Api, on_block: str = "halt") -> tuple[str, list[str], Job]:
    """An ordered endpoint of its own: its id, its three events, and the head of them, which died."""
    event_type = f"lane.{uuid4().hex}"
    endpoint = await api.endpoint(event_types=[event_type], ordered=True, on_block=on_block)
    events = [await api.event(event_type) for _ in range(3)]
    head = await claimed(api, events[0])
    await api.die(head, message="HTTP 500")
    return str(endpoint["id"]), events, head


async def free_letter(api: Api) -> str:
    """A dead letter that is in no lane."""
    await api.endpoint(event_types=["invoice.*"])
    return str((await api.dead_task())["id"])


async def claimed(api: Api, event_id: str) -> Job:
    return next(job for job in await api.claim() if str(job.event_id) == event_id)


def lanes_in(answer: Answer) -> list[dict[str, Any]]:
    assert answer.status == 200, answer.body
    data: list[dict[str, Any]] = answer.json["data"]
    for lane in data:
        LaneShown.model_validate(lane)
    return data


async def test_a_halted_lane_tells_what_halted_it_and_is_resumed_by_a_manager(api: Api) -> None:
    endpoint_id, events, head = await lane_of(api)
    path = f"/v1/endpoints/{endpoint_id}/lanes"
    (lane,) = lanes_in(await api.viewer.get(path))
    assert (lane["lane"], lane["ordering_key"], lane["halted_by"]) == (endpoint_id, None, str(head.id))
    assert (lane["gap"], lane["head"], lane["waiting"], lane["is_whole"]) == (1, None, 2, True)
    assert (await api.viewer.post(f"{path}/{endpoint_id}/resume")).status == 403
    resumed = await api.owner.post(f"{path}/{endpoint_id}/resume", {"because": "the receiver has it by other means"})
    assert resumed.status == 200, resumed.body
    LaneShown.model_validate(resumed.json)
    assert (resumed.json["halted_at"], resumed.json["halted_by"]) == (None, None)
    job = await claimed(api, events[1])
    (lane,) = lanes_in(await api.viewer.get(path))
    assert (lane["head"]["id"], lane["head"]["status"], lane["waiting"]) == (str(job.id), "in_progress", 1)
    letter = await api.viewer.get(f"/v1/dead-letters/{head.id}")
    assert letter.json["state"] == "open"
    again = await api.owner.post(f"{path}/{endpoint_id}/resume")
    assert (again.status, again.json["halted_at"]) == (200, None)
    audit = await api.owner.get(f"/v1/audit?action=lane.resume&subject_id={endpoint_id}")
    assert [entry["because"] for entry in audit.json["data"]] == ["the receiver has it by other means"]


async def test_lanes_are_paged(api: Api) -> None:
    event_type = f"lane.{uuid4().hex}"
    endpoint = await api.endpoint(event_types=[event_type])
    for key in "abc":
        for _ in range(2):
            await api.event(event_type, ordering_key=key)
    path = f"/v1/endpoints/{endpoint['id']}/lanes?limit=2"
    first = await api.viewer.get(path)
    cursor = first.json["pagination"]["cursor"]
    second = await api.viewer.get(f"{path}&cursor={cursor}")
    keys = [lane["ordering_key"] for lane in lanes_in(first) + lanes_in(second)]
    assert (len(lanes_in(first)), sorted(keys)) == (2, ["a", "b", "c"])
    assert second.json["pagination"]["cursor"] is None
    other = await api.endpoint(event_types=["nothing"])
    assert (await api.viewer.get(f"/v1/endpoints/{other['id']}/lanes?cursor={cursor}")).status == 400


async def test_a_lane_that_nobody_knows_is_not_found(api: Api) -> None:
    endpoint_id = (await api.endpoint(event_types=["nothing"]))["id"]
    for path in (
        f"/v1/endpoints/{endpoint_id}/lanes/{uuid4()}/resume",
        f"/v1/endpoints/{endpoint_id}/lanes/none/resume",
        f"/v1/endpoints/{uuid4()}/lanes/{endpoint_id}/resume",
    ):
        assert (await api.owner.post(path)).status == 404
    assert (await api.owner.get(f"/v1/endpoints/{uuid4()}/lanes")).status == 404


async def test_the_detail_of_a_dead_letter_tells_its_lane(api: Api) -> None:
    endpoint_id, _, head = await lane_of(api)
    detail = await api.viewer.get(f"/v1/dead-letters/{head.id}")
    DeadLetterDetail.model_validate(detail.json)
    assert (detail.json["lane"], detail.json["ordering_key"]) == (endpoint_id, None)
    assert (detail.json["out_of_order"], detail.json["halts_lane"]) == (False, True)
    listed = await api.viewer.get(f"/v1/dead-letters?endpoint_id={endpoint_id}")
    assert not listed.json["data"][0].keys() & {"lane", "ordering_key", "out_of_order", "halts_lane"}
    detail = await api.viewer.get(f"/v1/dead-letters/{await free_letter(api)}")
    assert (detail.json["lane"], detail.json["halts_lane"]) == (None, False)


@pytest.mark.parametrize("verb", ["retry", "replay"])
@pytest.mark.parametrize(("order", "next_one"), [(None, 0), ("in_place", 0), ("tail", 1)])
async def test_of_a_halted_lane_a_letter_goes_in_its_place_unless_the_person_says_otherwise(
    api: Api, verb: str, order: str | None, next_one: int
) -> None:
    endpoint_id, events, head = await lane_of(api)
    body: dict[str, object] = {"now": True} | ({} if order is None else {"order": order})
    answer = await api.owner.post(f"/v1/dead-letters/{head.id}/{verb}", body)
    assert answer.status == 200, answer.body
    await claimed(api, events[next_one])
    (lane,) = lanes_in(await api.viewer.get(f"/v1/endpoints/{endpoint_id}/lanes"))
    assert lane["halted_at"] is None
    detail = await api.viewer.get(f"/v1/dead-letters/{head.id}")
    assert detail.json["out_of_order"] is (order == "tail")


@pytest.mark.parametrize("verb", ["retry", "replay"])
async def test_an_order_is_refused_for_what_is_in_no_lane_or_no_order(api: Api, verb: str) -> None:
    path = f"/v1/dead-letters/{await free_letter(api)}/{verb}"
    refused = await api.owner.post(path, {"order": "tail"})
    assert refused.status == 422
    assert refused.json["errors"][0]["loc"] == ["body", "order"]
    assert "the task is in no lane" in refused.json["errors"][0]["msg"]
    assert (await api.owner.post(path, {"order": "first"})).status == 422
    assert (await api.owner.post(path)).status == 200


async def test_a_bulk_retry_takes_an_order_and_other_actions_do_not(api: Api) -> None:
    free = await free_letter(api)
    _, events, head = await lane_of(api, on_block="skip")
    body = {"action": "retry", "ids": [str(head.id), free], "now": True, "order": "in_place"}
    begun = await api.owner.post("/v1/dead-letters/bulk", body)
    assert (begun.status, begun.json["order"]) == (202, "in_place")
    second = await claimed(api, events[1])  # it was at the head already
    await api.succeed(second)
    job = await claimed(api, events[0])
    assert job.out_of_order
    refused = await api.owner.post("/v1/dead-letters/bulk", body | {"action": "resolve", "now": False})
    assert refused.status == 422


@pytest.mark.parametrize("key", ["", "x" * 201, "a\nb", "a\u0085b", 7])
async def test_an_ordering_key_has_1_to_200_characters_and_no_control_characters(api: Api, key: object) -> None:
    answer = await api.owner.post("/v1/events", {"event_type": "invoice.paid", "payload": {}, "ordering_key": key})
    assert answer.status == 422, answer.body
    assert "ordering_key" in answer.json["errors"][0]["loc"]


async def test_to_retry_one_that_waits_behind_others_is_refused_and_the_answer_names_the_first(api: Api) -> None:
    _, events, first = await lane_of(api, on_block="skip")
    second = await claimed(api, events[1])
    assert (await api.owner.post(f"/v1/dead-letters/{first.id}/retry", {"order": "tail"})).status < 300
    refused = await api.owner.post(f"/v1/retry-queue/{first.id}/retry")
    assert (refused.status, str(second.id) in refused.json["detail"]) == (409, True)
