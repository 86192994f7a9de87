"""Send one request and return its answer, within one deadline. Touches the network and nothing else.

Called by the HTTP destination. The way of a request: `Pool.take` finds an idle connection, or `Pool.slot`
waits for a turn and `Dialer.open` connects; then `Connection.start` writes it and gives the answer's future.
"""

import asyncio
from collections.abc import Hashable
from time import monotonic

from redrive.core.address import AddressRules

from .dial import Dialer
from .errors import FailureKind, TransferError
from .messages import Request, Response, request_bytes
from .pool import ClientStats, Pool
from .protocol import Connection
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
        self._pool = Pool(max_connections=max_connections, max_per_origin=max_per_origin, idle_s=idle_s)
        self._dialer = Dialer(rules=rules, resolver=resolver or SystemResolver(), pool=self._pool)
        self._cap_bytes = response_cap_bytes
        self._closed = False

    async def send(self, request: Request, *, timeout_s: float) -> Response:
        """The answer, whatever its status; TransferError when there is none.

        `timeout_s` covers all of it: the wait for a connection, lookup, connect, TLS, sending, headers, body.
        A deadline or a reset inside the body still gives a Response: the status line decides.
        """
        now = monotonic()
        if not timeout_s > 0:
            raise ValueError("timeout_s must be positive")
        deadline = now + timeout_s
        data = request_bytes(request)
        key: Hashable = request.target.origin
        if request.ca_pem is not None:
            key = (key, request.ca_pem)
        connect_ms = None
        connection = self._pool.take(key, now)
        while connection is None or connection.closed:
            connection, connect_ms = await self._obtain(request, key, deadline)
        future = connection.start(data, deadline=deadline, cap_bytes=self._cap_bytes, connect_ms=connect_ms)
        try:
            return await future
        except asyncio.CancelledError:
            connection.abandon(future)
            raise

    async def aclose(self) -> None:
        """Close every connection; requests under way fail with kind `closed`."""
        self._closed = True
        self._dialer.close()
        self._pool.close()
        await asyncio.sleep(0)  # lets the transports close their sockets

    def stats(self) -> ClientStats:
        return self._pool.stats()

    async def _obtain(self, request: Request, key: Hashable, deadline: float) -> tuple[Connection, float | None]:
        """Wait for a turn; the connection is a freed one, which may have been closed since, or a new one."""
        self._check_open()
        origin, connection = await self._pool.slot(key, deadline)
        if connection is not None:
            return connection, None
        started = monotonic()
        try:
            self._check_open()
            connection = await self._dialer.open(request, origin, deadline)
        except BaseException:
            self._pool.free(origin)
            raise
        self._pool.adopt(connection)
        return connection, (monotonic() - started) * 1000

    def _check_open(self) -> None:
        if self._closed:
            raise TransferError(FailureKind.CLOSED, "the client was closed", sent=False)
