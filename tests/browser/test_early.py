"""What a person does while the scripts of a page are still under way is not lost, and nothing is sent without them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playwright.async_api import Page, Route, expect

from support.chromium import Visit
from support.engine import ManualClock
from support.installation import Installation
from support.receiver import Receiver

from .conftest import SignedIn
from .queue_steps import died


@asynccontextmanager
async def scripts_under_way(page: Page, path: str) -> AsyncIterator[None]:
    """Within the block the page is shown and its modules have not come; after it they have."""
    may_come = asyncio.Event()

    async def later(route: Route) -> None:
        await may_come.wait()
        await route.continue_()

    await page.route("**/static/*/api.js", later)
    await page.goto(path, wait_until="commit")
    await expect(page.get_by_role("heading", level=1)).to_be_visible()
    yield
    async with page.expect_event("domcontentloaded"):
        may_come.set()


async def test_keys_and_clicks_are_done_when_the_scripts_are_there(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    await died(installation, receiver, clock, 2)
    page = await signed_in()
    async with scripts_under_way(page, "/integrations/logs/dead-letter-queue"):
        await page.locator("tbody tr").first.focus()
        await page.keyboard.press("x")
        await page.get_by_role("button", name="Delete").last.click()
    await expect(page.get_by_text("1 selected")).to_be_visible()
    await expect(page.get_by_role("dialog", name="Permanently delete this entry?")).to_be_visible()


async def test_a_menu_that_is_opened_early_has_all_that_it_offers(
    installation: Installation, signed_in: SignedIn
) -> None:
    await installation.api.post("/v1/orgs", {"name": "elsewhere"})
    page = await signed_in()
    async with scripts_under_way(page, "/settings"):
        await page.locator("[data-account] summary").click()
    await expect(page.get_by_role("list", name="Switch org").get_by_role("button", name="elsewhere")).to_be_visible()


async def test_what_is_done_twice_in_haste_is_done_once(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn, visit: Visit
) -> None:
    await died(installation, receiver, clock)
    page = await signed_in()
    async with scripts_under_way(page, "/integrations/logs/dead-letter-queue"):
        await page.get_by_role("button", name="Delete").dblclick()
    await expect(page.locator("dialog[open]")).to_have_count(1)
    stranger = await visit.page()
    sent: list[str] = []
    stranger.on("request", lambda request: sent.append(request.method) if request.method == "POST" else None)
    async with scripts_under_way(stranger, "/sign-in"):
        await stranger.get_by_label("E-mail").fill("ada@example.com")
        await stranger.get_by_label("Password").fill("correct horse battery")
        await stranger.keyboard.press("Enter")
        await stranger.keyboard.press("Enter")
    await expect(stranger.get_by_role("alert")).to_have_text("The e-mail or the password is wrong.")
    assert sent == ["POST"]


async def test_where_the_scripts_do_not_come_the_form_says_so_and_is_not_sent(
    installation: Installation, visit: Visit
) -> None:
    visit.forgiven.append("api.js")
    page = await visit.page()
    await page.route("**/static/*/api.js", lambda route: route.abort())
    await page.goto("/sign-in")
    await page.get_by_label("E-mail").fill("ada@example.com")
    await page.get_by_label("Password").fill("correct horse battery")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("alert")).to_contain_text("Nothing was sent")
    await expect(page.get_by_label("E-mail")).to_have_value("ada@example.com")


async def test_a_form_is_not_sent_without_the_script_that_sends_it(installation: Installation, visit: Visit) -> None:
    page = await visit.page()
    async with scripts_under_way(page, "/sign-in"):
        await page.get_by_label("E-mail").fill("ada@example.com")
        await page.get_by_label("Password").fill("correct horse battery")
        await page.keyboard.press("Enter")
    await expect(page.get_by_role("alert")).to_have_text("The e-mail or the password is wrong.")
    assert page.url == f"{installation.base_url}/sign-in"
