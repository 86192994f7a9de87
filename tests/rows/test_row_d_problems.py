"""Row D: steps that could not be filled in. Another input mends them where the input was at fault, and only there."""

from typing import Any

import pytest

from support.holding import HoldingReceiver
from support.installation import Installation
from support.receiver import Answer

from .test_row_d import statuses

MISSING = "{{ input.missing }}"


@pytest.mark.parametrize(
    ("fields", "is_mended"), [({"body": {"n": MISSING}}, True), ({"headers": {"X-Ref": MISSING}, "body": {}}, False)]
)
async def test_d6_a_step_that_could_not_be_filled_in_is_tried_with_another_input(
    redrive: Installation, receiver: HoldingReceiver, fields: dict[str, Any], is_mended: bool
) -> None:
    ship = {"name": "ship", "kind": "http", "url": f"{receiver.url}/{{{{ input.n }}}}", **fields}
    await redrive.api.workflow("one", ship)
    run_id = await redrive.api.run("one", {"n": 7})
    await redrive.work()
    run = await redrive.api.run_of(run_id)
    letter, said = run["steps"][0]["dead_letter_id"], run["steps"][0]["error_message"]
    await redrive.api.post(f"/v1/dead-letters/{letter}/retry", {"now": True})
    await redrive.work()
    assert statuses(await redrive.api.run_of(run_id)) == ("DLQ_PENDING", ["DLQ"])
    await redrive.api.post(f"/v1/dead-letters/{letter}/replay", {"payload": {"n": 8}, "now": True})
    await redrive.work()
    run = await redrive.api.run_of(run_id)
    if is_mended:
        assert statuses(run) == ("SUCCESS", ["SUCCESS"])
        [request] = receiver.requests
        assert (request.path.rpartition("/")[2], request.body) == ("7", b'{"n": 8}')
    else:
        assert (statuses(run), run["steps"][0]["error_message"]) == (("DLQ_PENDING", ["DLQ"]), said)
        assert receiver.requests == []


async def test_d6_a_step_whose_new_input_cannot_be_made_is_not_tried_with_none(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    """Its first input could be made, and it died; the step before it ran again, and answered something else."""
    charge = {"name": "charge", "kind": "http", "url": f"{receiver.url}/charge"}
    ship = {"name": "ship", "kind": "http", "url": f"{receiver.url}/ship", "body": "{{ steps.charge.output.id }}"}
    await redrive.api.workflow("two", charge, ship)
    receiver.script(Answer(200, b'{"id": 1}'), 422, Answer(200, b"{}"))
    run_id = await redrive.api.run("two")
    await redrive.work()
    await redrive.api.post(f"/v1/runs/{run_id}/replay", {"from_step_index": 0})
    await redrive.work()
    run = await redrive.api.run_of(run_id)
    assert statuses(run) == ("DLQ_PENDING", ["SUCCESS", "DLQ"])
    assert "steps.charge.output.id" in run["steps"][1]["error_message"]
    assert [request.path.rpartition("/")[2] for request in receiver.requests] == ["charge", "ship", "charge"]
    await redrive.api.post(f"/v1/runs/{run_id}/replay", {"from_step_index": 1, "payload": {"id": 2}, "now": True})
    await redrive.work()
    assert statuses(await redrive.api.run_of(run_id)) == ("SUCCESS", ["SUCCESS"] * 2)
    assert receiver.requests[-1].body == b'{"id": 2}'
