"""Turn a host name into addresses. Touches the system's resolver, in threads of its own.

Called by the dialer once per new connection. Nothing is cached: connections are kept alive, so lookups are
rare, the system's resolver knows the records' lifetimes, and an answer that outlived its record would send
requests (and the address check) to a host that has moved. Lookups of one name that overlap share one answer.
"""

import asyncio
import socket
import threading
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Protocol

# getaddrinfo blocks and cannot be cancelled; a dead name server holds a thread for tens of seconds.
MAX_LOOKUPS = 64
MAX_ADDRESSES = 16

Ip = IPv4Address | IPv6Address


class Resolver(Protocol):
    """Gives the addresses of a host in the order to try them; raises OSError when there is no answer."""

    async def resolve(self, host: str, port: int) -> Sequence[Ip]: ...


class SystemResolver:
    """getaddrinfo in daemon threads: a lookup that hangs delays neither other names nor the exit."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(MAX_LOOKUPS)
        self._lookups: dict[str, asyncio.Task[Sequence[Ip]]] = {}

    async def resolve(self, host: str, port: int) -> Sequence[Ip]:
        lookup = self._lookups.get(host)
        if lookup is None:
            lookup = asyncio.create_task(self._look_up(host, port), name=f"lookup {host}")
            self._lookups[host] = lookup
            lookup.add_done_callback(lambda done: self._forget(host, done))
        # Shielded: a caller whose deadline passes must not take the answer from the others who wait.
        return await asyncio.shield(lookup)

    def _forget(self, host: str, lookup: asyncio.Task[Sequence[Ip]]) -> None:
        self._lookups.pop(host, None)
        if not lookup.cancelled():
            lookup.exception()  # fetched, so that a lookup all callers left is not reported as lost

    async def _look_up(self, host: str, port: int) -> Sequence[Ip]:
        async with self._slots:
            loop = asyncio.get_running_loop()
            answer: asyncio.Future[Sequence[Ip]] = loop.create_future()
            arguments = (loop, answer, host, port)
            threading.Thread(target=_look_up_in_thread, args=arguments, daemon=True).start()
            return await answer


def _look_up_in_thread(
    loop: asyncio.AbstractEventLoop, answer: asyncio.Future[Sequence[Ip]], host: str, port: int
) -> None:
    found: Sequence[Ip] | OSError
    try:
        # Bytes skip Python's own IDNA step: the host was checked to be plain ASCII.
        rows = socket.getaddrinfo(host.encode("ascii"), port, type=socket.SOCK_STREAM)
        found = tuple(dict.fromkeys(ip_address(row[4][0]) for row in rows))[:MAX_ADDRESSES]
    except OSError as error:
        found = error
    try:
        loop.call_soon_threadsafe(_hand_over, answer, found)
    except RuntimeError:
        return  # the loop was closed while the lookup ran; nobody waits for the answer any more


def _hand_over(answer: asyncio.Future[Sequence[Ip]], found: Sequence[Ip] | OSError) -> None:
    if answer.done():
        return
    if isinstance(found, OSError):
        answer.set_exception(found)
    else:
        answer.set_result(found)
