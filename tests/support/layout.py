"""What a page's layout must keep to, asked of the browser that laid it out."""

from collections.abc import Sequence

from playwright.async_api import Page

from support.axe import assert_accessible

WIDTHS = (390, 768, 1440)

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


async def assert_holds_at_any_width(page: Page, height: int = 900, *, in_light: Sequence[int] = (WIDTHS[-1],)) -> None:
    """Of a page that is open at the least width, in the dark: it fits at all, and is for everybody in both colours.

    `in_light`: the widths at which that is asked in light, too.
    """
    await assert_fits(page)
    await assert_accessible(page)
    await page.emulate_media(color_scheme="light")
    for width in WIDTHS[1:]:
        await page.set_viewport_size({"width": width, "height": height})
        await assert_fits(page)
        if width in in_light:
            await assert_accessible(page, again=True)
    await page.set_viewport_size({"width": WIDTHS[0], "height": height})
    await assert_fits(page)
    await page.emulate_media(color_scheme="dark")


async def assert_fits(page: Page) -> None:
    """Nobody has to scroll sideways."""
    found: list[str] = await page.evaluate(_TOO_WIDE)
    assert not found, f"{page.url} is too wide: " + "; ".join(found)
