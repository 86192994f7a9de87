"""Messages for a broker that dies now and then, and what became of each.

`Producers` publish until it is confirmed, whatever happens meanwhile, and remember it. `Tries` reads what the consumers
(support.obedient) wrote down; `lost` says what has neither succeeded nor died when the broker is empty (`settled`).
"""

import asyncio
import contextlib
import json
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import aiormq
from aiormq.abc import AbstractChannel
from pamqp.commands import Basic

from support.obedient import DELAYS_S, QUEUE
from support.processes import Program, program, until
from support.rabbitmq import RabbitServer

CALLERS = 4
CONFIRM_WITHIN_S = 10.0
PAUSE_S = 0.01
PAUSE_AFTER_TROUBLE_S = 0.05
ALWAYS = 1_000_000
END_WITHIN_S = 60.0
LOOK_EVERY_S = 0.1
DEAD_QUEUE = f"{QUEUE}-dlq"
TESTS = Path(__file__).parents[1]

Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Order:
    """A message, and what must become of it. `fails`: how many tries, before one succeeds."""

    id: str
    body: bytes
    fails: int
    death: tuple[str, str] | None  # reason and category

    @property
    def tries(self) -> int:
        """Those that reach the handler."""
        if self.death == ("permanent", "validation"):
            return min(self.fails, 1)
        return min(self.fails, len(DELAYS_S)) + 1


def orders(name: str, count: int, dice: random.Random) -> list[Order]:
    """Some succeed at once, some after failures, and some never, for every reason. `name` is in each id."""
    made = []
    for n in range(count):
        roll, id = dice.random(), f"{name}-{n}"
        if roll < 0.05:
            made.append(Order(id, dice.randbytes(40) + b"\xff{", 0, ("permanent", "validation")))
        elif roll < 0.10:
            made.append(_order(id, ALWAYS, "validation", ("permanent", "validation")))
        elif roll < 0.15:
            made.append(_order(id, ALWAYS, "transient", ("exhausted", "network")))
        else:
            made.append(_order(id, dice.choice((0, 0, 0, 0, 1, 2, 3)), "transient", None))
    return made


def _order(id: str, fails: int, error: str, death: tuple[str, str] | None) -> Order:
    return Order(id, json.dumps({"id": id, "fails": fails, "error": error}).encode(), fails, death)


class Producers:
    """`confirmed`: what the broker has taken. `doubtful`: ids that it may have taken twice."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = urls
        self.confirmed: dict[str, Order] = {}
        self.doubtful: set[str] = set()
        self.publishing: list[asyncio.Task[None]] = []
        self._allowed = 0

    async def go_on(self, more: int, *, within_s: float = 60.0) -> None:
        """Publish so many more. Half of them are confirmed when this returns, the others while the caller goes on."""
        goal = self._allowed + more // 2
        self._allowed += more
        await until(
            lambda: len(self.confirmed) >= goal or all(task.done() for task in self.publishing),
            within_s=within_s,
            why=lambda: f"{len(self.confirmed)} of {goal} confirmed, {len(self.doubtful)} doubtful",
        )

    def finish(self) -> None:
        """Publish all that are left."""
        self._allowed = ALWAYS

    async def publish(self, left: Iterator[Order]) -> None:
        waiting: Order | None = next(left, None)
        while waiting is not None:
            try:
                async with asyncio.timeout(CONFIRM_WITHIN_S):
                    connection = await aiormq.connect(random.choice(self._urls))
                async with connection:
                    channel = await connection.channel()
                    await self._allowance()
                    while waiting is not None:
                        await self._publish(channel, waiting)
                        waiting = next(left, None)
                        await self._allowance()
            except (Exception, asyncio.CancelledError):
                # The library cancels what waits for a connection that ends.
                this = asyncio.current_task()
                if this is not None and this.cancelling():
                    raise
                await asyncio.sleep(PAUSE_AFTER_TROUBLE_S)

    async def _allowance(self) -> None:
        while len(self.confirmed) >= self._allowed:
            await asyncio.sleep(PAUSE_S)

    async def _publish(self, channel: AbstractChannel, order: Order) -> None:
        if order.id in self.confirmed:
            return
        properties = Basic.Properties(message_id=order.id, content_type="application/json", delivery_mode=2)
        try:
            await channel.basic_publish(
                order.body, routing_key=QUEUE, properties=properties, mandatory=True, timeout=CONFIRM_WITHIN_S
            )
        except BaseException:
            self.doubtful.add(order.id)
            raise
        self.confirmed[order.id] = order


@asynccontextmanager
async def producing(urls: Sequence[str], made: Iterable[Order]) -> AsyncIterator[Producers]:
    """Producers at work; the block ends when all is confirmed."""
    producers, left = Producers(urls), iter(made)
    producers.publishing = [asyncio.create_task(producers.publish(left)) for _ in range(CALLERS)]
    try:
        yield producers
        producers.finish()
        await asyncio.gather(*producers.publishing)
    finally:
        for task in producers.publishing:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*producers.publishing, return_exceptions=True)


class Try(NamedTuple):
    attempt: int
    has_effect: bool
    at: float


class Tries:
    """What the handlers wrote down, in the order of the file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._read = 0
        self.by_id: dict[str, list[Try]] = {}
        file.touch()

    def look(self) -> "Tries":
        with self.file.open("rb") as opened:
            opened.seek(self._read)
            news = opened.read()
        whole = news[: news.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.decode().splitlines():
            id, attempt, has_effect, at = line.split()
            self.by_id.setdefault(id, []).append(Try(int(attempt), has_effect == "1", float(at)))
        return self

    def count(self) -> int:
        return sum(len(tries) for tries in self.look().by_id.values())

    def succeeded(self) -> set[str]:
        return {id for id, tries in self.look().by_id.items() if any(one.has_effect for one in tries)}

    def effects(self) -> Counter[str]:
        return Counter({id: sum(one.has_effect for one in tries) for id, tries in self.look().by_id.items()})

    def unexplained(self, kills: Sequence[Span], doubtful: set[str]) -> dict[str, list[Try]]:
        """Those that were tried twice for the same attempt, and no kill fell between the try before and the second.

        Before a first attempt there is none: a kill while a message is moved to the suspects leaves two, untried.
        """
        return {
            id: tries
            for id, tries in self.look().by_id.items()
            if id not in doubtful and not _is_explained(sorted(tries, key=lambda one: one.at), kills)
        }


def _is_explained(tries: Sequence[Try], kills: Sequence[Span]) -> bool:
    """Only its first twin is asked for: from there on it is two messages."""
    seen: dict[int, float] = {}
    for one in tries:
        if one.attempt in seen:
            since = seen.get(one.attempt - 1, 0.0)
            return any(since <= ended and began <= one.at for began, ended in kills)
        seen[one.attempt] = one.at
    return True


@asynccontextmanager
async def consumer(urls: Sequence[str], tries: Path, build: Mapping[str, str], *options: str) -> AsyncIterator[Program]:
    """`redrive consume`, at work."""
    env = {"REDRIVE_RABBITMQ_URL": ",".join(urls), "TRIES": str(tries), **build}
    async with program("consume", "--app", "support.obedient:app", *options, env=env, cwd=TESTS) as running:
        await running.said("consumer_started", within_s=60)
        yield running


async def settled(rabbitmq: RabbitServer, vhost: str, *, but: str | None = None) -> None:
    """Wait until no queue, but one, has a message any more: what has not ended by then never will."""
    left: dict[str, int] = {}
    empty, deadline = 0, time.monotonic() + END_WITHIN_S
    while empty < 2:  # a message may be missed that goes from one queue to another, but not twice
        assert time.monotonic() < deadline, f"not within {END_WITHIN_S} s: {left}"
        await asyncio.sleep(LOOK_EVERY_S)  # who asks is a process of its own, and takes time from those who work
        left = await rabbitmq.totals(vhost)
        assert left.keys() >= {QUEUE, DEAD_QUEUE}
        empty = 0 if any(total for queue, total in left.items() if queue != but) else empty + 1


def lost(made: Sequence[Order], tries: Tries, died: Iterable[str]) -> list[str]:
    ended = tries.succeeded() | set(died)
    return [order.id for order in made if order.id not in ended]
