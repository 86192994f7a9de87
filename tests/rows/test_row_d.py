"""Row D: workflows. A run of ordered steps; a step that cannot succeed stands among the dead letters."""

import json
from typing import Any

from support.holding import HoldingReceiver
from support.installation import Installation
from support.receiver import Answer

DELAYS_S = [2, 4, 8]


def step(receiver: HoldingReceiver, name: str, **fields: Any) -> dict[str, Any]:
    """A step that calls the receiver under a path of its own."""
    return {"name": name, "kind": "http", "url": f"{receiver.url}/{name}", "body": {"n": "{{ input.n }}"}, **fields}


def statuses(run: dict[str, Any]) -> tuple[str, list[str]]:
    return run["status"], [each["status"] for each in run["steps"]]


async def test_d1_a_run_takes_its_steps_one_after_the_other(redrive: Installation, receiver: HoldingReceiver) -> None:
    await redrive.api.workflow("fulfil", *(step(receiver, name) for name in ("charge", "ship", "tell")))
    receiver.usual = Answer(200, b'{"id": "c-7"}')
    run_id = await redrive.api.run("fulfil", {"n": 7})
    assert statuses(await redrive.api.run_of(run_id)) == ("PENDING", ["PENDING"] * 3)
    await redrive.work()
    run = await redrive.api.run_of(run_id)
    assert statuses(run) == ("SUCCESS", ["SUCCESS"] * 3)
    assert [request.path.rpartition("/")[2] for request in receiver.requests] == ["charge", "ship", "tell"]
    assert [json.loads(request.body) for request in receiver.requests] == [{"n": 7}] * 3
    assert [each["output"] for each in run["steps"]] == [{"id": "c-7"}] * 3
