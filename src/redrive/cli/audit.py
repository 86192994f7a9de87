"""`redrive audit`: who did what to which thing, when, from where and why."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

import msgspec
import typer

from redrive.cli.connect import open_desk
from redrive.cli.options import AsJson, Limit, Where, command, parse_end, parse_when
from redrive.cli.output import Column, emit, table
from redrive.cli.runner import run
from redrive.store.audit import AuditFilter, list_audit
from redrive.store.db import Record

COLUMNS = [Column(title) for title in ("at", "actor", "action", "subject", "because")]


def add_to(app: typer.Typer) -> None:
    command(app, "audit")(audit)


def audit(
    where: Where,
    actor: Annotated[str | None, typer.Option("--actor", help="By this one, like key:<id>.")] = None,
    action: Annotated[str | None, typer.Option("--action", help="This action, like dead_letter.retry.")] = None,
    subject: Annotated[UUID | None, typer.Option("--subject", help="To the thing of this id.")] = None,
    since: Annotated[
        datetime | None, typer.Option("--since", parser=parse_when, metavar="TIME", help="Then or later; 2h, 7d: ago.")
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option("--until", parser=parse_end, metavar="TIME", help="Before then; a date includes that day."),
    ] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List the audit of an org, newest first."""

    async def work() -> bool:
        chosen = AuditFilter(actor=actor, action=action, subject_id=subject, since=since, until=until)
        async with open_desk(where) as desk, desk.session() as session:
            found = (await list_audit(session, chosen, limit=limit, after=None)).rows
        if as_json:
            for row in found:
                emit(_shape(row))
            return True
        cells = [
            [row["at"], row["actor"], row["action"], row["subject_id"] or row["subject_kind"], row["because"]]
            for row in found
        ]
        table(COLUMNS, cells, empty="Nothing was done that this asks for.")
        return True

    run(work)


def _shape(row: Record) -> dict[str, object]:
    documents = {
        name: msgspec.json.decode(row[name]) if row[name] is not None else None for name in ("before", "after")
    }
    return {**dict(row), **documents}
