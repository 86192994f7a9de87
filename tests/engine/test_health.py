"""How endpoints do: counted beside the worker, told every few seconds, kept while nobody listens."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from structlog.testing import capture_logs

from redrive.core.outcome import Category, Failure, Outcome, Success
from redrive.core.ports import NO_EXCHANGE, DisabledEndpoint, HealthReport, Job, Released, Settled, Settlement
from redrive.engine import health
from redrive.engine.health import JUDGE_EVERY_S, HealthBook
from redrive.settings import DAY_S
from redrive.store.endpoint_history import Ledger
from redrive.store.orgs import new_id
from redrive.store.tasks import Tasks
from support.engine import START, UNAVAILABLE, Engine, ManualClock, until
from support.receiver import open_receiver

ORG, HOOK = new_id(), new_id()
OK = Success(200)
SHUT = Failure(Category.CONFIGURATION, "The address is private.")


class Book:
    """A ledger that keeps what it was told; fails for as long as `is_away`."""

    def __init__(self) -> None:
        self.is_away = False
        self.calls = 0
        self.told: list[HealthReport] = []
        self.judged: list[float] = []

    async def add(self, reports: Sequence[HealthReport]) -> None:
        self.calls += 1
        if self.is_away:
            raise ConnectionError("the database is away")
        self.told += reports

    async def disable_failing(self, after_s: float) -> list[DisabledEndpoint]:
        self.judged.append(after_s)
        return []


class Seconds:
    """A monotonic clock in the test's hands."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def settled(outcome: Outcome | None, endpoint_id: UUID | None = HOOK, took_s: float = 0.1) -> Settled:
    job = Job(
        *(ORG, new_id(), new_id(), endpoint_id, new_id(), "webhook", "http", "a", 1, 0, 0),
        *(START, 30.0, False, START, None, b"", "application/json"),
    )
    return Settled(Settlement(job, outcome, Released("…"), NO_EXCHANGE, took_s), True, None)


def open_book(ledger: Book, seconds: Seconds, **options: Any) -> HealthBook:
    return HealthBook(ledger, disable_after_s=5 * DAY_S, now=seconds, **options)


async def test_a_report_says_how_tries_went_and_how_long_ago() -> None:
    ledger, seconds = Book(), Seconds()
    book = open_book(ledger, seconds)
    for outcome, took_s in ((UNAVAILABLE, 0.1), (OK, 0.5), (UNAVAILABLE, 0.2), (UNAVAILABLE, 0.2)):
        book.note_settled([settled(outcome, took_s=took_s)])
        seconds.now += 10
    await book.report()
    assert ledger.told == [HealthReport(ORG, HOOK, 1, 3, 1_000, 500, 30.0, 20.0, 10.0, 2)]
    await book.report()
    assert len(ledger.told) == 1  # nothing new


async def test_what_says_nothing_of_an_endpoint_is_not_counted() -> None:
    ledger, seconds = Book(), Seconds()
    book = open_book(ledger, seconds)
    book.note_settled([settled(None), settled(SHUT), settled(OK, endpoint_id=None)])
    await book.report()
    assert ledger.told == []


async def test_what_cannot_be_written_is_kept_and_told_with_what_came_meanwhile() -> None:
    ledger, seconds = Book(), Seconds()
    book = open_book(ledger, seconds)
    ledger.is_away = True
    book.note_settled([settled(OK), settled(UNAVAILABLE)])
    await _fails(book)
    seconds.now += 5
    book.note_settled([settled(UNAVAILABLE, took_s=0.3)])
    await _fails(book)
    ledger.is_away = False
    seconds.now += 5
    await book.report()
    assert ledger.told == [HealthReport(ORG, HOOK, 1, 2, 500, 300, 10.0, 10.0, 5.0, 2)]


async def test_a_success_that_came_meanwhile_ends_the_failures_that_were_kept() -> None:
    ledger, seconds = Book(), Seconds()
    book = open_book(ledger, seconds)
    ledger.is_away = True
    book.note_settled([settled(UNAVAILABLE)])
    await _fails(book)
    seconds.now += 5
    book.note_settled([settled(OK)])
    ledger.is_away = False
    await book.report()
    assert ledger.told == [HealthReport(ORG, HOOK, 1, 1, 200, 100, 0.0, None, 5.0, 0)]


async def test_there_is_an_end_to_what_is_kept_and_to_what_is_told_at_once() -> None:
    ledger, seconds = Book(), Seconds()
    book = open_book(ledger, seconds)
    endpoints = [new_id() for _ in range(health.MAX_ENDPOINTS + 10)]
    book.note_settled([settled(OK, endpoint_id=id) for id in endpoints[: health.MAX_ENDPOINTS]])
    ledger.is_away = True
    await _fails(book)
    book.note_settled([settled(OK, endpoint_id=id) for id in endpoints])  # known ones, and ten too many
    ledger.is_away = False
    ledger.calls = 0
    await book.report()
    assert len(ledger.told) == health.MAX_ENDPOINTS
    assert ledger.calls == -(-health.MAX_ENDPOINTS // health.MAX_REPORTS)
    assert {report.succeeded for report in ledger.told} == {2}


async def test_a_database_that_is_away_is_told_once_and_ends_nothing() -> None:
    ledger, seconds = Book(), Seconds()
    ledger.is_away = True
    book = open_book(ledger, seconds, every_s=0.001)
    book.note_settled([settled(OK)])
    with capture_logs() as lines:
        running = asyncio.create_task(book.run())

        async def tried_often() -> bool:
            return ledger.calls >= 5

        await until(tried_often)
        ledger.is_away = False

        async def told() -> bool:
            return bool(ledger.told)

        await until(told)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert [line["event"] for line in lines] == ["health_report_failed"]


async def test_endpoints_are_judged_once_a_minute_and_never_where_that_is_set() -> None:
    ledger, seconds = Book(), Seconds()
    book = open_book(ledger, seconds)
    for _ in range(3):
        await book.judge()
        seconds.now += JUDGE_EVERY_S / 2
    assert ledger.judged == [5 * DAY_S] * 2
    await HealthBook(ledger, disable_after_s=None, now=seconds).judge()
    assert len(ledger.judged) == 2


async def test_a_shutdown_tells_the_rest_and_does_not_wait_for_a_database_that_is_away() -> None:
    ledger, seconds = Book(), Seconds()
    book = open_book(ledger, seconds)
    book.note_settled([settled(OK)])
    ledger.is_away = True
    with capture_logs() as lines:
        await book.close()
    assert [line["event"] for line in lines] == ["health_report_failed"]
    ledger.is_away = False
    await book.close()
    assert [report.succeeded for report in ledger.told] == [1]


async def _fails(book: HealthBook) -> None:
    try:
        await book.report()
    except ConnectionError:
        return
    raise AssertionError("it was written")


# -- with a worker -----------------------------------------------------------------------------------------------------


class NotedTasks(Tasks):
    """What is settled is noted, as the worker does."""

    book: HealthBook

    async def settle(self, settlements: Sequence[Settlement], worker_id: UUID | None = None) -> list[Settled]:
        answers = await super().settle(settlements, worker_id)
        self.book.note_settled(answers)
        return answers


@asynccontextmanager
async def noted(engine: Engine, clock: ManualClock) -> AsyncIterator[tuple[HealthBook, NotedTasks]]:
    """A book whose seconds are the clock's."""
    book = HealthBook(
        Ledger(engine.db, engine.clock),
        disable_after_s=5 * DAY_S,
        now=lambda: (clock.now() - START).total_seconds(),
    )
    tasks = NotedTasks(engine.db, engine.clock)
    tasks.book = book
    yield book, tasks


async def test_an_endpoint_that_fails_for_days_is_disabled_and_nothing_of_it_is_lost(
    engine: Engine, clock: ManualClock
) -> None:
    await engine.policy("patient", kind="list", delays_s=[6 * 3_600], max_retries=1_000)
    async with open_receiver() as receiver, noted(engine, clock) as (book, tasks):
        endpoint_id = await engine.endpoint(url=receiver.url, policy="patient")
        receiver.usual = 503
        events = await engine.accept_many(3)
        for _ in range(5 * 4 + 1):
            await engine.run_until_idle(store=tasks)
            await book.report()
            await book.judge()
            clock.advance(6 * 3_600)
        why = await engine.sql.fetchval("SELECT disabled_reason FROM redrive.endpoint WHERE id = $1", endpoint_id)
        assert why is not None
        assert why.startswith("Nothing but failures since 2031-05-04 12:00 UTC: 63 tries.")
        tries = len(receiver.requests)
        later = await engine.accept_many(2)
        await engine.run_until_idle(store=tasks)
        assert len(receiver.requests) == tries  # held, without a try
        states = await engine.counts("SELECT state, count(*) FROM redrive.task GROUP BY 1")
        assert states == {"held": 5}
        receiver.usual = 200
        await engine.change_endpoint(endpoint_id, disabled=False)
        clock.advance(6 * 3_600)
        await engine.run_until_idle(store=tasks)
        for event_id in (*events, *later):
            assert (await engine.event(event_id))["status"] == "delivered"
        await book.report()
    state = await engine.sql.fetchrow("SELECT * FROM redrive.endpoint_state")
    assert state is not None
    assert (state["failing_since"], state["failures"], state["last_success_at"]) == (None, 0, clock.now())


async def test_an_endpoint_that_is_gone_is_disabled_at_once(engine: Engine, clock: ManualClock) -> None:
    async with open_receiver() as receiver, noted(engine, clock) as (book, tasks):
        endpoint_id = await engine.endpoint(url=receiver.url)
        receiver.usual = 410
        await engine.accept()
        await engine.run_until_idle(store=tasks)
        await book.report()
        await book.judge()
    why = await engine.sql.fetch("SELECT because FROM redrive.audit WHERE subject_id = $1 ORDER BY id", endpoint_id)
    assert [row["because"] for row in why][1:] == ["It answered 410 Gone."]
