"""A worker says that it is there for as long as it works, whatever becomes of the database."""

import asyncio
import os
from uuid import UUID

from pydantic import SecretStr
from structlog.testing import capture_logs

from redrive.app import run_worker
from redrive.core.ports import WorkerCard
from redrive.engine.heartbeat import HEARTBEAT_S, Heartbeat
from redrive.settings import Settings
from redrive.store.orgs import new_id
from redrive.store.workers import SILENT_AFTER_S, last_seen
from redrive.version import __version__
from support.engine import Engine, until

CARD = WorkerCard(new_id(), "here", 1, "1.2.3", ("http",), 1)


class Book:
    """Fails for as long as `is_away`; counts what was tried."""

    def __init__(self) -> None:
        self.is_away = False
        self.beats = 0
        self.left: list[UUID] = []

    async def beat(self, card: WorkerCard) -> None:
        self.beats += 1
        if self.is_away:
            raise ConnectionError("the database is away")

    async def leave(self, worker_id: UUID) -> None:
        if self.is_away:
            raise ConnectionError("the database is away")
        self.left.append(worker_id)


async def beats(book: Book, more: int) -> None:
    wanted = book.beats + more

    async def enough() -> bool:
        return book.beats >= wanted

    await until(enough)


async def test_a_worker_is_there_from_its_start_until_it_has_drained(live: Engine) -> None:
    stop = asyncio.Event()
    settings = Settings(secret_key=SecretStr("a key of the tests"), concurrency=7)
    running = asyncio.create_task(run_worker(settings, live.url, stop))
    try:
        await live.until("SELECT count(*) = 1 FROM redrive.worker")
        seen = await last_seen(live.app, live.clock)
        assert seen is not None
        assert (seen.pid, seen.version, seen.queues, seen.concurrency) == (
            os.getpid(),
            __version__,
            ("apprise", "http", "notice.apprise", "notice.http", "step", "step.http"),
            7,
        )
        assert not seen.is_silent
        await live.until("SELECT count(*) = 8 FROM redrive.job WHERE left_at IS NULL")
    finally:
        stop.set()
        await running
    assert await live.sql.fetchval("SELECT count(*) FROM redrive.worker") == 0
    assert await live.sql.fetchval("SELECT count(*) FROM redrive.job WHERE left_at IS NULL") == 0


async def test_beats_that_fail_end_nothing_and_are_told_once_in_a_row() -> None:
    book = Book()
    with capture_logs() as logged:
        beating = asyncio.create_task(Heartbeat(book, CARD, every_s=0).run())
        await beats(book, 2)
        for _ in range(2):
            book.is_away = True
            await beats(book, 5)
            book.is_away = False
            await beats(book, 2)
        assert not beating.done()
        beating.cancel()
        await asyncio.wait([beating])
    assert [line["event"] for line in logged] == ["heartbeat_failed"] * 2


async def test_leaving_is_tried_and_not_insisted_on() -> None:
    book = Book()
    await Heartbeat(book, CARD).leave()
    assert book.left == [CARD.worker_id]
    book.is_away = True
    with capture_logs() as logged:
        await Heartbeat(book, CARD).leave()
    assert [line["event"] for line in logged] == ["heartbeat_failed"]


def test_a_worker_may_miss_some_beats_before_it_counts_as_silent() -> None:
    assert SILENT_AFTER_S >= 4 * HEARTBEAT_S
