"""`redrive orgs`: the orgs of an installation. Their limits are set through the API."""

from typing import Annotated

import typer

from redrive.cli import shapes
from redrive.cli.connect import act_of, open_installation
from redrive.cli.options import AsJson, Place, command
from redrive.cli.output import Column, emit, note, say, table
from redrive.cli.runner import Refused, WrongUsage, run
from redrive.core.permissions import Role
from redrive.core.presets import PRESETS
from redrive.store import keys
from redrive.store import orgs as store
from redrive.store.orgs import MAX_ORG_NAME_CHARS, OrgNameTaken
from redrive.store.paging import MAX_PAGE_ROWS

app = typer.Typer(no_args_is_help=True, help="Orgs: create, list.")


@command(app, "create")
def create(place: Place, name: Annotated[str, typer.Argument(help="Its name.")], as_json: AsJson = False) -> None:
    """Make an org with the preset policies, and show the first key of its ADMIN, this once."""

    async def work() -> bool:
        if not 1 <= len(name) <= MAX_ORG_NAME_CHARS or not name.isprintable():
            raise WrongUsage(f"An org's name has 1 to {MAX_ORG_NAME_CHARS} printable characters.")
        act = act_of()
        async with open_installation(place) as engine:
            try:
                async with engine.transaction() as session:
                    org_id = await store.create_org(session, name, PRESETS, act)
                    _, key = await keys.create_key(
                        session.of(org_id), name="first key", role=Role.ADMIN, scope=None, expires_at=None, act=act
                    )
            except OrgNameTaken:
                raise Refused(f'There is an org named "{name}" already.') from None
        if as_json:
            emit({"id": org_id, "name": name, "key": key})
        else:
            say(key)
            note(f'This is the first key of the org "{name}", {org_id}: an ADMIN\'s. It is not shown again.')
        return True

    run(work)


@command(app, "list")
def list_(place: Place, as_json: AsJson = False) -> None:
    """List the orgs, oldest first."""

    async def work() -> bool:
        found: list[shapes.Shape] = []
        after: tuple[object, ...] | None = None
        async with open_installation(place) as engine:
            while True:
                page = await store.list_orgs(engine, only=None, limit=MAX_PAGE_ROWS, after=after)
                found += [shapes.org(row) for row in page.rows]
                if page.next_key is None:
                    break
                after = page.next_key
        if as_json:
            for org in found:
                emit(org)
            return True
        columns = [Column(title) for title in ("id", "name", "created")]
        table(columns, [[org["id"], org["name"], org["created_at"]] for org in found], empty="There are no orgs.")
        return True

    run(work)
