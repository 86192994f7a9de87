"""Open a connection to a destination: look the name up, judge every address, connect, start TLS.

Called by `Client` with a pool slot in hand. The only place that opens outgoing sockets, and so the one
guard against requests to internal addresses: the name is looked up once, each address is judged, and the
socket is connected to exactly the address that was judged. The name remains for SNI, certificate and Host.
Proxies from the environment are never used.
"""

import asyncio
import socket
import ssl
from collections.abc import Sequence
from time import monotonic

from redrive.core.address import AddressRules, Ip, Target

from .errors import FailureKind, TransferError
from .messages import Request
from .phases import Opening, chain_of, stack_of
from .pool import Origin, Pool
from .protocol import Connection
from .resolve import MAX_ADDRESSES, Resolver
from .tls import BadCa, TlsContexts


class Dialer:
    """Opens connections for one client."""

    def __init__(self, *, rules: AddressRules, resolver: Resolver, pool: Pool, cap_bytes: int) -> None:
        self._rules = rules
        self._resolver = resolver
        self._pool = pool
        self._cap_bytes = cap_bytes
        self._contexts = TlsContexts()
        self._closed = False

    def close(self) -> None:
        """Attempts that end from now on end because the client closes; the pool ends them."""
        self._closed = True

    async def open(self, request: Request, origin: Origin, deadline: float) -> Connection:
        """A fresh connection, or a TransferError by the deadline. Nothing of the request was sent."""
        opening = Opening(target_label(request.target), monotonic())
        try:
            return await self._open(request, origin, deadline, opening)
        except TransferError as error:
            error.stack = stack_of(opening.label, opening.lines(monotonic()), chain_of(error))
            raise

    async def _open(self, request: Request, origin: Origin, deadline: float, opening: Opening) -> Connection:
        target, label = request.target, opening.label
        timeout = asyncio.timeout(None)
        try:
            async with timeout:
                self._pool.watch(timeout, deadline)
                context = self._context(request, label)
                addresses = await self._judged_addresses(target, label)
                opening.resolved, opening.resolved_at = addresses, monotonic()
                sock = await _connect_any(addresses, target.port, deadline, opening)
                connection = Connection(self._pool, origin, sock=sock, opening=opening, cap_bytes=self._cap_bytes)
                await _attach(connection, sock, context, target, opening)
        except TimeoutError:
            raise self._late(label) from None
        finally:
            self._pool.unwatch(timeout)
        if connection.closed:
            message = f"{label} closed the connection before the request was sent"
            raise TransferError(FailureKind.RESET, message, sent=False)
        return connection

    def _late(self, label: str) -> TransferError:
        if self._closed:
            return TransferError(FailureKind.CLOSED, "the client was closed", sent=False)
        message = f"no connection to {label} before the deadline"
        return TransferError(FailureKind.TIMEOUT, message, sent=False)

    async def _judged_addresses(self, target: Target, label: str) -> list[Ip]:
        found = [target.ip] if target.ip is not None else await self._look_up(target)
        allowed: list[Ip] = []
        refusal = ""
        for ip in found:
            why = self._rules.refusal(ip)
            if why is None:
                allowed.append(ip)
            else:
                refusal = f"{ip} is {why}"
        if not allowed:
            message = f"{label} may not be reached: {refusal}. Its network is not among the allowed ones."
            raise TransferError(FailureKind.REFUSED_ADDRESS, message, sent=False)
        return allowed

    async def _look_up(self, target: Target) -> Sequence[Ip]:
        try:
            found = await self._resolver.resolve(target.host, target.port)
        except OSError as error:
            message = f"the name {target.host} could not be looked up: {_reason(error)}"
            raise TransferError(FailureKind.DNS, message, sent=False) from error
        if not found:
            message = f"the name {target.host} has no address"
            raise TransferError(FailureKind.DNS, message, sent=False)
        return found[:MAX_ADDRESSES]

    def _context(self, request: Request, label: str) -> ssl.SSLContext | None:
        if request.target.scheme == "http":
            return None
        try:
            return self._contexts.get(request.ca_pem)
        except BadCa as error:
            message = f"the CA certificate set for {label} cannot be used: {error}"
            raise TransferError(FailureKind.TLS, message, sent=False) from error


async def _attach(
    connection: Connection, sock: socket.socket, context: ssl.SSLContext | None, target: Target, opening: Opening
) -> None:
    """Give the socket to a transport, which closes it from here on, also when this fails."""
    loop, label = asyncio.get_running_loop(), opening.label
    if context is None:
        await loop.create_connection(lambda: connection, sock=sock)
        return
    try:
        transport, _ = await loop.create_connection(
            lambda: connection, sock=sock, ssl=context, server_hostname=target.host
        )
        opening.tls, opening.secured_at = transport.get_extra_info("ssl_object").version(), monotonic()
    except ssl.SSLCertVerificationError as error:
        message = f"the certificate of {label} was not accepted: {error.verify_message}"
        raise TransferError(FailureKind.TLS, message, sent=False) from error
    except OSError as error:
        message = f"TLS with {label} failed: {_reason(error)}"
        raise TransferError(FailureKind.TLS, message, sent=False) from error


async def _connect_any(addresses: list[Ip], port: int, deadline: float, opening: Opening) -> socket.socket:
    """Connect to the first address that answers. A silent one gets its share of the time, not all of it."""
    failure: OSError = OSError("no address")
    for at, ip in enumerate(addresses):
        since = monotonic()
        share_s = (deadline - since) / (len(addresses) - at)
        opening.address = f"[{ip}]:{port}" if ip.version == 6 else f"{ip}:{port}"
        try:
            async with asyncio.timeout(share_s if at + 1 < len(addresses) else None):
                sock = await _connect(ip, port)
            opening.connected = (since, monotonic())
            return sock
        except OSError as error:
            failure = error
            opening.failed.append((opening.address, since, monotonic(), _reason(error)))
            opening.address = None
    message = f"could not connect to {opening.label}: {_reason(failure)}"
    raise TransferError(FailureKind.CONNECT, message, sent=False) from failure


async def _connect(ip: Ip, port: int) -> socket.socket:
    family = socket.AF_INET if ip.version == 4 else socket.AF_INET6
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(sock, (str(ip), port))
    except BaseException:
        sock.close()
        raise
    return sock


def target_label(target: Target) -> str:
    """How messages name a destination: without path and query, which may hold secrets."""
    return f"{target.scheme}://{target.host_header}"


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return str(error.reason or error.strerror or "TLS error").replace("_", " ").lower()
    return error.strerror or type(error).__name__
