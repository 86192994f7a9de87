"""What is live on every page: an org's numbers as server-sent events, one look at the database for all who watch it.

One LiveDesk per process. A page opens its stream while it is visible, and closes it when it is hidden.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from functools import partial
from uuid import UUID

import msgspec
import structlog
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from redrive.api.auth import Authenticator
from redrive.api.context import ApiContext
from redrive.api.outage import OUTAGES
from redrive.api.problems import Problem, unavailable
from redrive.core.permissions import Action
from redrive.store.alerts import firing_now
from redrive.store.counters import counts
from redrive.store.keys import Caller
from redrive.web.frame import shown_counts
from redrive.web.visitor import PageRoute, Visitor

MAX_STREAMS = 1_000
MAX_STREAMS_OF_ORG = 200
LOOK_EVERY_S = 1.0
HEARTBEAT_S = 15.0

log = structlog.get_logger("redrive.web")


class _Watched:
    """The numbers of one org, and who waits for news of them."""

    __slots__ = ("caller", "news", "seen", "watchers")

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.seen: bytes | None = None
        self.news = asyncio.Condition()
        self.watchers = 0


class LiveDesk:
    def __init__(self, context: ApiContext) -> None:
        self._context = context
        self._orgs: dict[UUID, _Watched] = {}
        self._looking: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self.router = APIRouter(include_in_schema=False, route_class=PageRoute)
        self.router.add_api_route("/live", self.stream, methods=["GET"])

    def close(self) -> None:
        self._closing.set()

    @property
    def streams(self) -> int:
        return sum(watched.watchers for watched in self._orgs.values())

    async def stream(self, request: Request, visitor: Visitor, org: str = "") -> Response:
        """Events `counts`, at first and at each change. `org`: whose numbers the page shows."""
        if org and org != str(visitor.org_id):
            raise Problem(409, "This session is in another org by now.")
        watched = self._orgs.get(visitor.org_id)
        if self.streams >= MAX_STREAMS or (watched is not None and watched.watchers >= MAX_STREAMS_OF_ORG):
            raise unavailable("Too many pages are open here. They go on without live numbers.", 30)
        return StreamingResponse(
            self._events(request, visitor), media_type="text/event-stream", headers={"x-accel-buffering": "no"}
        )

    async def _events(self, request: Request, visitor: Caller) -> AsyncIterator[bytes]:
        async with aclosing(self._news(visitor)) as news:
            async for said in news:
                if not await _may_still_look(request, visitor.org_id):
                    return
                yield b": still here\n\n" if said is None else b"event: counts\ndata: %b\n\n" % said

    async def _news(self, visitor: Caller) -> AsyncGenerator[bytes | None]:
        watched = self._orgs.setdefault(visitor.org_id, _Watched(visitor))
        watched.watchers += 1
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        told: bytes | None = None
        try:
            while not self._closing.is_set():
                try:
                    async with asyncio.timeout(HEARTBEAT_S), watched.news:
                        await watched.news.wait_for(partial(self._is_news, watched, told))
                except TimeoutError:
                    yield None
                    continue
                if not self._closing.is_set():
                    told = watched.seen
                    yield told
        finally:
            watched.watchers -= 1
            if not watched.watchers:
                self._orgs.pop(visitor.org_id, None)

    def _is_news(self, watched: _Watched, told: bytes | None) -> bool:
        return self._closing.is_set() or watched.seen != told

    async def _look(self) -> None:
        """For as long as anybody watches."""
        while self._orgs and not self._closing.is_set():
            for watched in list(self._orgs.values()):
                try:
                    await self._look_at(watched)
                except Exception as error:  # noqa: BLE001 (of one org: those of the others go on)
                    log.warning("live_numbers_failed", error_type=type(error).__name__)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._closing.wait()
        for watched in list(self._orgs.values()):
            async with watched.news:
                watched.news.notify_all()

    async def _look_at(self, watched: _Watched) -> None:
        async with self._context.tenant(watched.caller) as session:
            counted = await counts(session)
            firing = sum(each.n for each in await firing_now(session))
        seen = msgspec.json.encode(shown_counts(counted, firing) | {"tick": _tick(counted)})
        if seen != watched.seen:
            async with watched.news:
                watched.seen = seen
                watched.news.notify_all()


def _tick(counted: dict[str, int]) -> int:
    """A number that moves whenever anything was accepted, tried to its end, or died: charts are drawn anew then."""
    return sum(n for name, n in counted.items() if name.startswith(("event.", "task.succeeded", "task.dead")))


async def _may_still_look(request: Request, org_id: UUID) -> bool:
    """A stream may last for days: a session that ended or went to another org sees no more of it."""
    authenticator: Authenticator = request.app.state.authenticator
    try:
        caller = await authenticator.known(dict(request.scope["headers"]), request.method, is_use=False)
    except OUTAGES:
        return True  # asked again with the next news
    return caller is not None and caller.org_id == org_id and caller.may(Action.READ)
