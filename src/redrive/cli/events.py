"""`redrive events`: what producers handed in, where it stands, and its whole story."""

import json
import sys
from typing import Annotated
from uuid import UUID

import typer

from redrive.cli import shapes
from redrive.cli.connect import open_desk
from redrive.cli.dead import show_attempts
from redrive.cli.history import FOR_A_PERSON, Happening, story_of
from redrive.cli.lookup import require_one_of
from redrive.cli.options import AsJson, Id, Limit, Where, command
from redrive.cli.output import Column, emit, facts, note, say, table, writing
from redrive.cli.runner import Refused, run
from redrive.core.lifecycle import EventStatus, TaskState
from redrive.store.audit import list_audit_of
from redrive.store.clock import DatabaseClock
from redrive.store.db import Record, Session
from redrive.store.events import (
    get_event,
    get_event_body,
    get_event_status,
    list_event_attempts,
    list_event_tasks,
    list_events,
)
from redrive.store.pausing import holds_of

app = typer.Typer(no_args_is_help=True, help="Events: list, show, attempts, history.")

COLUMNS = tuple(Column(title) for title in ("event id", "status", "event type", "received", "delivered", "failed"))


@command(app, "list")
def list_(
    where: Where,
    status: Annotated[str | None, typer.Option("--status", help="received, queued, delivered or failed.")] = None,
    event_type: Annotated[str | None, typer.Option("--event-type", help="Of this event type.")] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List events, newest first."""

    async def work() -> bool:
        require_one_of("status", status, (known.value for known in EventStatus))
        async with open_desk(where) as desk, desk.session() as session:
            page = await list_events(session, status=status, event_type=event_type, limit=limit, after=None)
        if as_json:
            for row in page.rows:
                emit(shapes.event(row))
            return True
        names = ("id", "status", "event_type", "received_at", "delivered_at", "failed_at")
        table(COLUMNS, [[row[name] for name in names] for row in page.rows], empty="There are no such events.")
        if page.next_key is not None:
            note(f"The newest {limit} are shown. --limit shows more, a filter fewer.")
        return True

    run(work)


@command(app, "show")
def show(
    where: Where,
    event_id: Id,
    payload: Annotated[bool, typer.Option("--payload", help="The payload alone, byte for byte.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show where an event stands, and its payload without secrets."""

    async def work() -> bool:
        async with open_desk(where) as desk, desk.session() as session:
            row = await _event(session, event_id)
            status = await get_event_status(session, event_id)
            body = await get_event_body(session, event_id) if payload else b""
        assert status is not None
        if payload:
            with writing():
                sys.stdout.buffer.write(body)
                sys.stdout.buffer.flush()
            return True
        shape = shapes.event_detail(row, status)
        if as_json:
            emit(shape)
            return True
        facts({name: value for name, value in shape.items() if name != "payload_snapshot"})
        say("")
        say(json.dumps(shape["payload_snapshot"], indent=2))
        return True

    run(work)


@command(app, "attempts")
def attempts(where: Where, event_id: Id, as_json: AsJson = False) -> None:
    """Show every try of every task of an event, oldest first."""

    async def work() -> bool:
        async with open_desk(where) as desk, desk.session() as session:
            await _event(session, event_id)
            found = [shapes.attempt(row) for row in await list_event_attempts(session, event_id)]
        if as_json:
            for one in found:
                emit(one)
        else:
            show_attempts(found)
        return True

    run(work)


@command(app, "history")
def history(where: Where, event_id: Id, as_json: AsJson = False) -> None:
    """Tell the whole story of an event, in the order of time."""

    async def work() -> bool:
        async with open_desk(where) as desk, desk.session() as session:
            story = await _story(session, event_id)
        if as_json:
            for happening in story:
                emit(happening)
            return True
        columns = [Column("at"), Column("what"), Column("task"), Column("details", gives_way=True)]
        rows = [[happening.at, happening.what, happening.task_id, _said(happening)] for happening in story]
        table(columns, rows, empty="Nothing is known of it.")
        if any(happening.what == FOR_A_PERSON for happening in story):
            note(
                "What waits for a person is retried on the page /integrations/logs/retry-queue, or with "
                "POST /v1/retry-queue/{task}/retry."
            )
        return True

    run(work)


async def _event(session: Session, event_id: UUID) -> Record:
    row = await get_event(session, event_id)
    if row is None:
        raise Refused(f"There is no event {event_id} in this org. `redrive events list` shows those there are.")
    return row


async def _story(session: Session, event_id: UUID) -> list[Happening]:
    event = await _event(session, event_id)
    tasks = await list_event_tasks(session, event_id)
    tries = await list_event_attempts(session, event_id)
    deeds = await list_audit_of(session, [event_id, *(row["id"] for row in tasks)])
    held = [row["id"] for row in tasks if row["state"] == TaskState.HELD]
    holds = await holds_of(session, held, DatabaseClock())
    return story_of(event, tasks, tries, deeds, {id: hold.shut for id, hold in holds.items()})


def _said(happening: Happening) -> str:
    return "  ".join(f"{name}: {value}" for name, value in happening.details.items() if value is not None)
