"""Who looks at a page, and what they are told when they may not, or when something is wrong: pages, not JSON.

Every route of web is a PageRoute; those for people who are signed in take a Visitor.
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import structlog
from fastapi import Depends, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from redrive.api.auth import Authenticator
from redrive.api.context import ApiContext, correlation_of
from redrive.api.failures import problem_of
from redrive.api.problems import Problem, bad_query, forbidden
from redrive.core.permissions import Action
from redrive.store.keys import Caller
from redrive.web.frame import Frame, load_frame
from redrive.web.render import render

SIGN_IN = "/sign-in"

log = structlog.get_logger("redrive.web")

Handle = Callable[[Request], Coroutine[Any, Any, Response]]


@dataclass(frozen=True, slots=True)
class ErrorPage:
    """`frame`: None for whoever is not signed in, and where it cannot be had. `first_href`: where a list begins."""

    frame: Frame | None
    status: int
    title: str
    detail: str
    correlation_id: str
    first_href: str | None


TITLES = {
    400: "This address cannot be understood",
    403: "You may not see this",
    404: "Nothing here",
    429: "Too many requests",
    503: "Not available at the moment",
}


class PageRoute(APIRoute):
    """A route whose problems are pages. Whoever is not signed in is sent to do so, and comes back."""

    def get_route_handler(self) -> Handle:
        handle = super().get_route_handler()

        async def handler(request: Request) -> Response:
            try:
                return await _with_problems_told(handle, request)
            except Exception as error:  # noqa: BLE001 (the last line before the browser: told, and logged)
                return _page_of(request, problem_of(error, correlation_of(request)), None)

        return handler


async def _with_problems_told(handle: Handle, request: Request) -> Response:
    try:
        return await handle(request)
    except RequestValidationError:
        return await problem_page(request, bad_query())
    except Problem as problem:
        # A stream is told by the status alone: it shows no page, and cannot go to another.
        if "text/event-stream" in request.headers.get("accept", ""):
            return Response(status_code=problem.status, headers=dict(problem.headers))
        if problem.status == 401:
            return _to_sign_in(request)
        return await problem_page(request, problem)


async def problem_page(request: Request, problem: Problem) -> Response:
    """A problem told among the other pages, so that there is a way on. Not where nothing can be read: then alone."""
    return _page_of(
        request, problem, await _frame_of(request) if problem.status < HTTPStatus.TOO_MANY_REQUESTS else None
    )


async def _frame_of(request: Request) -> Frame | None:
    context: ApiContext = request.app.state.context
    try:
        visitor = await visiting(Action.READ)(request)
        async with context.tenant(visitor) as session:
            return await load_frame(session, visitor, context, request.url.path)
    except Problem:
        return None
    except Exception as error:  # noqa: BLE001 (what is told is another problem, and must be told; this one is logged)
        log.warning("error_page_without_frame", error_type=type(error).__name__)
        return None


def _page_of(request: Request, problem: Problem, frame: Frame | None) -> Response:
    title = TITLES.get(problem.status, "Something went wrong")
    said = " ".join([problem.detail, *(f"{error.loc[-1]} {error.msg}." for error in problem.errors if error.loc)])
    page = ErrorPage(frame, problem.status, title, said, correlation_of(request), _first_href(request, problem))
    response = render(request, "error.html", page, status=problem.status)
    response.headers.update(dict(problem.headers))
    return response


def _first_href(request: Request, problem: Problem) -> str | None:
    """The same list without the place in it, which leads nowhere any more."""
    if problem.status != HTTPStatus.BAD_REQUEST or "cursor" not in request.query_params:
        return None
    kept = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
    return request.url.path + (f"?{urlencode(kept)}" if kept else "")


def _to_sign_in(request: Request) -> Response:
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    query = "" if wanted == "/" else f"?next={quote(wanted, safe='')}"
    return Response(status_code=303, headers={"location": SIGN_IN + query})


def visiting(action: Action) -> Callable[[Request], Coroutine[Any, Any, Caller]]:
    """A dependency: who looks, if they may."""

    async def dependency(request: Request) -> Caller:
        authenticator: Authenticator = request.app.state.authenticator
        caller = await authenticator.admit(dict(request.scope["headers"]), request.method)
        if not caller.may(action):
            raise forbidden(caller, action)
        return caller

    return dependency


Visitor = Annotated[Caller, Depends(visiting(Action.READ))]
