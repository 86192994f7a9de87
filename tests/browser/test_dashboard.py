"""Home and the dashboard in a browser: what needs a person, the charts, what they lead to, and that they stay true."""

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
    "Failed per minute, last 24 hours",
)


async def test_c8_c25_the_dashboard_has_its_charts_and_they_tell_what_happened(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    endpoint = await died(installation, receiver, clock, 1, name="billing")
    receiver.usual = 200
    await installation.api.batch(endpoint["id"], 3)
    await installation.work()
    await failed(installation, receiver, 2, name="crm")
    page = await signed_in()
    await page.goto("/dashboard")
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
    await page.get_by_role("link", name="2 retrying").click()
    await expect(page.locator("tbody tr")).to_have_count(2)


async def test_c25_home_begins_with_what_needs_a_person_and_leads_to_the_dashboard(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    await died(installation, receiver, clock, 3, name="billing")
    await failed(installation, receiver, 2, name="crm")
    page = await signed_in()
    await page.goto("/")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Home")
    first = page.locator(".dashboard > section").first
    await expect(first).to_contain_text("Open causes")
    await expect(first).to_contain_text("3 dead letters, 1 cause")
    await expect(first).to_contain_text("HTTP 503 Service Unavailable")
    await expect(page.locator("#worst")).to_contain_text("crm")
    await expect(page.locator("#retry-queue .figure")).to_have_text("2")
    await expect(page.get_by_role("navigation").get_by_role("link", name="Home")).to_have_attribute(
        "aria-current", "page"
    )
    await page.get_by_role("main").get_by_role("link", name="Dashboard").click()
    await expect(page).to_have_url(f"{installation.base_url}/dashboard")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Dashboard")
    await page.keyboard.press("g")
    await page.keyboard.press("h")
    await expect(page).to_have_url(f"{installation.base_url}/")


async def test_c19_failed_events_per_minute_over_the_last_24_hours_are_a_line_of_their_own(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    await died(installation, receiver, clock, 30, name="billing")
    at = clock.now()
    clock.advance(12 * 3_600)
    page = await signed_in()
    for window in ("1h", "7d"):
        await page.goto(f"/dashboard?window={window}")
        tile = page.locator("section", has=page.get_by_role("heading", name="Failed per minute, last 24 hours"))
        await expect(tile.locator("path.chart-line-failed")).to_be_visible()
        quarter = at.replace(minute=at.minute // 15 * 15, second=0, microsecond=0)
        titles = await tile.locator("title").all_text_contents()
        assert f"{quarter:%d %b %H:%M}: failed events per minute 2" in titles
        assert sum("failed events per minute 2" in title for title in titles) == 1
        assert sum(title.endswith("failed events per minute 0") for title in titles) >= 90


async def test_a_state_has_one_colour_in_every_chart_and_badge(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    endpoint = await died(installation, receiver, clock, 1, name="billing")
    receiver.usual = 200
    await installation.api.batch(endpoint["id"], 3)
    await installation.work()
    await failed(installation, receiver, 2, name="crm")
    page = await signed_in()
    await page.goto("/dashboard")

    async def colour(selector: str, of: str) -> str:
        return str(await page.locator(selector).first.evaluate("(one, of) => getComputedStyle(one)[of]", of))

    async def meant(state: str) -> str:
        found = await page.evaluate(
            """state => { const one = document.body.appendChild(document.createElement("i"));
                          one.style.setProperty("color", `var(--${state})`);
                          const found = getComputedStyle(one).color; one.remove(); return found; }""",
            state,
        )
        return str(found)

    for state in ("created", "delivered", "failed"):
        assert await colour(f".chart-line-{state}", "stroke") == await meant(state)
        key = page.locator(f"#events-per-minute .key.{state}")
        assert await key.evaluate("one => getComputedStyle(one, '::before').backgroundColor") == await meant(state)
    for part, state in (("delivered", "delivered"), ("failed", "failed"), ("queued", "waiting")):
        assert await colour(f".chart-slice-{part}", "stroke") == await meant(state)
        assert await colour(f".chart-key.chart-{part}", "fill") == await meant(state)
    assert await colour(".chart-line-depth", "stroke") == await meant("waiting")
    assert len({await meant(state) for state in ("created", "delivered", "failed", "waiting", "held")}) == 5


async def test_c8_over_an_hour_a_day_and_a_week(installation: Installation, signed_in: SignedIn) -> None:
    page = await signed_in()
    for label, query in (("Last 24 hours", "24h"), ("Last 7 days", "7d"), ("Last hour", "1h")):
        await page.goto("/dashboard")
        await page.get_by_role("link", name=label, exact=True).click()
        await expect(page).to_have_url(f"{installation.base_url}/dashboard?window={query}")
        await expect(page.get_by_role("link", name=label, exact=True)).to_have_attribute("aria-current", "true")


async def test_how_deliveries_went_is_shown_by_what_is_chosen(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    endpoint = await died(installation, receiver, clock, 1, name="billing")
    receiver.usual = 200
    await installation.api.batch(endpoint["id"], 3)
    await installation.work()
    page = await signed_in()
    await page.goto("/dashboard")
    await page.get_by_role("link", name="Last 30 days").click()
    rows = page.locator("#outcomes tbody tr")
    await expect(rows.first).to_contain_text("billing")
    await expect(rows.first).to_contain_text("75.0%")
    await page.get_by_role("group", name="By").get_by_role("link", name="Event type").click()
    await expect(page).to_have_url(f"{installation.base_url}/dashboard?window=30d&by=event_type#outcomes")
    await expect(rows.last).to_contain_text("everything")
    await page.get_by_role("link", name="Last hour", exact=True).click()
    await expect(page).to_have_url(f"{installation.base_url}/dashboard?window=1h&by=event_type")
    await expect(page.locator("#retries-before-the-end")).to_contain_text("failures rescued 0.0%")


async def test_c8_it_stays_true_by_itself(live: Installation, receiver: Receiver, signed_in: SignedIn) -> None:
    page = await signed_in()
    await page.goto("/dashboard")
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
