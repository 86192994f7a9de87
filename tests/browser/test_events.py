"""Events and the inbox in a browser."""

from playwright.async_api import expect

from support.installation import Installation
from support.layout import assert_fits

from .conftest import SignedIn

BIG = "12345678901234567890123"


async def test_an_event_is_sent_digit_by_digit(installation: Installation, signed_in: SignedIn) -> None:
    page = await signed_in()
    await page.goto("/events")
    await page.get_by_role("button", name="Send an event").click()
    dialog = page.get_by_role("dialog", name="Send an event")
    await dialog.get_by_label("Event type").fill("stock.low")
    await dialog.get_by_label("Payload").fill("{not json")
    await dialog.get_by_role("button", name="Send").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("is no JSON")
    await dialog.get_by_label("Payload").fill(f'{{"n": {BIG}, "price": 1.10}}')
    await dialog.get_by_role("button", name="Send").click()
    await page.wait_for_url("**/events/*-*")
    event = page.url.rpartition("/")[2]
    stored = await installation.api.http.get(f"/v1/events/{event}")
    assert f'{{"n": {BIG}, "price": 1.10}}'.encode() in stored.body


async def test_what_is_new_is_announced_and_shown_when_asked_for(
    installation: Installation, signed_in: SignedIn
) -> None:
    await installation.api.post("/v1/events", {"event_type": "first.one", "payload": 1})
    page = await signed_in()
    await page.goto("/events")
    await expect(page.locator("body[data-live]")).to_be_attached()
    await installation.api.post("/v1/events", {"event_type": "second.one", "payload": 1})
    await page.get_by_role("button", name="New events: show them").click()
    await expect(page.locator("tbody tr")).to_have_count(2)
    await expect(page.get_by_role("button", name="New events: show them")).to_have_count(0)


async def test_the_filter_survives_a_reload_and_the_way_back(installation: Installation, signed_in: SignedIn) -> None:
    for event_type in ("stock.low", "stock.high"):
        await installation.api.post("/v1/events", {"event_type": event_type, "payload": 1})
    page = await signed_in()
    await page.goto("/events")
    await page.get_by_label("Status").select_option("Received")
    await expect(page).to_have_url(f"{installation.base_url}/events?status=received")
    await page.keyboard.press("/")
    await page.keyboard.type("stock.low")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(f"{installation.base_url}/events?status=received&type=stock.low")
    await page.reload()
    await expect(page.locator("tbody tr")).to_have_count(1)
    await page.go_back()
    await expect(page.locator("tbody tr")).to_have_count(2)


async def test_events_of_the_inbox_are_acknowledged_and_deleted(
    installation: Installation, signed_in: SignedIn
) -> None:
    for event_type in ("stock.low", "stock.high"):
        await installation.api.post("/v1/events", {"event_type": event_type, "payload": 1})
    page = await signed_in("IT_MANAGER")
    await page.goto("/inbox")
    await page.keyboard.press("Escape")
    await page.keyboard.press("a")
    await page.get_by_role("dialog").get_by_role("button", name="Acknowledge").click()
    await expect(page.get_by_text("Acknowledged. The event counts as delivered.")).to_be_visible()
    await expect(page.locator("tbody tr")).to_have_count(1)
    await page.get_by_role("button", name="Delete").click()
    question = page.get_by_role("dialog", name="Permanently delete this event?")
    await question.get_by_role("button", name="Delete").click()
    await expect(page.get_by_text("The inbox is empty")).to_be_visible()
    statuses = [event["status"] for event in (await installation.api.get("/v1/events"))["data"]]
    assert statuses == ["delivered"]


async def test_a_type_without_end_leaves_the_page_as_wide_as_it_is(
    installation: Installation, signed_in: SignedIn
) -> None:
    await installation.api.post("/v1/events", {"event_type": "x" * 200, "payload": {"text": "y" * 500}})
    page = await signed_in()
    for path in ("/events", "/inbox"):
        await page.goto(path)
        for width in (390, 768, 1440):
            await page.set_viewport_size({"width": width, "height": 900})
            await assert_fits(page)
