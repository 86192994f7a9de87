"""Turn a host name into addresses. Touches the system's resolver, in threads of its own.

Called by the dialer once per new connection. Nothing is cached: connections are kept alive, so lookups are
rare, the system's resolver knows the records' lifetimes, and an answer that outlived its record would send
requests (and the address check) to a host that has moved. Lookups of one name that overlap share one answer.
"""

import asyncio
import socket
from collections.abc import Sequence
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Protocol

from redrive.destinations.threads import DaemonThreads

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
        self._threads = DaemonThreads(MAX_LOOKUPS, name="redrive-lookup")
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
        await self._threads.take()
        return await self._threads.run(partial(_addresses, host, port))


def _addresses(host: str, port: int) -> Sequence[Ip]:
    # Bytes skip Python's own IDNA step: the host was checked to be plain ASCII.
    rows = socket.getaddrinfo(host.encode("ascii"), port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(ip_address(row[4][0]) for row in rows))[:MAX_ADDRESSES]
