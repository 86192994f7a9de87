"""A real browser for tests: Debian's chromium, headless, driven by Playwright. Pages that tell what went wrong in them.

    async with open_chromium() as chromium:
        async with visiting(chromium, redrive.base_url) as visit:
            page = await visit.page()
            await page.goto("/docs")
        # leaving the block asserts that nothing went wrong

What counts as wrong, on any page and whatever the test looks at: a violation of the content security policy, an
uncaught error, anything on the console that is an error, an answer of our own that is a 5xx, a file of a page that is
not there, a request that failed. The browser's own line for a 4xx is none of these: a test may be refused on purpose.
"""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal
from urllib.parse import urlsplit

from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Request, Response, async_playwright
from playwright.async_api import Error as PlaywrightError

COMMAND = "chromium"
HEADLESS = "chromium-headless-shell"  # Debian's chromium without the windows that nobody sees: a third faster
ENV = "REDRIVE_TEST_CHROMIUM"
WAIT_MS = 10_000
WIDTH, HEIGHT = 1440, 900
COOKIE = "redrive_session"
SWITCHES = (
    "--disable-dev-shm-usage",  # containers give it 64 MB
    "--disable-gpu",
    "--renderer-process-limit=1",  # a process for each page takes longer to begin than most pages
    "--force-color-profile=srgb",
    "--font-render-hinting=none",
)
FILES = frozenset({"stylesheet", "script", "image", "font", "manifest"})
LEFT = "net::ERR_ABORTED"  # the page moved on while it was under way

# Said aloud, so that it is heard with everything else: an event has no other way out of the page.
_TELL_VIOLATIONS = """
document.addEventListener("securitypolicyviolation", (event) => console.error(
  `Content Security Policy: ${event.violatedDirective} forbids ${event.blockedURI || "inline"} ` +
  `(${event.sourceFile || document.location.pathname}:${event.lineNumber}) ${event.sample}`));
"""

Scheme = Literal["light", "dark"]


def find_chromium() -> str | None:
    return os.environ.get(ENV) or shutil.which(HEADLESS) or shutil.which(COMMAND)


@asynccontextmanager
async def open_chromium() -> AsyncIterator[Browser]:
    """Started by the path of the system's own: Playwright's download is never needed."""
    path = find_chromium()
    assert path is not None, f"{COMMAND} is not installed"
    async with async_playwright() as playwright:
        # Without its sandbox: as root, and in most containers, it cannot have one. It sees our own pages only.
        chromium = await playwright.chromium.launch(executable_path=path, chromium_sandbox=False, args=list(SWITCHES))
        try:
            yield chromium
        finally:
            await chromium.close()


@dataclass  # no slots: Playwright leaves marks on the owner of a listener
class Visit:
    """Pages of one test, and what went wrong in them. `forgiven`: parts of what a test provokes on purpose."""

    chromium: Browser
    base_url: str
    wrong: list[str] = field(default_factory=list)
    forgiven: list[str] = field(default_factory=list)
    _contexts: list[BrowserContext] = field(default_factory=list)
    _mute: list[BrowserContext] = field(default_factory=list)  # without scripts: nothing can be evaluated there

    async def page(
        self,
        *,
        token: str | None = None,
        width: int = WIDTH,
        height: int = HEIGHT,
        scheme: Scheme = "light",
        calm: bool = False,
        at: datetime | None = None,
        scripts: bool = True,
    ) -> Page:
        """A page in a browser that knows nothing yet, but the session of this token. `at`: what its clock says."""
        context = await self.chromium.new_context(
            base_url=self.base_url,
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            reduced_motion="reduce" if calm else "no-preference",
            locale="en-GB",
            timezone_id="UTC",
            java_script_enabled=scripts,
        )
        (self._contexts if scripts else self._mute).append(context)
        context.set_default_timeout(WAIT_MS)
        if token is not None:
            await context.add_cookies([{"name": COOKIE, "value": token, "url": self.base_url, "httpOnly": True}])
        if at is not None:
            await context.clock.set_fixed_time(at)
        await context.add_init_script(_TELL_VIOLATIONS)
        context.on("console", self._heard)
        context.on("weberror", lambda error: self.wrong.append(f"uncaught: {error.error}"))
        context.on("response", self._answered)
        context.on("requestfailed", self._failed)
        return await context.new_page()

    def faults(self) -> list[str]:
        return [fault for fault in self.wrong if not any(part in fault for part in self.forgiven)]

    def assert_faultless(self) -> None:
        """Tells of each fault once: where several tests share a visit, those of one are not the next one's."""
        faults = self.faults()
        self.wrong.clear()
        assert not faults, "pages of this test had faults:\n  " + "\n  ".join(faults)

    async def listen(self) -> None:
        """Whatever its pages have said up to now has been heard then."""
        for context in self._contexts:
            for page in context.pages:
                await _let_it_speak(page)

    async def close(self) -> None:
        await self.listen()
        for context in (*self._contexts, *self._mute):
            await context.close()

    def _heard(self, message: ConsoleMessage) -> None:
        is_error = message.type == "error" and not message.text.startswith("Failed to load resource")
        if is_error or "Content Security Policy" in message.text:
            self.wrong.append(f"console: {message.text}")

    def _answered(self, response: Response) -> None:
        if self._is_ours(response.request) and (
            response.status >= 500 or (response.status >= 400 and response.request.resource_type in FILES)
        ):
            self.wrong.append(f"{response.status} for {response.request.method} {response.url}")

    def _failed(self, request: Request) -> None:
        if request.failure != LEFT:
            self.wrong.append(f"{request.failure} for {request.method} {request.url}")

    def _is_ours(self, request: Request) -> bool:
        return urlsplit(request.url).netloc == urlsplit(self.base_url).netloc


@asynccontextmanager
async def visiting(chromium: Browser, base_url: str) -> AsyncIterator[Visit]:
    visit = Visit(chromium, base_url)
    try:
        yield visit
    finally:
        await visit.close()
    visit.assert_faultless()


async def _let_it_speak(page: Page) -> None:
    """What the page said before this round trip has been heard after it. One that reloads itself just now is asked
    again when it is there.
    """
    while not page.is_closed() and page.url != "about:blank":
        try:
            await page.evaluate("new Promise((done) => setTimeout(done, 0))")
            return
        except PlaywrightError as error:
            if "Execution context was destroyed" not in error.message:
                raise
            await page.wait_for_load_state()
