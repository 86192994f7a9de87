"""Send one request and return its answer, within one deadline. Touches the network and nothing else.

Called by the HTTP destination. The way of a request: `Pool.take` finds an idle connection, or `Pool.enter` gives it
a slot, in which `Dialer.open` connects, or a place in the queue; then `Connection.start` writes it, and the answer
ends its `Call`.
"""

import asyncio
from collections.abc import Callable, Hashable
from functools import partial
from time import monotonic

from redrive.core.address import AddressRules

from .call import Answer, AwaitedCall, Call
from .dial import Dialer
from .errors import FailureKind, TransferError
from .messages import Request, Response, request_bytes
from .pool import ClientStats, Origin, Pool
from .resolve import Resolver, SystemResolver

MAX_CONNECTIONS = 1000
MAX_PER_ORIGIN = 200
IDLE_S = 30.0
RESPONSE_CAP_BYTES = 65536


class Client:
    """An HTTP/1.1 client for deliveries: no redirects, no proxies, no decompression, no cookies, no retries.

    Belongs to the event loop it is first used on.
    """

    def __init__(
        self,
        *,
        rules: AddressRules,
        max_connections: int = MAX_CONNECTIONS,
        max_per_origin: int = MAX_PER_ORIGIN,
        idle_s: float = IDLE_S,
        response_cap_bytes: int = RESPONSE_CAP_BYTES,
        resolver: Resolver | None = None,
    ) -> None:
        if not 1 <= max_per_origin < max_connections:
            raise ValueError("max_per_origin must be at least 1 and below max_connections: one origin may not take all")
        if idle_s <= 0 or response_cap_bytes < 0:
            raise ValueError("idle_s must be positive and response_cap_bytes not negative")
        self._pool = Pool(
            max_connections=max_connections, max_per_origin=max_per_origin, idle_s=idle_s, opener=self._start_opening
        )
        self._dialer = Dialer(
            rules=rules, resolver=resolver or SystemResolver(), pool=self._pool, cap_bytes=response_cap_bytes
        )
        self._closed = False

    async def send(self, request: Request, *, timeout_s: float) -> Response:
        """The answer, whatever its status; TransferError when there is none.

        `timeout_s` covers all of it: the wait for a connection, lookup, connect, TLS, sending, headers, body.
        A deadline or a reset inside the body still gives a Response: the status line decides.
        """
        now = monotonic()
        call = AwaitedCall(request, request_bytes(request), _deadline(now, timeout_s))
        self._begin(call, now)
        try:
            return await call.answer
        except asyncio.CancelledError:
            call.cancel()
            raise

    def begin(self, request: Request, *, timeout_s: float, ended: Callable[[Answer], None]) -> Call:
        """`send` for who has no task to wait in: `ended` is called with the answer or the error, later.

        Raises TransferError where the request cannot even wait for a connection.
        """
        now = monotonic()
        call = Call(request, request_bytes(request), _deadline(now, timeout_s), ended)
        self._begin(call, now)
        return call

    def _begin(self, call: Call, now: float) -> None:
        request = call.request
        key: Hashable = request.target.origin
        if request.ca_pem is not None:
            key = (key, request.ca_pem)
        connection = self._pool.take(key, now)
        if connection is not None:
            connection.start(call, now)
            return
        self._check_open()
        self._pool.enter(call, key)

    async def aclose(self) -> None:
        """Close every connection; requests under way fail with kind `closed`."""
        self._closed = True
        self._dialer.close()
        self._pool.close()
        await asyncio.sleep(0)  # lets the transports close their sockets

    def stats(self) -> ClientStats:
        return self._pool.stats()

    def _start_opening(self, call: Call, origin: Origin) -> None:
        call.opening = asyncio.create_task(self._open(call, origin))
        call.opening.add_done_callback(partial(self._opened, call, origin))

    async def _open(self, call: Call, origin: Origin) -> None:
        """Connect in a slot of the pool, and send."""
        started = monotonic()
        self._check_open()
        connection = await self._dialer.open(call.request, origin, call.deadline)
        self._pool.adopt(connection)
        now = monotonic()
        call.connect_ms = (now - started) * 1000
        connection.start(call, now)

    def _opened(self, call: Call, origin: Origin, opening: asyncio.Task[None]) -> None:
        """Free the slot where nothing was opened. A task that is cancelled before it begins could not do so itself."""
        error = None if opening.cancelled() else opening.exception()
        if opening.cancelled() or error is not None:
            self._pool.free(origin)
        if isinstance(error, Exception):
            call.end(error)

    def _check_open(self) -> None:
        if self._closed:
            raise TransferError(FailureKind.CLOSED, "the client was closed", sent=False)


def _deadline(now: float, timeout_s: float) -> float:
    if not timeout_s > 0:
        raise ValueError("timeout_s must be positive")
    return now + timeout_s
