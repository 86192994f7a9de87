"""The pages, put together. Given to api.server.create_app by api_process, and by tests."""

from fastapi import Request, Response

from redrive.api.context import ApiContext
from redrive.api.problems import Problem
from redrive.web import assets
from redrive.web.live import LiveDesk
from redrive.web.pages import (
    alerts,
    audit,
    broker,
    dashboard,
    dead_letters,
    endpoints,
    event,
    events,
    groups,
    home,
    inbox,
    logs,
    operations,
    orgs,
    people,
    policies,
    retry_queue,
    runs,
    settings,
    sign_in,
    task,
    workflows,
)
from redrive.web.render import environment
from redrive.web.visitor import PageRoute, problem_page

_PAGES = (
    sign_in,
    home,
    dashboard,
    retry_queue,
    dead_letters,
    groups,
    logs,
    task,
    events,
    event,
    inbox,
    workflows,
    runs,
    policies,
    endpoints,
    broker,
    operations,
    alerts,
    audit,
    settings,
    people,
    orgs,
)
_MACHINES = ("/v1/", "/api/")


# Parts of pages, which only our own scripts ask for.
PARTS = frozenset({"/app/admin/dlq/{task_id}/payload", "/runs/{run_id}/steps/{index}/input", "/policies/plot"})


def page_paths() -> list[str]:
    """The address of every page that a person can go to."""
    routes = (route for page in _PAGES for route in page.router.routes if isinstance(route, PageRoute))
    return [route.path for route in routes if route.path not in PARTS]


class Site:
    def __init__(self, context: ApiContext) -> None:
        self.live = LiveDesk(context)
        self.routes = [*assets.router.routes, *self.live.router.routes]
        for page in _PAGES:
            assert page.router.route_class is PageRoute, page.__name__
            assert not page.router.include_in_schema, page.__name__
            self.routes.extend(page.router.routes)
        self._warm()

    @property
    def streams(self) -> int:
        return self.live.streams

    async def stray(self, request: Request) -> Response | None:
        path = request.url.path
        if path.startswith(_MACHINES) or "text/html" not in request.headers.get("accept", ""):
            return None
        return await problem_page(request, Problem(404, "There is no page at this address."))

    def close(self) -> None:
        self.live.close()

    def _warm(self) -> None:
        """Files are read once, at the start: what an upgrade changes meanwhile is not mixed with what there was."""
        environment()
        assets.edition()
