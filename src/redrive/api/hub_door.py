"""GET /v1/endpoints/{endpoint_id}/hub as a WebSocket: hubs of relays come in here, deliver, and are sent away.

On bare ASGI. Called by server. What is delivered, and to which of several hubs, is the business of core.relay.Hubs;
here is who may come in, for how long, and what passes between.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import structlog

from redrive.api.answers import Send, send_problem
from redrive.api.auth import Authenticator
from redrive.api.body import Message, Receive
from redrive.api.context import ApiContext
from redrive.api.correlation import correlation_id_of
from redrive.api.failures import problem_of
from redrive.api.outage import OUTAGES
from redrive.api.problems import Problem, forbidden, not_found, unavailable
from redrive.api.queries import id_in_path
from redrive.core.permissions import Action
from redrive.core.relay import BadMessage, Hello, Hubs, HubSeat, from_hub
from redrive.store.db import Record
from redrive.store.endpoints import RELAY, get_endpoint
from redrive.store.keys import Caller

HELLO_WITHIN_S = 10.0
CHECK_EVERY_S = 20.0  # whether its key is still good and its endpoint still there
MAX_UNSENT = 16  # messages; a hub that takes in less is no use
SEND_WITHIN_S = 20.0  # a message: one that takes longer has a hub that reads nothing
GOODBYE_WITHIN_S = 2.0  # then the connection is closed without a word

log = structlog.get_logger("redrive.relay")

IsWelcome = Callable[[], Awaitable[bool]]

_PATH = re.compile(r"/v1/endpoints/([^/]+)/hub")


class End(NamedTuple):
    """Why a hub is sent away, as its connection is told. Codes from 4000 are ours."""

    code: int
    why: str


GONE_AWAY = None  # the hub went by itself
STOPPING = End(1012, "the edge is being stopped; connect again")
BAD_MESSAGE = 4400
NOT_WELCOME = End(4401, "the key was revoked or may no longer connect hubs, or the endpoint was deleted")
TOO_SLOW = End(4408, "it does not read what is sent to it")
SILENT = End(4408, "it did not answer in time; connect again")
NO_ROOM = End(4409, "the endpoint has as many hubs as it may have")
NO_HELLO = End(4410, "it did not say hello in time")


def is_hub_path(path: str) -> bool:
    return _PATH.fullmatch(path) is not None


class HubDoor:
    def __init__(self, context: ApiContext, authenticator: Authenticator) -> None:
        self._context = context
        self._authenticator = authenticator
        self._stopping = asyncio.Event()

    def close(self) -> None:
        """The process ends: no hub comes in, and those that are in are sent away."""
        self._stopping.set()

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        await receive()  # that it wants to connect
        headers = dict(scope["headers"])
        correlation_id = correlation_id_of(headers.get(b"x-correlation-id"))
        try:
            hubs = self._hubs()
            caller, row = await self._admit(scope["path"], headers)
        except Exception as error:  # noqa: BLE001 (it becomes an answer, and where it is unexpected a line in the log)
            await send_problem(_instead_of_accepting(send), problem_of(error, correlation_id), correlation_id)
            return
        await send({"type": "websocket.accept"})
        visit = _Visit(hubs, row, receive, send, self._stopping)
        ending = await visit.last(partial(self._is_welcome, headers, caller, row))
        if ending is not None:
            log.info("hub_sent_away", endpoint_id=str(row["id"]), code=ending.code, why=ending.why)

    def _hubs(self) -> Hubs:
        if self._context.hubs is None or self._context.hubs.is_closing or self._stopping.is_set():
            raise unavailable("This process lets no hubs in.")
        return self._context.hubs

    async def _admit(self, path: str, headers: Mapping[bytes, bytes]) -> tuple[Caller, Record]:
        if b"origin" in headers:
            raise Problem(403, "A page in a browser cannot be a hub.")
        caller = await self._authenticator.admit(headers, "GET")
        if not caller.may(Action.CONNECT):
            raise forbidden(caller, Action.CONNECT)
        matched = _PATH.fullmatch(path)
        assert matched is not None
        endpoint_id = id_in_path(matched[1], "endpoint")
        if caller.endpoint_id not in (None, endpoint_id):
            raise Problem(403, f"This key is for the hubs of another relay: {caller.endpoint_id}.")
        async with self._context.tenant(caller) as session:
            row = await get_endpoint(session, endpoint_id)
        if row is None:
            raise not_found("endpoint")
        if row["kind"] != RELAY:
            raise Problem(409, f"The endpoint is of kind {row['kind']}: only a relay has hubs.")
        return caller, row

    async def _is_welcome(self, headers: Mapping[bytes, bytes], caller: Caller, row: Record) -> bool:
        """Still. A database that is away says nothing against it."""
        try:
            known = await self._authenticator.known(headers, "GET", is_use=False)
            if known is None or not known.may(Action.CONNECT):
                return False
            async with self._context.tenant(caller) as session:
                return await get_endpoint(session, row["id"]) is not None
        except OUTAGES:
            return True


def _instead_of_accepting(send: Send) -> Send:
    """An HTTP answer to a request for a WebSocket."""

    async def refuse(message: Message) -> None:
        await send({**message, "type": f"websocket.{message['type']}"})

    return refuse


class _Visit:
    """A hub that was let in: what it says is heard, what is posted is sent, until one of them ends it."""

    def __init__(self, hubs: Hubs, row: Record, receive: Receive, send: Send, stopping: asyncio.Event) -> None:
        self._hubs = hubs
        self._row = row
        self._receive = receive
        self._send = send
        self._stopping = stopping
        self._outbox: asyncio.Queue[str] = asyncio.Queue(MAX_UNSENT)
        self._too_slow = asyncio.Event()
        self._silent = asyncio.Event()
        self._seat: HubSeat | None = None

    def post(self, text: str) -> None:
        """core.relay.HubLink."""
        try:
            self._outbox.put_nowait(text)
        except asyncio.QueueFull:
            self._too_slow.set()

    def end(self) -> None:
        self._silent.set()

    async def last(self, is_welcome: IsWelcome) -> End | None:
        """Until it ends; why, where the hub did not go by itself."""
        tasks: list[asyncio.Task[End | None]] = [
            asyncio.create_task(self._hear()),
            asyncio.create_task(self._write()),
            asyncio.create_task(self._watch(is_welcome)),
            asyncio.create_task(self._wait(self._stopping, STOPPING)),
            asyncio.create_task(self._wait(self._too_slow, TOO_SLOW)),
            asyncio.create_task(self._wait(self._silent, SILENT)),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            ending = next(task for task in tasks if task.done()).result()
        finally:
            if self._seat is not None:
                self._seat.leave()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if ending is not None:
            await self._say_goodbye(ending)
        return ending

    async def _hear(self) -> End | None:
        try:
            async with asyncio.timeout(HELLO_WITHIN_S):
                text = await self._next()
            while text is not None:
                ending = self._take(text)
                if ending is not None:
                    return ending
                text = await self._next()
        except TimeoutError:
            return NO_HELLO
        except BadMessage as bad:
            return End(BAD_MESSAGE, f"a message cannot be used: {bad}")
        return GONE_AWAY

    def _take(self, text: str) -> End | None:
        message = from_hub(text)
        if self._seat is None:
            if not isinstance(message, Hello):
                raise BadMessage("the first one is hello")
            org_id, endpoint_id, name = self._row["org_id"], self._row["id"], self._row["name"]
            self._seat = self._hubs.join(org_id, endpoint_id, name, self, message.forward)
            if self._seat is None:
                return STOPPING if self._hubs.is_closing else NO_ROOM
            return None
        if isinstance(message, Hello):
            raise BadMessage("hello was said before")
        self._seat.heard(message)
        return None

    async def _next(self) -> str | None:
        """What the hub says next; None: it went away."""
        message = await self._receive()
        if message["type"] == "websocket.disconnect":
            return None
        text: str | None = message.get("text")
        if text is None:
            raise BadMessage("messages are texts")
        return text

    async def _write(self) -> End | None:
        try:
            while True:
                text = await self._outbox.get()
                async with asyncio.timeout(SEND_WITHIN_S):
                    await self._send({"type": "websocket.send", "text": text})
        except TimeoutError:
            return TOO_SLOW
        except OSError:  # the connection is gone: _hear is told so, too
            return GONE_AWAY

    async def _watch(self, is_welcome: IsWelcome) -> End | None:
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            if not await is_welcome():
                return NOT_WELCOME

    async def _wait(self, event: asyncio.Event, ending: End) -> End | None:
        await event.wait()
        return ending

    async def _say_goodbye(self, ending: End) -> None:
        try:
            async with asyncio.timeout(GOODBYE_WITHIN_S):
                await self._send({"type": "websocket.close", "code": ending.code, "reason": ending.why})
        except (OSError, RuntimeError) as error:  # it reads nothing, or is closed already, by the server or from there
            log.debug("hub_not_told", error_type=type(error).__name__)
