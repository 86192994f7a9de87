"""What holds on every page, whoever wrote it: before a week of sample data, hostile texts among it."""

from collections.abc import AsyncIterator
from urllib.parse import urlencode

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from browser.pages import PAGES, Place, routes
from conftest import _database
from redrive.store.embedded import EmbeddedPostgres
from support import sample
from support.axe import assert_contrast
from support.chromium import Scheme, Visit, visiting
from support.installation import Installation, installation
from support.layout import WIDTHS, assert_holds_at_any_width
from support.receiver import open_receiver

ROUNDS = 4
HEIGHT = 900
LIGHT: Scheme = "light"
DARK: Scheme = "dark"
FRAMED = "dead-letters"  # what is around a page is the same on all: it is looked at in all colours at all widths here


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def sampled(chromium: Browser, postgres: EmbeddedPostgres, template_database: str) -> AsyncIterator[Installation]:
    async with (
        _database(postgres, template_database) as url,
        open_receiver() as receiver,
        installation(url, smtp_url="smtp://127.0.0.1:9?starttls=none") as redrive,
    ):
        await sample.live_through(redrive, receiver, rounds=ROUNDS, texts=sample.HOSTILE)
        yield redrive


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def visit_of_all(chromium: Browser, sampled: Installation) -> AsyncIterator[Visit]:
    async with visiting(chromium, sampled.base_url) as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def tab(visit_of_all: Visit, sampled: Installation) -> Page:
    """Of somebody who goes from page to page: a browser of its own for each takes as long as looking at it."""
    return await visit_of_all.page(token=await sampled.session_token(), calm=True)


@pytest_asyncio.fixture(loop_scope="session")
async def visit(visit_of_all: Visit) -> AsyncIterator[Visit]:
    """Of one page; what goes wrong on it fails the test that looks at it."""
    yield visit_of_all
    await visit_of_all.listen()
    visit_of_all.assert_faultless()


async def opened(visit: Visit, tab: Page, sampled: Installation, place: Place, width: int) -> Page:
    page = tab if place.signed_in else await visit.page(calm=True)
    await page.set_viewport_size({"width": width, "height": HEIGHT})
    answer = await page.goto(await place.address(sampled.api))
    assert answer is not None
    assert answer.status == 200
    if place.act is not None:
        await place.act(page)
    return page


@pytest.mark.parametrize("place", PAGES, ids=lambda place: place.name)
async def test_a_page_is_sound_and_for_everybody_at_any_width_in_light_and_dark(
    visit: Visit, tab: Page, sampled: Installation, place: Place
) -> None:
    page = await opened(visit, tab, sampled, place, WIDTHS[0])
    await page.emulate_media(color_scheme="dark")
    # Texts of the sample would make a picture named x, and scripts.
    assert await page.locator("img[src=x], [onerror], script:not([src])").count() == 0
    await assert_holds_at_any_width(page, HEIGHT)
    if place.name == FRAMED:
        for scheme, width in ((LIGHT, WIDTHS[0]), (DARK, WIDTHS[-1])):
            await page.emulate_media(color_scheme=scheme)
            await page.set_viewport_size({"width": width, "height": HEIGHT})
            await assert_contrast(page)


async def test_a_strangers_text_is_shown_as_text(visit: Visit, tab: Page, sampled: Installation) -> None:
    """Its event type, and the error of a handler; that nothing of the kind runs is asked of every page above."""
    letters = next(place for place in PAGES if place.name == "dead-letters")
    page = await opened(visit, tab, sampled, letters, WIDTHS[-1])
    await expect(page.get_by_text(sample.HOSTILE.supplier).first).to_be_visible()
    await page.goto(f"{letters.path}?{urlencode({'type': sample.HOSTILE.refused_type})}")
    await expect(page.locator("tbody").get_by_text(sample.HOSTILE.refused_type).first).to_be_visible()


def test_every_page_is_in_the_table() -> None:
    missing = [route.path for route in routes() if not any(place.is_at(route) for place in PAGES)]
    assert not missing, f"add a line each to PAGES in tests/browser/pages.py: {missing}"
