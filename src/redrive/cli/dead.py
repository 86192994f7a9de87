"""`redrive dead`: the dead letters of an org, and what a person does with them."""

import json
import sys
from typing import Annotated
from uuid import UUID

import typer

from redrive.api import broker_shapes
from redrive.cli import shapes
from redrive.cli.bulk import Action, Bulk, act_on, filter_of, order_of
from redrive.cli.connect import open_desk
from redrive.cli.options import AsJson, Because, Id, LetterFilter, Limit, Where, command
from redrive.cli.output import Column, cell, emit, facts, note_rest, say, table
from redrive.cli.runner import Refused, run
from redrive.core.dead_letter_lists import empty_text
from redrive.store.clock import DatabaseClock
from redrive.store.counters import count_of
from redrive.store.db import Session
from redrive.store.dead_letters import DeadLetterFilter, get_dead_letter, list_dead_letters
from redrive.store.dead_messages import get_dead_message
from redrive.store.logs import list_task_attempts
from redrive.store.paging import Page
from redrive.store.pausing import held_of_org

app = typer.Typer(no_args_is_help=True, help="Dead letters: list, show, retry, resolve, ignore, reopen, delete.")

Ids = Annotated[list[UUID] | None, typer.Argument(help="Ids of dead letters.", show_default=False)]
All = Annotated[bool, typer.Option("--all", help="All that the filter matches, instead of ids.")]
YesAll = Annotated[bool, typer.Option("--yes-all", help="Really all of the org, where --all has no filter.")]
COLUMNS = (
    Column("id"),
    Column("event type", gives_way=True),
    Column("system", gives_way=True),
    Column("retries"),
    Column("reason"),
    Column("category"),
    Column("failed"),
    Column("error", gives_way=True),
)
ATTEMPT_COLUMNS = (
    Column("try"),
    Column("generation"),
    Column("result"),
    Column("status"),
    Column("category"),
    Column("started"),
    Column("took"),
    Column("error", gives_way=True),
)


@command(app, "list")
def list_(where: Where, chosen: LetterFilter, limit: Limit = 50, as_json: AsJson = False) -> None:
    """List dead letters, newest first."""

    async def work() -> bool:
        async with open_desk(where) as desk, desk.session() as session:
            page = await _first(session, await filter_of(session, chosen), limit)
            waiting, held = await count_of(session, "retrying"), await held_of_org(session, DatabaseClock())
        found = [shapes.dead_letter(row) for row in page.rows]
        if as_json:
            for letter in found:
                emit(letter)
            return True
        empty = empty_text(is_filtered=chosen != LetterFilter(), waiting=waiting, held=held)
        table(COLUMNS, [_cells(letter) for letter in found], empty=empty)
        note_rest(page, len(found))
        return True

    run(work)


async def _first(session: Session, chosen: DeadLetterFilter, limit: int) -> Page:
    """The newest ones. A page may be short and yet have a next one: where what matches is far apart."""
    page = await list_dead_letters(session, chosen, limit=limit, after=None)
    while len(page.rows) < limit and page.next_key is not None:
        following = await list_dead_letters(session, chosen, limit=limit - len(page.rows), after=page.next_key)
        page = Page([*page.rows, *following.rows], following.next_key, page.total)
    return page


@command(app, "show")
def show(where: Where, letter_id: Id, as_json: AsJson = False) -> None:
    """Show a dead letter: why it died, every attempt, and its payload without secrets."""

    async def work() -> bool:
        async with open_desk(where) as desk, desk.session() as session:
            row = await get_dead_letter(session, letter_id)
            if row is None:
                raise Refused(f"There is no dead letter {letter_id} in this org. It may have been deleted.")
            attempts = await list_task_attempts(session, letter_id)
            in_broker = broker_shapes.message(await get_dead_message(session, row))
        shape = shapes.dead_letter_detail(row, attempts) | {"broker": in_broker}
        if as_json:
            emit(shape)
            return True
        facts({name: value for name, value in shape.items() if name not in _APART})
        for name in ("replay", "resolution"):
            part = shape[name]
            if isinstance(part, dict) and part["at"] is not None:
                said = "  ".join(f"{key} {cell(value)}" for key, value in part.items() if value is not None)
                say(f"{name}  {said}")
        if in_broker is not None:
            say("")
            facts({name: value for name, value in in_broker.items() if name not in _NESTED})
            say(json.dumps({name: in_broker[name] for name in _NESTED}, indent=2))
        say("")
        show_attempts([shapes.attempt(one) for one in attempts])
        say("")
        say(json.dumps(shape["payload_snapshot"], indent=2))
        return True

    run(work)


_NESTED = ("properties", "deaths", "details")
_APART = {"log_id", "replay", "resolution", "payload_snapshot", "attempts", "broker"}


@command(app, "retry")
def retry(
    where: Where,
    chosen: LetterFilter,
    ids: Ids = None,
    every: All = False,
    yes_all: YesAll = False,
    now: Annotated[bool, typer.Option("--now", help="Try at once, not after the policy's first delay.")] = False,
    order: Annotated[
        str | None,
        typer.Option(
            "--order",
            help="Of those in a lane: in_place, or tail. Else in its place while the lane is halted, or tail.",
        ),
    ] = None,
    because: Because = None,
    as_json: AsJson = False,
) -> None:
    """Redrive: try again with the policy's full retries. A new failure goes back to the retry queue."""

    async def work() -> bool:
        how = Bulk(Action.RETRY, ids or [], chosen, every, yes_all, because, at_once=now, order=order_of(order))
        return await act_on(where, how, as_json)

    run(work)


def _mark(action: Action, words: str) -> None:
    """The command of an action that needs nothing but which letters, and why. `words`: its help."""

    def mark(
        where: Where,
        chosen: LetterFilter,
        ids: Ids = None,
        every: All = False,
        yes_all: YesAll = False,
        because: Because = None,
        as_json: AsJson = False,
    ) -> None:
        run(lambda: act_on(where, Bulk(action, ids or [], chosen, every, yes_all, because), as_json))

    mark.__doc__ = words
    command(app, action.name.lower())(mark)


_mark(Action.RESOLVE, "Mark as resolved: it was dealt with elsewhere.")
_mark(Action.IGNORE, "Mark as ignored: it need not be dealt with.")
_mark(Action.REOPEN, "Open again what was resolved or ignored by mistake: ids, or --all with --state.")


@command(app, "delete")
def delete(
    where: Where,
    chosen: LetterFilter,
    ids: Ids = None,
    every: All = False,
    yes_all: YesAll = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    because: Because = None,
    as_json: AsJson = False,
) -> None:
    """Delete dead letters. Their logs and an entry in the audit stay."""

    async def work() -> bool:
        if not yes:
            if not sys.stdin.isatty():
                raise Refused("Deleting is for good. Say that it is meant with --yes.")
            typer.confirm("Permanently delete?", abort=True, err=True)
        return await act_on(where, Bulk(Action.DELETE, ids or [], chosen, every, yes_all, because), as_json)

    run(work)


def show_attempts(attempts: list[shapes.Shape]) -> None:
    table(ATTEMPT_COLUMNS, [_attempt_cells(one) for one in attempts], empty="No try was made.")


def _attempt_cells(one: shapes.Shape) -> list[object]:
    took = None if one["duration_ms"] is None else f"{one['duration_ms']} ms"
    return [
        one["number"],
        one["generation"],
        one["result"],
        one["status_code"],
        one["category"],
        one["started_at"],
        took,
        one["error_message"],
    ]


def _cells(letter: shapes.Shape) -> list[object]:
    most = letter["max_retries"]
    return [
        letter["id"],
        letter["event_type"],
        letter["external_system"],
        f"{letter['retry_count']} / {'∞' if most is None else most}",
        "not retried" if letter["reason"] == "permanent" else letter["reason"],
        letter["category"],
        letter["failed_at"],
        letter["error_message"],
    ]
