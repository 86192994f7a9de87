"""Every page there is, in one table: for what must hold on all of them, and for their pictures. A new page is one line.

One that is not in the table fails a test.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from playwright.async_api import Page
from starlette.routing import Match, Route

from redrive.web import site
from support.remote import Remote

ANY_ID = str(UUID(int=1))


@dataclass(frozen=True, slots=True)
class Place:
    """`listed`: the list whose first thing fills the gaps in the path, or the first of them that is `called` so.
    `act`: what is done before one looks.
    """

    name: str
    path: str
    listed: str | None = None
    called: str | None = None
    act: Callable[[Page], Awaitable[None]] | None = None
    signed_in: bool = True

    async def address(self, api: Remote) -> str:
        if self.listed is None:
            return self.path
        things = (await api.get(self.listed))["data"]
        if self.called is not None:
            things = [thing for thing in things if thing["name"] == self.called]
        assert things, f"the sample has nothing at {self.listed}"
        return self.path.format(**things[0])

    def is_at(self, route: Route) -> bool:
        path = self.path.partition("?")[0]
        for gap in ("{id}", "{log_id}", "{event_id}", "{run_id}"):
            path = path.replace(gap, ANY_ID)
        match, _ = route.matches({"type": "http", "method": "GET", "path": path, "headers": []})
        return match is Match.FULL


async def _select_some(page: Page) -> None:
    boxes = page.locator("tbody input[type=checkbox]")
    for number in range(min(3, await boxes.count())):
        await boxes.nth(number).check()


async def _unfold(page: Page) -> None:
    """Everything that a run tells of its first step."""
    for summary in await page.locator("#step-0 summary").all():
        await summary.click()


async def _open_replay(page: Page) -> None:
    await page.locator("button[data-replay]").first.click()
    await page.locator("dialog[open] summary").click()


PAGES: Sequence[Place] = (
    Place("sign-in", "/sign-in", signed_in=False),
    Place("home", "/"),
    Place("dashboard", "/dashboard"),
    Place("retry-queue", "/integrations/logs/retry-queue"),
    Place("dead-letters", "/integrations/logs/dead-letter-queue"),
    Place("dead-letters-selected", "/app/admin/dlq", act=_select_some),
    Place("dead-letters-empty", "/integrations/logs/dead-letter-queue?type=nothing.like.it"),
    Place("groups", "/groups"),
    Place("logs", "/integrations/logs"),
    Place("dead-letter", "/app/admin/dlq/{id}", "/v1/dead-letters?category=server_error"),
    Place("log", "/integrations/logs/{log_id}", "/v1/retry-queue"),
    Place("endpoints", "/endpoints"),
    Place("endpoint", "/endpoints/{id}", "/v1/endpoints"),
    Place("endpoint-in-order", "/endpoints/{id}", "/v1/endpoints", "General journal"),
    Place("endpoint-relay", "/endpoints/{id}", "/v1/endpoints", "Stripe webhooks"),
    Place("endpoint-edit", "/endpoints/{id}/edit", "/v1/endpoints"),
    Place("endpoint-new", "/endpoints/new"),
    Place("endpoint-new-mail", "/endpoints/new?kind=mail"),
    Place("endpoint-mail", "/endpoints/{id}", "/v1/endpoints", "On-call team"),
    Place("events", "/events"),
    Place("event", "/events/{event_id}", "/v1/events"),
    Place("inbox", "/inbox"),
    Place("workflows", "/workflows"),
    Place("workflow", "/workflows/fulfil"),
    Place("runs", "/runs"),
    Place("run", "/runs/{run_id}", "/v1/runs?status=DLQ_PENDING", act=_unfold),
    Place("run-replay", "/runs/{run_id}", "/v1/runs?status=PARTIAL", act=_open_replay),
    Place("dead-letter-of-a-step", "/app/admin/dlq/{id}", "/v1/dead-letters?kind=step", act=_open_replay),
    Place("dead-letter-of-a-queue", "/app/admin/dlq/{id}", "/v1/dead-letters?kind=rabbitmq&event_type=orders"),
    Place("broker", "/broker"),
    Place("policies", "/policies"),
    Place("policy", "/policies/slow"),
    Place("policy-new", "/policies/new"),
    Place("operations", "/operations"),
    Place("operation", "/operations/{id}", "/v1/operations?state=running"),
    Place("alerts", "/alerts"),
    Place("audit", "/audit"),
    Place("settings", "/settings"),
    Place("settings-users", "/settings/users"),
    Place("settings-keys", "/settings/keys"),
    Place("settings-orgs", "/settings/orgs"),
    Place("settings-account", "/settings/account"),
)


# What only scripts ask for; a second address of a page.
NO_PAGES = site.PARTS | {"/policies/{name}/edit"}


def routes() -> Iterator[Route]:
    """Of all pages that can be looked at."""
    for page in site._PAGES:
        for route in page.router.routes:
            if isinstance(route, Route) and "GET" in (route.methods or ()) and route.path not in NO_PAGES:
                yield route
