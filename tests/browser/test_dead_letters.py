"""The dead letters in a browser: A-9 to A-11, word for word; search, selection, many at once."""

import re

from playwright.async_api import expect

from redrive.core.operations import MAX_STEP_ITEMS
from support.engine import ManualClock
from support.installation import Installation
from support.letters import seed
from support.receiver import Answer, Receiver
from support.remote import at

from .conftest import SignedIn
from .queue_steps import died, failed

PATH = "/integrations/logs/dead-letter-queue"
MANY = 2 * MAX_STEP_ITEMS + 1


async def test_a9_the_page_shows_what_died(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    await died(installation, receiver, clock)
    page = await signed_in()
    await page.goto(PATH)
    assert [text.strip() for text in await page.locator("thead th").all_inner_texts()] == [
        *("", "Event Type", "External System", "Error", "Retry Count", "Created At", "Failed At", "Actions")
    ]
    row = page.locator("tbody tr")
    for text in ("invoice.paid", "SAP", "HTTP 503 Service Unavailable", "3 / 3"):
        await expect(row).to_contain_text(text)
    await expect(row.locator("[data-label='Created At'] time")).to_have_text("5 min ago")
    await expect(row.locator("[data-label='Failed At'] time")).to_have_text(re.compile(r"now|\d s ago"))
    assert await row.locator("td.acts button").all_inner_texts() == ["Manual Retry", "Mark Resolved", "Delete"]


async def test_a9_when_there_is_none_all_is_well(installation: Installation, signed_in: SignedIn) -> None:
    page = await signed_in()
    for path in (PATH, "/app/admin/dlq"):
        await page.goto(path)
        await expect(page.get_by_text("No failed events. All integrations healthy.")).to_be_visible()


async def test_a21_that_all_is_well_is_said_only_if_it_is(
    installation: Installation, receiver: Receiver, signed_in: SignedIn
) -> None:
    endpoint = await failed(installation, receiver, 12)
    page = await signed_in()
    empty = page.locator(".empty-title")
    for path in (PATH, "/app/admin/dlq", "/groups"):
        await page.goto(path)
        await expect(empty).to_have_text("No dead letters. 12 deliveries are waiting for a retry.")
        await page.goto(f"{path}?type=order.paid")
        await expect(empty).to_have_text("No dead letters match these filters.")
    await installation.api.post(f"/v1/endpoints/{endpoint['id']}/pause")
    other = await installation.api.endpoint(receiver.url, name="new", event_types=["stock.low"])
    await installation.api.post(f"/v1/endpoints/{other['id']}/pause")
    await page.goto(PATH)
    await expect(page.get_by_text("All integrations healthy")).to_have_count(0)


async def test_d11_the_page_filters_by_kind_and_reason(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    await died(installation, receiver, clock)
    await failed(installation, receiver, external_system="SKIPPED")
    entry = (await installation.api.get("/v1/retry-queue"))["data"][0]
    await installation.api.post(f"/v1/retry-queue/{entry['id']}/skip")
    page = await signed_in()
    for path in (PATH, "/app/admin/dlq"):
        await page.goto(path)
        rows = page.locator("tbody tr")
        await expect(rows).to_have_count(2)
        await page.get_by_label("Reason").select_option("skipped")
        await expect(rows).to_have_count(1)
        await expect(rows).to_contain_text("SKIPPED")
        await page.get_by_label("Kind").select_option("step")
        await expect(page.get_by_text("No dead letters match these filters.")).to_be_visible()
        await expect(page).to_have_url(f"{installation.base_url}{path}?kind=step&reason=skipped")


async def test_a9_newest_first_filtered_by_type_and_by_date(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    await died(installation, receiver, clock, external_system="OLD")
    clock.advance(2 * 86_400)
    await died(installation, receiver, clock, external_system="NEW")
    page = await signed_in()
    await page.goto(PATH)
    systems = page.locator("tbody td[data-label='External System']")
    assert await systems.all_inner_texts() == ["NEW", "OLD"]
    yesterday = clock.now().date().isoformat()
    await page.get_by_label("From").fill(yesterday)
    await page.keyboard.press("Enter")
    await expect(systems).to_have_text(["NEW"])
    await page.goto(f"{PATH}?until=1d")
    await expect(systems).to_have_text(["OLD"])
    await page.goto(f"{PATH}?type=invoice.*")
    await expect(systems).to_have_count(2)
    await page.goto(f"{PATH}?type=order.paid")
    await expect(page.get_by_text("No dead letters match these filters.")).to_be_visible()


async def test_a19_a22_dates_are_fields_and_headers_sort_without_losing_the_focus(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    await died(installation, receiver, clock, event_types=["b"], external_system="FIRST")
    clock.advance(2 * 86_400)
    today = clock.now().date().isoformat()
    for event_type in ("c", "a"):
        made = await installation.api.endpoint(receiver.url, name=event_type, event_types=[event_type])
        await installation.api.post("/v1/events", {"event_type": event_type, "payload": 1, "endpoint_id": made["id"]})
    for seconds in (0, 5, 30, 300):
        clock.advance(seconds)
        await installation.work()
    page = await signed_in()
    await page.goto(PATH)
    names = page.locator("tbody td.name")
    header = page.get_by_role("columnheader", name="Event Type").get_by_role("link")
    await header.click()
    await expect(names).to_have_text(["a", "c", "invoice.paid"])
    await expect(header).to_be_focused()
    await expect(page).to_have_url(f"{installation.base_url}{PATH}?sort=event_type")
    await page.keyboard.press("Enter")
    await expect(names).to_have_text(["invoice.paid", "c", "a"])
    await expect(page.locator("th[aria-sort=descending]")).to_have_text("Event Type")
    since = page.get_by_label("From")
    await expect(since).to_have_attribute("type", "date")
    await since.fill(today)
    await expect(names).to_have_text(["c", "a"])
    await page.get_by_label("To").fill(today)
    await page.get_by_label("To").press("Tab")
    await expect(names).to_have_text(["c", "a"])
    await expect(page).to_have_url(f"{installation.base_url}{PATH}?sort=-event_type&since={today}&until={today}")


async def test_a10_manual_retry_goes_back_to_the_queue_with_full_retries(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    endpoint = await died(installation, receiver, clock)
    page = await signed_in()
    await page.goto(PATH)
    await page.get_by_role("button", name="Manual Retry").click()
    await expect(page.locator("tbody tr")).to_have_count(0)
    await expect(page.locator(".toast")).to_contain_text("Retry scheduled.")
    entry = await installation.api.entry(endpoint["id"])
    assert (entry["retry_count"], entry["max_retries"], entry["in_dlq"], entry["status"]) == (0, 3, False, "pending")
    assert (at(entry["next_retry_at"]) - clock.now()).total_seconds() == 5
    clock.advance(5)
    await installation.work()
    again = await installation.api.entry(endpoint["id"])
    assert (again["retry_count"], (at(again["next_retry_at"]) - clock.now()).total_seconds()) == (1, 30)
    await page.goto("/integrations/logs/retry-queue")
    await expect(page.locator("tbody tr")).to_contain_text("1 / 3")


async def test_a11_delete_asks_first_and_leaves_the_log(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    endpoint = await died(installation, receiver, clock)
    letter = await installation.api.letter(endpoint["id"])
    page = await signed_in()
    await page.goto(PATH)
    await page.get_by_role("button", name="Delete").click()
    question = page.get_by_role("dialog", name="Permanently delete this entry?")
    await question.get_by_role("button", name="Cancel").click()
    await expect(page.locator("tbody tr")).to_have_count(1)
    await page.get_by_role("button", name="Delete").click()
    await question.get_by_role("button", name="Delete").click()
    await expect(page.get_by_text("Entry deleted from DLQ.")).to_be_visible()
    await expect(page.locator("tbody tr")).to_have_count(0)
    assert (await installation.api.log(letter["log_id"]))["status"] == "error"


async def test_mark_resolved_takes_it_from_the_open_ones_to_the_resolved(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    await died(installation, receiver, clock)
    page = await signed_in()
    await page.goto(PATH)
    await page.get_by_role("button", name="Mark Resolved").click()
    await expect(page.locator("tbody tr")).to_have_count(0)
    await page.get_by_label("State").select_option("Resolved")
    await expect(page.locator("tbody tr")).to_have_count(1)


async def test_what_was_resolved_by_mistake_is_undone_at_once_or_reopened_later(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    endpoint = await died(installation, receiver, clock)
    page = await signed_in()
    await page.goto(PATH)
    await page.get_by_role("button", name="Mark Resolved").click()
    await expect(page.locator("tbody tr")).to_have_count(0)
    async with page.expect_event("load"):
        await page.get_by_role("button", name="Undo").click()
    await expect(page.locator("tbody tr")).to_have_count(1)
    await expect(page.locator(".toast")).to_contain_text("Taken back.")
    letter = await installation.api.letter(endpoint["id"])
    assert letter["state"] == "open"
    await page.keyboard.press("Escape")  # to the list
    await page.keyboard.press("m")
    await page.get_by_role("dialog", name="Mark as resolved?").get_by_role("button", name="Mark Resolved").click()
    await expect(page.locator("tbody tr")).to_have_count(0)
    await page.goto(f"{PATH}?state=resolved")
    await page.keyboard.press("Escape")
    await page.keyboard.press("z")
    await expect(page.get_by_text("Open again.")).to_be_visible()
    await expect(page.locator("tbody tr")).to_have_count(0)
    await page.goto(f"/app/admin/dlq/{letter['id']}")
    await expect(page.get_by_text("opened it again")).to_have_count(2)


async def test_a_search_becomes_badges_that_are_edited_and_kept_by_reload_and_back(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    await died(installation, receiver, clock, name="billing")
    await died(installation, receiver, clock, name="crm")
    page = await signed_in()
    await page.goto(PATH)
    await page.keyboard.press("/")
    await page.keyboard.type("type:invoice.* endpoint:billing error:server_error since:2h 503")
    await page.keyboard.press("Enter")
    query = "?type=invoice.*&endpoint=billing&error=server_error&since=2h&q=503"
    await expect(page).to_have_url(f"{installation.base_url}{PATH}{query}")
    terms = page.locator(".term button")
    said = ["type: invoice.*", "endpoint: billing", "error: server_error", "since: 2h", "text: 503"]
    await expect(terms).to_have_text(said)
    await expect(page.locator("tbody tr")).to_have_count(1)
    await page.reload()
    await expect(terms).to_have_text(said)
    await terms.nth(1).click()
    box = page.get_by_role("searchbox")
    await expect(box).to_be_focused()
    await expect(box).to_have_value("endpoint:billing 503")
    await box.fill("endpoint:crm 503")
    await page.keyboard.press("Enter")
    await expect(terms.nth(1)).to_have_text("endpoint: crm")
    await page.go_back()
    await expect(terms).to_have_text(said)
    await page.locator(".term a").nth(1).click()
    await expect(page.locator("tbody tr")).to_have_count(2)


async def test_a_search_that_means_nothing_says_so_and_shows_nothing(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    """Shown as everything, a bulk action would take everything."""
    await died(installation, receiver, clock)
    page = await signed_in()
    for query in ("error=cosmic", "since=yesterdayish", "endpoint=nobody", "state=lost"):
        await page.goto(f"{PATH}?{query}")
        await expect(page.locator(".notice.warn").last).to_be_visible()
        await expect(page.locator("tbody tr")).to_have_count(0)
    await page.goto(f"{PATH}?q=colour:red&since=yesterdayish&endpoint=nobody&error=cosmic")
    for part in (
        "“colour:” is no qualifier",
        "since:yesterdayish is no time",
        "no endpoint called “nobody”",
        "cosmic is not known",
    ):
        await expect(page.locator(".notice.warn", has_text=part)).to_be_visible()


async def test_the_keyboard_alone_finds_selects_and_retries(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    await died(installation, receiver, clock, 3)
    page = await signed_in()
    await page.goto("/integrations/logs/retry-queue")
    await page.keyboard.press("g")
    await page.keyboard.press("d")
    await expect(page.get_by_role("heading", name="Dead letters")).to_be_visible()
    for key in ("Escape", "x", "j", "j", "x", "k"):
        await page.keyboard.press(key)
    await expect(page.locator("tr.cursor")).not_to_have_class("selected")
    await expect(page.get_by_text("2 selected")).to_be_visible()
    await page.keyboard.press("r")
    await expect(page.locator("[data-operation]")).to_contain_text("0/2 succeeded, 0/2 failed")
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_contain_text("Next row")
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/app/admin/dlq/*")


async def test_all_1001_that_match_are_retried_with_progress_that_survives_a_reload(
    live: Installation, receiver: Receiver, signed_in: SignedIn
) -> None:
    receiver.usual = Answer(200, after_s=0.5)  # long enough to be seen under way
    await seed(live.url, live.api, live.org_id, MANY, url=receiver.url)
    page = await signed_in()
    await page.goto(PATH)
    await page.get_by_label("Select this page").check()
    await page.get_by_role("button", name="Select all 1,001 that match").click()
    await expect(page.get_by_text("All 1,001 selected")).to_be_visible()
    await page.get_by_role("button", name="Retry All Selected").click()
    question = page.get_by_role("dialog", name="Retry 1,001 dead letters?")
    await question.get_by_label("Why?").fill("the receiver is back")
    await question.get_by_role("button", name="Retry", exact=True).click()
    bar = page.locator("[data-operation]")
    await expect(bar).to_contain_text("/1,001 succeeded")
    await bar.get_by_role("button", name="Pause").click()
    await expect(bar).to_contain_text("Paused.")
    await page.reload()
    await expect(bar).to_contain_text("Paused.")
    await bar.get_by_role("button", name="Resume").click()
    await expect(bar).to_contain_text("Bulk retry complete. 1,001 succeeded, 0 failed.", timeout=60_000)
    await expect(page.get_by_text("No failed events. All integrations healthy.")).to_be_visible()
    assert len(receiver.requests) == MANY
    (operation,) = (await live.api.get("/v1/operations"))["data"]
    assert (operation["succeeded"], operation["because"]) == (MANY, "the receiver is back")


async def test_an_operation_is_cancelled_from_its_bar(
    installation: Installation, receiver: Receiver, signed_in: SignedIn, clock: ManualClock
) -> None:
    await seed(installation.url, installation.api, installation.org_id, 60, url=receiver.url, now=clock.now())
    page = await signed_in()
    await page.goto(PATH)
    await page.get_by_label("Select this page").check()
    await page.get_by_role("button", name="Mark Resolved").last.click()
    await page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    await page.get_by_role("button", name="Retry All Selected").click()
    bar = page.locator("[data-operation]")
    await expect(bar).to_contain_text("Retry")
    question = page.get_by_role("dialog", name="Cancel this operation?")
    await bar.get_by_role("button", name="Cancel").click()
    await question.get_by_role("button", name="Keep it going").click()
    await bar.get_by_role("button", name="Cancel").click()
    await question.get_by_role("button", name="Cancel operation").click()
    await expect(bar.get_by_role("button", name="Pause")).to_be_hidden()
    for _ in range(2):
        clock.advance(1)
        await installation.work()
    await expect(bar).to_contain_text("Bulk retry cancelled.")
    await bar.get_by_role("button", name="Close").click()
    await expect(bar).to_have_count(0)
    assert "op=" not in page.url


async def test_new_letters_are_announced_and_the_table_does_not_move(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    await died(installation, receiver, clock)
    page = await signed_in()
    await page.goto(PATH)
    await expect(page.locator("body[data-live]")).to_be_attached()
    await died(installation, receiver, clock, 2)
    await expect(page.get_by_role("button", name="2 new")).to_be_visible()
    await expect(page.locator("tbody tr")).to_have_count(1)
    await page.get_by_role("button", name="2 new").click()
    await expect(page.locator("tbody tr")).to_have_count(3)
    await expect(page.get_by_role("button", name="2 new")).to_have_count(0)


async def test_an_id_alone_leads_to_its_task_or_event(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    endpoint = await died(installation, receiver, clock)
    letter = await installation.api.letter(endpoint["id"])
    page = await signed_in()
    for searched, path in (
        (letter["id"], f"/app/admin/dlq/{letter['id']}"),
        (letter["event_id"], f"/events/{letter['event_id']}"),
    ):
        await page.goto(PATH)
        await page.get_by_role("searchbox").fill(searched)
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(f"{installation.base_url}{path}")


async def test_a_tab_acts_in_the_org_that_it_shows_whatever_another_tab_switched_to(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    await died(installation, receiver, clock)
    other = await installation.other_org("elsewhere")
    page = await signed_in()
    await page.goto(PATH)
    # From beside the page, which may go elsewhere as soon as it hears of it.
    switched = await page.request.patch(
        "/v1/session", data={"org": "elsewhere"}, headers={"origin": installation.base_url}
    )
    assert switched.status == 200
    async with page.expect_response("**/resolve") as answered:
        await page.get_by_role("button", name="Mark Resolved").first.click()
    assert (await answered.value).status == 200
    assert (await installation.api.get("/v1/dead-letters", state="resolved"))["pagination"]["total_count"] == 1
    assert (await other.get("/v1/audit"))["data"][0]["action"] != "dead_letter.resolve"
    other.close()


async def test_a_key_that_is_held_down_acts_once_and_enter_belongs_to_what_has_the_focus(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    await died(installation, receiver, clock, 3)
    page = await signed_in()
    await page.goto(PATH)
    await page.keyboard.press("Escape")  # to the list
    for _ in range(5):
        await page.keyboard.down("r")  # again and again without an up: the browser says that it repeats
    await page.keyboard.up("r")
    await expect(page.locator("tbody tr")).to_have_count(2)
    await expect(page.locator("tr.cursor")).to_be_focused()
    await page.get_by_role("link", name="Groups").focus()
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(f"{installation.base_url}/groups")


async def test_what_came_after_the_page_was_made_is_not_taken_with_all_that_match(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    await seed(installation.url, installation.api, installation.org_id, 60, url=receiver.url, now=clock.now())
    page = await signed_in()
    await page.goto(PATH)
    await died(installation, receiver, clock, 2)
    await page.get_by_label("Select this page").check()
    await page.get_by_role("button", name="Select all 60 that match").click()
    await page.get_by_role("button", name="Ignore").click()
    await page.get_by_role("dialog").get_by_role("button", name="Ignore").click()
    await expect(page.locator(".toast")).to_contain_text("60 succeeded, 0 failed")
    assert (await installation.api.get("/v1/dead-letters"))["pagination"]["total_count"] == 2


async def test_who_may_not_act_sees_no_actions_and_is_refused_by_hand(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    await died(installation, receiver, clock)
    await failed(installation, receiver)
    letter = (await installation.api.get("/v1/dead-letters"))["data"][0]["id"]
    entry = (await installation.api.get("/v1/retry-queue"))["data"][0]["id"]
    for role in ("STAFF", "VIEWER"):
        page = await signed_in(role)
        for path in (PATH, "/app/admin/dlq", "/integrations/logs/retry-queue"):
            await page.goto(path)
            await expect(page.locator("tbody tr")).to_have_count(1)
            await expect(page.locator("main button[data-path], main [data-bulk], main [data-tick]")).to_have_count(0)
        for path in (
            f"/v1/dead-letters/{letter}/retry",
            f"/v1/dead-letters/{letter}/resolve",
            f"/v1/retry-queue/{entry}/skip",
        ):
            status = await page.evaluate("path => fetch(path, {method: 'POST'}).then((answer) => answer.status)", path)
            assert status == 403, (role, path)
