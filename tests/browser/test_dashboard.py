"""The dashboard in a browser: the seven charts, what they lead to, and that they stay true."""

from playwright.async_api import expect

from support.engine import ManualClock
from support.installation import Installation
from support.receiver import Receiver

from .conftest import SignedIn
from .queue_steps import died, failed

CHARTS = (
    "Events by status",
    "Events per minute",
    "Success rate",
    "Queue depth",
    "Failed rate",
    "Retries before the end",
    "Time to delivery",
)


async def test_c8_seven_charts_tell_what_happened(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    endpoint = await died(installation, receiver, clock, 1, name="billing")
    receiver.usual = 200
    await installation.api.batch(endpoint["id"], 3)
    await installation.work()
    await failed(installation, receiver, 2, name="crm")
    page = await signed_in()
    await page.goto("/")
    for name in CHARTS:
        await expect(
            page.locator("section", has=page.get_by_role("heading", name=name)).locator("svg[role=img]").first
        ).to_be_visible()

    def tile(name: str) -> str:
        return f"section:has(h2:has-text('{name}'))"

    await expect(page.locator(tile("Events per minute"))).to_contain_text("created 6")
    await expect(page.locator(tile("Events per minute"))).to_contain_text("delivered 3")
    await expect(page.locator(tile("Events per minute"))).to_contain_text("failed 1")
    await expect(page.locator(tile("Success rate"))).to_contain_text("75%")
    await expect(page.locator(tile("Failed rate")).locator("strong")).to_have_text("25.0%")
    await expect(page.locator(tile("Queue depth")).locator("strong")).to_have_text("2")
    await expect(page.locator(tile("Open groups"))).to_contain_text("HTTP 503 Service Unavailable")
    await expect(page.locator(tile("Worst endpoints"))).to_contain_text("crm")
    await page.get_by_role("link", name="2 retrying").click()
    await expect(page.locator("tbody tr")).to_have_count(2)


async def test_c8_over_an_hour_a_day_and_a_week(installation: Installation, signed_in: SignedIn) -> None:
    page = await signed_in()
    for label, query in (("Last 24 hours", "24h"), ("Last 7 days", "7d"), ("Last hour", "1h")):
        await page.goto("/")
        await page.get_by_role("link", name=label).click()
        await expect(page).to_have_url(f"{installation.base_url}/?window={query}")
        await expect(page.get_by_role("link", name=label)).to_have_attribute("aria-current", "true")


async def test_how_deliveries_went_is_shown_by_what_is_chosen(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    endpoint = await died(installation, receiver, clock, 1, name="billing")
    receiver.usual = 200
    await installation.api.batch(endpoint["id"], 3)
    await installation.work()
    page = await signed_in()
    await page.goto("/")
    await page.get_by_role("link", name="Last 30 days").click()
    rows = page.locator("#outcomes tbody tr")
    await expect(rows.first).to_contain_text("billing")
    await expect(rows.first).to_contain_text("75.0%")
    await page.get_by_role("group", name="By").get_by_role("link", name="Event type").click()
    await expect(page).to_have_url(f"{installation.base_url}/?window=30d&by=event_type#outcomes")
    await expect(rows.last).to_contain_text("everything")
    await page.get_by_role("link", name="Last hour").click()
    await expect(page).to_have_url(f"{installation.base_url}/?window=1h&by=event_type")
    await expect(page.locator("#retries-before-the-end")).to_contain_text("failures rescued 0.0%")


async def test_c8_it_stays_true_by_itself(live: Installation, receiver: Receiver, signed_in: SignedIn) -> None:
    page = await signed_in()
    await page.goto("/")
    await expect(page.locator("body[data-live]")).to_be_attached()
    endpoint = await live.api.endpoint(receiver.url)
    await live.api.batch(endpoint["id"], 7)
    rates = page.locator("section", has=page.get_by_role("heading", name="Events per minute"))
    await expect(rates).to_contain_text("delivered 7", timeout=15_000)


async def test_nobody_at_work_is_told_on_every_page(installation: Installation, signed_in: SignedIn) -> None:
    page = await signed_in()
    for path in ("/", "/integrations/logs/retry-queue"):
        await page.goto(path)
        await expect(page.locator(".notice.bad")).to_contain_text("No worker is running: nothing is delivered.")
