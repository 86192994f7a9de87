"""The list of integration logs in a browser."""

from playwright.async_api import expect

from support.engine import ManualClock
from support.installation import Installation
from support.receiver import Receiver

from .conftest import SignedIn
from .queue_steps import died


async def test_a22_integration_logs_are_listed_filtered_and_opened(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    await died(installation, receiver, clock, event_types=["invoice.paid"])
    receiver.usual = 200
    await installation.api.endpoint(receiver.url, name="orders", event_types=["order.paid"])
    await installation.api.post("/v1/events", {"event_type": "order.paid", "payload": 1})
    await installation.work()
    page = await signed_in("VIEWER")
    await page.goto("/")
    await page.get_by_role("link", name="Logs", exact=True).click()
    names = page.locator("tbody td.name")
    await expect(names).to_have_text(["order.paid", "invoice.paid"])
    await page.get_by_label("Status").select_option("error")
    await expect(names).to_have_text(["invoice.paid"])
    await expect(page.locator("tbody .badge").first).to_have_class("badge failed")
    await page.get_by_label("Status").select_option("")
    await page.get_by_role("columnheader", name="Event Type").get_by_role("link").click()
    await expect(names).to_have_text(["invoice.paid", "order.paid"])
    await page.get_by_label("Event type").fill("nothing.like.it")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("No logs match these filters.")).to_be_visible()
    await page.get_by_role("link", name="Clear all").click()
    await names.first.get_by_role("link").click()
    await page.wait_for_url("**/integrations/logs/*")
    await expect(page.locator(".subtitle")).to_contain_text("integration log")
