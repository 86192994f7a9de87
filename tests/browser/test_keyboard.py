"""The keyboard on lists (A-25): filters keep it, and keys act only while the focus is on the list."""

import asyncio
from string import ascii_lowercase

from playwright.async_api import Locator, Page, Request, Route, expect

from support.engine import ManualClock
from support.installation import Installation
from support.receiver import Receiver

from .conftest import SignedIn
from .pages import PAGES
from .queue_steps import died, failed

LETTERS = "/integrations/logs/dead-letter-queue"
QUEUE = "/integrations/logs/retry-queue"
FIELDS = "form[data-filters] :is(input:not([type=hidden]), select)"
MIN_FILTERED_PAGES = 10
TEXTS = ("", "text", "search")


async def settled(page: Page) -> None:
    """The results are those of the filters."""
    await expect(page.locator("[data-list-body][aria-busy]")).to_have_count(0)


async def mark_focus(page: Page) -> str:
    """What has the focus, under a name by which it is found again."""
    name: str = await page.evaluate("(document.activeElement.dataset.marked = crypto.randomUUID())")
    return name


async def focus_is_at(page: Page, name: str) -> bool:
    return bool(await page.evaluate("document.activeElement.dataset.marked") == name)


async def type_everything(page: Page, field: Locator) -> None:
    """Every letter and Tab into one filter, and Enter where it is a text."""
    kind = await field.evaluate("(field) => field.type")
    if kind in TEXTS:
        await field.fill("")
    await field.focus()
    here = await mark_focus(page)
    await page.keyboard.type(ascii_lowercase)
    await settled(page)
    assert await focus_is_at(page, here), f"the filter lost the focus while it was typed in ({kind})"
    if kind in TEXTS:
        await expect(field).to_have_value(ascii_lowercase)
        await page.keyboard.press("Enter")
        await settled(page)
        assert await focus_is_at(page, here), "Enter took the focus away"
        await page.keyboard.type("z")
        await expect(field).to_have_value(f"{ascii_lowercase}z")
        await field.fill("")
    await page.keyboard.press("Tab")
    there = await mark_focus(page)
    await page.keyboard.press("Shift+Tab")
    await page.keyboard.press("Tab")
    await settled(page)
    assert there != here or kind == "date"
    assert await focus_is_at(page, there), "Tab went on, and the update took the focus away"


async def test_a25_typing_every_letter_in_every_filter_changes_nothing_but_the_filter(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    await died(installation, receiver, clock, 2)
    await failed(installation, receiver, 2)
    audited = (await installation.api.get("/v1/audit"))["data"]
    letters = (await installation.api.get("/v1/dead-letters"))["data"]
    entries = (await installation.api.get("/v1/retry-queue"))["data"]
    page = await signed_in()
    acted: list[str] = []
    page.on("request", lambda request: _note(acted, request))
    filtered = []
    for place in PAGES:
        if place.listed is not None or not place.signed_in or place.act is not None:
            continue
        await page.goto(place.path)
        fields = page.locator(FIELDS)
        if not await fields.count():
            continue
        filtered.append(place.name)
        await page.evaluate("window.isTheSamePage = true")
        for at in range(await fields.count()):
            await type_everything(page, fields.nth(at))
        assert await page.evaluate("window.isTheSamePage"), f"{place.name} was loaded anew"
    assert len(filtered) >= MIN_FILTERED_PAGES, filtered
    assert not acted
    assert (await installation.api.get("/v1/audit"))["data"] == audited
    assert (await installation.api.get("/v1/dead-letters"))["data"] == letters
    assert (await installation.api.get("/v1/retry-queue"))["data"] == entries


def _note(acted: list[str], request: Request) -> None:
    if request.method != "GET":
        acted.append(f"{request.method} {request.url}")


async def test_a25_keys_act_on_rows_only_while_the_list_has_the_focus(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    await died(installation, receiver, clock, 2)
    page = await signed_in()
    acted: list[str] = []
    page.on("request", lambda request: _note(acted, request))
    await page.goto(LETTERS)
    for focused in (None, page.locator("main"), page.get_by_role("link", name="By cause")):
        if focused is not None:
            await focused.focus()
        for key in ("j", "r", "x", "m", "i", "#", "o", "n"):
            await page.keyboard.press(key)
    await page.reload()
    await page.keyboard.type("jrmxjr")
    await expect(page.locator("tr.cursor, tr.selected, dialog")).to_have_count(0)
    assert not acted
    # Tab and Escape lead to the list.
    await page.locator(f"{FIELDS} >> nth=1").focus()
    await page.keyboard.press("Escape")
    await expect(page.locator("tbody tr").first).to_be_focused()
    await page.keyboard.press("j")
    await expect(page.locator("tbody tr").nth(1)).to_be_focused()
    await page.keyboard.press("x")
    await expect(page.get_by_text("1 selected")).to_be_visible()


async def test_a25_destructive_keys_ask_first(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    await died(installation, receiver, clock)
    await failed(installation, receiver)
    await installation.api.post("/v1/events", {"event_type": "stock.low", "payload": 1})
    page = await signed_in()
    acted: list[str] = []
    page.on("request", lambda request: _note(acted, request))
    for path, key, question in (
        (LETTERS, "m", "Mark as resolved?"),
        (LETTERS, "#", "Permanently delete this entry?"),
        (QUEUE, "s", "Skip retry and move to Dead Letter Queue?"),
        ("/inbox", "a", "Acknowledge this event?"),
        ("/inbox", "#", "Permanently delete this event?"),
    ):
        await page.goto(path)
        row = page.locator("tbody tr").first
        await row.focus()
        await page.keyboard.press(key)
        dialog = page.get_by_role("dialog", name=question)
        await dialog.get_by_role("button", name="Cancel").click()
        await expect(dialog).to_have_count(0)
        await expect(row).to_be_focused()
    assert not acted


async def test_a25_what_is_typed_while_the_results_are_on_their_way_stays(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    await died(installation, receiver, clock)
    await died(installation, receiver, clock, event_types=["order.*"], name="orders")
    page = await signed_in()
    await page.goto(LETTERS)
    may_come = asyncio.Event()

    async def later(route: Route) -> None:
        await may_come.wait()
        await route.continue_()

    await page.route(f"**{LETTERS}?*", later)
    await page.get_by_label("Error").select_option("timeout")
    box = page.get_by_role("searchbox")
    await box.focus()
    await page.keyboard.type("gateway")
    may_come.set()
    await expect(page.get_by_text("No dead letters match these filters.")).to_be_visible()
    await expect(box).to_be_focused()
    await expect(box).to_have_value("gateway")
    await page.keyboard.type(" down")
    await expect(box).to_have_value("gateway down")


async def test_a25_a_row_that_leaves_takes_no_focus_from_a_filter(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    await died(installation, receiver, clock, 2)
    page = await signed_in()
    await page.goto(LETTERS)
    may_come = asyncio.Event()

    async def later(route: Route) -> None:
        await may_come.wait()
        await route.continue_()

    await page.route("**/resolve", later)
    await page.get_by_role("button", name="Mark Resolved").first.click()
    box = page.get_by_role("searchbox")
    await box.focus()
    may_come.set()
    await expect(page.locator("tbody tr")).to_have_count(1)
    await expect(box).to_be_focused()


async def test_a25_filters_work_without_scripts(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    await died(installation, receiver, clock)
    page = await signed_in(scripts=False)
    await page.goto(f"{LETTERS}?since=2h")
    await page.get_by_label("Event type").fill("order.*")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(f"{installation.base_url}{LETTERS}?type=order.*&since=2h")
    await expect(page.locator("tbody tr")).to_have_count(0)
