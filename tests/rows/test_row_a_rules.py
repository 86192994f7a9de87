"""Row A: which failures are permanent, and how often a person may retry under a manual policy."""

import re
from typing import Any

import pytest

from support.engine import ManualClock
from support.holding import HoldingReceiver
from support.installation import Installation
from support.page import read
from support.receiver import HANG, RESET, Answer

from .conftest import Story

RETRIES_ALL = {"retry": ["all"], "fail": []}


async def _page(redrive: Installation, path: str) -> str:
    return (await read(redrive.api.http, path)).text


async def _put(redrive: Installation, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    answer = await redrive.api.http.request("PUT", f"/v1/policies/{name}", spec)
    assert answer.status == 200, answer.body
    made: dict[str, Any] = answer.json
    return made


async def _fails_with(redrive: Installation, receiver: HoldingReceiver, status: int, **fields: object) -> str:
    endpoint = await redrive.api.endpoint(receiver.url, external_system="erp", **fields)
    receiver.usual = Answer(status)
    await redrive.api.event(endpoint["id"], {"order": 7})
    await redrive.work()
    return str(endpoint["id"])


async def test_a27_a_client_error_is_dead_at_once_and_said_not_to_be_retried(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    letter = await redrive.api.letter(await _fails_with(redrive, receiver, 404))
    expected = {"retry_count": 0, "max_retries": 3, "reason": "permanent", "category": "client_error", "in_dlq": True}
    assert {name: letter[name] for name in expected} == expected
    listed = await _page(redrive, "/integrations/logs/dead-letter-queue")
    assert "0 / 3" in listed
    assert "not retried: client error" in listed
    shown = await _page(redrive, f"/app/admin/dlq/{letter['id']}")
    assert "Not retried: client error, 0 / 3 retries made." in shown


async def test_a27_a_policy_of_one_line_retries_everything(
    redrive: Installation, clock: ManualClock, receiver: HoldingReceiver
) -> None:
    spec: dict[str, Any] = {"kind": "list", "delays_s": [5, 30, 300], "classify": RETRIES_ALL}
    made = await _put(redrive, "everything", spec)
    assert made["classify"]["fail"] == []
    assert {"client_error", "validation", "configuration", "unknown"} <= set(made["classify"]["retry"])
    endpoint_id = await _fails_with(redrive, receiver, 404, policy="everything")
    entry = await redrive.api.entry(endpoint_id)
    assert (entry["retry_count"], entry["max_retries"], entry["status"]) == (0, 3, "pending")
    for delay_s in (5, 30, 300):
        clock.advance(delay_s)
        await redrive.work()
    letter = await redrive.api.letter(endpoint_id)
    assert (letter["retry_count"], letter["reason"]) == (3, "exhausted")
    # The policy as it is read is taken back, and a replay takes the same line.
    assert (await _put(redrive, "everything", made))["classify"] == made["classify"]
    override = {"override_retry_policy": {"kind": "list", "delays_s": [1], "classify": RETRIES_ALL}}
    await redrive.api.post(f"/v1/dead-letters/{letter['id']}/replay", override)
    await redrive.work()
    clock.advance(1)
    await redrive.work()
    assert (await redrive.api.entry(endpoint_id))["status"] == "pending"


@pytest.mark.parametrize(
    ("classify", "wrong"),
    [
        ({"retry": ["all"], "fail": ["all"]}, "is in both retry and fail"),
        ({"retry": ["everything"]}, "must be a status code or one of all, "),
    ],
)
async def test_a27_what_contradicts_itself_is_refused(redrive: Installation, classify: object, wrong: str) -> None:
    answer = await redrive.api.http.request("PUT", "/v1/policies/odd", {"kind": "manual", "classify": classify})
    assert answer.status == 422
    assert wrong in answer.body.decode()


async def test_a27_all_leaves_to_the_other_list_what_it_names(redrive: Installation) -> None:
    spec = {"kind": "manual", "classify": {"retry": ["all"], "fail": ["validation", 401]}}
    rules = (await _put(redrive, "mostly", spec))["classify"]
    assert rules["fail"] == ["validation", 401]
    assert "validation" not in rules["retry"]


async def test_a28_the_third_manual_retry_that_fails_makes_a_dead_letter(
    redrive: Installation, receiver: HoldingReceiver, failing: Story
) -> None:
    entry = await failing(policy="manual")
    for made in range(3):
        assert (entry["retry_count"], entry["max_retries"], entry["next_retry_at"]) == (made, 3, None)
        assert f"{made} / 3" in await _page(redrive, "/integrations/logs/retry-queue")
        await redrive.api.post(f"/v1/retry-queue/{entry['id']}/retry")
        await redrive.work()
        if made < 2:
            entry = await redrive.api.entry(entry["endpoint_id"])
    letter = await redrive.api.letter(entry["endpoint_id"])
    assert (letter["retry_count"], letter["max_retries"], letter["reason"]) == (3, 3, "exhausted")
    assert (await redrive.api.get("/v1/retry-queue"))["data"] == []


@pytest.mark.parametrize("how", [503, 404, HANG, RESET])
async def test_a29_a_log_has_an_error_stack_after_every_failure(
    redrive: Installation, receiver: HoldingReceiver, how: Any
) -> None:
    endpoint = await redrive.api.endpoint(receiver.url_of("/hook?token=s3cret"), timeout_s=0.5)
    receiver.usual = how
    event_id = await redrive.api.event(endpoint["id"], {"order": 7})
    await redrive.work()
    (attempt,) = await redrive.api.attempts(event_id)
    log = await redrive.api.log(attempt["task_id"])
    stack = log["error_stack"]
    assert stack == attempt["error_stack"]
    for phase in ("resolve", "connect", "send", "first byte"):
        assert re.search(rf"^  {phase} +\d+\.\d ms", stack, re.MULTILINE), (phase, stack)
    assert "127.0.0.1:" in stack
    assert stack.splitlines()[-1].startswith(f"answered {how}" if isinstance(how, int) else "TransferError: ") or (
        "caused by" in stack
    )
    assert "s3cret" not in stack
    assert "first byte" in await _page(redrive, f"/integrations/logs/{attempt['task_id']}")


async def test_a29_a_name_that_leads_nowhere_leaves_a_stack_too(redrive: Installation) -> None:
    endpoint = await redrive.api.endpoint("http://nowhere.invalid/hook", timeout_s=2)
    event_id = await redrive.api.event(endpoint["id"], {"order": 7})
    await redrive.work()
    (attempt,) = await redrive.api.attempts(event_id)
    assert "  resolve" in attempt["error_stack"]
    assert "TransferError: " in attempt["error_stack"]
