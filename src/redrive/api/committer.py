"""Events that arrive together share one commit. An answer follows its commit, never precedes it.

While a commit is under way the next batch gathers by itself: no added wait when idle. Called by front_door; writes
through store.events.accept as the engine's role.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from uuid import UUID

import structlog

from redrive.api.outage import OUTAGES, is_bad_row, is_full, reason_of
from redrive.api.problems import unavailable
from redrive.observe import lines, traces
from redrive.observe.process_metrics import COMMIT_EVENTS, COMMIT_SECONDS
from redrive.observe.traces import Attributes, Entry
from redrive.store.clock import Clock
from redrive.store.db import Database
from redrive.store.events import NewEvent, Receipt, accept
from redrive.store.transitions import accepted

MAX_COMMIT_EVENTS = 1_000
MAX_COMMIT_BYTES = 4 * 1024 * 1024
MAX_COMMITS_IN_FLIGHT = 2
# Fewer events wait for the commit under way, since two small commits cost more than one; but not if it is stuck.
SECOND_COMMIT_FROM_EVENTS = 16
SECOND_COMMIT_AFTER_S = 0.05
MAX_WAITING_EVENTS = 10_000
MAX_WAITING_BYTES = 64 * 1024 * 1024
COMMIT_TIMEOUT_S = 15.0
RETRY_FOR_S = 3.0
FIRST_PAUSE_S = 0.05
DRAIN_S = 5.0
EVENT_OVERHEAD_BYTES = 512  # what an event weighs in memory besides its payload

UNSTORABLE = Receipt("unstorable", None)

_NO_ENTRIES: Mapping[UUID, Entry] = MappingProxyType({})

Told = Callable[[list[Receipt] | Exception], None]

log = structlog.get_logger("redrive.api")


@dataclass(slots=True)
class _Waiting:
    """One request's events, and whom to tell their receipts, or why there are none."""

    events: Sequence[NewEvent]
    size_bytes: int
    alone: bool
    tell: Told
    entries: Mapping[UUID, Entry]  # of events that are traced


class Committer:
    def __init__(self, db: Database, clock: Clock) -> None:
        self._db = db
        self._clock = clock
        self._queue: deque[_Waiting] = deque()
        self._queued_events = 0
        self._held_events = 0
        self._held_bytes = 0
        self._commits: set[asyncio.Task[None]] = set()
        self._scheduled = False
        self._started_at = 0.0
        self._later: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def held_events(self) -> int:
        return self._held_events

    @property
    def is_full(self) -> bool:
        return self._closed or self._held_events >= MAX_WAITING_EVENTS or self._held_bytes >= MAX_WAITING_BYTES

    def commit(
        self,
        events: Sequence[NewEvent],
        *,
        alone: bool = False,
        entries: Mapping[UUID, Entry] | None = None,
    ) -> asyncio.Future[list[Receipt]]:
        """Receipts in the order given, once they are durable. `alone`: a commit of their own, not shared.

        Problem 503 where too much waits already: nothing was taken in.
        """
        done: asyncio.Future[list[Receipt]] = asyncio.get_running_loop().create_future()
        self.hand_in(events, partial(_settle, done), alone=alone, entries=entries)
        return done

    def hand_in(
        self,
        events: Sequence[NewEvent],
        tell: Told,
        *,
        alone: bool = False,
        entries: Mapping[UUID, Entry] | None = None,
    ) -> None:
        """As commit(), for whoever would rather be called than wait: a future costs as much as the call it ends in."""
        if self.is_full:
            raise unavailable(
                "The service is shutting down." if self._closed else "More events wait than are taken in. Try again."
            )
        size_bytes = sum([len(event.body) + len(event.headers or "") for event in events]) + EVENT_OVERHEAD_BYTES * len(
            events
        )
        self._queue.append(_Waiting(events, size_bytes, alone, tell, entries or _NO_ENTRIES))
        self._queued_events += len(events)
        self._held_events += len(events)
        self._held_bytes += size_bytes
        if not self._scheduled:
            # Not at once: requests that are being read in this turn of the loop come along.
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._start)

    async def close(self) -> None:
        """Take nothing more in, finish what waits, within DRAIN_S; what is left is refused."""
        self._closed = True
        if self._later is not None:
            self._later.cancel()
        deadline = asyncio.get_running_loop().time() + DRAIN_S
        while self._commits or self._queue:
            left_s = deadline - asyncio.get_running_loop().time()
            if left_s <= 0:
                break
            self._start()
            await asyncio.wait(self._commits, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        # The queue first: a commit that ends would start the next one.
        while self._queue:
            self._refuse([self._queue.popleft()], unavailable("The service is shutting down."))
        for commit in self._commits:
            commit.cancel()
        await asyncio.gather(*self._commits, return_exceptions=True)

    def _start(self) -> None:
        self._scheduled = False
        loop = asyncio.get_running_loop()
        while self._queue and len(self._commits) < MAX_COMMITS_IN_FLIGHT:
            if self._should_wait(loop):
                return
            self._started_at = loop.time()
            commit = loop.create_task(self._commit(self._next_batch()))
            self._commits.add(commit)
            commit.add_done_callback(self._ended)

    def _should_wait(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether what waits goes with the next commit rather than beside the one under way."""
        if not self._commits or self._closed or self._queued_events >= SECOND_COMMIT_FROM_EVENTS:
            return False
        if loop.time() >= self._started_at + SECOND_COMMIT_AFTER_S:
            return False
        if self._later is None:
            self._later = loop.call_at(self._started_at + SECOND_COMMIT_AFTER_S, self._look_again)
        return True

    def _look_again(self) -> None:
        self._later = None
        self._start()

    def _ended(self, commit: asyncio.Task[None]) -> None:
        self._commits.discard(commit)
        self._start()

    def _next_batch(self) -> list[_Waiting]:
        batch = [self._queue.popleft()]
        count, size_bytes = len(batch[0].events), batch[0].size_bytes
        while self._queue and not batch[0].alone:
            following = self._queue[0]
            count += len(following.events)
            size_bytes += following.size_bytes
            if following.alone or count > MAX_COMMIT_EVENTS or size_bytes > MAX_COMMIT_BYTES:
                break
            batch.append(self._queue.popleft())
        self._queued_events -= sum(len(waiting.events) for waiting in batch)
        return batch

    async def _commit(self, batch: list[_Waiting]) -> None:
        began = time.monotonic()
        try:
            receipts = await self._receipts([event for waiting in batch for event in waiting.events])
        except asyncio.CancelledError:
            self._refuse(batch, unavailable("The service is shutting down."))
            raise
        except Exception as error:  # noqa: BLE001 (handed to every request that waits for this commit)
            self._refuse(batch, error)
            return
        COMMIT_SECONDS.note(time.monotonic() - began)
        COMMIT_EVENTS.note(len(receipts))
        start = 0
        for waiting in batch:
            end = start + len(waiting.events)
            _tell(waiting, receipts[start:end])
            if waiting.entries:
                _note_entries(waiting, receipts[start:end])
            start = end
        self._let_go(batch)
        if lines.are_wanted():  # those who wait come first
            _log_accepted(batch, receipts)

    async def _receipts(self, events: list[NewEvent]) -> list[Receipt]:
        # In the order of ids: two commits that share some never wait for each other in a ring.
        order = sorted(range(len(events)), key=lambda place: events[place].id.int)
        in_order = [events[place] for place in order]
        try:
            answers = await self._accept(in_order, order)
        except Exception as error:
            if not is_bad_row(error):
                raise
            answers = await self._one_by_one(events, order)
        receipts = [UNSTORABLE] * len(events)
        for place, answer in zip(order, answers, strict=True):
            receipts[place] = answer
        return receipts

    async def _one_by_one(self, events: Sequence[NewEvent], order: Sequence[int]) -> list[Receipt]:
        """A row that the database refuses must not take the others with it. As they came; answered in `order`."""
        receipts = [UNSTORABLE] * len(events)
        for place, event in enumerate(events):
            try:
                (receipts[place],) = await self._accept([event], [0])
            except Exception as error:
                if not is_bad_row(error):
                    raise
                log.warning("event_unstorable", error_type=type(error).__name__, event_id=str(event.id))
        return [receipts[place] for place in order]

    async def _accept(self, events: Sequence[NewEvent], ranks: Sequence[int]) -> list[Receipt]:
        """Store them; when the connection is lost, the same again for a moment: ids make it harmless."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + RETRY_FOR_S
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                async with asyncio.timeout(COMMIT_TIMEOUT_S):
                    return await accept(self._db, events, self._clock, ranks=ranks)
            except OUTAGES as error:
                if is_bad_row(error):
                    raise
                if is_full(error) or loop.time() + pause_s > deadline:
                    log.warning("accept_unavailable", error_type=type(error).__name__, events=len(events))
                    raise unavailable(reason_of(error)) from error
            await asyncio.sleep(pause_s)
            pause_s *= 2

    def _refuse(self, batch: list[_Waiting], error: Exception) -> None:
        for waiting in batch:
            _tell(waiting, error)
        self._let_go(batch)

    def _let_go(self, batch: list[_Waiting]) -> None:
        for waiting in batch:
            self._held_events -= len(waiting.events)
            self._held_bytes -= waiting.size_bytes


def _note_entries(waiting: _Waiting, receipts: Sequence[Receipt]) -> None:
    for event, receipt in zip(waiting.events, receipts, strict=True):
        entry = waiting.entries.get(event.id)
        if entry is not None and receipt.verdict in ("accepted", "duplicate"):
            traces.handed_in(entry, _attributes(event, receipt))


def _attributes(event: NewEvent, receipt: Receipt) -> Attributes:
    told: Attributes = {
        "messaging.system": "redrive",
        "messaging.operation.type": "create",
        "messaging.operation.name": "accept",
        "messaging.message.id": str(event.id),
        "messaging.message.body.size": len(event.body),
        "messaging.message.conversation_id": event.correlation_id or "",
        "redrive.org_id": str(event.org_id),
        "redrive.event_id": str(event.id),
        "redrive.event_type": event.event_type,
        "redrive.verdict": receipt.verdict,
        "redrive.status": receipt.status or "",
    }
    return told


def _log_accepted(batch: Sequence[_Waiting], receipts: Sequence[Receipt]) -> None:
    events = (event for waiting in batch for event in waiting.events)
    lines.say_all("status_transition", accepted(zip(events, receipts, strict=True)))


def _tell(waiting: _Waiting, result: list[Receipt] | Exception) -> None:
    """Nobody's failure to listen keeps the others from hearing."""
    try:
        waiting.tell(result)
    except Exception as error:  # noqa: BLE001 (a bug of one request, while others still wait to be told)
        log.error("receipt_untold", error_type=type(error).__name__)


def _settle(done: asyncio.Future[list[Receipt]], result: list[Receipt] | Exception) -> None:
    if done.done():  # the request may have been cancelled meanwhile
        return
    if isinstance(result, Exception):
        done.set_exception(result)
    else:
        done.set_result(result)
