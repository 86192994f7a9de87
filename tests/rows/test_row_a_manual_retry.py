"""A dead letter that a person retried returns to the retry queue where it fails, whatever the class of its error."""

from datetime import timedelta
from typing import Any

import pytest

from redrive.core.policy import DAY_S
from support.engine import ManualClock
from support.holding import HoldingReceiver
from support.hubs import PlayedHub
from support.installation import Installation
from support.remote import at


async def refused_once(redrive: Installation, receiver: HoldingReceiver, **fields: object) -> dict[str, Any]:
    """A dead letter of a 404, which the policy does not retry."""
    endpoint = await redrive.api.endpoint(receiver.url, **fields)
    receiver.usual = 404
    await redrive.api.event(endpoint["id"], {"order": 7})
    await redrive.work()
    letter: dict[str, Any] = await redrive.api.letter(endpoint["id"])
    assert letter["reason"] == "permanent"
    return letter


@pytest.mark.parametrize("status", [404, 422, 503])
async def test_a20_a_manual_retry_that_fails_returns_to_the_retry_queue_whatever_the_class(
    redrive: Installation, receiver: HoldingReceiver, clock: ManualClock, status: int
) -> None:
    letter = await refused_once(redrive, receiver)
    receiver.usual = status
    asked = await redrive.api.post(f"/v1/dead-letters/{letter['id']}/retry")
    assert (asked["status"], asked["retry_count"], asked["in_dlq"]) == ("pending", 0, False)
    for retry, delay_s, next_s in ((1, 5, 30), (2, 30, 300)):
        clock.advance(delay_s)
        await redrive.work()
        entry = await redrive.api.entry(letter["endpoint_id"])
        assert (entry["retry_count"], entry["in_dlq"]) == (retry, False)
        assert at(entry["next_retry_at"]) == clock.now() + timedelta(seconds=next_s)
    clock.advance(300)
    await redrive.work()
    dead = await redrive.api.letter(letter["endpoint_id"])
    assert (dead["retry_count"], dead["reason"], dead["generation"]) == (3, "exhausted", 1)


async def test_a20_a_policy_without_retries_makes_a_dead_letter_again(
    redrive: Installation, receiver: HoldingReceiver, clock: ManualClock
) -> None:
    await redrive.api.policy("once", kind="list", delays_s=[5], max_retries=0)
    letter = await refused_once(redrive, receiver, policy="once")
    await redrive.api.post(f"/v1/dead-letters/{letter['id']}/retry")
    clock.advance(5)
    await redrive.work()
    assert (await redrive.api.letter(letter["endpoint_id"]))["generation"] == 1


async def test_a20_in_a_staged_operation_each_letter_has_one_try_before_the_last_stage(
    redrive: Installation, receiver: HoldingReceiver, clock: ManualClock
) -> None:
    endpoint = await redrive.api.endpoint(receiver.url)
    receiver.usual = 404
    await redrive.api.batch(endpoint["id"], 10)
    await redrive.work()
    receiver.usual = 503
    body = {"action": "retry", "filter": {"endpoint_id": endpoint["id"]}, "now": True}
    canary = {"stages": [20], "max_failure_rate": 0.5}
    made = await redrive.api.post("/v1/dead-letters/bulk", {**body, "canary": canary})
    await worked(redrive, clock, 4)
    operation = await redrive.api.get(f"/v1/operations/{made['id']}")
    assert (operation["state"], operation["failed"]) == ("paused", 2)
    # The two of the first stage are dead letters again, at once: none waits for a retry.
    assert (await redrive.api.get("/v1/retry-queue"))["data"] == []
    letters = (await redrive.api.get("/v1/dead-letters", limit="50"))["data"]
    assert sorted((letter["generation"], letter["reason"]) for letter in letters) == [
        *[(0, "permanent")] * 8,
        *[(1, "exhausted")] * 2,
    ]
    await redrive.api.post(f"/v1/operations/{made['id']}/resume")
    await worked(redrive, clock, 4)
    entries = (await redrive.api.get("/v1/retry-queue", limit="50"))["data"]
    assert [entry["retry_count"] for entry in entries] == [1] * 8  # in the last stage the policy goes on with them


async def worked(redrive: Installation, clock: ManualClock, times: int) -> None:
    for _ in range(times):  # an operation rests between two looks at its tasks
        clock.advance(1)
        await redrive.work()


async def test_a20_a_relay_s_webhook_that_is_refused_again_is_a_dead_letter_again(
    redrive: Installation, clock: ManualClock
) -> None:
    relay = await redrive.api.relay()
    PlayedHub(redrive, relay, 422)
    await redrive.api.webhook(relay)
    await redrive.work()
    (dead,) = await redrive.api.deliveries(relay["id"])
    await redrive.api.post(f"/v1/dead-letters/{dead['log_id']}/retry")
    clock.advance(DAY_S / 24)
    await redrive.work()
    letter = await redrive.api.get(f"/v1/dead-letters/{dead['log_id']}")
    assert (letter["generation"], letter["reason"]) == (1, "permanent")
