"""The socket that the API listens on: bound once by `redrive serve`, lent to each API process in turn.

It stays open while an API process is replaced: whoever connects meanwhile waits, and is not turned away. Children
inherit no descriptors, so they ask for it over a nameless socket of ours (Linux's abstract namespace).
"""

import asyncio
import errno
import os
import socket
import struct

from redrive.cli.runner import Refused, WrongUsage

VARIABLE = "REDRIVE_LISTENER"  # tells a child where to ask
BACKLOG = 2048
BORROW_TIMEOUT_S = 10.0
_GREETING = b"listener"
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


def bind(host: str, port: int) -> socket.socket:
    """Listen there, or say clearly why that cannot be. Port 0 takes a free one."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as problem:
        raise WrongUsage(
            f'The host "{host}" cannot be found: {problem.strerror}. Choose another with --host.'
        ) from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as problem:
        listener.close()
        raise _explained(host, port, problem) from None
    listener.setblocking(False)
    return listener


def _explained(host: str, port: int, problem: OSError) -> Refused:
    match problem.errno:
        case errno.EADDRINUSE:
            return Refused(
                f"Port {port} of {host} is taken: by another program, or by a Redrive that runs already. Stop that "
                "one, or choose another port with --port (0 takes a free one)."
            )
        case errno.EACCES:
            return Refused(f"This account may not listen on port {port}. Choose one above 1023 with --port.")
        case errno.EADDRNOTAVAIL:
            return Refused(f"This machine has no address {host}. Choose another with --host; 0.0.0.0 means all.")
    return Refused(
        f"Redrive cannot listen on {host}, port {port}: {problem.strerror}. Choose others with --host, --port."
    )


def address_of(listener: socket.socket, host: str) -> str:
    """The URL that people use."""
    return url_of(host, listener.getsockname()[1])


def url_of(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Lender:
    """Hands the listening socket to processes of the same account that ask for it."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._door.bind("")  # the kernel chooses a name
        self._door.listen()
        self._door.setblocking(False)
        name: bytes = self._door.getsockname()
        self.env = {VARIABLE: name.hex()}

    async def lend(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        with self._door:
            while True:
                asking, _ = await loop.sock_accept(self._door)
                with asking:
                    if _uid_of(asking) == os.geteuid():
                        socket.send_fds(asking, [_GREETING], [self._listener.fileno()])


def _uid_of(asking: socket.socket) -> int:
    raw = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(raw)
    return int(uid)


def borrow() -> socket.socket | None:
    """The socket that our parent lends; None where nobody does."""
    name = os.environ.get(VARIABLE)
    if name is None:
        return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(BORROW_TIMEOUT_S)
        asking.connect(bytes.fromhex(name))
        greeting, descriptors, _, _ = socket.recv_fds(asking, len(_GREETING), 1)
    if greeting != _GREETING or len(descriptors) != 1:
        raise ConnectionError("the listening socket was not handed over")
    listener = socket.socket(fileno=descriptors[0])
    listener.setblocking(False)
    return listener
