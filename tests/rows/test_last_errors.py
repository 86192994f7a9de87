"""The last word of a dead letter is its last real error, beside the reason for which it ended."""

from typing import Any

import pytest

from redrive.core.policy import DAY_S
from redrive.core.sweep import Swept
from support.engine import ManualClock
from support.holding import HoldingReceiver
from support.installation import Installation
from support.page import read
from support.receiver import Answer

from .conftest import Story
from .test_row_b_janitor import hourly_pass

ERROR = "HTTP 503 Service Unavailable"
WEEK = {"kind": "list", "delays_s": [30 * DAY_S], "max_retries": None, "max_age_s": 7 * DAY_S}


async def _expired_by_the_janitor(redrive: Installation, clock: ManualClock, entry: dict[str, Any]) -> None:
    clock.advance(7 * DAY_S)
    assert await hourly_pass(redrive) == Swept(expired=1)


async def _expired_by_a_worker(redrive: Installation, clock: ManualClock, entry: dict[str, Any]) -> None:
    clock.advance(7 * DAY_S)
    await redrive.work()


async def _skipped(redrive: Installation, clock: ManualClock, entry: dict[str, Any]) -> None:
    await redrive.api.post(f"/v1/retry-queue/{entry['id']}/skip")


async def _skipped_with_others(redrive: Installation, clock: ManualClock, entry: dict[str, Any]) -> None:
    await redrive.api.post("/v1/retry-queue/bulk-skip", {"ids": [entry["id"]]})
    await redrive.work()


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (_expired_by_the_janitor, "expired"),
        (_expired_by_a_worker, "expired"),
        (_skipped, "skipped"),
        (_skipped_with_others, "skipped"),
    ],
)
async def test_a_dead_letter_shows_its_last_real_error_everywhere(
    redrive: Installation, clock: ManualClock, failing: Story, end: Any, reason: str
) -> None:
    await redrive.api.policy("week", **WEEK)
    entry = await failing(policy="week")
    await end(redrive, clock, entry)
    letter = await redrive.api.letter(entry["endpoint_id"])
    expected = {"error_message": ERROR, "category": "server_error", "reason": reason, "in_dlq": True}
    assert {name: letter[name] for name in expected} == expected
    detail = await redrive.api.get(f"/v1/dead-letters/{letter['id']}")
    assert {name: detail[name] for name in expected} == expected
    (group,) = (await redrive.api.get("/v1/dead-letters/groups"))["data"]
    assert (group["error_message"], group["category"]) == (ERROR, "server_error")
    assert (await redrive.api.log(letter["log_id"]))["error_message"] == ERROR
    if reason == "expired":  # of what people skip they are not told
        (notice,) = (await redrive.api.get("/v1/notices", kind="dead_letter"))["data"]
        assert ERROR in notice["text"]
        assert (notice["facts"]["reason"], notice["facts"]["category"]) == ("expired", "server_error")
    listed = (await read(redrive.api.http, "/app/admin/dlq")).text
    assert "HTTP 503" in listed
    assert reason in listed
    shown = (await read(redrive.api.http, f"/app/admin/dlq/{letter['id']}")).text
    assert "HTTP 503" in shown
    assert {"expired": "Grew too old", "skipped": "Skipped by a person"}[reason] in shown
    found = (await redrive.api.get("/v1/dead-letters", q="503"))["data"]
    assert [one["id"] for one in found] == [letter["id"]]


async def test_why_no_further_try_was_made_stands_among_the_tries(
    redrive: Installation, clock: ManualClock, failing: Story
) -> None:
    await redrive.api.policy("week", **WEEK)
    entry = await failing(policy="week")
    await _expired_by_a_worker(redrive, clock, entry)
    tried, untried = (await redrive.api.get(f"/v1/dead-letters/{entry['id']}"))["attempts"]
    assert (tried["result"], tried["error_message"]) == ("failed", ERROR)
    why = "No further try was made: it is older than its policy allows."
    assert (untried["result"], untried["error_message"]) == ("released", why)


async def test_a_step_of_a_cancelled_run_shows_its_last_real_error(
    redrive: Installation, clock: ManualClock, receiver: HoldingReceiver
) -> None:
    receiver.usual = Answer(503)
    await redrive.api.workflow(
        "order", {"name": "one", "kind": "http", "url": receiver.url_of("/one"), "method": "POST"}
    )
    run_id = await redrive.api.run("order")
    await redrive.work()
    await redrive.api.post(f"/v1/runs/{run_id}/cancel", {"because": "not wanted"})
    (step,) = (await redrive.api.run_of(run_id))["steps"]
    assert step["error_message"] == ERROR
    (letter,) = (await redrive.api.get("/v1/dead-letters", state="ignored"))["data"]
    assert (letter["error_message"], letter["category"], letter["reason"]) == (ERROR, "server_error", "skipped")
