"""What a page's layout must keep to, asked of the browser that laid it out."""

from playwright.async_api import Page

# The page itself must not be wider than the window; a table in a box that scrolls by itself may be.
_TOO_WIDE = """
() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  return [...document.querySelectorAll("body *")]
    .filter((element) => element.getBoundingClientRect().right > width + 1)
    .slice(0, 5)
    .map((element) => `${element.tagName.toLowerCase()}.${element.className} ends at ` +
                      `${Math.round(element.getBoundingClientRect().right)} of ${width} px`)
    .concat([`the page is ${document.documentElement.scrollWidth} px wide`]);
}
"""


async def assert_fits(page: Page) -> None:
    """Nobody has to scroll sideways."""
    found: list[str] = await page.evaluate(_TOO_WIDE)
    assert not found, f"{page.url} is too wide: " + "; ".join(found)
