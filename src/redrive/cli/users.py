"""`redrive users`: the members of an org. Passwords are asked for, or read from stdin: never an argument."""

import sys
from typing import Annotated

import typer

from redrive.cli import shapes
from redrive.cli.connect import Desk, act_of, open_desk
from redrive.cli.lookup import role_of
from redrive.cli.options import AsJson, Where, command
from redrive.cli.output import Column, emit, note, table
from redrive.cli.runner import Refused, WrongUsage, run
from redrive.core.permissions import Role
from redrive.store import users as store
from redrive.store.db import Record
from redrive.store.paging import MAX_PAGE_ROWS
from redrive.store.passwords import MAX_PASSWORD_CHARS, MIN_PASSWORD_CHARS, hash_password
from redrive.store.users import MAX_EMAIL_CHARS, MAX_USER_NAME_CHARS, Refusal, UserChange

app = typer.Typer(no_args_is_help=True, help="Users: add, list, set, remove.")

Email = Annotated[str, typer.Argument(metavar="EMAIL", help="Their e-mail.")]
Password = Annotated[
    bool,
    typer.Option("--password", help="Set a password: asked for, or the first line of stdin if that is no terminal."),
]


@command(app, "add")
def add(
    where: Where,
    email: Email,
    name: Annotated[str, typer.Option("--name", help="What to call them.")],
    role: Annotated[str, typer.Option("--role", help="OWNER, ADMIN, IT_MANAGER, STAFF or VIEWER.")] = "VIEWER",
    password: Password = False,
    as_json: AsJson = False,
) -> None:
    """Make somebody a member of an org. Without a password they sign in by `redrive login-link --email`."""

    async def work() -> bool:
        as_role = role_of(role)
        _check(email, name)
        hashed = await _asked_password() if password else None
        async with open_desk(where) as desk, desk.beyond() as session:
            made = await store.add_user(
                session,
                email=email,
                name=name,
                role=as_role,
                password_hash=hashed,
                by=Role.OWNER,
                act=act_of(),
            )
            return _told(made, as_json, f'is {as_role} of the org "{where.org}"')

    run(work)


@command(app, "list")
def list_(where: Where, as_json: AsJson = False) -> None:
    """List the members of an org."""

    async def work() -> bool:
        found: list[shapes.Shape] = []
        after: tuple[object, ...] | None = None
        async with open_desk(where) as desk, desk.session() as session:
            while True:
                page = await store.list_users(session, limit=MAX_PAGE_ROWS, after=after)
                found += [shapes.user(row) for row in page.rows]
                if page.next_key is None:
                    break
                after = page.next_key
        if as_json:
            for user in found:
                emit(user)
            return True
        names = ("id", "email", "name", "role", "suspended", "last_login_at")
        columns = [Column(title) for title in ("id", "e-mail", "name", "role", "suspended", "last login")]
        table(columns, [[user[name] for name in names] for user in found], empty="There are no users.")
        return True

    run(work)


@command(app, "set")
def set_(
    where: Where,
    email: Email,
    name: Annotated[str | None, typer.Option("--name", help="A new name.")] = None,
    role: Annotated[str | None, typer.Option("--role", help="A new role.")] = None,
    suspend: Annotated[
        bool | None, typer.Option("--suspend/--unsuspend", help="Whether they are kept out.", show_default=False)
    ] = None,
    password: Password = False,
    as_json: AsJson = False,
) -> None:
    """Change a member of an org. A new password ends their sessions."""

    async def work() -> bool:
        as_role = role_of(role) if role is not None else None
        _check(email, name)
        if name is None and as_role is None and suspend is None and not password:
            raise WrongUsage("Nothing to change: give --name, --role, --suspend, --unsuspend or --password.")
        change = UserChange(name, as_role, suspend, await _asked_password() if password else None)
        async with open_desk(where) as desk:
            user = await _found(desk, email)
            async with desk.beyond() as session:
                changed = await store.change_user(session, user["id"], change, by=Role.OWNER, act=act_of())
                return _told(changed, as_json, "is changed")

    run(work)


@command(app, "remove")
def remove(where: Where, email: Email, as_json: AsJson = False) -> None:
    """Take somebody's membership in an org away. The account stays."""

    async def work() -> bool:
        async with open_desk(where) as desk:
            user = await _found(desk, email)
            async with desk.beyond() as session:
                refusal = await store.remove_user(session, user["id"], by=Role.OWNER, act=act_of())
                if refusal is not None:
                    raise Refused(str(refusal))
        if as_json:
            emit({"id": user["id"], "removed": True})
        else:
            note(f'{email} is a member of the org "{where.org}" no longer.')
        return True

    run(work)


def _check(email: str, name: str | None) -> None:
    before, at, after = email.partition("@")
    if not (before and at and after) or len(email) > MAX_EMAIL_CHARS or not email.isprintable() or " " in email:
        raise WrongUsage(f'"{email[:MAX_EMAIL_CHARS]}" is no e-mail address.')
    if name is not None and (not 1 <= len(name) <= MAX_USER_NAME_CHARS or not name.isprintable()):
        raise WrongUsage(f"A name has 1 to {MAX_USER_NAME_CHARS} printable characters.")


async def _asked_password() -> str:
    if sys.stdin.isatty():
        given: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        given = sys.stdin.readline().rstrip("\n")
    if not MIN_PASSWORD_CHARS <= len(given) <= MAX_PASSWORD_CHARS:
        raise WrongUsage(f"A password has {MIN_PASSWORD_CHARS} to {MAX_PASSWORD_CHARS} characters.")
    return await hash_password(given)


async def _found(desk: Desk, email: str) -> Record:
    user = await store.find_user(desk.engine, email)
    if user is None:
        raise Refused(f'There is no user "{email}". `redrive users list` shows those of an org.')
    return user


def _told(made: Record | Refusal, as_json: bool, said: str) -> bool:
    if isinstance(made, Refusal):
        raise Refused(str(made))
    if as_json:
        emit(shapes.user(made))
    else:
        note(f"{made['email']} {said}.")
    return True
