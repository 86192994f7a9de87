"""One action on many dead letters: those named by their ids, or all that a filter matches.

Each letter is a transaction of its own, audited: what was done stays done when the command is stopped. Called by
`redrive dead`.
"""

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import assert_never, get_args
from uuid import UUID

import asyncpg
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from redrive.cli.connect import Desk, act_of, open_desk
from redrive.cli.lookup import find_endpoint, require_one_of
from redrive.cli.options import LetterFilter, Where
from redrive.cli.output import emit, note
from redrive.cli.runner import Refused, WrongUsage
from redrive.core.dead_letter_lists import KINDS
from redrive.core.decide import Reason
from redrive.core.lifecycle import DeadLetterState
from redrive.core.outcome import Category
from redrive.store import dead_letters
from redrive.store.audit import Act
from redrive.store.clock import DatabaseClock
from redrive.store.db import Session
from redrive.store.dead_letters import DeadLetterFilter, Order
from redrive.store.paging import MAX_PAGE_ROWS, Page
from redrive.store.retry_queue import Refusal

AT_ONCE = 4  # letters worked on side by side
MAX_SHOWN_REFUSALS = 20
DEADLOCK_TRIES = 5


class Action(Enum):
    RETRY = "redriven"
    RESOLVE = "resolved"
    IGNORE = "ignored"
    DELETE = "deleted"
    REOPEN = "reopened"


@dataclass(frozen=True, slots=True)
class Bulk:
    """What is to be done with which letters."""

    action: Action
    ids: Sequence[UUID]
    chosen: LetterFilter
    every: bool
    yes_all: bool
    because: str | None
    at_once: bool = False
    order: Order | None = None


@dataclass(slots=True)
class _Tally:
    done: int = 0
    refused: int = 0


def order_of(given: str | None) -> Order | None:
    """Where in its lane a letter is to go, as the store takes it."""
    places: tuple[Order, ...] = get_args(Order)
    require_one_of("place in a lane", given, places)
    return next((place for place in places if place == given), None)


async def filter_of(session: Session, chosen: LetterFilter) -> DeadLetterFilter:
    """The filter as the store takes it; words that it does not know are refused."""
    require_one_of("state", chosen.state, (state.value for state in DeadLetterState))
    require_one_of("kind", chosen.kind, KINDS)
    require_one_of("reason", chosen.reason, (reason.value for reason in Reason))
    require_one_of("category", chosen.category, (category.value for category in Category))
    endpoint = await find_endpoint(session, chosen.endpoint) if chosen.endpoint is not None else None
    return DeadLetterFilter(
        state=chosen.state,
        kind=chosen.kind,
        event_type=chosen.event_type,
        external_system=chosen.external_system,
        endpoint_id=endpoint["id"] if endpoint else None,
        reason=chosen.reason,
        category=chosen.category,
        fingerprint=chosen.fingerprint,
        since=chosen.since,
        until=chosen.until,
        q=chosen.q,
        event_id=chosen.event,
        correlation_id=chosen.correlation,
    )


async def act_on(where: Where, bulk: Bulk, as_json: bool) -> bool:
    """Carry it out; whether every letter could be acted on."""
    _refuse_doubtful(bulk)
    async with open_desk(where, size=AT_ONCE) as desk:
        tally = _Tally()
        async with desk.session() as session:
            chosen = await filter_of(session, bulk.chosen)
            total = (await _page(session, chosen, 1, None)).total if bulk.every else len(bulk.ids)
        with _progress(as_json) as progress:
            bar = progress.add_task(bulk.action.value, total=total)
            async for ids in _batches(desk, bulk, chosen):
                await _act_on_batch(desk, bulk, ids, tally, as_json)
                progress.advance(bar, len(ids))
    if not as_json:
        note(f"{tally.done} {bulk.action.value}" + (f", {tally.refused} refused." if tally.refused else "."))
    return tally.refused == 0


def _refuse_doubtful(bulk: Bulk) -> None:
    if bulk.ids and bulk.every:
        raise WrongUsage("Give either ids or --all, not both.")
    if not bulk.ids and not bulk.every:
        raise WrongUsage("Give the ids of dead letters, or --all with a filter.")
    if bulk.every and bulk.action is Action.REOPEN and bulk.chosen.state == DeadLetterState.OPEN:
        raise WrongUsage(
            "Those that are open need no reopening: --state resolved or --state ignored says which are meant."
        )
    if bulk.ids and bulk.chosen != LetterFilter():
        raise WrongUsage("A filter needs --all and cannot be combined with ids.")
    if bulk.every and bulk.chosen == LetterFilter(state=bulk.chosen.state) and not bulk.yes_all:
        raise Refused(
            f"--all without a filter means every {bulk.chosen.state} dead letter of the org. Narrow it down "
            "(--event-type, --endpoint, --since …), or say that it is meant with --yes-all."
        )


def _progress(as_json: bool) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=as_json or not sys.stderr.isatty(),
    )


async def _batches(desk: Desk, bulk: Bulk, chosen: DeadLetterFilter) -> AsyncIterator[Sequence[UUID]]:
    """Ids in batches. Pages follow the order of death, newest first, so that one which dies again is not met again."""
    if not bulk.every:
        for start in range(0, len(bulk.ids), MAX_PAGE_ROWS):
            yield bulk.ids[start : start + MAX_PAGE_ROWS]
        return
    after: Sequence[object] | None = None
    while True:
        async with desk.session() as session:
            page = await _page(session, chosen, MAX_PAGE_ROWS, after)
        if page.rows:
            yield [row["id"] for row in page.rows]
        if page.next_key is None:
            return
        after = page.next_key


async def _page(session: Session, chosen: DeadLetterFilter, limit: int, after: Sequence[object] | None) -> Page:
    return await dead_letters.list_dead_letters(session, chosen, limit=limit, after=after)


async def _act_on_batch(desk: Desk, bulk: Bulk, ids: Sequence[UUID], tally: _Tally, as_json: bool) -> None:
    act = act_of(bulk.because)
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(letter_id: UUID) -> None:
        async with slots:
            refusal = await _patiently(desk, bulk, letter_id, act)
        why = explained(letter_id, refusal) if refusal else None
        tally.done += why is None
        tally.refused += why is not None
        if as_json:
            emit({"id": letter_id, "done": why is None, "problem": why})
        elif why and tally.refused <= MAX_SHOWN_REFUSALS:
            note(why)

    await asyncio.gather(*(one(letter_id) for letter_id in ids))


async def _patiently(desk: Desk, bulk: Bulk, letter_id: UUID, act: Act) -> Refusal | None:
    """Act in a transaction. One that met a worker's in a ring is broken off by the server: once more, then."""
    for tries_left in reversed(range(DEADLOCK_TRIES)):
        try:
            async with desk.session() as session:
                return await _act_on_one(session, bulk, letter_id, act)
        except asyncpg.DeadlockDetectedError:
            if not tries_left:
                raise
    raise AssertionError("unreachable")


async def _act_on_one(session: Session, bulk: Bulk, letter_id: UUID, act: Act) -> Refusal | None:
    match bulk.action:
        case Action.RETRY:
            refusal = await _redrive(session, bulk, letter_id, act, bulk.order)
            if refusal is Refusal.NO_LANE and bulk.every:  # of many, the order is for those that have one
                refusal = await _redrive(session, bulk, letter_id, act, None)
            return refusal
        case Action.RESOLVE | Action.IGNORE | Action.DELETE | Action.REOPEN:
            return await dead_letters.mark(session, letter_id, bulk.action.name.lower(), act)
    assert_never(bulk.action)


async def _redrive(session: Session, bulk: Bulk, letter_id: UUID, act: Act, order: Order | None) -> Refusal | None:
    return await dead_letters.redrive(
        session,
        letter_id,
        act,
        DatabaseClock(),
        roll=random.random(),  # noqa: S311  # jitter, not a secret
        at_once=bulk.at_once,
        order=order,
    )


def explained(letter_id: UUID, refusal: Refusal) -> str:
    match refusal:
        case Refusal.UNKNOWN:
            return f"{letter_id}: there is no such dead letter in this org. It may have been deleted."
        case Refusal.IN_PROGRESS:
            return f"{letter_id}: it is being retried. Wait for the outcome, then try again."
        case Refusal.HELD:
            return f"{letter_id}: it is held. `redrive stats` and `redrive endpoints list` tell what is paused."
        case Refusal.REPLAYING:
            return f"{letter_id}: it is being replayed already. Wait for the outcome, then try again."
        case Refusal.NOT_OPEN:
            return f"{letter_id}: it is not open any more: it was retried or resolved. `redrive dead show` tells."
        case Refusal.NO_LANE:
            return f"{letter_id}: it is in no lane. Leave --order out."
        case Refusal.BEHIND:
            return (
                f"{letter_id}: it waits behind others of its lane. `redrive endpoints lanes` tells which comes first."
            )
        case Refusal.RESOLVED:
            return f"{letter_id}: it is resolved already."
        case Refusal.RUN_UNDER_WAY:
            return f"{letter_id}: another step of its run is under way. `redrive runs show` tells which."
        case Refusal.OF_RUN:
            return f"{letter_id}: it belongs to a run, and is kept as long as that is."
    assert_never(refusal)
