"""The API's documentation, in a browser."""

from playwright.async_api import expect

from support.axe import assert_accessible, assert_contrast
from support.chromium import Visit
from support.layout import WIDTHS, assert_fits

# A section of every kind; there are hundreds like them, from the same few functions.
OPERATIONS = "#operation-list_endpoints, #operation-create_endpoint"
SAMPLE = f"#main > header, nav > ul > li:first-child, {OPERATIONS}"
OTHERS = f"[id^=operation-]:not({OPERATIONS})"
TWICE = """
() => [...document.querySelectorAll("[id]")].map(({id}) => id).filter((id, n, ids) => ids.indexOf(id) !== n)
"""


async def test_the_docs_are_readable_at_any_width_by_anybody(visit: Visit) -> None:
    page = await visit.page(width=390)
    await page.goto("/docs")
    await expect(page.get_by_role("heading", level=1)).to_be_visible()
    await expect(page.locator("#operation-create_endpoint")).to_be_visible()
    for width in reversed(WIDTHS):
        await page.set_viewport_size({"width": width, "height": 900})
        await assert_fits(page)
    assert await page.evaluate(TWICE) == []
    assert await page.locator(OTHERS).count() > 50
    # Axe reads all that is there, also where it is told to ask nothing of it.
    await page.evaluate("(others) => document.querySelectorAll(others).forEach((one) => one.remove())", OTHERS)
    await assert_accessible(page, slow_in=SAMPLE)
    await page.emulate_media(color_scheme="dark")
    await assert_contrast(page, within=SAMPLE)
