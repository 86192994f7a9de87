"""`redrive notices`: what people should hear of."""

from typing import Annotated

import msgspec
import typer

from redrive.cli.connect import open_desk
from redrive.cli.options import AsJson, Limit, Where, command
from redrive.cli.output import Column, emit, table
from redrive.cli.runner import run
from redrive.store.notices import list_notices

COLUMNS = [Column(title) for title in ("at", "kind", "severity", "text")]


def add_to(app: typer.Typer) -> None:
    command(app, "notices")(notices)


def notices(
    where: Where,
    kind: Annotated[str | None, typer.Option("--kind", help="Of this kind, like dead_letter.")] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List the notices of an org, newest first."""

    async def work() -> bool:
        async with open_desk(where) as desk, desk.session() as session:
            found = (await list_notices(session, kind=kind, limit=limit, after=None)).rows
        if as_json:
            for row in found:
                emit({**dict(row), "facts": msgspec.json.decode(row["facts"])})
            return True
        cells = [[row["at"], row["kind"], row["severity"], row["text"]] for row in found]
        table(COLUMNS, cells, empty="There is nothing to tell.")
        return True

    run(work)
