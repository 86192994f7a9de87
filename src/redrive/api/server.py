"""The HTTP API as one ASGI application: the two hot routes first, the framework's routes behind a guard.

create_app is called by api_process; the server that runs it is told to write no access log.
"""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute

from redrive.api import openapi
from redrive.api.aliases import as_given, meant_by
from redrive.api.answers import Send, send_json, send_problem, send_problem_and_close
from redrive.api.auth import Authenticator
from redrive.api.body import BodyReader, BodyRefused, Disconnected, Receive
from redrive.api.committer import Committer
from redrive.api.context import ApiContext, correlation_of
from redrive.api.correlation import correlation_id_of
from redrive.api.endpoint_view import HOOKS_PATH
from redrive.api.failures import answer_of, problem_of
from redrive.api.front_door import BATCH_PATH, EVENTS_PATH, FrontDoor, read_headers
from redrive.api.guard import Guard
from redrive.api.hook_door import HookDoor
from redrive.api.hub_door import HubDoor, is_hub_path
from redrive.api.methods import PathMethods
from redrive.api.metrics_desk import MetricsDesk
from redrive.api.operation_desk import OperationDesk
from redrive.api.problems import PROBLEM_TYPE, FieldError, Problem, bad_query, invalid
from redrive.api.queries import each_once
from redrive.api.route_classes import STATUS_TEMPLATE, RouteClasses, route_labels
from redrive.api.routes import (
    alerts,
    audit,
    broker,
    dead_letters,
    docs,
    endpoint_actions,
    endpoint_health,
    endpoints,
    events,
    groups,
    health,
    inbox,
    keys,
    lanes,
    logs,
    metrics,
    notices,
    operations,
    orgs,
    policies,
    replay,
    retries,
    retry_queue,
    runs,
    session,
    stats,
    users,
    workflows,
)
from redrive.api.status_desk import StatusDesk
from redrive.api.status_window import StatusWindow
from redrive.observe.process_metrics import HUBS, INGEST_WAITING, REQUEST_SECONDS, STREAMS, note_request

__all__ = ["ASGIApp", "ApiContext", "Pages", "create_app"]

ASGIApp = Callable[[Any, Any, Any], Awaitable[None]]

_ROUTES = (
    events,
    endpoints,
    endpoint_actions,
    endpoint_health,
    lanes,
    retries,
    retry_queue,
    groups,  # before the letters: its name is no id
    replay,
    dead_letters,
    operations,
    broker,
    workflows,
    runs,
    inbox,
    logs,
    policies,
    keys,
    users,
    orgs,
    session,
    audit,
    alerts,
    notices,
    stats,
    metrics,
    health,
    docs,
)


class Pages(Protocol):
    """What people see in a browser, beside the API: its routes, and its way to say that there is nothing at a path."""

    @property
    def routes(self) -> Sequence[BaseRoute]:
        """None of them stands in the API's description."""

    @property
    def streams(self) -> int:
        """Of live numbers, open now."""

    async def stray(self, request: Request) -> Response | None:
        """None: whoever asks is no browser, or asks for something of the API's."""

    def close(self) -> None:
        """The process ends: streams have no end of their own."""


def create_app(context: ApiContext, pages: Pages | None = None) -> "Api":
    authenticator = Authenticator(context.engine_db, context.clock)
    committer = Committer(context.engine_db, context.clock)
    reader = BodyReader()
    desk = OperationDesk(context)
    routes = _routes(context, authenticator, committer, desk, pages)
    front_door = FrontDoor(authenticator, committer, reader)
    hook_door = HookDoor(context, authenticator, committer, reader)
    guard = Guard(routes, authenticator, reader)
    hub_door = HubDoor(context, authenticator)
    return Api(front_door, hook_door, hub_door, guard, committer, authenticator, desk, routes, pages)


class Api:
    """`routes` are all but the hot ones, for whoever asks what there is: requests go past the guard."""

    def __init__(
        self,
        front_door: FrontDoor,
        hook_door: HookDoor,
        hub_door: HubDoor,
        guard: Guard,
        committer: Committer,
        authenticator: Authenticator,
        desk: OperationDesk,
        routes: FastAPI,
        pages: Pages | None = None,
    ) -> None:
        self.front_door = front_door
        self.desk = desk
        self.routes = routes
        self.metrics: MetricsDesk = routes.state.metrics
        self._pages = pages
        self._hook_door = hook_door
        self._hub_door = hub_door
        self._guard = guard
        self._status_window = StatusWindow(authenticator, routes.state.status_desk)
        self._methods: PathMethods = routes.state.methods
        self._classes: RouteClasses = routes.state.route_classes
        self._committer = committer
        self._authenticator = authenticator

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        elif scope["type"] == "websocket" and is_hub_path(scope["path"]):
            await self._hub_door(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    def close_streams(self) -> None:
        """The process ends: streams and those who wait are answered now."""
        self.desk.close()
        self._hub_door.close()
        if self._pages is not None:
            self._pages.close()

    def show_numbers(self, hubs: Callable[[], float]) -> None:
        """What metrics tell of this process from now on. `hubs`: how many are connected."""
        HUBS.ask(hubs)
        INGEST_WAITING.ask(lambda: self._committer.held_events)
        STREAMS.ask(lambda: self.desk.streams, ("operations",))
        if self._pages is not None:
            pages = self._pages
            STREAMS.ask(lambda: pages.streams, ("pages",))

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                await self._committer.close()
                await self._authenticator.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _answer(self, scope: Any, receive: Receive, send: Send) -> None:
        headers = read_headers(scope["headers"])
        correlation_id = correlation_id_of(headers.get(b"x-correlation-id"))
        meant = meant_by(scope["method"], scope["path"], scope["query_string"], scope["headers"])
        if meant is not None:
            scope = {**scope, "path": meant.path, "raw_path": meant.path.encode(), "query_string": meant.query}
            scope["state"] = {**scope.get("state", {}), "camel_case": meant.camel_case}
        is_hot = scope["method"] == "POST" and scope["path"] in (EVENTS_PATH, BATCH_PATH)
        outgoing = _Started(send, self._classes.of(scope["path"]), scope)
        try:
            if scope["path"].startswith(HOOKS_PATH):
                await self._hook_door(scope, headers, receive, outgoing, correlation_id)
                return
            if not is_hot and self._methods.lacks(scope["path"], scope["method"]):
                raise _no_such_method(self._methods.allowed(scope["path"]))
            each_once(scope["query_string"])
            if not is_hot and (known := await self._status_window.answer(scope, headers)) is not None:
                outgoing.labels = ("GET", STATUS_TEMPLATE)
                await send_json(outgoing, 200, known, correlation_id)
                return
            await (self.front_door if is_hot else self._guard)(scope, headers, receive, outgoing, correlation_id)
        except Disconnected:
            return
        except BodyRefused as problem:
            await send_problem_and_close(receive, outgoing, problem, correlation_id)
        except Problem as problem:
            await send_problem(outgoing, problem, correlation_id)
        except Exception as error:  # noqa: BLE001 (the last line: it becomes an answer and a line in the log)
            unexpected = problem_of(error, correlation_id)
            if not outgoing.started:
                await send_problem(outgoing, unexpected, correlation_id)


class _Started:
    """Remembers whether an answer has begun: then no other can follow. And counts it, with the time that it took."""

    __slots__ = ("_began_s", "_route", "_scope", "_send", "labels", "started")

    def __init__(self, send: Send, route: str, scope: Mapping[str, Any]) -> None:
        """`labels`: method and route; None where the router fills them in."""
        self._send = send
        self._route = route
        self._scope = scope
        self._began_s = time.perf_counter()
        self.labels: tuple[str, str] | None = None
        self.started = False

    async def __call__(self, message: Any) -> None:
        if not self.started:
            self.started = True
            note_request(self._route, message["status"])
            REQUEST_SECONDS.note(time.perf_counter() - self._began_s, self.labels or route_labels(self._scope))
        await self._send(message)


def _routes(
    context: ApiContext,
    authenticator: Authenticator,
    committer: Committer,
    desk: OperationDesk,
    pages: Pages | None,
) -> FastAPI:
    # Not by include_router, which makes every route anew, in each application, when the first request comes.
    described = [route for module in _ROUTES for route in module.router.routes]
    app = FastAPI(
        title="Redrive",
        version=context.version,
        description=openapi.DESCRIPTION,
        routes=[*described, *(pages.routes if pages is not None else ())],
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers={
            Problem: _on_problem,
            RequestValidationError: _on_invalid,
            HTTPException: _on_http_exception,
            Exception: _on_unexpected,
        },
    )
    app.state.context = context
    app.state.authenticator = authenticator
    app.state.committer = committer
    app.state.status_desk = StatusDesk(context)
    app.state.operations = desk
    app.state.metrics = MetricsDesk(context)
    app.state.pages = pages
    openapi.describe(app)
    app.state.methods = PathMethods(openapi.methods_of(app))
    page_paths = [path for route in (pages.routes if pages else ()) if (path := getattr(route, "path", None))]
    app.state.route_classes = RouteClasses(openapi.methods_of(app), page_paths)
    return app


def _respond(request: Request, problem: Problem) -> Response:
    camel_cased = request.scope.get("state", {}).get("camel_cased")
    if camel_cased is not None:
        problem.errors = tuple(as_given(problem.errors, camel_cased))
    body = problem.body(correlation_of(request))
    return Response(body, problem.status, headers=dict(problem.headers), media_type=PROBLEM_TYPE)


async def _on_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return _respond(request, error)


async def _on_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    errors = [FieldError(tuple(each["loc"]), _said(each)) for each in error.errors()]
    in_query = [each for each in errors if each.loc[:1] == ("query",)]
    return _respond(request, bad_query(*in_query) if in_query else invalid(*errors))


def _said(error: Mapping[str, Any]) -> str:
    """The library's words, but where they say little to whoever sent the request."""
    match error["type"]:
        case "extra_forbidden":
            return "unknown parameter" if error["loc"][:1] == ("query",) else "unknown field"
        case "missing":
            return "is needed"
    return str(error["msg"]).removeprefix("Value error, ")


async def _on_http_exception(request: Request, error: Exception) -> Response:
    """The framework's own: no such path, no such method."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        methods: PathMethods = request.app.state.methods
        return _respond(request, _no_such_method(methods.allowed(request.scope["path"])))
    pages: Pages | None = request.app.state.pages
    if error.status_code == 404 and pages is not None and (page := await pages.stray(request)) is not None:
        return page
    detail = "There is nothing at this path." if error.status_code == 404 else error.detail
    return _respond(request, Problem(error.status_code, detail, headers=tuple((error.headers or {}).items())))


def _no_such_method(allowed: str) -> Problem:
    return Problem(405, "This path does not take this method.", headers=(("allow", allowed),))


async def _on_unexpected(request: Request, error: Exception) -> Response:
    """The framework raises it again after this answer; it is logged where it arrives."""
    return _respond(request, answer_of(error))
