"""`redrive endpoints lanes` and `resume-lane`, and where in its lane `redrive dead retry` puts a letter."""

import pytest

from redrive.core.ports import Job

from .command import redrive
from .world import ACT, World, endpoints


async def halted(world: World) -> Job:
    """The endpoint is one lane that halts: the head of three died."""
    async with world.app.tenant(world.org_id) as session:
        await endpoints().update(session, world.endpoint_id, {"ordered": True, "on_block": "halt"}, ACT)
    for _ in range(3):
        await world.accept()
    head = await world.claim_one()
    await world.die(head)
    return head


async def test_lanes_are_listed_with_what_halted_them(world: World) -> None:
    empty = await redrive("endpoints", "lanes", "billing", url=world.url)
    assert (empty.code, empty.err.strip()) == (0, "Nothing waits for anything else.")
    head = await halted(world)
    lane = (await redrive("endpoints", "lanes", "billing", "--json", url=world.url)).object
    assert (lane["lane"], lane["halted_by"], lane["waiting"]) == (str(world.endpoint_id), str(head.id), 2)
    shown = await redrive("endpoints", "lanes", "billing", url=world.url, env={"COLUMNS": "200"})
    assert str(world.endpoint_id) in shown.out
    assert "the receiver answered 503" in shown.out


async def test_a_lane_is_resumed_and_its_letter_stays_open(world: World) -> None:
    head = await halted(world)
    assert await world.claim() == []
    resumed = await redrive("endpoints", "resume-lane", "billing", "--because", "sent by mail", url=world.url)
    assert resumed.code == 0, resumed.err
    assert "goes on with the next" in resumed.err
    assert len(await world.claim()) == 1
    assert await world.letter_state(head.id) == "open"
    again = await redrive("endpoints", "resume-lane", "billing", str(world.endpoint_id), "--json", url=world.url)
    assert (again.code, again.object["halted_at"]) == (0, None)
    audit = (await redrive("audit", "--action", "lane.resume", "--json", url=world.url)).object
    assert audit["because"] == "sent by mail"
    nobody = await redrive("endpoints", "resume-lane", "billing", "01a1e060-ffa4-7994-baec-3e968ddb2a3e", url=world.url)
    assert nobody.code == 1
    assert "no lane" in nobody.err


@pytest.mark.parametrize(("order", "is_first"), [(None, True), ("in_place", True), ("tail", False)])
async def test_a_letter_is_retried_where_in_its_lane_the_person_says(
    world: World, order: str | None, is_first: bool
) -> None:
    head = await halted(world)
    words = ["--order", order] if order else []
    ended = await redrive("dead", "retry", str(head.id), "--now", *words, url=world.url)
    assert ended.code == 0, ended.err
    assert ((await world.claim_one()).id == head.id) is is_first
    shown = (await redrive("dead", "show", str(head.id), "--json", url=world.url)).object
    assert (shown["lane"], shown["out_of_order"]) == (str(world.endpoint_id), not is_first)


async def test_an_order_is_refused_for_a_letter_in_no_lane_but_not_for_many(world: World) -> None:
    task_id = await world.dead()
    refused = await redrive("dead", "retry", str(task_id), "--order", "tail", url=world.url)
    assert refused.code == 1
    assert "it is in no lane" in refused.err
    wrong = await redrive("dead", "retry", str(task_id), "--order", "first", url=world.url)
    assert wrong.code == 2
    many = await redrive("dead", "retry", "--all", "--event-type", "order.paid", "--order", "tail", url=world.url)
    assert many.code == 0, many.err
    assert await world.letter_state(task_id) == "replaying"


async def test_an_endpoint_is_added_with_its_order_and_limits(world: World) -> None:
    pace = ("--ordered", "--on-block", "halt", "--max-block-s", "600", "--max-in-flight", "4", "--rate-per-s", "2.5")
    words = ("endpoints", "add", "https://example.com/hook", "--name", "slow")
    added = await redrive(*words, *pace, "--json", url=world.url)
    assert added.code == 0, added.err
    shape = added.object
    assert (shape["ordered"], shape["on_block"], shape["max_block_s"]) == (True, "halt", 600)
    assert (shape["max_in_flight"], shape["rate_per_s"]) == (4, 2.5)
    wrong = await redrive(*words, "--on-block", "wait", url=world.url)
    assert wrong.code == 2
