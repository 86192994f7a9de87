"""Groups in a browser: many failures are few errors, and one click is for all of them."""

from playwright.async_api import expect

from support.engine import ManualClock
from support.installation import Installation
from support.letters import ERRORS, seed
from support.receiver import Receiver

from .conftest import SignedIn


async def test_2000_failures_are_really_3_errors(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    await seed(installation.url, installation.api, installation.org_id, 2_000, url=receiver.url, now=clock.now())
    page = await signed_in()
    await page.goto("/groups")
    await expect(page.get_by_text("2,000 failures are really 3 errors")).to_be_visible()
    rows = page.locator("tbody tr")
    await expect(rows).to_have_count(len(ERRORS))
    row = rows.filter(has_text="HTTP 404 Not Found")
    await expect(row.locator("[data-label='Last seen'] time")).to_have_text("1 min ago")
    await expect(row.locator("svg[role=img] title").first).to_contain_text("in the last 24 hours")
    await row.get_by_role("link", name="Not Found").click()
    await expect(page.get_by_role("heading", name="Dead letters")).to_be_visible()
    await expect(page.locator("tbody tr").first).to_contain_text("HTTP 404 not retried: client error Not Found")
    await expect(page.locator(".term")).to_contain_text("group:")


async def test_a_whole_group_is_resolved_with_a_reason_and_the_others_stay(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    await seed(installation.url, installation.api, installation.org_id, 30, url=receiver.url, now=clock.now())
    page = await signed_in()
    await page.goto("/groups")
    row = page.locator("tbody tr").filter(has_text="HTTP 403 Forbidden")
    await row.get_by_role("button", name="Resolve").click()
    question = page.get_by_role("dialog", name="Resolve 10 dead letters?")
    await question.get_by_label("Why?").fill("the firewall was wrong")
    await question.get_by_role("button", name="Resolve").click()
    await expect(page.locator(".toast")).to_contain_text("Bulk resolve complete. 10 succeeded, 0 failed.")
    await expect(page.locator("tbody tr")).to_have_count(2)
    resolved = await installation.api.get("/v1/dead-letters", state="resolved", limit="100")
    assert {letter["error_message"] for letter in resolved["data"]} == {"HTTP 403 Forbidden"}
    assert len(resolved["data"]) == 10


async def test_a_group_is_retried_to_its_end(live: Installation, receiver: Receiver, signed_in: SignedIn) -> None:
    await seed(live.url, live.api, live.org_id, 9, url=receiver.url)
    page = await signed_in()
    await page.goto("/groups")
    await page.locator("tbody tr").filter(has_text="HTTP 404").get_by_role("button", name="Retry").click()
    await page.get_by_role("dialog").get_by_role("button", name="Retry").click()
    await expect(page.locator("[data-operation]")).to_contain_text("Bulk retry complete. 3 succeeded, 0 failed.")
    await expect(page.locator("tbody tr")).to_have_count(2)


async def test_who_may_not_act_sees_groups_without_actions(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    await seed(installation.url, installation.api, installation.org_id, 3, url=receiver.url, now=clock.now())
    page = await signed_in("VIEWER")
    await page.goto("/groups")
    await expect(page.locator("tbody tr")).to_have_count(3)
    await expect(page.locator("main button[data-path]")).to_have_count(0)
