"""`redrive keys`: API keys of an org. A key is shown once, when it is made."""

from datetime import datetime
from typing import Annotated

import typer

from redrive.cli import shapes
from redrive.cli.connect import act_of, open_desk
from redrive.cli.lookup import find_endpoint, require_one_of, role_of
from redrive.cli.options import AsJson, Id, Where, command, parse_time
from redrive.cli.output import Column, emit, note, say, table
from redrive.cli.runner import Refused, WrongUsage, run
from redrive.core.permissions import Scope
from redrive.store import keys as store
from redrive.store.paging import MAX_PAGE_ROWS

MAX_NAME_CHARS = 100

app = typer.Typer(no_args_is_help=True, help="API keys: make, list, revoke.")


@command(app, "create")
def create(
    where: Where,
    name: Annotated[str, typer.Option("--name", help="Whose key it is, or what for.")],
    role: Annotated[str, typer.Option("--role", help="OWNER, ADMIN, IT_MANAGER, STAFF or VIEWER.")] = "ADMIN",
    scope: Annotated[str | None, typer.Option("--scope", help="Limit it to one thing: produce, read or relay.")] = None,
    endpoint: Annotated[
        str | None,
        typer.Option("--endpoint", help="With --scope relay: for the hubs of this relay only."),
    ] = None,
    expires: Annotated[
        datetime | None, typer.Option("--expires", parser=parse_time, metavar="TIME", help="When it ends to be valid.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a key and show it, this once."""

    async def work() -> bool:
        as_role = role_of(role)
        require_one_of("scope", scope, tuple(Scope))
        if not 1 <= len(name) <= MAX_NAME_CHARS or not name.isprintable():
            raise WrongUsage(f"A key's name has 1 to {MAX_NAME_CHARS} printable characters.")
        limited_to = Scope(scope) if scope is not None else None
        async with open_desk(where) as desk, desk.session() as session:
            endpoint_id = (await find_endpoint(session, endpoint))["id"] if endpoint is not None else None
            try:
                row, key = await store.create_key(
                    session,
                    name=name,
                    role=as_role,
                    scope=limited_to,
                    expires_at=expires,
                    act=act_of(),
                    endpoint_id=endpoint_id,
                )
            except store.TooManyKeys as enough:
                raise Refused(str(enough)) from None
            except store.BadHubKey as bad:
                raise WrongUsage(f"--{bad.field.removesuffix('_id')} {bad}.") from None
        if as_json:
            emit(shapes.key(row) | {"key": key})
        else:
            say(key)
            note(f'This is key {row["id"]}, {as_role} of the org "{where.org}". It is not stored and not shown again.')
        return True

    run(work)


@command(app, "list")
def list_(where: Where, as_json: AsJson = False) -> None:
    """List the keys of an org, revoked ones included. The keys themselves cannot be shown."""

    async def work() -> bool:
        async with open_desk(where) as desk, desk.session() as session:
            found = [shapes.key(row) for row in (await store.list_keys(session, limit=MAX_PAGE_ROWS)).rows]
        if as_json:
            for key in found:
                emit(key)
            return True
        titles = ("id", "name", "role", "scope", "relay", "key", "created", "expires", "revoked", "last used")
        columns = [Column(title) for title in titles]
        table(columns, [[key[name] for name in shapes.KEY_FIELDS] for key in found], empty="There are no keys.")
        return True

    run(work)


@command(app, "revoke")
def revoke(where: Where, key_id: Id, as_json: AsJson = False) -> None:
    """Revoke a key. A running API stops to take it within 2 seconds."""

    async def work() -> bool:
        async with open_desk(where) as desk, desk.session() as session:
            if not await store.revoke_key(session, key_id, act_of()):
                raise Refused(f"There is no valid key {key_id} in this org. `redrive keys list` shows those there are.")
        if as_json:
            emit({"id": key_id, "revoked": True})
        else:
            note(f"Key {key_id} is revoked.")
        return True

    run(work)
