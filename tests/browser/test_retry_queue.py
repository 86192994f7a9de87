"""The retry queue in a browser: A-5 to A-8, word for word."""

import re

from playwright.async_api import expect

from support.engine import ManualClock
from support.installation import Installation
from support.receiver import Answer, Receiver

from .conftest import SignedIn
from .queue_steps import failed

NUMBERS_CAME = "document.dispatchEvent(new CustomEvent('counts', { detail: {} }))"
PATH = "/integrations/logs/retry-queue"


async def test_a5_the_page_shows_what_will_be_tried_again_and_when(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    await failed(installation, receiver)
    page = await signed_in()
    await page.goto(PATH)
    headers = [text.strip() for text in await page.locator("thead th").all_inner_texts()]
    columns = ["Event Type", "External System", "Error", "Retry Count", "Created At", "Next Retry At", "Actions"]
    assert headers == ["", *columns]
    row = page.locator("tbody tr")
    await expect(row).to_have_count(1)
    await expect(row).to_contain_text("invoice.paid")
    await expect(row).to_contain_text("SAP")
    await expect(row).to_contain_text("HTTP 503 Service Unavailable")
    await expect(row).to_contain_text("0 / 3")
    await expect(row.locator("[data-cell=next] time")).to_have_text(re.compile(r"in [1-5] s|now"))
    assert await row.locator("td.acts button, td.acts a").all_inner_texts() == ["Retry Now", "Skip", "View Log"]
    await row.get_by_text("View Log").click()
    await expect(page).to_have_url(f"{installation.base_url}/integrations/logs/{await _log_id(installation)}")


async def _log_id(redrive: Installation) -> str:
    log_id: str = (await redrive.api.get("/v1/retry-queue"))["data"][0]["log_id"]
    return log_id


async def test_a5_soonest_first_and_filtered_by_status_and_type(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    late = await failed(installation, receiver, external_system="LATE", policy="transformer")
    clock.advance(1)
    soon = await failed(installation, receiver, external_system="SOON", policy="integration")
    del late, soon
    page = await signed_in()
    await page.goto(PATH)
    systems = page.locator("tbody td[data-label='External System']")
    assert await systems.all_inner_texts() == ["LATE", "SOON"]  # due in 1 s and in 5 s
    await page.get_by_label("Status").select_option("In progress")
    await expect(page).to_have_url(f"{installation.base_url}{PATH}?status=in_progress")
    await expect(page.get_by_text("Nothing in the retry queue matches this filter.")).to_be_visible()
    await page.get_by_label("Status").select_option("Pending")
    await expect(systems).to_have_count(2)
    await page.get_by_label("Event type").fill("order.*")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(f"{installation.base_url}{PATH}?status=pending&type=order.*")
    await expect(page.locator("tbody tr")).to_have_count(0)
    await page.reload()
    await expect(page.get_by_label("Event type")).to_have_value("order.*")
    await page.go_back()
    await expect(systems).to_have_count(2)
    await expect(page.get_by_label("Status")).to_have_value("pending")


async def test_a6_retry_now_that_succeeds_says_so_and_takes_the_row_away(
    live: Installation, receiver: Receiver, signed_in: SignedIn
) -> None:
    receiver.usual = 503
    endpoint = await live.api.endpoint(receiver.url, policy="manual")  # nobody but the person retries it
    await live.api.event(endpoint["id"])
    await live.api.entry(endpoint["id"])
    receiver.usual = 200
    page = await signed_in()
    await page.goto(PATH)
    await page.get_by_role("button", name="Retry Now").click()
    await expect(page.get_by_text("Retry successful. Event removed from queue.")).to_be_visible()
    await expect(page.locator("tbody tr")).to_have_count(0)
    await expect(page.get_by_text("Nothing waits for a retry.")).to_be_visible()


async def test_a6_retry_now_that_fails_moves_the_count_and_the_time_on(
    live: Installation, receiver: Receiver, signed_in: SignedIn
) -> None:
    receiver.usual = 503
    # As the preset, but for the first wait: the person comes before the clock, however slow the machine is.
    await live.api.policy("patient", kind="list", delays_s=[600, 30, 300], max_retries=3)
    endpoint = await live.api.endpoint(receiver.url, policy="patient")
    await live.api.event(endpoint["id"])
    await live.api.entry(endpoint["id"])
    page = await signed_in()
    await page.goto(PATH)
    await expect(page.locator("[data-cell=count]")).to_have_text("0 / 3")
    await page.get_by_role("button", name="Retry Now").click()
    await expect(page.locator("[data-cell=count]")).to_have_text("1 / 3")
    await expect(page.locator("[data-cell=next] time")).to_have_text(re.compile(r"in (30|2\d) s"))
    await expect(page.locator(".toast")).to_contain_text("Retry failed: HTTP 503 Service Unavailable")


async def test_a6_it_is_in_progress_at_once(live: Installation, receiver: Receiver, signed_in: SignedIn) -> None:
    await failed(live, receiver)
    receiver.usual = Answer(200, after_s=2.0)
    page = await signed_in()
    await page.goto(PATH)
    await page.get_by_role("button", name="Retry Now").click()
    await expect(page.locator("[data-cell=next]")).to_have_text("in progress")
    assert (await live.api.get("/v1/retry-queue"))["data"][0]["status"] == "in_progress"
    await expect(page.locator(".toast")).to_contain_text("Retry successful. Event removed from queue.")


async def test_a16_without_a_worker_the_page_says_so_and_promises_nothing(
    installation: Installation, receiver: Receiver, signed_in: SignedIn
) -> None:
    await failed(installation, receiver)
    page = await signed_in()
    await page.goto(PATH)
    await page.get_by_role("button", name="Retry Now").click()
    await expect(page.locator(".toast")).to_contain_text("No worker serves its queue. It is tried when one is started.")
    await expect(page.locator("[data-cell=next]")).not_to_contain_text("in progress")


async def test_a7_skip_asks_first_and_makes_it_a_dead_letter(
    installation: Installation, receiver: Receiver, signed_in: SignedIn
) -> None:
    endpoint = await failed(installation, receiver)
    page = await signed_in()
    await page.goto(PATH)
    await page.get_by_role("button", name="Skip", exact=True).click()
    question = page.get_by_role("dialog", name="Skip retry and move to Dead Letter Queue?")
    await expect(question).to_be_visible()
    await question.get_by_role("button", name="Cancel").click()
    await expect(page.locator("tbody tr")).to_have_count(1)
    await page.get_by_role("button", name="Skip", exact=True).click()
    await question.get_by_role("button", name="Skip", exact=True).click()
    await expect(page.locator("tbody tr")).to_have_count(0)
    letter = await installation.api.letter(endpoint["id"])
    assert (letter["reason"], letter["status"], letter["in_dlq"], letter["next_retry_at"]) == (
        "skipped",
        "failed",
        True,
        None,
    )
    await page.goto("/integrations/logs/dead-letter-queue")
    await expect(page.locator("tbody tr")).to_contain_text("invoice.paid")


async def test_a18_a8_retry_all_selected_tells_progress_and_the_end(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    await failed(installation, receiver, 5)
    receiver.script(200, 200, 200)
    page = await signed_in()
    await page.goto(PATH)
    await page.get_by_label("Select this page").check()
    await expect(page.get_by_text("5 selected")).to_be_visible()
    await page.get_by_role("button", name="Retry All Selected").click()
    bar = page.locator("[data-operation]")
    await expect(bar).to_contain_text("0/5 succeeded, 0/5 failed")
    # rows of a bulk retry show that it is under way, like single ones.
    await expect(page.locator("[data-cell=next]")).to_have_text(["in progress"] * 5)
    for _ in range(2):  # an operation rests between two looks at its tasks
        clock.advance(1)
        await installation.work()
    await expect(bar).to_contain_text("Bulk retry complete. 3 succeeded, 2 failed.")
    await expect(page.locator(".toast")).to_contain_text("Bulk retry complete. 3 succeeded, 2 failed.")
    await expect(page.locator("tbody tr")).to_have_count(2)


async def test_a8_skip_all_selected(installation: Installation, receiver: Receiver, signed_in: SignedIn) -> None:
    await failed(installation, receiver, 3)
    page = await signed_in()
    await page.goto(PATH)
    await page.locator("[data-tick]").nth(0).check()
    await page.locator("[data-tick]").nth(2).click(modifiers=["Shift"])
    await expect(page.get_by_text("3 selected")).to_be_visible()
    await page.get_by_role("button", name="Skip All Selected").click()
    await page.get_by_role("dialog").get_by_role("button", name="Skip", exact=True).click()
    await expect(page.locator(".toast")).to_contain_text("Bulk skip complete. 3 succeeded, 0 failed.")
    await expect(page.locator("tbody tr")).to_have_count(0)


async def test_what_is_new_is_announced_and_the_table_does_not_move(
    installation: Installation, receiver: Receiver, signed_in: SignedIn
) -> None:
    endpoint = await failed(installation, receiver)
    page = await signed_in()
    await page.goto(PATH)
    await expect(page.locator("body[data-live]")).to_be_attached()
    await installation.api.batch(endpoint["id"], 2)
    await installation.work()
    await expect(page.get_by_role("button", name="2 new")).to_be_visible()
    await expect(page.locator("tbody tr")).to_have_count(1)
    await page.get_by_role("button", name="2 new").click()
    await expect(page.locator("tbody tr")).to_have_count(3)


async def test_what_holds_an_entry_comes_and_goes_while_one_looks(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    endpoint = await failed(installation, receiver, name="billing")
    page = await signed_in()
    await page.goto(PATH)
    retry_now, next_retry = page.get_by_role("button", name="Retry Now"), page.locator("[data-cell=next]")
    await installation.api.post(f"/v1/endpoints/{endpoint['id']}/pause")
    await page.evaluate(NUMBERS_CAME)
    await expect(next_retry).to_have_text("held when due")
    await expect(next_retry.locator(".badge")).to_have_attribute("title", re.compile('endpoint "billing" is paused'))
    await expect(retry_now).to_be_disabled()
    await installation.api.post(f"/v1/endpoints/{endpoint['id']}/resume")
    await page.evaluate(NUMBERS_CAME)
    await expect(next_retry.locator("time")).to_be_visible()
    await expect(retry_now).to_be_enabled()
