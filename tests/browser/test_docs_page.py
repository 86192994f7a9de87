"""The API's documentation, in a browser."""

import pytest
from playwright.async_api import expect

from support.axe import assert_accessible
from support.chromium import Scheme, Visit
from support.layout import assert_fits

# A section of every kind; there are hundreds like them, from the same few functions.
SAMPLE = "#main > header, nav > ul > li:first-child, #operation-list_endpoints, #operation-create_endpoint"


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1440, "dark")])
async def test_the_docs_are_readable_at_any_width_by_anybody(visit: Visit, width: int, scheme: Scheme) -> None:
    page = await visit.page(width=width, scheme=scheme)
    await page.goto("/docs")
    await expect(page.get_by_role("heading", level=1)).to_be_visible()
    await expect(page.locator("#operation-create_endpoint")).to_be_visible()
    await assert_fits(page)
    await assert_accessible(page, contrast_in=SAMPLE)
