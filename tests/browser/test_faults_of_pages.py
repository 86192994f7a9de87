"""What the other tests here lean on: a page with a fault does not go unnoticed."""

import pytest
from playwright.async_api import Browser, Page, Route

from support.axe import assert_accessible, assert_contrast
from support.chromium import Visit, visiting
from support.layout import assert_fits

SITE = "http://site.test"
STRICT = {"content-security-policy": "default-src 'self'"}
GOOD = "<!doctype html><html lang=en><title>Good</title><main><h1>Good</h1></main>"


async def opened(visit: Visit, body: str, *, width: int = 1440) -> Page:
    """A page with this in its main part, under a strict policy; of its files none is there."""

    async def answer(route: Route) -> None:
        path = route.request.url.removeprefix(SITE)
        if path == "/":
            page = GOOD.replace("</main>", f"{body}</main>")
            await route.fulfill(status=200, content_type="text/html", headers=STRICT, body=page)
        else:
            await route.fulfill(status=int(path.strip("/")), body="no")

    page = await visit.page(width=width)
    await page.route("**/*", answer)
    await page.goto("/")
    return page


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("<script>1</script>", "Content Security Policy"),
        ("<p style='color: red'>red</p>", "Content Security Policy"),
        ("<img src=/200 onerror=alert(1)>", "Content Security Policy"),
        ("<script src=/404></script>", "404 for GET"),
        ("<img src=/500 alt=''>", "500 for GET"),
        ("<img src=http://elsewhere.test/x alt=''>", "Content Security Policy"),
    ],
)
async def test_a_fault_of_a_page_fails_its_test(chromium: Browser, body: str, fault: str) -> None:
    with pytest.raises(AssertionError, match=fault):
        async with visiting(chromium, SITE) as visit:
            await opened(visit, body)


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        ("setTimeout(() => { throw new Error('lost') }, 0)", "uncaught: .*lost"),
        ("console.error('said')", "console: said"),
        ("await fetch('/503')", "503 for GET"),
    ],
)
async def test_a_fault_of_a_script_fails_its_test(chromium: Browser, script: str, fault: str) -> None:
    with pytest.raises(AssertionError, match=fault):
        async with visiting(chromium, SITE) as visit:
            await (await opened(visit, "")).evaluate(f"async () => {{ {script} }}")


async def test_a_refusal_is_no_fault_and_what_is_provoked_can_be_forgiven(chromium: Browser) -> None:
    async with visiting(chromium, SITE) as visit:
        page = await opened(visit, "")
        assert await page.evaluate("async () => (await fetch('/403')).status") == 403
        visit.forgiven.append("503 for GET")
        await page.evaluate("async () => (await fetch('/503')).status")


async def test_what_axe_finds_serious_is_told_with_its_place(chromium: Browser) -> None:
    async with visiting(chromium, SITE) as visit:
        await assert_accessible(await opened(visit, "<p>well</p>"))
        bad = await opened(visit, "<button id=nameless></button>")
        with pytest.raises(AssertionError, match=r"button-name \(critical\)[^$]*#nameless"):
            await assert_accessible(bad)


async def test_pale_text_is_found_everywhere_but_where_it_was_looked_for_before(chromium: Browser) -> None:
    pale = "<font id={} color=#ccc>pale</font>"
    table = f"<table><caption>t</caption><tbody><tr><td>{pale.format('seen')}</td></tr></tbody></table>"
    async with visiting(chromium, SITE) as visit:
        page = await opened(visit, table)
        with pytest.raises(AssertionError, match=r"color-contrast[^$]*#seen"):
            await assert_accessible(page)
        await assert_contrast(page, but="tbody")
        await assert_accessible(page, slow_in="h1")
        unseen = await opened(visit, table + pale.format("unseen"))
        with pytest.raises(AssertionError, match=r"color-contrast[^$]*#unseen"):
            await assert_contrast(unseen, but="tbody")


async def test_who_is_asked_again_is_asked_about_what_is_shown_or_said_since(chromium: Browser) -> None:
    async with visiting(chromium, SITE) as visit:
        page = await opened(visit, "<div hidden><button id=nameless></button></div>")
        await assert_accessible(page)
        await page.evaluate("document.querySelector('[hidden]').hidden = false")
        with pytest.raises(AssertionError, match=r"button-name[^$]*#nameless"):
            await assert_accessible(page, again=True)
        await assert_accessible(page, again=True)  # was told
        await page.evaluate("document.querySelector('h1').setAttribute('aria-level', 'first')")
        with pytest.raises(AssertionError, match=r"aria-valid-attr-value[^$]*h1"):
            await assert_accessible(page, again=True)


async def test_one_pale_text_among_others_like_it_is_found(chromium: Browser) -> None:
    text = "<p><span class=note>{}</span></p>"
    body = text.format("dark") + text.format("<font id=odd color=#ccc>pale</font>") + text.format("dark")
    on_grey = "<table><tr><td bgcolor=#555><span class=note id=grounded>dark on dark</span></table>"
    async with visiting(chromium, SITE) as visit:
        await assert_contrast(await opened(visit, text.format("dark") * 4))
        with pytest.raises(AssertionError, match=r"color-contrast[^$]*#odd"):
            await assert_contrast(await opened(visit, body))
        with pytest.raises(AssertionError, match=r"color-contrast[^$]*#grounded"):
            await assert_contrast(await opened(visit, text.format("dark") + on_grey + text.format("dark")))


async def test_a_page_that_must_be_scrolled_sideways_is_told(chromium: Browser) -> None:
    async with visiting(chromium, SITE) as visit:
        wide = await opened(visit, "<table id=wide><tr><td><pre>" + "x" * 400 + "</pre></table>", width=390)
        with pytest.raises(AssertionError, match=r"is too wide: .*ends at"):
            await assert_fits(wide)
