"""The audit log in a browser: filters that stay, and a way out as a file."""

import re

from playwright.async_api import expect

from support.installation import Installation
from support.layout import WIDTHS, assert_fits, assert_holds_at_any_width

from .conftest import SignedIn

HOSTILE = "<img src=x onerror=alert(1)>"


async def test_a_filter_is_in_the_address_and_outlives_reload_and_back(
    signed_in: SignedIn, installation: Installation
) -> None:
    await installation.api.endpoint("http://127.0.0.1:9/closed", name=HOSTILE)
    page = await signed_in("ADMIN")
    await page.goto("/audit")
    await expect(page.get_by_role("row").filter(has_text="key.create")).to_have_count(1)
    await page.get_by_label("Done to").select_option("endpoint")
    await expect(page).to_have_url(re.compile(r"/audit\?subject=endpoint$"))
    await expect(page.get_by_role("row").filter(has_text="key.create")).to_have_count(0)
    await expect(page.get_by_role("link", name=HOSTILE)).to_be_visible()
    await page.reload()
    await expect(page.get_by_label("Done to")).to_have_value("endpoint")
    await page.keyboard.press("/")
    await page.keyboard.type("action:key.create")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile(r"/audit\?action=key.create&subject=endpoint$"))
    await expect(page.get_by_text("No entries here")).to_be_visible()
    await page.go_back()
    await expect(page.get_by_role("link", name=HOSTILE)).to_be_visible()
    async with page.expect_download() as download:
        await page.get_by_role("link", name="Export CSV").click()
    assert (await download.value).suggested_filename == "audit.csv"


async def test_the_log_holds_at_any_width_for_anybody(signed_in: SignedIn, installation: Installation) -> None:
    made = await installation.api.endpoint("http://127.0.0.1:9/closed", name="billing " + "x" * 60)
    await installation.api.post(f"/v1/endpoints/{made['id']}/pause", {"because": "their window " * 20})
    page = await signed_in("VIEWER", width=WIDTHS[0], scheme="dark")
    await page.goto("/audit?since=1h&actor=nobody@example.com")
    await assert_fits(page)
    await page.goto("/audit")
    await expect(page.get_by_role("row").filter(has_text="endpoint.pause")).to_contain_text("their window")
    await assert_holds_at_any_width(page, in_light=WIDTHS[1:])
