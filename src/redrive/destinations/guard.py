"""Keeps a library that opens connections itself to the rules that deliveries keep. Used by destinations.apprise.

A hook of the interpreter (sys.addaudithook) is told of every connection, file and process before it is made. It acts
only in threads that are inside a guarded call, and refuses there what the rules refuse: addresses, files besides those
of programs and certificates, other processes and threads, and to sleep beyond the call's deadline. It is installed
once, and stays: nobody can take one away. C code that opens connections of its own tells no hook: services that have
some are not used (destinations.services).
"""

import contextlib
import math
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

from redrive.core.address import AddressRules

_ADDRESSED = {"socket.connect": 1, "socket.sendto": 1, "socket.sendmsg": 1}
_NEVER = frozenset(
    {
        *(
            "subprocess.Popen",
            "os.system",
            "os.exec",
            "os.posix_spawn",
            "os.spawn",
            "os.fork",
            "os.forkpty",
            "pty.spawn",
        ),
        *("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink"),
        *("os.chmod", "os.chown", "os.truncate", "shutil.rmtree", "shutil.move", "shutil.copyfile", "os.kill"),
        *("sqlite3.connect", "socket.bind", "_thread.start_new_thread", "_thread.start_joinable_thread"),
    }
)
# Where programs, time zones and certificates are: what a library reads to do its work.
_READABLE = (
    "/usr/lib/",
    "/usr/share/",
    "/usr/local/lib/",
    "/usr/local/share/",
    "/etc/ssl/",
    "/etc/pki/",
    "/etc/mime.types",
)
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Refused(PermissionError):
    """Not allowed inside a guarded call. A PermissionError, for libraries know how to fail of that."""


@dataclass(slots=True)
class Watch:
    """A guarded call: what it may reach, and what it was refused."""

    rules: AddressRules
    ends_at: float = math.inf  # of time.monotonic()
    refusals: list[str] = field(default_factory=list)  # of addresses; for a person
    has_connected: bool = False  # or has begun to
    may_have_told: bool = False  # a request was answered by a success, or went out and was not answered
    is_over: bool = False
    _sockets: list[socket.socket] = field(default_factory=list)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def cut(self) -> None:
        """Its time is over: what it waits for ends, and nothing begins."""
        with self._turn:
            self.is_over = True
            for each in self._sockets:
                with contextlib.suppress(OSError):  # the other side has ended it
                    each.shutdown(socket.SHUT_RDWR)
                each.close()
            self._sockets.clear()

    def left_s(self) -> float:
        return 0.0 if self.is_over else self.ends_at - time.monotonic()

    def judge(self, event: str, args: tuple[Any, ...]) -> None:
        if event in _NEVER:
            raise Refused(f"{event} is not allowed here")
        if event == "open":
            _judge_file(*args)
        elif event in _ADDRESSED:
            self._judge_address(event, args[0], args[_ADDRESSED[event]])

    def _judge_address(self, event: str, sock: socket.socket, address: object) -> None:
        if event == "socket.sendmsg" and address is None:
            return  # connected, so judged before
        why = self._refusal(address)
        if why is not None:
            self.refusals.append(why)
            raise Refused(why)
        with self._turn:
            if self.is_over:
                raise Refused("its time is over")
            # A second handle of the same connection: TLS takes the first away from its socket.
            own = socket.socket(sock.family, sock.type, sock.proto, fileno=os.dup(sock.fileno()))
            self._sockets.append(own)
            self.has_connected = True

    def _refusal(self, address: object) -> str | None:
        if not (isinstance(address, tuple) and address and isinstance(address[0], str)):
            return "sockets of this machine are not reachable for deliveries"
        try:
            ip = ip_address(address[0])
        except ValueError:
            return "a name where an address was expected"  # whoever looks it up, the rules would not see what it is
        refused = self.rules.refusal(ip)
        return f"{ip} is not reachable for deliveries: {refused}" if refused is not None else None


def _judge_file(path: object, _mode: object, flags: object) -> None:
    if isinstance(flags, int) and flags & _WRITES:
        raise Refused("files are not written here")
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if isinstance(path, str) and not os.path.realpath(path).startswith(_roots()):
        raise Refused("files are not read here")


def _roots() -> tuple[str, ...]:
    """Not all of where Python is: people keep settings beside it."""
    places = {f"{prefix}/{name}" for prefix in (sys.prefix, sys.base_prefix) for name in ("lib", "lib64")}
    own = {os.path.realpath(folder) + os.sep for folder in places}
    here = {os.path.realpath(folder) + os.sep for folder in sys.path if folder.endswith(("-packages", ".zip"))}
    return (*_READABLE, *own, *here)


_inside = threading.local()
_installing = threading.Lock()
_is_installed = False


def _hook(event: str, args: tuple[Any, ...]) -> None:
    watch: Watch | None = getattr(_inside, "watch", None)
    if watch is not None:
        watch.judge(event, args)


_start_of = threading.Thread.start


def _start(thread: threading.Thread) -> None:
    """As it was, but not inside a guarded call: nobody would guard it. Python 3.11 tells no hook of threads."""
    if is_guarded():
        raise Refused("other threads are not begun here")
    _start_of(thread)


_sleep_of = time.sleep


def _sleep(seconds: float, /) -> None:
    """As it was, but inside a guarded call not beyond its end: a server may say how long to wait."""
    watch = watching()
    if watch is not None and seconds > watch.left_s():
        raise Refused("there is no time left to wait")
    _sleep_of(seconds)


def install() -> None:
    """Once in a process, however often it is called."""
    global _is_installed
    with _installing:
        if not _is_installed:
            sys.addaudithook(_hook)
            threading.Thread.start = _start  # type: ignore[assignment, method-assign]
            time.sleep = _sleep  # type: ignore[assignment]
            _is_installed = True


@contextlib.contextmanager
def guarded(watch: Watch) -> Iterator[None]:
    """Within, this thread keeps to the rules."""
    install()
    _inside.watch = watch
    try:
        yield
    finally:
        _inside.watch = None


def watching() -> Watch | None:
    """The guarded call that this thread is inside of."""
    return getattr(_inside, "watch", None)


def is_guarded() -> bool:
    return watching() is not None
