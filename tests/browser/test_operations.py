"""An operation, watched live and steered from its page."""

from typing import Any

from playwright.async_api import expect

from support.axe import assert_accessible
from support.engine import ManualClock
from support.installation import Installation
from support.layout import assert_fits

from .conftest import SignedIn


async def _dead(redrive: Installation, count: int) -> list[str]:
    await redrive.api.endpoint("http://127.0.0.1:9/closed", event_types=["invoice.paid"], policy="never")
    for n in range(count):
        await redrive.api.post("/v1/events", {"event_type": "invoice.paid", "payload": n})
    await redrive.work()
    letters = (await redrive.api.get("/v1/dead-letters", limit="250"))["data"]
    return [letter["id"] for letter in letters]


async def _begun(redrive: Installation, **given: object) -> dict[str, Any]:
    made: dict[str, Any] = await redrive.api.post("/v1/dead-letters/bulk", {"action": "resolve", **given})
    return made


async def test_progress_is_live_and_the_operation_is_paused_resumed_and_cancelled(
    signed_in: SignedIn, installation: Installation, clock: ManualClock
) -> None:
    await installation.api.policy("never", kind="list", delays_s=[1], max_retries=0)
    letters = await _dead(installation, 4)
    made = await _begun(installation, ids=letters, rate_per_s=1)
    page = await signed_in("IT_MANAGER")
    await page.goto("/operations")
    await page.get_by_role("link", name="Resolve 4 dead letters").click()
    await expect(page.locator("[data-progress]")).to_have_text("1/4 succeeded, 0/4 failed")
    clock.advance(1)
    await installation.work()
    await expect(page.locator("[data-progress]")).to_have_text("2/4 succeeded, 0/4 failed")
    await expect(page.get_by_role("row").filter(has_text="succeeded")).to_have_count(2)
    await page.keyboard.press("p")
    await expect(page.get_by_role("button", name="Resume")).to_be_visible()
    assert (await installation.api.get(f"/v1/operations/{made['id']}"))["state"] == "paused"
    await page.get_by_role("button", name="Resume").click()
    await expect(page.get_by_role("button", name="Pause")).to_be_visible()
    await page.get_by_role("button", name="Cancel operation").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("button", name="Keep it going")).to_be_visible()
    await dialog.get_by_label("Why?").fill("enough")
    await dialog.get_by_role("button", name="Cancel operation").click()
    await expect(page.locator("[data-progress]")).to_have_text(
        "Bulk resolve cancelled. 2 succeeded, 0 failed, 2 not done."
    )
    await expect(page.get_by_role("button", name="Pause")).to_have_count(0)
    await page.get_by_role("link", name="In the audit log").click()
    await expect(page.get_by_role("row").filter(has_text="operation.cancel")).to_contain_text("“enough”")


async def test_the_list_stays_true_while_something_runs(
    signed_in: SignedIn, installation: Installation, clock: ManualClock
) -> None:
    await installation.api.policy("never", kind="list", delays_s=[1], max_retries=0)
    letters = await _dead(installation, 2)
    await _begun(installation, ids=letters, rate_per_s=1)
    page = await signed_in("STAFF", width=390)
    await page.goto("/operations")
    await expect(page.get_by_role("row").nth(1)).to_contain_text("1/2 succeeded")
    await assert_fits(page)
    await assert_accessible(page)
    clock.advance(1)
    await installation.work()
    await expect(page.get_by_role("row").nth(1)).to_contain_text("2/2 succeeded")
    await expect(page.get_by_role("row").nth(1)).to_contain_text("completed")
