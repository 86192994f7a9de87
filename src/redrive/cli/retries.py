"""`redrive retries`: the retry queue of an org, and what a person does with its entries."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

import asyncpg
import typer

from redrive.api import shapes
from redrive.cli.bulk import AT_ONCE, DEADLOCK_TRIES, MAX_SHOWN_REFUSALS
from redrive.cli.bulk import explained as explained_of_letter
from redrive.cli.connect import Desk, act_of, open_desk
from redrive.cli.lookup import find_endpoint, require_one_of
from redrive.cli.options import AsJson, Because, Limit, Where, command
from redrive.cli.output import Column, emit, note, note_rest, table
from redrive.cli.runner import Refused, WrongUsage, run
from redrive.core.outcome import Category
from redrive.store import retry_queue
from redrive.store.audit import Act
from redrive.store.clock import Clock, DatabaseClock
from redrive.store.db import Session
from redrive.store.paging import MAX_PAGE_ROWS, Page
from redrive.store.retry_queue import Refusal, RetryQueueFilter

app = typer.Typer(no_args_is_help=True, help="The retry queue: list, retry, skip.")

Ids = Annotated[list[UUID] | None, typer.Argument(help="Ids of entries.", show_default=False)]
All = Annotated[bool, typer.Option("--all", help="All that the filter matches, instead of ids.")]
YesAll = Annotated[bool, typer.Option("--yes-all", help="Confirm that --all without a filter means the whole org.")]
Action = Callable[[Session, UUID, Act, Clock], Awaitable[Refusal | None]]
STATUSES = ("pending", "in_progress")
COLUMNS = (
    Column("id"),
    Column("event type", gives_way=True),
    Column("system", gives_way=True),
    Column("status"),
    Column("retries"),
    Column("next retry"),
    Column("error", gives_way=True),
)


@dataclass(frozen=True, slots=True)
class EntryFilter:
    """Which entries."""

    status: Annotated[str | None, typer.Option("--status", help="pending or in_progress.")] = None
    event_type: Annotated[str | None, typer.Option("--event-type", help="Of this type; * stands for anything.")] = None
    external_system: Annotated[str | None, typer.Option("--external-system", help="For this system.")] = None
    endpoint: Annotated[str | None, typer.Option("--endpoint", help="For this endpoint: its id or its name.")] = None
    category: Annotated[str | None, typer.Option("--category", help="Class of the last error, like timeout.")] = None
    q: Annotated[str | None, typer.Option("--q", help="The error or the event type holds this text.")] = None


@command(app, "list")
def list_(where: Where, chosen: EntryFilter, limit: Limit = 50, as_json: AsJson = False) -> None:
    """List what failed and will be tried again, soonest next retry first."""

    async def work() -> bool:
        async with open_desk(where) as desk, desk.session() as session:
            page = await _page(session, await _filter_of(session, chosen), limit, None)
        found = [shapes.entry(row) for row in page.rows]
        if as_json:
            for entry in found:
                emit(entry)
            return True
        empty = "The retry queue is empty." if chosen == EntryFilter() else "No entries match this filter."
        table(COLUMNS, [_cells(entry) for entry in found], empty=empty)
        note_rest(page, len(found))
        return True

    run(work)


@command(app, "retry")
def retry(
    where: Where,
    chosen: EntryFilter,
    ids: Ids = None,
    every: All = False,
    yes_all: YesAll = False,
    because: Because = None,
    as_json: AsJson = False,
) -> None:
    """Retry now, also under a policy that never retries by itself."""
    _act(where, chosen, ids, every, yes_all, because, as_json, retry_queue.retry_now, "due now")


@command(app, "skip")
def skip(
    where: Where,
    chosen: EntryFilter,
    ids: Ids = None,
    every: All = False,
    yes_all: YesAll = False,
    because: Because = None,
    as_json: AsJson = False,
) -> None:
    """Skip retries: entries become dead letters with the reason skipped."""
    _act(where, chosen, ids, every, yes_all, because, as_json, retry_queue.skip, "skipped")


def _act(
    where: Where,
    chosen: EntryFilter,
    ids: Sequence[UUID] | None,
    every: bool,
    yes_all: bool,
    because: str | None,
    as_json: bool,
    action: Action,
    done_word: str,
) -> None:
    async def work() -> bool:
        _refuse_doubtful(chosen, ids, every, yes_all)
        act = act_of(because)
        async with open_desk(where, size=AT_ONCE) as desk:
            wanted = list(ids or ())
            if every:
                async with desk.session() as session:
                    filter_ = await _filter_of(session, chosen)
                wanted = [task_id async for task_id in _matching(desk, filter_)]
            slots = asyncio.Semaphore(AT_ONCE)

            async def one(task_id: UUID) -> str | None:
                async with slots:
                    refusal = await _patiently(desk, task_id, act, action)
                why = None if refusal is None else explained(task_id, refusal)
                if as_json:
                    emit({"id": task_id, "done": why is None, "problem": why})
                return why

            refused = [why for why in await asyncio.gather(*map(one, wanted)) if why is not None]
        if not as_json:
            for why in refused[:MAX_SHOWN_REFUSALS]:
                note(why)
            rest = f", {len(refused)} refused." if refused else "."
            note(f"{len(wanted) - len(refused)} {done_word}{rest}")
        return not refused

    run(work, level="critical")  # that an entry failed for good is what was asked for


def _refuse_doubtful(chosen: EntryFilter, ids: Sequence[UUID] | None, every: bool, yes_all: bool) -> None:
    if ids and every:
        raise WrongUsage("Give either ids or --all, not both.")
    if not ids and not every:
        raise WrongUsage("Give the ids of entries, or --all with a filter.")
    if ids and chosen != EntryFilter():
        raise WrongUsage("A filter needs --all and cannot be combined with ids.")
    if every and chosen == EntryFilter() and not yes_all:
        raise Refused(
            "--all without a filter means the whole retry queue of the org. Narrow it down (--event-type, --endpoint), "
            "or confirm with --yes-all."
        )


async def _filter_of(session: Session, chosen: EntryFilter) -> RetryQueueFilter:
    require_one_of("status", chosen.status, STATUSES)
    require_one_of("category", chosen.category, (category.value for category in Category))
    endpoint = await find_endpoint(session, chosen.endpoint) if chosen.endpoint is not None else None
    return RetryQueueFilter(
        status=chosen.status,
        event_type=chosen.event_type,
        external_system=chosen.external_system,
        endpoint_id=endpoint["id"] if endpoint else None,
        category=chosen.category,
        q=chosen.q,
    )


async def _page(session: Session, chosen: RetryQueueFilter, limit: int, after: Sequence[object] | None) -> Page:
    """A full page where there are enough: with a filter the store's may be short and yet have a next one."""
    page = await retry_queue.list_retry_queue(session, chosen, limit=limit, after=after)
    while len(page.rows) < limit and page.next_key is not None:
        more = await retry_queue.list_retry_queue(session, chosen, limit=limit - len(page.rows), after=page.next_key)
        page = Page([*page.rows, *more.rows], more.next_key, page.total)
    return page


async def _matching(desk: Desk, chosen: RetryQueueFilter) -> AsyncIterator[UUID]:
    """All ids, before anything is done: a retry moves its entry in the order of the list."""
    after: Sequence[object] | None = None
    while True:
        async with desk.session() as session:
            page = await _page(session, chosen, MAX_PAGE_ROWS, after)
        for row in page.rows:
            yield row["id"]
        if page.next_key is None:
            return
        after = page.next_key


async def _patiently(desk: Desk, task_id: UUID, act: Act, action: Action) -> Refusal | None:
    """Act in a transaction of its own, again where it met a worker's in a deadlock."""
    for tries_left in reversed(range(DEADLOCK_TRIES)):
        try:
            async with desk.session() as session:
                return await action(session, task_id, act, DatabaseClock())
        except asyncpg.DeadlockDetectedError:
            if not tries_left:
                raise
    raise AssertionError("unreachable")


def explained(task_id: UUID, refusal: Refusal) -> str:
    match refusal:
        case Refusal.UNKNOWN:
            return f"{task_id}: there is no such entry in the retry queue of this org."
        case Refusal.NOT_OPEN:
            return f"{task_id}: it is finished, or a dead letter: `redrive dead retry` redrives those."
    return explained_of_letter(task_id, refusal)


def _cells(entry: shapes.Shape) -> list[object]:
    most = entry["max_retries"]
    return [
        entry["id"],
        entry["event_type"],
        entry["external_system"],
        "held" if entry["held"] else entry["status"],
        f"{entry['retry_count']} / {'∞' if most is None else most}",
        entry["next_retry_at"],
        entry["error_message"],
    ]
