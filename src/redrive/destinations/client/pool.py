"""Keep connections: who may open one, who gets a free one, who waits, which are too old. Opens none itself.

Called by `Client`; connections report back through `released` and `lost`. One pool per event loop.

Reuse is last in, first out, so that surplus connections fall idle and are closed. Requests wait first in,
first out within an origin, and origins take turns when the total is used up: an origin that hangs holds at
most its own share, and what it gives back goes round. A deadline is noticed up to TICK_S late, never early.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from time import monotonic

from .call import Call
from .errors import FailureKind, TransferError
from .protocol import NEVER, Connection

TICK_S = 0.05
IDLE_CHECK_S = 1.0
# A connection used this long ago may have been closed by its peer without our event loop knowing yet.
PEEK_AFTER_S = 0.25
# Old connections are closed between two requests, so that a name that moved is looked up and judged again.
MAX_CONNECTION_AGE_S = 300.0
MAX_WAITING = 10_000
# Close this much before the peer said it would: its clock starts at its answer, ours when it arrives.
KEEP_ALIVE_MARGIN_S = 1.0


@dataclass(frozen=True, slots=True)
class ClientStats:
    """Connections and requests right now; `open` counts idle ones, those in use and those being opened."""

    open: int
    idle: int
    in_use: int
    waiting: int


class Origin:
    """The connections to one destination, and the requests that wait for one."""

    __slots__ = ("idle", "key", "open", "waiters")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.open = 0
        self.idle: list[Connection] = []
        self.waiters: OrderedDict[Call, None] = OrderedDict()


class Pool:
    """All connections of one client. Every open or opening connection holds one slot of its origin."""

    def __init__(
        self,
        *,
        max_connections: int,
        max_per_origin: int,
        idle_s: float,
        opener: Callable[[Call, Origin], None],
    ) -> None:
        self._max_connections = max_connections
        self._max_per_origin = max_per_origin
        self._idle_s = idle_s
        self._opener = opener
        self._origins: dict[Hashable, Origin] = {}
        self._connections: set[Connection] = set()
        self._freed: list[Connection] = []
        self._open = 0
        self._waiting = 0
        self._numbers = 0
        # Origins below their own limit whose requests wait for the total; each takes its turn.
        self._starved: OrderedDict[Origin, None] = OrderedDict()
        self._dials: dict[asyncio.Timeout, float] = {}
        self._ticker: asyncio.TimerHandle | None = None
        self._idle_check_at = 0.0

    def stats(self) -> ClientStats:
        idle = sum(len(origin.idle) for origin in self._origins.values())
        return ClientStats(open=self._open, idle=idle, in_use=self._open - idle, waiting=self._waiting)

    def take(self, key: Hashable, now: float) -> Connection | None:
        """An idle connection that is open as far as this machine knows, or None."""
        origin = self._origins.get(key)
        if origin is None:
            return None
        idle = origin.idle
        while idle:
            connection = idle.pop()
            connection.parked = False
            rested_s = now - connection.idle_since
            if rested_s < PEEK_AFTER_S or (rested_s < self._idle_limit_s(connection) and connection.is_quiet()):
                return connection
            connection.drop()
        return None

    def enter(self, call: Call, key: Hashable) -> None:
        """Give the call a slot to open a connection in, or a place in the queue.

        The opener has the duty to `adopt` a new connection or to `free` the slot. Raises TransferError when too many
        wait.
        """
        origin = self._origins.get(key)
        if origin is None:
            origin = self._origins[key] = Origin(key)
        if not origin.waiters and origin.open < self._max_per_origin and self._has_room():
            self._reserve(origin)
            self._opener(call, origin)
        elif self._waiting >= MAX_WAITING:
            self._tidy(origin)
            raise TransferError(FailureKind.BUSY, "too many requests wait for a connection", sent=False)
        else:
            self._queue(call, origin)

    def leave(self, call: Call) -> None:
        """A call that waited was cancelled."""
        if call in call.origin.waiters:
            self._take_out(call)
            self._tidy(call.origin)

    def adopt(self, connection: Connection) -> None:
        """A connection was opened in a slot got from `enter`."""
        self._connections.add(connection)
        self._keep_ticking()

    def watch(self, timeout: asyncio.Timeout, deadline: float) -> None:
        """End this timeout at the deadline. A timer of its own could end it early: uvloop counts from the
        time at which its current turn began, which a busy loop leaves well behind.
        """
        self._dials[timeout] = deadline
        self._keep_ticking()

    def unwatch(self, timeout: asyncio.Timeout) -> None:
        self._dials.pop(timeout, None)

    def free(self, origin: Origin) -> None:
        """A slot is no longer used: its connection is gone or never came to be."""
        origin.open -= 1
        self._open -= 1
        if origin.waiters:
            self._starved.setdefault(origin)  # below its own limit now, so only the total can hold it up
        while self._starved and self._open < self._max_connections:
            self._grant_slot(next(iter(self._starved)))
        self._tidy(origin)

    def released(self, connection: Connection) -> None:
        if not connection.place.waiters and not self._starved:
            self._hand_on(connection, monotonic())
            return
        # Who waits gets it in the next turn of the loop: a call cancelled in this one must not be sent.
        self._freed.append(connection)
        if len(self._freed) == 1:
            asyncio.get_running_loop().call_soon(self._hand_out)

    def lost(self, connection: Connection) -> None:
        if connection not in self._connections:
            return
        self._connections.remove(connection)
        origin = connection.place
        if connection.parked:
            connection.parked = False
            origin.idle.remove(connection)
        self.free(origin)

    def close(self) -> None:
        """Fail whoever waits, close every connection."""
        for origin in list(self._origins.values()):
            while (call := self._next_waiter(origin)) is not None:
                call.end(TransferError(FailureKind.CLOSED, "the client was closed", sent=False))
        self._expire_dials(NEVER)
        for connection in list(self._connections):
            connection.fail_closed()
        if self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None

    # Turns

    def _hand_out(self) -> None:
        freed, self._freed = self._freed, []
        now = monotonic()
        for connection in freed:
            if not connection.closed:
                self._hand_on(connection, now)

    def _hand_on(self, connection: Connection, now: float) -> None:
        origin = connection.place
        if self._starved and not self._is_first_in_line(origin):
            connection.drop()  # its slot goes to the origin whose turn it is
        elif now - connection.opened_at > MAX_CONNECTION_AGE_S:
            connection.drop()
        elif (call := self._next_waiter(origin)) is not None:
            connection.start(call, now)
        else:
            connection.idle_since = now
            connection.parked = True
            origin.idle.append(connection)

    def _queue(self, call: Call, origin: Origin) -> None:
        self._numbers += 1
        call.number = self._numbers
        call.origin = origin
        call.waits_in = self
        origin.waiters[call] = None
        self._waiting += 1
        if origin.open < self._max_per_origin:
            self._starved.setdefault(origin)
        self._keep_ticking()

    def _has_room(self) -> bool:
        if self._open < self._max_connections:
            return True
        if self._starved:
            return False
        return self._close_longest_idle()

    def _close_longest_idle(self) -> bool:
        oldest = min(
            (origin.idle[0] for origin in self._origins.values() if origin.idle),
            key=lambda connection: connection.idle_since,
            default=None,
        )
        if oldest is None:
            return False
        oldest.drop()
        return True

    def _reserve(self, origin: Origin) -> None:
        origin.open += 1
        self._open += 1

    def _grant_slot(self, origin: Origin) -> None:
        call = self._next_waiter(origin)
        if call is None:
            return
        self._reserve(origin)
        self._opener(call, origin)
        if origin in self._starved:
            if origin.open < self._max_per_origin:
                self._starved.move_to_end(origin)
            else:
                del self._starved[origin]

    def _is_first_in_line(self, origin: Origin) -> bool:
        if not origin.waiters:
            return False
        other = next(iter(self._starved))
        return next(iter(origin.waiters)).number <= next(iter(other.waiters)).number

    def _next_waiter(self, origin: Origin) -> Call | None:
        while origin.waiters:
            call = next(iter(origin.waiters))
            self._take_out(call)
            if not call.unwanted:
                return call
        return None

    def _take_out(self, call: Call) -> None:
        origin = call.origin
        del origin.waiters[call]
        self._waiting -= 1
        if not origin.waiters:
            self._starved.pop(origin, None)

    def _tidy(self, origin: Origin) -> None:
        if not origin.open and not origin.waiters:
            self._origins.pop(origin.key, None)

    # Time

    def _keep_ticking(self) -> None:
        if self._ticker is None:
            self._ticker = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        """One timer for all deadlines: one per request would cost more than the look at each connection."""
        self._ticker = None
        now = monotonic()
        for connection in [each for each in self._connections if each.deadline <= now]:
            if connection.deadline <= now:  # still: the end of another one may have cancelled this one
                connection.expire()
        if self._dials:
            self._expire_dials(now)
        if self._waiting:
            self._expire_waiters(now)
        if now >= self._idle_check_at:
            self._idle_check_at = now + IDLE_CHECK_S
            self._close_idle(now)
        if self._connections or self._waiting or self._dials:
            self._keep_ticking()

    def _expire_dials(self, now: float) -> None:
        at_once = asyncio.get_running_loop().time()
        for timeout, deadline in self._dials.items():
            if deadline <= now and not timeout.expired():
                timeout.reschedule(at_once)

    def _expire_waiters(self, now: float) -> None:
        late = [call for origin in self._origins.values() for call in origin.waiters if call.deadline <= now]
        for call in late:
            if call not in call.origin.waiters:
                continue  # the end of another one cancelled it
            self._take_out(call)
            self._tidy(call.origin)
            call.end(TransferError(FailureKind.BUSY, "no connection became free before the deadline", sent=False))

    def _close_idle(self, now: float) -> None:
        parked = [each for origin in self._origins.values() for each in origin.idle]
        for connection in parked:
            if now - connection.idle_since >= self._idle_limit_s(connection):
                connection.drop()

    def _idle_limit_s(self, connection: Connection) -> float:
        promised_s = connection.keep_alive_s
        if promised_s is None:
            return self._idle_s
        return min(self._idle_s, max(promised_s - KEEP_ALIVE_MARGIN_S, promised_s / 2))
