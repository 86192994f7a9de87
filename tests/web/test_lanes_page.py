"""Order in front of people: the lanes of an endpoint, the lane of a task, and the forms that ask for it."""

import json
from uuid import uuid4

import pytest

from api.conftest import Api
from redrive.core.ports import Job
from support.page import read

HOSTILE = '<img src=x onerror=alert(1)>"'


async def halted(api: Api, *, on_block: str = "halt", **fields: object) -> tuple[str, Job]:
    """An endpoint with two events of a lane, of which the first died."""
    event_type = f"lane.{uuid4().hex}"
    endpoint = await api.endpoint(event_types=[event_type], on_block=on_block, ordered=not fields)
    first, _ = [await api.event(event_type, **fields) for _ in range(2)]
    head = next(job for job in await api.claim() if str(job.event_id) == first)
    await api.die(head, message=f"broken {HOSTILE}")
    return str(endpoint["id"]), head


async def test_a_halted_lane_is_told_with_what_halted_it_and_can_be_resumed_by_those_who_may(api: Api) -> None:
    endpoint_id, head = await halted(api, ordering_key=f"invoice 7 {HOSTILE}")
    lane = (await api.owner.get(f"/v1/endpoints/{endpoint_id}/lanes")).json["data"][0]["lane"]
    page = await read(api.owner, f"/endpoints/{endpoint_id}")
    assert "A lane of it is halted: a delivery died" in page.text
    assert page.has("section", id="order")
    assert page.has("span", class_="badge bad", text="halted")
    assert page.has("span", class_="badge bad", text="a lane halted")
    assert (await read(api.owner, "/endpoints")).has("span", class_="badge bad", text="a lane halted")
    assert page.has("code", text=f"invoice 7 {HOSTILE}")
    assert page.has("a", href=f"/app/admin/dlq/{head.id}", text=head.event_type)
    button = page.one("button", text="Resume lane")
    assert button.attributes["data-path"] == f"/v1/endpoints/{endpoint_id}/lanes/{lane}/resume"
    assert not page.has("img")
    looked = await read(api.viewer, f"/endpoints/{endpoint_id}")
    assert looked.has("section", id="order")
    assert not looked.has("button", text="Resume lane")


async def test_a_blocked_lane_tells_its_head(api: Api) -> None:
    event_type = f"lane.{uuid4().hex}"
    endpoint = await api.endpoint(event_types=[event_type], ordered=True)
    empty = await read(api.viewer, f"/endpoints/{endpoint['id']}")
    assert "Nothing waits" in empty.one("section", id="order").text
    first, _ = [await api.event(event_type) for _ in range(2)]
    head = next(job for job in await api.claim() if str(job.event_id) == first)
    await api.fail(head)
    page = await read(api.viewer, f"/endpoints/{endpoint['id']}")
    assert page.has("span", class_="badge waiting", text="blocked")
    assert len(page.all("a", href=f"/integrations/logs/{head.id}")) == 2  # in its lane, and among the deliveries
    assert "the whole endpoint" in page.one("section", id="order").text


async def test_lanes_go_on_behind_a_cursor(api: Api) -> None:
    event_type = f"lane.{uuid4().hex}"
    endpoint = await api.endpoint(event_types=[event_type])
    for number in range(11):
        await api.event(event_type, ordering_key=f"key {number}")
    first = await read(api.viewer, f"/endpoints/{endpoint['id']}")
    assert first.one("section", id="order").text.count("key ") == 10
    href = first.one("a", text="More lanes").attributes["href"]
    second = await read(api.viewer, href.partition("#")[0])
    assert second.one("section", id="order").text.count("key ") == 1
    assert second.has("a", text="First lanes")


async def test_an_endpoint_without_order_shows_no_lanes(api: Api) -> None:
    endpoint = await api.endpoint(event_types=["nothing"])
    page = await read(api.viewer, f"/endpoints/{endpoint['id']}")
    assert not page.has("section", id="order")


@pytest.mark.parametrize(("on_block", "usual"), [("halt", "in_place"), ("skip", "tail")])
async def test_a_retry_of_a_letter_in_a_lane_asks_where(api: Api, on_block: str, usual: str) -> None:
    endpoint_id, head = await halted(api, on_block=on_block)
    page = await read(api.owner, f"/app/admin/dlq/{head.id}")
    for name in ("Manual Retry", "Retry now"):
        offered = json.loads(page.one("button", text=name).attributes["data-choices"])
        assert [json.loads(value) for value, *_ in offered["options"]] == [{"order": "in_place"}, {"order": "tail"}]
        assert json.loads(offered["chosen"]) == {"order": usual}
    said = page.one("button", text="Manual Retry").attributes["data-ask-text"]
    assert ("halted" in said) is (on_block == "halt")
    assert page.has("a", href=f"/endpoints/{endpoint_id}#order", text="of the whole endpoint")
    assert ("It halted its lane" in page.text) is (on_block == "halt")


async def test_a_retry_of_a_letter_in_no_lane_asks_nothing(api: Api) -> None:
    await api.endpoint(event_types=["invoice.*"])
    letter = await api.dead_task()
    page = await read(api.owner, f"/app/admin/dlq/{letter['id']}")
    assert "data-choices" not in page.one("button", text="Manual Retry").attributes
    assert not page.has("dt", text="Lane")


async def test_a_task_that_waits_behind_others_says_so(api: Api) -> None:
    endpoint_id, _ = await halted(api)
    behind = (await api.owner.get(f"/v1/endpoints/{endpoint_id}/deliveries?status=pending")).json["data"][0]
    page = await read(api.viewer, f"/integrations/logs/{behind['log_id']}")
    assert "It waits for its turn behind others of its lane, which is halted." in page.text


async def test_the_form_asks_what_a_death_does_to_those_behind_it(api: Api) -> None:
    endpoint = await api.endpoint(ordered=True, on_block="halt", max_block_s=600)
    page = await read(api.owner, f"/endpoints/{endpoint['id']}/edit")
    assert "checked" in page.one("input", name="on_block", value="halt").attributes
    assert "checked" not in page.one("input", name="on_block", value="skip").attributes
    assert page.one("input", name="max_block_s").attributes["value"] == "10 min"
    new = await read(api.owner, "/endpoints/new")
    assert "checked" in new.one("input", name="on_block", value="skip").attributes


async def test_an_operation_says_where_it_puts_those_in_lanes(api: Api) -> None:
    _, head = await halted(api)
    body = {"action": "retry", "ids": [str(head.id)], "order": "tail"}
    made = await api.owner.post("/v1/dead-letters/bulk", body)
    page = await read(api.owner, f"/operations/{made.json['id']}")
    assert page.has("dd", text="at the end")
